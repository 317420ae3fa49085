//go:build guards

package guards

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	// chunk is how many seeds are played before it is looked whether one has failed, and most how
	// many a guard may take: a part of the standard batch.
	chunk = 20
	most  = 400
)

// TestEachGuardIsNeeded takes out one guard after the other.
func TestEachGuardIsNeeded(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	replay := filepath.Join(t.TempDir(), "replay")
	run(t, root, "go", "run", "./loadtest/sim/replay", replay)
	for _, g := range Guards {
		t.Run(strings.ReplaceAll(g.Name, " ", "-"), func(t *testing.T) {
			sim := build(t, root, replay, g)
			for first := 1; first < most; first += chunk {
				out, err := exec.Command(sim, "-sim.seed", strconv.Itoa(first), "-sim.runs", strconv.Itoa(chunk)).CombinedOutput()
				if err == nil {
					continue
				}
				if !strings.Contains(string(out), "seed ") {
					t.Fatalf("%v: %s", err, out)
				}
				t.Logf("without it, %s: seen within %d seeds", g.What, first-1+chunk)
				return
			}
			t.Errorf("without it, %s: and none of %d seeds fails", g.What, most)
		})
	}
}

// build builds the simulation without a guard.
func build(t *testing.T, root, replay string, g Guard) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(root, g.File)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), g.Old); n != 1 {
		t.Fatalf("%s has the guard %d times, and not once: %q", g.File, n, g.Old)
	}
	without := filepath.Join(dir, filepath.Base(g.File))
	if err := os.WriteFile(without, []byte(strings.Replace(string(text), g.Old, g.New, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{}
	list, err := os.ReadFile(filepath.Join(replay, "overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(list, &overlay); err != nil {
		t.Fatal(err)
	}
	overlay.Replace[file] = without
	if list, err = json.Marshal(overlay); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o644); err != nil {
		t.Fatal(err)
	}
	sim := filepath.Join(dir, "sim")
	run(t, root, "go", "test", "-c", "-tags", "replay", "-overlay", filepath.Join(dir, "overlay.json"), "-o", sim, "./loadtest/sim")
	return sim
}

func run(t *testing.T, dir string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out))
	}
}
