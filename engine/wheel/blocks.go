package wheel

import "math/bits"

const (
	blockBits = 5 // 32 blocks to a chunk: 32 KiB with a payload of 8 bytes

	// blockEntries makes a block 1,008 bytes with a payload of 8: so long that
	// memory is read ahead of a cascade, whose cost it is, and short enough for
	// the slots with a single entry.
	blockEntries = 42
)

// entry is a timer in a slot or in the run: when it is due, and with what. It
// outlives a cancelled timer, as stale.
type entry[T any] struct {
	at    uint64 // key of the tick
	timer Timer
	value T
}

// block is a link of a slot's chain. It is full but for the last one of a chain.
type block[T any] [blockEntries]entry[T]

// list is a slot: a chain of blocks in order of insertion. An empty one has no
// block.
type list struct {
	head, tail uint32
	room       uint32 // for entries in the last block
}

// blockPool holds the blocks of all slots. Block 0 is never handed out.
type blockPool[T any] struct {
	chunks [][]block[T] // slices, because an access by pointer to array would touch its first element, too
	// next is the link behind each block, 0 being none. It lies apart from the
	// entries, in so little memory that who walks a chain needn't wait for it.
	next []uint32
	used uint32
	free uint32
}

func newBlockPool[T any]() blockPool[T] { return blockPool[T]{used: 1} }

func (p *blockPool[T]) at(i uint32) *block[T] {
	return &p.chunks[i>>blockBits][i%(1<<blockBits)]
}

// entries returns those in block i of l.
func (p *blockPool[T]) entries(l *list, i uint32) []entry[T] {
	n := uint32(blockEntries)
	if i == l.tail {
		n -= l.room
	}
	return p.at(i)[:n]
}

// push appends e to l.
func (p *blockPool[T]) push(l *list, e entry[T]) {
	if l.room == 0 {
		p.extend(l)
	}
	p.at(l.tail)[blockEntries-l.room] = e
	l.room--
}

// extend appends an empty block to l.
func (p *blockPool[T]) extend(l *list) {
	i := p.take()
	p.next[i] = 0
	if l.tail == 0 {
		l.head = i
	} else {
		p.next[l.tail] = i
	}
	l.tail, l.room = i, blockEntries
}

func (p *blockPool[T]) take() uint32 {
	if i := p.free; i != 0 {
		p.free = p.next[i]
		return i
	}
	i := p.used
	if int(i>>blockBits) == len(p.chunks) {
		p.chunks = append(p.chunks, make([]block[T], 1<<blockBits))
		p.next = append(p.next, make([]uint32, 1<<blockBits)...)
	}
	p.used++
	return i
}

// drop frees the first block of l.
func (p *blockPool[T]) drop(l *list) {
	i := l.head
	l.head = p.next[i]
	p.next[i] = p.free
	p.free = i
	if l.head == 0 {
		*l = list{}
	}
}

// compact drops the first skip entries of l, which were delivered, and the stale
// ones, and returns the number of these. What is live moves up to the next free
// entry of the chain, which is never ahead of the one being read.
func (p *blockPool[T]) compact(l *list, skip uint32, places *slab) (dropped int) {
	last, n := l.head, uint32(0) // where the next live entry goes
	for i := l.head; i != 0; i = p.next[i] {
		from := p.entries(l, i)[skip:]
		skip = 0
		live := liveOf(from, places)
		dropped += putStale(from, live, places)
		for ; live != 0; live &= live - 1 {
			if n == blockEntries {
				last, n = p.next[last], 0
			}
			p.at(last)[n] = from[bits.TrailingZeros64(live)]
			n++
		}
	}
	if n == 0 { // none was live
		last = 0
	}
	p.cut(l, last, n)
	return dropped
}

// cut makes block last, with n entries, the end of l, or empties l if last is
// none, and frees the blocks after it.
func (p *blockPool[T]) cut(l *list, last, n uint32) {
	rest := *l
	if last == 0 {
		*l = list{}
	} else {
		rest.head = p.next[last]
		p.next[last] = 0
		l.tail, l.room = last, blockEntries-n
	}
	for rest.head != 0 {
		p.drop(&rest)
	}
}

// liveOf returns a bit for each entry of a block: whether its timer is armed.
// It reads the handles in a loop that does nothing else, so short that the
// processor is at the block's end before the first one has come from memory: the
// waits overlap, and what is done with the entries then finds them in the cache.
func liveOf[T any](entries []entry[T], places *slab) (live uint64) {
	var timers [blockEntries]Timer
	for k := range entries {
		timers[k] = entries[k].timer
	}
	for k, t := range timers[:len(entries)] {
		live |= places.bit(t) << (k % 64)
	}
	return live
}

// putStale frees the places of the entries that are not live and returns their
// number.
func putStale[T any](entries []entry[T], live uint64, places *slab) (n int) {
	for stale := 1<<len(entries) - 1 - live; stale != 0; stale &= stale - 1 {
		places.put(entries[bits.TrailingZeros64(stale)].timer)
		n++
	}
	return n
}
