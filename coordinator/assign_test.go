package coordinator_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/coordinator"
)

func members(capacities ...int) []coordinator.Member {
	var out []coordinator.Member
	for i, c := range capacities {
		out = append(out, coordinator.Member{Node: fmt.Sprintf("n%d", i), Capacity: c})
	}
	return out
}

func counts(want []string) map[string]int {
	n := map[string]int{}
	for _, node := range want {
		n[node]++
	}
	return n
}

func moves(before, after []string) int {
	n := 0
	for i := range before {
		if before[i] != after[i] {
			n++
		}
	}
	return n
}

func TestAssignIsFairAndMovesNoMoreThanItMust(t *testing.T) {
	none := make([]string, 64)
	one := coordinator.Assign(members(1), none, none)
	three := coordinator.Assign(members(1, 1, 1), one, none)
	if n := moves(one, three); n != 42 {
		t.Errorf("%d shards move from one node to three, want 42", n)
	}
	if c := counts(three); c["n0"] != 22 || c["n1"] != 21 || c["n2"] != 21 {
		t.Errorf("three nodes hold %v", c)
	}
	if again := coordinator.Assign(members(1, 1, 1), three, none); !slices.Equal(again, three) {
		t.Error("what is fair doesn't stay")
	}
	two := coordinator.Assign(members(1, 1), three, none)
	if n := moves(three, two); n != 21 {
		t.Errorf("%d shards move when one of three nodes goes, want its 21", n)
	}
	back := coordinator.Assign(members(1), two, none)
	if c := counts(back); c["n0"] != 64 {
		t.Errorf("the last node holds %v", c)
	}
}

func TestAssignByCapacity(t *testing.T) {
	none := make([]string, 64)
	if c := counts(coordinator.Assign(members(100, 200, 100), none, none)); c["n0"] != 16 || c["n1"] != 32 || c["n2"] != 16 {
		t.Errorf("capacities 100, 200, 100 hold %v", c)
	}
}

func TestAssignToThoseWhoCan(t *testing.T) {
	none := make([]string, 8)
	m := members(1, 1, 1)
	m[0].Draining, m[1].Unfit = true, true
	if c := counts(coordinator.Assign(m, none, none)); c["n2"] != 8 {
		t.Errorf("beside one that drains and one that is unfit, the third holds %v", c)
	}
	m[2].Unfit = true
	holders := []string{"n0", "n1", "", "n2", "gone", "n0", "n0", "n1"}
	if want := coordinator.Assign(m, holders, none); !slices.Equal(want, holders) {
		t.Errorf("without anybody who could, things change to %v", want)
	}
}

func TestAssignHeedsPins(t *testing.T) {
	none, pins := make([]string, 8), make([]string, 8)
	for id := range 6 {
		pins[id] = "n1"
	}
	pins[7] = "gone"
	want := coordinator.Assign(members(1, 1), none, pins)
	if c := counts(want); c["n1"] != 6 || c["n0"] != 2 {
		t.Errorf("with six of eight pinned: %v", want)
	}
}

// Whatever the members and the holders are: it's the same for everybody, each shard has one
// node, nobody has more than one above or below its part, and another round moves nothing.
func TestAssignAtRandom(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 8))
		shards := 1 + r.IntN(200)
		capacities := make([]int, 1+r.IntN(7))
		equal := r.IntN(2) == 0
		total := 0
		for i := range capacities {
			capacities[i] = 1 + r.IntN(100)
			if equal {
				capacities[i] = 50
			}
			total += capacities[i]
		}
		m := members(capacities...)
		holders, none := make([]string, shards), make([]string, shards)
		for id := range holders {
			holders[id] = []string{"", "gone", m[r.IntN(len(m))].Node}[r.IntN(3)]
		}
		want := coordinator.Assign(m, holders, none)
		shuffled := slices.Clone(m)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if other := coordinator.Assign(shuffled, holders, none); !slices.Equal(other, want) {
			t.Fatalf("seed %d: the order of the members matters", seed)
		}
		if again := coordinator.Assign(m, want, none); !slices.Equal(again, want) {
			t.Fatalf("seed %d: another round moves %d shards", seed, moves(want, again))
		}
		held, n := counts(holders), counts(want)
		for _, x := range m {
			fair := float64(shards*x.Capacity) / float64(total)
			if off := math.Abs(float64(n[x.Node]) - fair); off > 1+1e-9 && equal || off > 1.5 {
				t.Fatalf("seed %d: %s holds %d, fair were %.2f", seed, x.Node, n[x.Node], fair)
			}
			// It loses shards only if it held more than it has now.
			kept := 0
			for id := range want {
				if want[id] == x.Node && holders[id] == x.Node {
					kept++
				}
			}
			if kept != min(held[x.Node], n[x.Node]) {
				t.Fatalf("seed %d: %s kept %d of %d, and holds %d", seed, x.Node, kept, held[x.Node], n[x.Node])
			}
		}
	}
}
