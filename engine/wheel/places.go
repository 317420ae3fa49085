package wheel

const (
	genBits   = 12 // 4,096 generations to a chunk, 16 KiB
	stackBits = 10 // 1,024 handles to a chunk, 8 KiB
)

// slab holds the places of timers, and of a place no more than the generation
// of its latest timer and whether that is armed. The latter is a bit in an array
// of its own: of a million timers, this takes 125 KB, which stay in a near cache,
// and whoever moves or delivers entries reads nothing else. Only Cancel, whose
// handle may be of any age, compares generations.
//
// A place is free when no entry names it any more: that of a cancelled timer
// must first be found by whoever comes across the entry. Place 0 is never handed
// out, so that the zero Timer fits nothing.
type slab struct {
	gens  [][]uint32
	armed []uint64
	used  uint32 // places ever handed out, counting place 0

	// The free places, as the handles of their next timers, stand on a stack
	// instead of being linked through, so that a take needn't wait for memory.
	stack [][]Timer
	free  uint32 // its height
}

func newSlab() slab { return slab{used: 1} }

// take arms a place: the one freed last, or a new one.
func (s *slab) take() Timer {
	t := makeTimer(s.used, 1)
	if s.free > 0 {
		s.free--
		t = s.stack[s.free>>stackBits][s.free%(1<<stackBits)]
	} else {
		s.grow()
	}
	i := t.index()
	s.gens[i>>genBits][i%(1<<genBits)] = t.gen()
	s.armed[i/64] |= 1 << (i % 64)
	return t
}

func (s *slab) grow() {
	if int(s.used>>genBits) == len(s.gens) {
		s.gens = append(s.gens, make([]uint32, 1<<genBits))
		s.armed = append(s.armed, make([]uint64, 1<<genBits/64)...)
	}
	s.used++
}

// disarm disarms t, whatever handle it is, and says whether it was armed. Its
// place becomes free by put, once its entry goes.
func (s *slab) disarm(t Timer) bool {
	if !s.valid(t) {
		return false
	}
	s.clear(t)
	return true
}

// valid says whether t, whatever handle it is, is armed.
func (s *slab) valid(t Timer) bool {
	i := t.index()
	c := i >> genBits
	return int(c) < len(s.gens) && s.gens[c][i%(1<<genBits)] == t.gen() && s.live(t)
}

// live says whether t, the handle of an entry, is armed.
func (s *slab) live(t Timer) bool { return s.bit(t) != 0 }

// bit is 1 for a live t and otherwise 0.
func (s *slab) bit(t Timer) uint64 {
	i := t.index()
	return s.armed[i/64] >> (i % 64) & 1
}

func (s *slab) clear(t Timer) {
	i := t.index()
	s.armed[i/64] &^= 1 << (i % 64)
}

// put frees the place of t, which is not armed and whose entry is gone. A place
// whose generations are used up is never handed out again, lest a handle from its
// youth fit once more; that costs one place per four billion timers.
func (s *slab) put(t Timer) {
	next := makeTimer(t.index(), t.gen()+1)
	if next.gen() == 0 {
		return
	}
	c := s.free >> stackBits
	if int(c) == len(s.stack) {
		s.stack = append(s.stack, make([]Timer, 1<<stackBits))
	}
	s.stack[c][s.free%(1<<stackBits)] = next
	s.free++
}
