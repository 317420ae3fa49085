// Command testgate reads the JSON of `go test -json`, prints what failed and a
// closing line, and fails if a test failed, or, under CI, if one skipped for a
// reason that isn't on the short list here: a skip must not hide a gap.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// allowedSkips are the reasons for which a test may skip under CI.
var allowedSkips = []string{
	"CARILLON_TEST_COCKROACH_URL is not set", // no CockroachDB is at hand; a proxy plays it
	"only root may mount a small disk",       // the store's own test fills a file
	"only root may make network namespaces",  // all that cuts no link runs without
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string
	Elapsed                       float64
}

// key names a test; the test of a package itself is "".
type key struct{ pkg, test string }

// gate sums up a run.
type gate struct {
	passed, failed, skipped int
	output                  map[key][]string
	badSkips                []string
}

func main() {
	g := gate{output: map[key][]string{}}
	if err := g.read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testgate:", err)
		os.Exit(2)
	}
	os.Exit(g.close(os.Stdout, os.Getenv("CI") == "true"))
}

func (g *gate) read(r io.Reader, w io.Writer) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(w, lines.Text()) // not ours: show it
			continue
		}
		g.take(e, w)
	}
	return lines.Err()
}

func (g *gate) take(e event, w io.Writer) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "output":
		g.output[k] = append(g.output[k], e.Output)
	case "build-output":
		fmt.Fprint(w, e.Output)
	case "build-fail":
		g.failed++
	case "pass", "fail", "skip":
		g.end(k, e, w)
	}
}

// end counts a test that ended, and shows its output if it failed.
func (g *gate) end(k key, e event, w io.Writer) {
	text := strings.Join(g.output[k], "")
	delete(g.output, k)
	if k.test == "" {
		fmt.Fprintf(w, "%-5s %6.1fs  %s\n", e.Action, e.Elapsed, k.pkg)
		if e.Action == "fail" {
			fmt.Fprint(w, text)
			g.failed++ // also where the package failed outside of any test
		}
		return
	}
	switch e.Action {
	case "pass":
		g.passed++
	case "fail":
		g.failed++
		fmt.Fprintf(w, "FAIL %s %s\n%s", k.pkg, k.test, text)
	case "skip":
		g.skipped++
		if !slices.ContainsFunc(allowedSkips, func(reason string) bool { return strings.Contains(text, reason) }) {
			g.badSkips = append(g.badSkips, fmt.Sprintf("%s %s: %s", k.pkg, k.test, strings.TrimSpace(text)))
		}
	}
}

// close prints the closing line and returns the exit code.
func (g *gate) close(w io.Writer, ci bool) int {
	code := 0
	if g.failed > 0 {
		code = 1
	}
	for _, s := range g.badSkips {
		fmt.Fprintln(w, "skipped for a reason that is not on the list:", s)
		if ci {
			code = 1
		}
	}
	if g.passed == 0 {
		fmt.Fprintln(w, "no test ran")
		code = 1
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", g.passed, g.failed, g.skipped)
	return code
}
