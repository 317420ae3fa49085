package wheel

import (
	"math"
	"slices"
	"testing"
	"unsafe"
)

const (
	second = 1000
	hour   = 3600 * second
	year   = 8766 * hour
)

// drainAll advances w to now in batches of max and returns everything.
func drainAll[T any](t *testing.T, w *Wheel[T], now int64, max int) []T {
	t.Helper()
	var all []T
	buf := make([]T, 0, max)
	for {
		out, more := w.Advance(now, max, buf[:0])
		all = append(all, out...)
		if !more {
			return all
		}
		if len(out) != max {
			t.Fatalf("a cut batch has %d elements, want %d", len(out), max)
		}
	}
}

func TestExpiresAtItsTickAndNotBefore(t *testing.T) {
	delays := []int64{
		0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 1<<18 - 1, 1 << 18, 1<<18 + 1,
		1 << 24, 1<<30 + 7, 1 << 36, 500 * year, 20_000_000 * year,
	}
	for _, start := range []int64{0, 1, 63, 64, 1_785_000_000_123, -1, -64, -65, -62135596800 * second, math.MinInt64, 1<<42 - 1} {
		for _, delay := range delays {
			w := New[int64](start)
			at := start + delay
			w.Add(at, at)
			if delay > 0 {
				if out, more := w.Advance(at-1, 10, nil); len(out) != 0 || more {
					t.Fatalf("start %d, delay %d: fired %v one tick early", start, delay, out)
				}
			}
			out, more := w.Advance(at, 10, nil)
			if !slices.Equal(out, []int64{at}) || more {
				t.Fatalf("start %d, delay %d: Advance to the tick returned %v, %v", start, delay, out, more)
			}
			if w.Len() != 0 {
				t.Fatalf("start %d, delay %d: Len = %d after expiry", start, delay, w.Len())
			}
		}
	}
}

func TestWholeRangeOfTicks(t *testing.T) {
	w := New[string](math.MinInt64)
	w.Add(math.MaxInt64, "last")
	w.Add(math.MinInt64, "first")
	w.Add(0, "epoch")
	if out, _ := w.Advance(math.MinInt64, 10, nil); !slices.Equal(out, []string{"first"}) {
		t.Fatalf("at the first tick: %v", out)
	}
	if out, _ := w.Advance(math.MaxInt64, 10, nil); !slices.Equal(out, []string{"epoch", "last"}) {
		t.Fatalf("at the last tick: %v", out)
	}
	w.Add(math.MaxInt64, "again")
	if at, ok := w.Next(); !ok || at != math.MaxInt64 {
		t.Fatalf("Next = %d, %v", at, ok)
	}
}

func TestOrderIsByTickThenFirstInFirstOut(t *testing.T) {
	w := New[int](0)
	// 1 goes into a high level, 2 into the same tick after a cascade, 3 after
	// another: insertion order must survive.
	const at = 3*hour + 5
	w.Add(at, 1)
	w.Add(at+1, 4)
	w.Advance(at-2000, 10, nil)
	w.Add(at, 2)
	w.Advance(at-20, 10, nil)
	w.Add(at, 3)
	if out := drainAll(t, w, at+1, 1); !slices.Equal(out, []int{1, 2, 3, 4}) {
		t.Fatalf("order %v", out)
	}
}

func TestLateAddIsDueAtTheNextAdvance(t *testing.T) {
	w := New[string](1000)
	w.Add(-5, "long ago")
	w.Add(1000, "now")
	w.Add(999, "just missed")
	if at, ok := w.Next(); !ok || at != 1000 {
		t.Fatalf("Next = %d, %v; want 1000", at, ok)
	}
	// Late timers count as of now: first in, first out.
	out, more := w.Advance(1000, 10, nil)
	if !slices.Equal(out, []string{"long ago", "now", "just missed"}) || more {
		t.Fatalf("got %v, %v", out, more)
	}
}

func TestTimeNeverGoesBack(t *testing.T) {
	w := New[int](0)
	for i := range 5 {
		w.Add(int64(10*i), i)
	}
	out, more := w.Advance(100, 2, nil)
	if !slices.Equal(out, []int{0, 1}) || !more {
		t.Fatalf("first batch %v, %v", out, more)
	}
	if w.Now() != 100 {
		t.Fatalf("Now = %d during a cut batch", w.Now())
	}
	out, more = w.Advance(5, 10, nil)
	if !slices.Equal(out, []int{2, 3, 4}) || more {
		t.Fatalf("an earlier now must still deliver what is overdue: %v, %v", out, more)
	}
	if w.Now() != 100 {
		t.Fatalf("Now = %d went back", w.Now())
	}
}

func TestBatchFillsUpToTheLengthOfDst(t *testing.T) {
	w := New[int](0)
	for i := range 4 {
		w.Add(1, i)
	}
	out, more := w.Advance(1, 3, []int{-1})
	if !slices.Equal(out, []int{-1, 0, 1}) || !more {
		t.Fatalf("got %v, %v", out, more)
	}
	if out, more = w.Advance(1, 3, out); len(out) != 3 || !more {
		t.Fatalf("a full dst must stay as it is, with more: %v, %v", out, more)
	}
	if out, more = w.Advance(1, 2, out[:0]); !slices.Equal(out, []int{2, 3}) || more {
		t.Fatalf("an exactly filled batch must not announce more: %v, %v", out, more)
	}
}

func TestCancelInsideACutBatch(t *testing.T) {
	for victim := 1; victim < 4; victim++ {
		w := New[int](0)
		var h []Timer
		for i := range 4 {
			h = append(h, w.Add(7, i))
		}
		w.Advance(7, 1, nil)
		if !w.Cancel(h[victim]) {
			t.Fatalf("Cancel(%d) = false", victim)
		}
		w.Add(7, 9)
		want := slices.DeleteFunc([]int{1, 2, 3, 9}, func(v int) bool { return v == victim })
		if out := drainAll(t, w, 7, 1); !slices.Equal(out, want) {
			t.Fatalf("after cancelling %d: %v, want %v", victim, out, want)
		}
	}
}

func TestStaleHandlesCancelNothing(t *testing.T) {
	w := New[int](0)
	w.slack = 0 // so that a place is free at once
	if w.Cancel(0) {
		t.Fatal("the zero Timer cancelled something")
	}
	if w.Cancel(makeTimer(999, 1)) || w.Cancel(makeTimer(1<<31, 1)) || w.Cancel(makeTimer(0, 1)) {
		t.Fatal("a handle never given out cancelled something")
	}
	cancelled := w.Add(5, 1)
	w.Cancel(cancelled)
	expired := w.Add(5, 2) // takes the same place
	if cancelled.index() != expired.index() {
		t.Fatal("the place was not reused, so this test shows nothing")
	}
	w.Advance(5, 10, nil)
	live := w.Add(9, 3)
	for _, stale := range []Timer{cancelled, expired} {
		if w.Cancel(stale) {
			t.Fatalf("stale handle %x cancelled something", stale)
		}
	}
	if !w.Cancel(live) {
		t.Fatal("the new timer of the place was not armed any more")
	}
	if w.Cancel(live) {
		t.Fatal("cancelled twice")
	}
}

func TestPlaceWithSpentGenerationsIsRetired(t *testing.T) {
	w := New[int](0)
	w.slack = 0
	first := w.Add(5, 1)
	w.Cancel(first)
	w.places.stack[0][0] = makeTimer(first.index(), math.MaxUint32) // as if it had been used four billion times
	last := w.Add(5, 1)
	if last.index() != first.index() || !w.Cancel(last) {
		t.Fatal("the last generation must still be usable")
	}
	next := w.Add(5, 2)
	if next.index() == first.index() {
		t.Fatal("a spent place was handed out again")
	}
	if w.Cancel(first) || w.Cancel(last) {
		t.Fatal("a handle of a spent place fits again")
	}
}

// TestRunComesBeforeSlot adds timers for one tick before the position enters its
// window, and after: they lie apart, and must expire in their order all the same.
func TestRunComesBeforeSlot(t *testing.T) {
	const at = 100
	for max := 1; max <= 7; max++ {
		w := New[int](0)
		w.Add(at, 1)
		w.Add(at+1, 5)
		w.Add(at, 2)
		w.Advance(at-10, 10, nil)
		w.Add(at, 3)
		w.Add(at-1, 0)
		w.Add(at+1, 6)
		w.Add(at, 4)
		if n := len(w.run.entries); n != 3 {
			t.Fatalf("%d timers in the run, so this test shows nothing", n)
		}
		if out := drainAll(t, w, at+1, max); !slices.Equal(out, []int{0, 1, 2, 3, 4, 5, 6}) {
			t.Fatalf("in batches of %d: %v", max, out)
		}
	}
}

// TestSweepInsideAPartlyDeliveredTick cancels and sweeps when both the run and
// the slot of the tick are delivered in part, or only the run is.
func TestSweepInsideAPartlyDeliveredTick(t *testing.T) {
	const inRun, inSlot = 5, 100
	for delivered := 1; delivered < inRun+inSlot; delivered++ {
		w := New[int](0)
		w.slack = 0
		var h []Timer
		for i := range inRun {
			h = append(h, w.Add(100, i))
		}
		w.Advance(90, 10, nil)
		for i := range inSlot {
			h = append(h, w.Add(100, inRun+i))
		}
		w.Advance(100, delivered, nil)
		var want []int
		for i := delivered; i < len(h); i++ {
			if i%3 == 0 {
				want = append(want, i)
			} else if !w.Cancel(h[i]) {
				t.Fatalf("%d is not armed after %d", i, delivered)
			}
		}
		w.sweep()
		checkInside(t, w)
		if w.stale != 0 {
			t.Fatalf("%d stale entries after a sweep", w.stale)
		}
		if out := drainAll(t, w, 100, 7); !slices.Equal(out, want) {
			t.Fatalf("after %d: %v, want %v", delivered, out, want)
		}
		checkInside(t, w)
	}
}

// TestALargeTickComesInBatches has 100,000 timers due at once; the buffer that
// their window took is given back, and that of a usual one is kept.
func TestALargeTickComesInBatches(t *testing.T) {
	w := New[int](0)
	for i := range 100_000 {
		w.Add(1000, i)
	}
	for i := range 1000 {
		w.Add(2000, 100_000+i)
	}
	out := drainAll(t, w, 1500, 1000)
	if len(out) != 100_000 || !slices.IsSorted(out) {
		t.Fatalf("%d expired, sorted: %v", len(out), slices.IsSorted(out))
	}
	if n := cap(w.run.entries); n != 0 {
		t.Fatalf("a buffer of %d entries was kept", n)
	}
	if out = drainAll(t, w, 2000, 1000); len(out) != 1000 {
		t.Fatalf("%d expired then", len(out))
	}
	if n := cap(w.run.entries); n < 1000 {
		t.Fatalf("a buffer of %d entries was kept", n)
	}
}

// TestIdleWakeUps follows Next like an owner that sleeps until then: it must
// be woken once per level at most, and never after the timer.
func TestIdleWakeUps(t *testing.T) {
	for _, delay := range []int64{1, 63, 64, 5000, hour, 30 * 24 * hour, year, 500 * year} {
		w := New[int](1_785_000_000_123)
		at := w.Now() + delay
		w.Add(at, 1)
		for wakes := 0; w.Len() > 0; wakes++ {
			next, ok := w.Next()
			if !ok || next > at || next <= w.Now() && wakes > 0 {
				t.Fatalf("delay %d: Next = %d, %v at %d with a timer at %d", delay, next, ok, w.Now(), at)
			}
			if wakes > levels {
				t.Fatalf("delay %d: more than %d wake-ups", delay, levels)
			}
			w.Advance(next, 10, nil)
		}
		if w.Now() != at {
			t.Fatalf("delay %d: fired at %d, want %d", delay, w.Now(), at)
		}
		if _, ok := w.Next(); ok {
			t.Fatal("an empty wheel has no next tick")
		}
	}
}

func TestSteadyWheelAllocatesNothing(t *testing.T) {
	w := New[int64](0)
	buf := make([]int64, 0, 64)
	now := int64(0)
	step := func() {
		h := w.Add(now+5000, 1)
		w.Add(now+70, 2)
		w.Cancel(h)
		now += 64
		w.Advance(now, 64, buf[:0])
	}
	for range 100 {
		step()
	}
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Fatalf("%v allocations per add, cancel and advance", n)
	}
}

// TestCancelledTimersDontPileUp arms and cancels far timeouts, as finished
// attempts do, and looks at the memory they leave and at the wake-ups.
func TestCancelledTimersDontPileUp(t *testing.T) {
	w := New[int](0)
	w.Add(10*hour, 1)
	for i := range 100_000 {
		w.Cancel(w.Add(int64(600*second+i), i))
	}
	if limit := 4 * defaultSlack / blockEntries; int(w.blocks.used) > limit {
		t.Fatalf("%d blocks for one armed timer, want at most %d", w.blocks.used, limit)
	}
	if w.places.used > defaultSlack+10 {
		t.Fatalf("%d places for one armed timer", w.places.used)
	}
	for wakes := 0; w.Len() > 0; wakes++ {
		if wakes > levels {
			t.Fatal("cancelled timers wake the wheel")
		}
		next, _ := w.Next()
		w.Advance(next, 10, nil)
	}
	if w.stale != 0 {
		t.Fatalf("%d stale entries counted in an empty wheel", w.stale)
	}
}

func TestMemoryOfTenMillionTimers(t *testing.T) {
	const timers, limit = 10_000_000, 1 << 30
	const place = 4 + 1 + 8 // its generation, a bit rounded up, and its handle while it is free
	perEntry := int(unsafe.Sizeof(block[int64]{})+blockEntries-1)/blockEntries + 1
	inRun := int(unsafe.Sizeof(entry[int64]{}))
	// Had there ever been as many stale entries as armed timers, all places free
	// and all timers in one window.
	if total := timers * (2*(place+perEntry) + inRun); total > limit {
		t.Fatalf("10 million timers take %d MiB", total>>20)
	}
}
