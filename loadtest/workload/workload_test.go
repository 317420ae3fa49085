package workload

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What the worker notes is read back as it was, also of attempts that failed.
func TestNotesAreReadBack(t *testing.T) {
	want := []Execution{{1, 2, 3, 4, 5}, {6, 7, 8, 9, 0}}
	file := filepath.Join(t.TempDir(), "notes")
	n := &notes{}
	for _, e := range want {
		n.add(e)
	}
	if err := n.write(file); err != nil {
		t.Fatal(err)
	}
	got, err := ReadNotes(file)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestParametersHaveTheSizeThatWasAskedFor(t *testing.T) {
	for _, size := range []int{0, 40, 1000} {
		for _, fails := range []bool{false, true} {
			p := Params(size, fails)
			if !json.Valid([]byte(p)) || size > 0 && len(p) != size || strings.HasPrefix(p, failing) != fails {
				t.Errorf("%d bytes, fails %v: %s", size, fails, p)
			}
		}
	}
}

func TestWorkThatAJobAsksFor(t *testing.T) {
	for params, want := range map[string]time.Duration{
		ParamsOfWork(12 * time.Second): 12 * time.Second, `{"work":3}`: time.Second, `{"work":"soon"}`: time.Second, "{}": time.Second, "": time.Second,
	} {
		if got := workOf([]byte(params), time.Second); got != want {
			t.Errorf("%s takes %s, want %s", params, got, want)
		}
	}
}
