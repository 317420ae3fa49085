// Package wheel is a hierarchical timing wheel as a pure value: it has no
// clock, no lock and no goroutine. Whoever owns it tells it the time with
// Advance and reads from Next when to come back, so that the same code runs
// under a real node, in a simulation and in a test that jumps a century.
//
// # Levels
//
// One tick is one millisecond since the Unix epoch. Every level has 64
// positions; a position of level L covers 64^L ticks. A timer lies at the level
// of the highest six-bit digit in which its tick differs from the wheel's
// position, so that everything in level L comes before everything in level L+1.
//
//	level  one position covers   the whole level
//	    0                 1 ms             64 ms
//	    1                64 ms            4.1 s
//	    2               4.1 s             4.4 min
//	    3               4.4 min           4.7 h
//	    4               4.7 h            12.4 d
//	    5              12.4 d             2.2 y
//	    6               2.2 y             139 y
//	    7               139 y           8,900 y
//	    8             8,900 y         571,000 y
//	    9           571,000 y       36,500,000 y
//	   10        36,500,000 y       all of int64
//
// There is no horizon and hence no overflow list. When the position enters a
// slot of level L > 0, the slot's timers move down ("cascade"), each at most
// once per level. A bitmap per level says which slots are occupied, so an idle
// span of any length is crossed in one step instead of tick by tick.
//
// The 64 ticks that the position stands in are its window. When it enters one,
// the timers known by then are sorted into one piece of memory, the run, for a
// slot of level 0 would seldom have more than a timer or two. The slots of level
// 0 hold those that are added for the window after that.
//
// # Order
//
// Timers expire in non-decreasing tick, and within one tick first in, first
// out: those of the run before those of the slot. A timer added for a tick that
// the wheel has passed counts as added for the tick it has reached, for what was
// delivered can't be preceded any more.
//
// # Memory
//
// A timer is an entry (tick, handle, payload) in a slot or in the run, and a
// place in a slab, which says whether the entry still counts: Cancel clears a
// bit there and leaves the entry behind, stale. A slot is a chain of small blocks
// of entries, so that a cascade reads and writes memory in sequence; a list
// linked through the timers costs a cache miss for each timer and level. Chunks of
// places and blocks have a fixed size and are linked by index: growing moves
// nothing but that one bit of each timer and a link for each block, a steady wheel
// allocates nothing (but the run of a window with more than 65,536 timers), and
// the garbage collector sees no pointer per timer but those in the payload
// itself. Chunks are kept for reuse, so a wheel's memory is that of its highest
// count of timers.
//
// Stale entries, and with them their places, go when their slot is reached, and
// all together once they outnumber the armed timers: memory stays proportional
// to those, and the cost of the sweep, spread over the cancels before it, is
// constant.
//
// The memory of an entry is not cleared when its timer has expired or was
// cancelled, only overwritten some time. So a payload should hold no pointers,
// or what they point to stays in memory for as long: better a number, by which
// the owner finds the rest.
package wheel

import "math/bits"

const (
	digitBits = 6
	positions = 1 << digitBits
	levels    = 11 // 11 digits of 6 bits hold all 64 bits of a tick

	// defaultSlack is how many stale entries more than armed timers there may
	// be, lest a small wheel sweep all the time. With a payload of 8 bytes they
	// take 30 KB.
	defaultSlack = 1024
)

// Timer is the handle of an armed timer: its place in the slab and the
// generation of that place, so that a handle whose timer has expired or was
// cancelled cancels nothing, whoever uses the place since. The zero Timer is
// never valid. A handle belongs to the wheel that gave it out.
type Timer uint64

func makeTimer(i, gen uint32) Timer { return Timer(uint64(gen)<<32 | uint64(i)) }

func (t Timer) index() uint32 { return uint32(t) }
func (t Timer) gen() uint32   { return uint32(t >> 32) }

// Wheel holds timers with payloads of type T. It is not safe for concurrent
// use. Make one with New.
type Wheel[T any] struct {
	now      uint64 // key of the latest time the wheel was told
	position uint64 // key of the tick up to which timers were delivered; behind now only after a cut batch

	nonEmpty uint16 // bit L: level L has an occupied slot
	occupied [levels]uint64
	slots    [levels * positions]list
	taken    uint32 // entries delivered from the first block of the first slot of level 0
	run      run[T]

	places slab
	blocks blockPool[T]
	armed  int
	stale  int // entries whose timer was cancelled
	slack  int // defaultSlack, less in tests
}

// New returns an empty wheel that stands at tick now (milliseconds since the
// Unix epoch, may be negative).
func New[T any](now int64) *Wheel[T] {
	return &Wheel[T]{
		now:      key(now),
		position: key(now),
		places:   newSlab(),
		blocks:   newBlockPool[T](),
		slack:    defaultSlack,
	}
}

// key maps ticks to unsigned numbers in the same order.
func key(tick int64) uint64 { return uint64(tick) ^ 1<<63 }

func tick(key uint64) int64 { return int64(key ^ 1<<63) }

// Len returns the number of armed timers.
func (w *Wheel[T]) Len() int { return w.armed }

// Now returns the latest tick that the wheel was told by New or Advance.
func (w *Wheel[T]) Now() int64 { return tick(w.now) }

// Add arms a timer for tick at, which returns v from an Advance to that tick or
// beyond. A tick that is not after Now is due at the next Advance.
func (w *Wheel[T]) Add(at int64, v T) Timer {
	t := w.places.take()
	w.push(entry[T]{max(key(at), w.position), t, v})
	w.armed++
	return t
}

// Armed says whether t is still to expire.
func (w *Wheel[T]) Armed(t Timer) bool { return w.places.valid(t) }

// Cancel disarms t and says whether it was armed: not if it has expired, was
// cancelled before, or is the zero Timer. The payload is not cleared at once, see
// Memory above.
func (w *Wheel[T]) Cancel(t Timer) bool {
	if !w.places.disarm(t) {
		return false
	}
	w.armed--
	w.stale++
	if w.stale > w.armed+w.slack {
		w.sweep()
	}
	return true
}

// Advance moves the wheel to tick now and appends what is due to dst, until dst
// has max elements. If more is true, something due is left: call Advance again
// with the same now and an emptied dst. Time never goes back: an earlier now
// counts as Now.
//
// Besides expiring, an Advance that crosses into a slot of a higher level
// moves all its timers down, be there room in dst or not: a few nanoseconds
// for each of them.
func (w *Wheel[T]) Advance(now int64, max int, dst []T) (out []T, more bool) {
	if k := key(now); k > w.now {
		w.now = k
	}
	for {
		dst = w.deliver(max, dst)
		if at, ok := w.first(); ok {
			w.position = min(at, w.now)
			return dst, at <= w.now
		}
		if !w.turn() {
			return dst, false
		}
	}
}

// Next returns the earliest tick at which Advance may have something to do; ok
// is false if the wheel is empty. The tick is never later than that of the
// first timer. It is exact for a first timer in the window; a farther one makes
// the wheel ask for at most one call per level, where its slot begins.
func (w *Wheel[T]) Next() (at int64, ok bool) {
	if w.armed == 0 {
		return 0, false
	}
	if at, ok := w.first(); ok {
		return tick(at), true
	}
	start, _, ok := w.firstSlot()
	return tick(start), ok
}

// deliver appends the timers of the window that are due to dst, while there is
// room: of each tick those of the run, then those of its slot.
func (w *Wheel[T]) deliver(max int, dst []T) []T {
	for {
		until, inSlot := w.now, false
		if at, ok := w.firstNear(); ok && at <= until {
			until, inSlot = at, true
		}
		n := 0
		n, dst = w.expire(w.run.rest(), until, max, dst)
		w.run.skip(n)
		if !inSlot || len(dst) >= max {
			return dst
		}
		dst = w.deliverSlot(max, dst)
	}
}

// deliverSlot delivers from the first slot of level 0, while there is room.
func (w *Wheel[T]) deliverSlot(max int, dst []T) []T {
	slot := bits.TrailingZeros64(w.occupied[0])
	l := &w.slots[slot]
	for l.head != 0 {
		rest := w.blocks.entries(l, l.head)[w.taken:]
		n := 0
		n, dst = w.expire(rest, w.now, max, dst)
		if n < len(rest) {
			w.taken += uint32(n)
			return dst
		}
		w.taken = 0
		w.blocks.drop(l)
	}
	w.empty(slot)
	return dst
}

// expire appends the payloads of the entries that are due by until, while there
// is room, and returns how many entries that took, the stale ones included.
func (w *Wheel[T]) expire(entries []entry[T], until uint64, max int, dst []T) (n int, out []T) {
	before := len(dst)
	for ; n < len(entries) && entries[n].at <= until && len(dst) < max; n++ {
		e := &entries[n]
		if w.places.live(e.timer) {
			w.places.clear(e.timer)
			dst = append(dst, e.value)
		}
		w.places.put(e.timer)
	}
	live := len(dst) - before
	w.armed -= live
	w.stale -= n - live
	return n, dst
}

// first returns the tick of the first armed timer in the window, after dropping
// the stale entries before it.
func (w *Wheel[T]) first() (at uint64, ok bool) {
	if n := w.countStale(w.run.rest()); n > 0 {
		w.forget(w.run.rest()[:n])
		w.run.skip(n)
	}
	at, ok = w.firstNear()
	for ok && !w.trim(int(at%positions)) {
		at, ok = w.firstNear()
	}
	if rest := w.run.rest(); len(rest) > 0 && (!ok || rest[0].at < at) {
		return rest[0].at, true
	}
	return at, ok
}

// firstNear returns the tick of the first occupied slot in level 0.
func (w *Wheel[T]) firstNear() (at uint64, ok bool) {
	if w.occupied[0] == 0 {
		return 0, false
	}
	return w.position&^(positions-1) | uint64(bits.TrailingZeros64(w.occupied[0])), true
}

// turn moves the position to the beginning of the first occupied slot above
// level 0 and empties that slot downwards. If no slot begins by now, it moves
// the position to now and returns false. There must be nothing in the window
// that the position leaves.
func (w *Wheel[T]) turn() bool {
	start, slot, ok := w.firstSlot()
	if !ok || start > w.now {
		// No timer changes its level: all of them are on the same side of the
		// slot's beginning as before, and so is the position.
		w.position = w.now
		return false
	}
	w.position = start
	l := w.empty(slot)
	if slot >= 2*positions {
		l = w.cascade(l)
	}
	w.stale -= w.run.load(&w.blocks, l, &w.places)
	return true
}

// cascade files the entries of a slot that was taken out anew, in their order,
// so that timers of the same tick stay first in, first out, and returns those of
// the window. Stale ones end here.
func (w *Wheel[T]) cascade(l list) (window list) {
	for ; l.head != 0; w.blocks.drop(&l) {
		some := w.blocks.entries(&l, l.head)
		live := liveOf(some, &w.places)
		w.stale -= putStale(some, live, &w.places)
		for ; live != 0; live &= live - 1 {
			e := &some[bits.TrailingZeros64(live)]
			if e.at^w.position < positions {
				w.blocks.push(&window, *e)
			} else {
				w.push(*e)
			}
		}
	}
	return window
}

// firstSlot returns the first slot above level 0 that holds an armed timer, and
// the key of its first tick. Slots and blocks before it that hold only stale
// entries are dropped, each once.
func (w *Wheel[T]) firstSlot() (start uint64, slot int, ok bool) {
	for w.nonEmpty&^1 != 0 {
		level := bits.TrailingZeros16(w.nonEmpty &^ 1)
		pos := bits.TrailingZeros64(w.occupied[level])
		slot = level*positions + pos
		if !w.trim(slot) {
			continue
		}
		shift := level * digitBits
		// A shift beyond 63 gives 0, and the mask then clears all digits:
		// right for the top level, above which there is none.
		above := w.position &^ (1<<(shift+digitBits) - 1)
		return above | uint64(pos)<<shift, slot, true
	}
	return 0, 0, false
}

// trim drops leading blocks of a slot that hold only stale entries, and says
// whether any is left. In level 0 the slot must be the first.
func (w *Wheel[T]) trim(slot int) bool {
	l := &w.slots[slot]
	for w.stale > 0 && l.head != 0 {
		rest := w.blocks.entries(l, l.head)
		if slot < positions {
			rest = rest[w.taken:]
		}
		if w.countStale(rest) < len(rest) {
			return true
		}
		w.forget(rest)
		if slot < positions {
			w.taken = 0
		}
		w.blocks.drop(l)
	}
	if l.head == 0 {
		w.empty(slot)
	}
	return l.head != 0
}

// countStale returns how many entries there are before the first live one.
func (w *Wheel[T]) countStale(entries []entry[T]) (n int) {
	if w.stale == 0 {
		return 0
	}
	for n < len(entries) && !w.places.live(entries[n].timer) {
		n++
	}
	return n
}

// forget frees the places of stale entries, which go.
func (w *Wheel[T]) forget(entries []entry[T]) {
	for k := range entries {
		w.places.put(entries[k].timer)
	}
	w.stale -= len(entries)
}

// sweep drops all stale entries.
func (w *Wheel[T]) sweep() {
	w.stale -= w.run.compact(&w.places)
	for level := range levels {
		for set := w.occupied[level]; set != 0; set &= set - 1 {
			slot := level*positions + bits.TrailingZeros64(set)
			w.stale -= w.blocks.compact(&w.slots[slot], w.taken, &w.places)
			w.taken = 0 // it was of the first slot
			if w.slots[slot].head == 0 {
				w.empty(slot)
			}
		}
	}
}

// slotOf returns the slot for a key that is not before the position.
func (w *Wheel[T]) slotOf(at uint64) int {
	level := (bits.Len64((at^w.position)|1) - 1) / digitBits
	return level*positions + int(at>>(level*digitBits)&(positions-1))
}

// push files an entry behind those of its slot.
func (w *Wheel[T]) push(e entry[T]) {
	slot := w.slotOf(e.at)
	l := &w.slots[slot]
	if l.head == 0 {
		level := slot / positions
		w.occupied[level] |= 1 << (slot % positions)
		w.nonEmpty |= 1 << level
	}
	w.blocks.push(l, e)
}

// empty takes the entries out of a slot.
func (w *Wheel[T]) empty(slot int) list {
	l := w.slots[slot]
	w.slots[slot] = list{}
	level := slot / positions
	w.occupied[level] &^= 1 << (slot % positions)
	if w.occupied[level] == 0 {
		w.nonEmpty &^= 1 << level
	}
	return l
}
