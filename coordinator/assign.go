package coordinator

import (
	"cmp"
	"math"
	"slices"
)

// Assign says which node should hold each shard. Every node reckons it from the same facts and
// comes to the same result, so that nobody has to decide for all.
//
// The shards are spread by the members' capacities, with at most one more or less than fair.
// What is held stays where it is as far as that allows: no more shards move than must. Those
// that nobody holds, and those that must move, go to the member that scores highest for the
// shard (rendezvous hashing) among those with room; of a member that holds too many, the shards
// move for which it scores lowest.
//
// What it says is part of the protocol between nodes, as the hash of jobs' names is: a change needs a
// version that all members have.
//
// Holders and pins are by shard; an empty name is nobody. Members that drain or are unfit get
// nothing; without any other one, everything stays as it is. A pin counts while its node can
// hold shards.
func Assign(members []Member, holders, pins []string) []string {
	var able []*seat
	byName := map[string]*seat{}
	for _, m := range members {
		if !m.Draining && !m.Unfit && byName[m.Node] == nil {
			s := &seat{node: m.Node, weight: float64(max(m.Capacity, 1)), hash: hashString(m.Node)}
			able, byName[m.Node] = append(able, s), s
		}
	}
	if len(able) == 0 {
		return slices.Clone(holders)
	}
	slices.SortFunc(able, func(a, b *seat) int { return cmp.Compare(a.node, b.node) })
	want := make([]string, len(holders))
	free := 0
	for id := range holders {
		switch s := byName[pins[id]]; {
		case s != nil:
			want[id] = s.node
			s.pinned++
		default:
			free++
			if s := byName[holders[id]]; s != nil {
				s.held = append(s.held, id)
			}
		}
	}
	share(able, free)
	for _, s := range able {
		slices.SortStableFunc(s.held, func(a, b int) int { return cmp.Compare(s.score(b), s.score(a)) })
		for _, id := range s.held[:min(len(s.held), s.room)] {
			want[id] = s.node
		}
		s.room -= min(len(s.held), s.room)
	}
	for id := range want {
		if want[id] == "" {
			s := best(able, id)
			want[id] = s.node
			s.room--
		}
	}
	return want
}

// seat is a member that can hold shards.
type seat struct {
	node   string
	weight float64
	hash   uint64
	pinned int
	held   []int // and not pinned elsewhere
	room   int   // for shards that aren't pinned
}

// share gives each seat room, one shard after the other to the one that is furthest below
// its fair part; among equals to the one that holds more, so that less moves.
func share(able []*seat, shards int) {
	for range shards {
		next := able[0]
		for _, s := range able[1:] {
			if c := cmp.Compare(s.load(), next.load()); c < 0 || c == 0 && len(s.held)-s.room > len(next.held)-next.room {
				next = s
			}
		}
		next.room++
	}
}

// load is how full a seat would be with one shard more.
func (s *seat) load() float64 { return (float64(s.pinned+s.room) + 0.5) / s.weight }

// score orders the members for a shard: each of them is the highest for a part of the shards
// in proportion to its capacity.
func (s *seat) score(id int) float64 {
	u := (float64(mix(s.hash^mix(uint64(id)+1))>>11) + 0.5) / (1 << 53) // in (0, 1)
	return -s.weight / math.Log(u)
}

func best(able []*seat, id int) *seat {
	var top *seat
	for _, s := range able {
		if s.room > 0 && (top == nil || s.score(id) > top.score(id)) {
			top = s
		}
	}
	return top
}

// hashString is FNV-1a.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads the entropy of h over all bits.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
