package carillon_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// The table of transitions in docs/states.md is the one that the program goes by.
func TestTheStatesOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| from | to |\n|---|---|\n")
	if !found {
		t.Fatal("docs/states.md has no table of transitions")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	states := map[string]job.State{"(no slot)": job.StateNone}
	for s := job.Ready; s <= job.Discarded; s++ {
		states[s.String()] = s
	}
	documented := map[job.State][]job.State{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 2 {
			t.Fatalf("a line of the table is %q", line)
		}
		var to []job.State
		for name := range strings.SplitSeq(cells[1], ", ") {
			if s, known := states[name]; known {
				to = append(to, s)
			} else if name != "none" {
				t.Errorf("%q is no state", name)
			}
		}
		for name := range strings.SplitSeq(cells[0], ", ") {
			from, known := states[name]
			if !known {
				t.Errorf("%q is no state", name)
			}
			documented[from] = to
		}
	}
	for _, from := range states {
		to, there := documented[from]
		if !there {
			t.Errorf("%v has no line", from)
		}
		for _, next := range states {
			if says, does := slices.Contains(to, next), from.CanBecome(next); says != does {
				t.Errorf("%v to %v: the documentation says %v, the program %v", from, next, says, does)
			}
		}
	}
}
