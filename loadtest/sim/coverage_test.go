package sim

import (
	"slices"
	"testing"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func TestWhatMustHappenIsInOrder(t *testing.T) {
	if !slices.IsSorted(must) || len(slices.Compact(slices.Clone(must))) != len(must) {
		t.Error("it isn't sorted, or has something twice")
	}
}

func TestEachReasonMustHappenOrCannot(t *testing.T) {
	for _, name := range carillonv1.ReasonCode_name {
		if _, never := neverReasons[name]; slices.Contains(must, "reason "+name) == never {
			t.Errorf("%s must happen, or it says why it doesn't: one of both", name)
		}
	}
}

func TestWhatIsUnhit(t *testing.T) {
	coverage := map[string]int{}
	for _, what := range must[2:] {
		coverage[what] = 1
	}
	coverage[must[1]] = 0
	if got := unhit(coverage); !slices.Equal(got, must[:2]) {
		t.Errorf("got %v", got)
	}
}

func TestCoverageIsSummedUp(t *testing.T) {
	sum := newTally()
	for seed := range uint64(3) {
		sum.add(&result{Seed: seed, Coverage: map[string]int{"each": 2, "some": int(seed)}})
	}
	if sum.coverage["each"] != 6 || sum.coverage["some"] != 3 || sum.done != 3 {
		t.Errorf("got %+v", sum)
	}
}
