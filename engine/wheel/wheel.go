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
// # Order
//
// Timers expire in non-decreasing tick, and within one tick first in, first
// out. A timer added for a tick that the wheel has passed counts as added for
// the tick it has reached, for what was delivered can't be preceded any more.
//
// # Memory
//
// A timer is a place in a slab, which holds its payload and its generation,
// and an entry (tick, handle) in a slot. A slot is a chain of small blocks of
// entries, so that a cascade reads and writes memory in sequence and never
// touches the timers themselves; a list linked through the timers costs a
// cache miss for each timer and level. Places and blocks come from chunks of
// fixed size and are linked by index: growing moves nothing, a steady wheel
// allocates nothing, and the garbage collector sees no pointer per timer but
// those in the payload itself. Chunks are kept for reuse, so a wheel's memory
// is that of its highest count of timers.
//
// Cancel frees the place at once and leaves the entry behind, stale. Stale
// entries go when their slot is reached, and all together once they outnumber
// the armed timers: memory stays proportional to those, and the cost of the
// sweep, spread over the cancels before it, is constant.
package wheel

import "math/bits"

const (
	digitBits = 6
	positions = 1 << digitBits
	levels    = 11 // 11 digits of 6 bits hold all 64 bits of a tick

	// dueSlot is the slot behind the levels: the timers of the tick that the
	// position stands on.
	dueSlot = levels * positions

	// defaultSlack is how many stale entries more than armed timers there may
	// be, lest a small wheel sweep all the time. At 17 bytes each it is little.
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
	slots    [levels*positions + 1]list
	dueNext  uint32 // next entry to deliver in the first block of dueSlot

	places slab[T]
	blocks blockPool
	armed  int
	stale  int // entries in slots whose timer was cancelled
	slack  int // defaultSlack, less in tests
}

// New returns an empty wheel that stands at tick now (milliseconds since the
// Unix epoch, may be negative).
func New[T any](now int64) *Wheel[T] {
	return &Wheel[T]{
		now:      key(now),
		position: key(now),
		places:   newSlab[T](),
		blocks:   newBlockPool(),
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
	t := w.places.take(v)
	w.push(entry{max(key(at), w.position), t})
	w.armed++
	return t
}

// Cancel disarms t and returns its payload; ok is false if t has expired, was
// cancelled before, or is the zero Timer.
func (w *Wheel[T]) Cancel(t Timer) (v T, ok bool) {
	v, ok = w.places.release(t)
	if !ok {
		return v, false
	}
	w.armed--
	w.stale++
	if w.stale > w.armed+w.slack {
		w.sweep()
	}
	return v, true
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
		if dst, more = w.drain(max, dst); more {
			return dst, true
		}
		if !w.turn() {
			return dst, false
		}
	}
}

// Next returns the earliest tick at which Advance may have something to do; ok
// is false if the wheel is empty. The tick is never later than that of the
// first timer. It is exact for a first timer in level 0; a farther one makes
// the wheel ask for at most one call per level, where its slot begins.
func (w *Wheel[T]) Next() (at int64, ok bool) {
	if w.armed == 0 {
		return 0, false
	}
	if _, due := w.firstDue(); due {
		return tick(w.position), true
	}
	start, _, ok := w.firstSlot()
	return tick(start), ok
}

// drain appends the due timers to dst while there is room, and says whether
// some are left.
func (w *Wheel[T]) drain(max int, dst []T) (out []T, more bool) {
	for {
		if _, ok := w.firstDue(); !ok || len(dst) >= max {
			return dst, ok
		}
		dst = w.drainBlock(max, dst)
	}
}

// drainBlock delivers from the first block of the due slot, which must have an
// armed timer. It reads all places before it changes any, so that the waits for
// memory overlap.
func (w *Wheel[T]) drainBlock(max int, dst []T) []T {
	b := w.blocks.at(w.slots[dueSlot].head)
	var values [blockEntries]T
	var live [blockEntries]bool
	due := b.entries[w.dueNext:b.n]
	for k := range due {
		values[k], live[k] = w.places.peek(due[k].timer)
	}
	for k := range due {
		if !live[k] {
			w.stale--
		} else if len(dst) < max {
			dst = append(dst, values[k])
			w.places.drop(due[k].timer)
			w.armed--
		} else {
			break
		}
		w.dueNext++
	}
	return dst
}

// firstDue returns the first armed timer of the due slot, after dropping the
// stale entries before it.
func (w *Wheel[T]) firstDue() (t Timer, ok bool) {
	due := &w.slots[dueSlot]
	for due.head != 0 {
		b := w.blocks.at(due.head)
		for ; w.dueNext < b.n; w.dueNext++ {
			if t = b.entries[w.dueNext].timer; w.places.live(t) {
				return t, true
			}
			w.stale--
		}
		w.dueNext = 0
		w.blocks.drop(due)
	}
	return 0, false
}

// turn moves the position to the beginning of the first occupied slot and
// empties that slot downwards. If no slot begins by now, it moves the position
// to now and returns false. The due slot must be empty, because its timers are
// those of the position.
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
	if slot < positions { // level 0: all of one tick
		w.slots[dueSlot] = l
		return true
	}
	w.cascade(l)
	return true
}

// firstSlot returns the first slot of the levels that holds an armed timer, and
// the key of its first tick. Slots and blocks before it that hold only stale
// entries are dropped, each once.
func (w *Wheel[T]) firstSlot() (start uint64, slot int, ok bool) {
	for w.nonEmpty != 0 {
		level := bits.TrailingZeros16(w.nonEmpty)
		pos := bits.TrailingZeros64(w.occupied[level])
		slot = level*positions + pos
		if w.stale > 0 && w.dropStale(slot) {
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

// dropStale drops leading blocks without an armed timer from a slot of the
// levels and says whether that emptied it.
func (w *Wheel[T]) dropStale(slot int) bool {
	l := &w.slots[slot]
	for l.head != 0 {
		b := w.blocks.at(l.head)
		for _, e := range b.entries[:b.n] {
			if w.places.live(e.timer) {
				return false
			}
		}
		w.stale -= int(b.n)
		w.blocks.drop(l)
	}
	w.empty(slot)
	return true
}

// sweep drops all stale entries.
func (w *Wheel[T]) sweep() {
	w.stale -= compact(&w.blocks, &w.slots[dueSlot], &w.places)
	w.stale += int(w.dueNext) // these were delivered, so nobody counted them
	w.dueNext = 0
	for level := range levels {
		for set := w.occupied[level]; set != 0; set &= set - 1 {
			slot := level*positions + bits.TrailingZeros64(set)
			w.stale -= compact(&w.blocks, &w.slots[slot], &w.places)
			if w.slots[slot].head == 0 {
				w.empty(slot)
			}
		}
	}
}

// cascade files the entries of a slot that was taken out anew, in their order,
// so that timers of the same tick stay first in, first out. It doesn't look for
// stale ones: it would have to visit every timer's place.
func (w *Wheel[T]) cascade(l list) {
	for l.head != 0 {
		b := w.blocks.at(l.head)
		for _, e := range b.entries[:b.n] {
			w.push(e)
		}
		w.blocks.drop(&l)
	}
}

// slotOf returns the slot for a key that is not before the position.
func (w *Wheel[T]) slotOf(at uint64) int {
	diff := at ^ w.position
	if diff == 0 {
		return dueSlot
	}
	level := (bits.Len64(diff) - 1) / digitBits
	return level*positions + int(at>>(level*digitBits)&(positions-1))
}

// push files an entry behind those of its slot.
func (w *Wheel[T]) push(e entry) {
	slot := w.slotOf(e.at)
	l := &w.slots[slot]
	if l.head == 0 && slot != dueSlot {
		level := slot / positions
		w.occupied[level] |= 1 << (slot % positions)
		w.nonEmpty |= 1 << level
	}
	w.blocks.push(l, e)
}

// empty takes the entries out of a slot of the levels.
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
