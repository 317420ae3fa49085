package sim

import (
	"slices"
	"testing"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func TestWhatMustHappenIsInOrder(t *testing.T) {
	all := slices.Sorted(slices.Values(slices.Concat(must, rare)))
	if !slices.IsSorted(must) || !slices.IsSorted(rare) || len(slices.Compact(all)) != len(must)+len(rare) {
		t.Error("it isn't sorted, or has something twice")
	}
}

func TestEachReasonMustHappenOrCannot(t *testing.T) {
	for _, name := range carillonv1.ReasonCode_name {
		if _, never := neverReasons[name]; slices.Contains(slices.Concat(must, rare), "reason "+name) == never {
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
	for seeds, want := range map[int][]string{enoughSeeds - 1: nil, enoughSeeds: must[:2], manySeeds: slices.Concat(must[:2], rare)} {
		if got := unhit(coverage, seeds); !slices.Equal(got, want) {
			t.Errorf("of %d seeds: got %v", seeds, got)
		}
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
