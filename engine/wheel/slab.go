package wheel

const (
	placeBits = 10 // 1,024 places to a chunk: 20 KiB with a payload of 8 bytes
	blockBits = 6  // 64 blocks to a chunk: 16 KiB

	// blockEntries makes a block 248 bytes: long enough for the link to be
	// cheap, short enough for the many slots with a single entry.
	blockEntries = 15
)

// chunk holds the places of timers. The generations lie apart from the payloads,
// so that a sweep, which reads nothing else, gets sixteen to a cache line.
type chunk[T any] struct {
	gens   [1 << placeBits]uint32 // odd while armed, even while free
	values [1 << placeBits]T
	free   [1 << placeBits]uint32 // this chunk's part of the slab's stack of free places
}

// slab holds the places. Place 0 is never handed out, so that the zero Timer
// and that of a lucky guess fit nothing.
type slab[T any] struct {
	chunks []*chunk[T]
	used   uint32 // places ever handed out, counting place 0
	free   uint32 // height of the stack of free places
}

func newSlab[T any]() slab[T] { return slab[T]{used: 1} }

// split returns where a number lies: in which chunk, and where in it.
func split(i uint32) (chunk, k uint32) { return i >> placeBits, i & (1<<placeBits - 1) }

// take puts v into a place: the one freed last, whose memory is likeliest to be
// in a cache, or a new one. Free places stand on a stack instead of being linked
// through, which would make each take wait for the memory of the one before.
func (s *slab[T]) take(v T) Timer {
	var i uint32
	if s.free > 0 {
		s.free--
		c, k := split(s.free)
		i = s.chunks[c].free[k]
	} else {
		i = s.grow()
	}
	c, k := split(i)
	chunk := s.chunks[c]
	chunk.values[k] = v
	chunk.gens[k]++
	return makeTimer(i, chunk.gens[k])
}

func (s *slab[T]) grow() uint32 {
	i := s.used
	if c, _ := split(i); int(c) == len(s.chunks) {
		s.chunks = append(s.chunks, new(chunk[T]))
	}
	s.used++
	return i
}

// live says whether t, a handle given out by take, is armed.
func (s *slab[T]) live(t Timer) bool {
	c, k := split(t.index())
	return s.chunks[c].gens[k] == t.gen()
}

// peek returns what is in the place of t, a handle given out by take, and
// whether t is armed.
func (s *slab[T]) peek(t Timer) (v T, armed bool) {
	c, k := split(t.index())
	chunk := s.chunks[c]
	return chunk.values[k], chunk.gens[k] == t.gen()
}

// release frees the place of t and returns what was in it; ok is false if t is
// not armed.
func (s *slab[T]) release(t Timer) (v T, ok bool) {
	if t.gen()&1 == 0 || t.index() >= s.used {
		return v, false
	}
	if v, ok = s.peek(t); ok {
		s.drop(t)
		return v, true
	}
	var none T
	return none, false
}

// drop frees the place of t, which is armed. A place whose generations are used
// up is never handed out again, lest a handle from its youth fit once more; that
// costs one place per two billion timers.
func (s *slab[T]) drop(t Timer) {
	c, k := split(t.index())
	chunk := s.chunks[c]
	var none T
	chunk.values[k] = none // the payload may hold memory
	chunk.gens[k]++
	if chunk.gens[k] != 0 {
		c, k := split(s.free)
		s.chunks[c].free[k] = t.index()
		s.free++
	}
}

// entry says when a timer is due. It outlives a cancelled timer, as stale.
type entry struct {
	at    uint64 // key of the tick
	timer Timer
}

// block is a link of a slot's chain. Only the last one of a chain isn't full.
type block struct {
	entries [blockEntries]entry
	n       uint32
	next    uint32 // 0 being none
}

// list is a slot: a chain of blocks in order of insertion. An empty one has no
// block.
type list struct{ head, tail uint32 }

// blockPool holds the blocks of all slots. Block 0 is never handed out.
type blockPool struct {
	chunks []*[1 << blockBits]block
	used   uint32
	free   uint32
}

func newBlockPool() blockPool { return blockPool{used: 1} }

func (p *blockPool) at(i uint32) *block {
	return &p.chunks[i>>blockBits][i&(1<<blockBits-1)]
}

// push appends e to l.
func (p *blockPool) push(l *list, e entry) {
	if l.tail != 0 {
		if b := p.at(l.tail); b.n < blockEntries {
			b.entries[b.n] = e
			b.n++
			return
		}
	}
	i, b := p.take()
	b.entries[0] = e
	b.n = 1
	b.next = 0
	if l.tail != 0 {
		p.at(l.tail).next = i
	} else {
		l.head = i
	}
	l.tail = i
}

func (p *blockPool) take() (uint32, *block) {
	if i := p.free; i != 0 {
		b := p.at(i)
		p.free = b.next
		return i, b
	}
	i := p.used
	if int(i>>blockBits) == len(p.chunks) {
		p.chunks = append(p.chunks, new([1 << blockBits]block))
	}
	p.used++
	return i, p.at(i)
}

// drop frees the first block of l.
func (p *blockPool) drop(l *list) {
	i := l.head
	b := p.at(i)
	l.head = b.next
	if l.head == 0 {
		l.tail = 0
	}
	b.next = p.free
	p.free = i
}

// compact drops the stale entries of l and returns their number. What is live
// moves up to the next free entry of the chain, which is never ahead of the one
// being read.
func compact[T any](p *blockPool, l *list, places *slab[T]) (dropped int) {
	if l.head == 0 {
		return 0
	}
	var before uint32            // the block before last
	last, n := l.head, uint32(0) // where the next live entry goes
	for i := l.head; i != 0; {
		from := p.at(i)
		count, next := from.n, from.next
		for k := range count {
			if n == blockEntries {
				before, last, n = last, p.at(last).next, 0
			}
			e := from.entries[k]
			p.at(last).entries[n] = e
			// Without a branch: which of a million timers are stale can't be
			// predicted, and each wrong guess waits for memory.
			var keep uint32
			if places.live(e.timer) {
				keep = 1
			}
			n += keep
			dropped += int(1 - keep)
		}
		from.n = blockEntries // if it stays in the chain; cut sets that of the last
		i = next
	}
	if n == 0 { // the last block was only tried
		last, n = before, blockEntries
	}
	p.cut(l, last, n)
	return dropped
}

// cut makes block last, with n entries, the end of l, or empties l if last is
// none, and frees the blocks after it.
func (p *blockPool) cut(l *list, last, n uint32) {
	rest := *l
	if last == 0 {
		*l = list{}
	} else {
		end := p.at(last)
		rest.head = end.next
		end.n, end.next = n, 0
		l.tail = last
	}
	for rest.head != 0 {
		p.drop(&rest)
	}
}
