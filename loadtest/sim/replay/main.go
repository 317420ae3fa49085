// Command replay prepares a build of the simulator in which the Go runtime leaves nothing to chance.
//
// A bubble of testing/synctest has a time of its own, but the runtime still decides at random which
// ready case a select takes, in which order the entries of a map come, and which of the timers
// of one instant is first. Of those three choices, one seed makes the same ones in every run, if the
// build uses changed copies of two files of the runtime, by the -overlay of the go command. With
// GOMAXPROCS=1 and without a collection while a run lasts nothing else is left that differs.
//
//	replay DIR    writes the copies and DIR/overlay.json
//
// It fails if the runtime isn't as it expects: then the changes below are to be looked at anew.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// change replaces a text that must be there once.
type change struct{ file, old, new string }

var changes = []change{
	// Goroutines of a bubble draw one number all the time. A sequence would be moved on by whatever
	// draws besides, such as caches that were filled by an earlier run or were not.
	{"runtime/rand.go", "func rand() uint64 {\n", "func rand() uint64 {\n\tif getg().bubble != nil {\n\t\treturn replayed\n\t}\n"},
	{"runtime/rand.go", "func cheaprand() uint32 {\n", "func cheaprand() uint32 {\n\tif getg().bubble != nil {\n\t\treturn uint32(replayed >> 32)\n\t}\n"},
	{"runtime/rand.go", "// mrandinit initializes", `// Replay sets the number that the goroutines of bubbles draw.
func Replay(n uint64) { replayed = n }

var replayed uint64

// mrandinit initializes`},
	// What is made before the first bubble, such as the seeds of maps, is the same in every process.
	{"runtime/rand.go", "\tglobalRand.state.Init(*seed)\n", "\tclear(seed[:])\n\tglobalRand.state.Init(*seed)\n"},
	// No goroutine is interrupted because it has run for long in real time.
	{"runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000 // 10ms\n", "const forcePreemptNS = 1 << 60\n"},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: replay DIR")
		os.Exit(2)
	}
	if err := prepare(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func prepare(dir string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	texts := map[string]string{}
	for _, c := range changes {
		source := filepath.Join(strings.TrimSpace(string(root)), "src", c.file)
		if _, read := texts[source]; !read {
			text, err := os.ReadFile(source)
			if err != nil {
				return err
			}
			texts[source] = string(text)
		}
		if n := strings.Count(texts[source], c.old); n != 1 {
			return fmt.Errorf("%s has %d times, and not once: %q", source, n, c.old)
		}
		texts[source] = strings.Replace(texts[source], c.old, c.new, 1)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for source, text := range texts {
		copied := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(source, strings.TrimSpace(string(root))+"/src/"), "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return err
		}
		overlay.Replace[source] = copied
	}
	list, err := json.MarshalIndent(overlay, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o644)
}
