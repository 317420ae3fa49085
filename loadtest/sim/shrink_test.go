package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// needs returns a fake run that fails only if it has certain steps.
func needs(all ...int) func(steps) bool {
	return func(s steps) bool {
		for _, n := range all {
			if !slices.Contains(s, n) {
				return false
			}
		}
		return true
	}
}

func upTo(n int) steps {
	s := make(steps, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func TestShrinkFindsTheStepsThatAreNeeded(t *testing.T) {
	for _, needed := range [][]int{{}, {0}, {99}, {3, 50}, {0, 1, 2, 3}, {7, 33, 34, 98, 99}} {
		for _, width := range []int{1, 2, 7} {
			bad, plays := needs(needed...), 0
			got := shrink(upTo(100), width, func(tries []steps) ([]bool, error) {
				plays += len(tries)
				failed := make([]bool, len(tries))
				for i, s := range tries {
					failed[i] = bad(s)
				}
				return failed, nil
			})
			if got == nil || !slices.Equal(got, needed) {
				t.Errorf("by %d at a time: got %v, want %v", width, got, needed)
			}
			if plays > 250 {
				t.Errorf("by %d at a time: %d plays for %v", width, plays, needed)
			}
		}
	}
}

func TestShrinkReturnsWhatItHasWhenItIsEnded(t *testing.T) {
	plays := 0
	got := shrink(upTo(64), 1, func(tries []steps) ([]bool, error) {
		if plays++; plays > 3 {
			return nil, context.Canceled
		}
		return []bool{needs(60)(tries[0])}, nil
	})
	if len(got) != 16 {
		t.Errorf("got %v", got)
	}
}

func TestASeedIsShrunk(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	bad := needs(2, 40)
	d := &driver{options: options{seed: 9}, name: "sim", out: &out, workers: 2, play: func(_ context.Context, t task) (result, string, error) {
		r := result{Seed: t.seed, Digest: "d"}
		switch {
		case t.keep == nil || bad(t.keep):
			r.Wrong = []string{"I9 shard 3: it is open"}
		case len(t.keep) > 20:
			r.Wrong = []string{"I8 shard 3: another fault"}
		}
		return r, "the trace\n", nil
	}}
	if err := d.smaller(t.Context()); !errors.Is(err, errFailed) {
		t.Fatal(err)
	}
	texts := planOf(9)
	for _, want := range []string{"2 steps are left:\n" + texts[2] + "\n" + texts[40] + "\n", "sim -sim.seed 9 -sim.keep 2,40 -sim.trace"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it doesn't say %q:\n%s", want, out.String())
		}
	}
	_, name, _ := strings.Cut(out.String(), "its trace: ")
	if text, err := os.ReadFile(strings.TrimSpace(name)); string(text) != "the trace\n" {
		t.Errorf("the trace's file has %q, %v", text, err)
	}
}

func TestKindOfWrong(t *testing.T) {
	same := [][2]string{
		{"I9 shard 2: a gap is open", "I9 shard 0 job 7 slot 3: is READY"},
		{"worker worker-1.3 was told of attempt 1", "worker worker-2.11 was told of attempt 3"},
		{"crashed: panic: deadlock: main bubble goroutine is blocked", "crashed: panic: deadlock: main bubble goroutine has exited"},
	}
	for _, s := range same {
		if a, b := kindOfWrong(s[0]), kindOfWrong(s[1]); a != b {
			t.Errorf("%q and %q differ", a, b)
		}
	}
	if a, b := kindOfWrong("I1 shard 1: x"), kindOfWrong("I11 shard 1: x"); a == b {
		t.Errorf("both are %q", a)
	}
}

func TestStepsAsAFlag(t *testing.T) {
	for text, want := range map[string]string{"": "", "none": "none", "5,3, 9": "3,5,9"} {
		var s steps
		if err := s.Set(text); err != nil || s.String() != want {
			t.Errorf("%q becomes %q, %v", text, s.String(), err)
		}
		if (s == nil) != (text == "") {
			t.Errorf("%q: %#v", text, s)
		}
	}
	if err := new(steps).Set("1,x"); err == nil {
		t.Error("x is a step")
	}
}

func TestAPlanIsTheSameEachTime(t *testing.T) {
	if a, b := fmt.Sprint(planOf(3)), fmt.Sprint(planOf(3)); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}
