package wheel

import (
	"math/bits"
	"slices"
)

// idleRun is the longest buffer, in entries, that an empty run keeps: the
// timers of a window at a million a second, 1.5 MiB with a payload of 8 bytes.
// What a burst took beyond that is given back.
const idleRun = 1 << 16

// few is how many entries are cheaper to insert one by one than to count: a window
// of a sparse wheel has no more.
const few = 8

// run holds the timers of the window that the position stands in, as many as
// were known when it entered: sorted by tick, first in, first out within one.
// They lie in one piece, since most ticks have too few timers for a block each.
type run[T any] struct {
	entries []entry[T]
	next    int // first one that was not delivered
}

// rest returns the entries that were not delivered, stale ones among them.
func (r *run[T]) rest() []entry[T] { return r.entries[r.next:] }

// skip passes n entries, and lets go of the buffer after the last one if it is
// a large one.
func (r *run[T]) skip(n int) {
	r.next += n
	if r.next < len(r.entries) {
		return
	}
	r.entries, r.next = r.entries[:0], 0
	if cap(r.entries) > idleRun {
		r.entries = nil
	}
}

// load takes the live entries of l, which must be of one window, frees its blocks
// and returns the number of stale entries. The run must be empty.
func (r *run[T]) load(p *blockPool[T], l list, places *slab) (dropped int) {
	if l.head == 0 { // nothing came down as far as this
		return 0
	}
	if l.head != l.tail || blockEntries-l.room > few {
		return r.sort(p, l, places)
	}
	dropped = r.insert(p.entries(&l, l.head), places)
	p.drop(&l)
	return dropped
}

// insert sorts by insertion.
func (r *run[T]) insert(entries []entry[T], places *slab) (dropped int) {
	for _, e := range entries {
		if !places.live(e.timer) {
			places.put(e.timer)
			dropped++
			continue
		}
		k := len(r.entries)
		r.entries = append(r.entries, e)
		for ; k > 0 && r.entries[k-1].at > e.at; k-- {
			r.entries[k] = r.entries[k-1]
		}
		r.entries[k] = e
	}
	return dropped
}

// sort does it by counting: once through the blocks to see how many entries each
// tick has, once to put each where it belongs.
func (r *run[T]) sort(p *blockPool[T], l list, places *slab) (dropped int) {
	next, n := count(p, &l, places)
	r.entries = slices.Grow(r.entries, n)[:n]
	for ; l.head != 0; p.drop(&l) {
		some := p.entries(&l, l.head)
		live := liveOf(some, places)
		dropped += putStale(some, live, places)
		for ; live != 0; live &= live - 1 {
			e := &some[bits.TrailingZeros64(live)]
			to := &next[e.at%positions]
			r.entries[*to] = *e
			*to++
		}
	}
	return dropped
}

// count returns how many live entries of l come before those of each tick of its
// window, and how many there are.
func count[T any](p *blockPool[T], l *list, places *slab) (before [positions]int, n int) {
	for i := l.head; i != 0; i = p.next[i] {
		some := p.entries(l, i)
		for live := liveOf(some, places); live != 0; live &= live - 1 {
			before[some[bits.TrailingZeros64(live)].at%positions]++
		}
	}
	for k, here := range before {
		before[k] = n
		n += here
	}
	return before, n
}

// compact drops the stale entries, frees their places and returns their number.
func (r *run[T]) compact(places *slab) (dropped int) {
	n := r.next
	for _, e := range r.rest() {
		if places.live(e.timer) {
			r.entries[n] = e
			n++
		} else {
			places.put(e.timer)
		}
	}
	dropped = len(r.entries) - n
	r.entries = r.entries[:n]
	r.skip(0)
	return dropped
}
