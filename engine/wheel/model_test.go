package wheel

import (
	"cmp"
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is the specification: a slice of timers sorted by (effective tick,
// order of Add).
type model struct {
	now, reached int64 // reached is the tick of the last delivery of a cut batch, else now
	timers       []modelTimer
	seq          int
}

type modelTimer struct {
	at     int64
	id     int
	handle Timer
}

func (m *model) add(at int64, h Timer) int {
	m.seq++
	m.timers = append(m.timers, modelTimer{max(at, m.reached), m.seq, h})
	slices.SortStableFunc(m.timers, func(a, b modelTimer) int { return cmp.Compare(a.at, b.at) })
	return m.seq
}

func (m *model) cancel(h Timer) bool {
	before := len(m.timers)
	m.timers = slices.DeleteFunc(m.timers, func(t modelTimer) bool { return t.handle == h })
	return len(m.timers) < before
}

func (m *model) advance(now int64, max int) (ids []int, more bool) {
	if now > m.now {
		m.now = now
	}
	for len(m.timers) > 0 && m.timers[0].at <= m.now {
		if len(ids) == max {
			// The wheel stands on the first tick that is left.
			m.reached = m.timers[0].at
			return ids, true
		}
		ids = append(ids, m.timers[0].id)
		m.timers = m.timers[1:]
	}
	m.reached = m.now
	return ids, false
}

// source of choices, so that one driver serves rapid and native fuzzing.
type source interface {
	choose(n int) int  // 0..n-1
	span(k uint) int64 // 0..2^k-1
}

// tester is what the checks need of a *testing.T and of a *rapid.T.
type tester interface {
	Helper()
	Fatalf(string, ...any)
}

// pair is a wheel and its model, driven through the same steps.
type pair struct {
	t       tester
	s       source
	w       *Wheel[int]
	m       *model
	handles []Timer // all ever given out
}

// runModel drives wheel and model through steps and compares all that can be
// seen after each.
func runModel(t tester, s source, start int64, steps int) {
	t.Helper()
	p := &pair{t: t, s: s, w: New[int](start), m: &model{now: start, reached: start}}
	if slack := s.choose(5); slack < 4 { // sweeps must happen in small wheels too
		p.w.slack = slack
	}
	for range steps {
		p.step()
		checkState(t, p.w, p.m)
		checkInside(t, p.w)
	}
	for more := true; more; {
		more = p.advance(p.m.now+1<<50, 7)
	}
	checkState(t, p.w, p.m)
	if p.w.stale != 0 || p.w.nonEmpty != 0 {
		t.Fatalf("%d stale entries, levels %b in an empty wheel", p.w.stale, p.w.nonEmpty)
	}
}

func (p *pair) step() {
	switch p.s.choose(11) {
	case 0, 1:
		p.add(p.m.now + p.s.span(uint(p.s.choose(45))) - p.s.span(6))
	case 2: // the same tick as another timer
		if n := len(p.m.timers); n > 0 {
			p.add(p.m.timers[p.s.choose(n)].at)
		}
	case 3: // many in a window, for a block is long
		at := p.m.now + p.s.span(uint(p.s.choose(20)))
		for range p.s.choose(3 * blockEntries) {
			at ^= int64(p.s.choose(8))
			p.add(at)
		}
	case 4, 5: // any handle ever given out: most are stale in the long run
		if len(p.handles) > 0 {
			p.cancel(p.handles[p.s.choose(len(p.handles))])
		}
	case 6: // most of those armed, or some
		keep := 1 + p.s.choose(4)
		for i, timer := range slices.Clone(p.m.timers) {
			if i%(keep+1) != 0 {
				p.cancel(timer.handle)
			}
		}
	case 7, 8:
		p.advance(p.m.now+p.s.span(uint(p.s.choose(45)))-p.s.span(3), 1+p.s.choose(6))
	case 9: // as far as something may be due, as an owner goes
		if at, ok := p.w.Next(); ok {
			p.advance(at, 1+p.s.choose(50))
		}
	case 10: // as far as the first timers, or into the midst of them
		if n := len(p.m.timers); n > 0 {
			p.advance(p.m.timers[p.s.choose(n)].at, 1+p.s.choose(50))
		}
	}
}

func (p *pair) add(at int64) {
	h := p.w.Add(at, p.m.seq+1)
	p.m.add(at, h)
	p.handles = append(p.handles, h)
}

func (p *pair) cancel(h Timer) {
	p.t.Helper()
	armed := p.w.Armed(h)
	ok, want := p.w.Cancel(h), p.m.cancel(h)
	if armed != want || ok != want || p.w.Armed(h) {
		p.t.Fatalf("Armed(%x) = %v, Cancel = %v, then Armed = %v; want %v", h, armed, ok, p.w.Armed(h), want)
	}
	if ok && p.w.stale > p.w.armed+p.w.slack {
		p.t.Fatalf("%d stale entries for %d timers", p.w.stale, p.w.armed)
	}
}

func (p *pair) advance(now int64, max int) bool {
	p.t.Helper()
	out, more := p.w.Advance(now, max, nil)
	ids, wantMore := p.m.advance(now, max)
	if !slices.Equal(out, ids) || more != wantMore {
		p.t.Fatalf("Advance(%d, %d) = %v, %v; want %v, %v", now, max, out, more, ids, wantMore)
	}
	return more
}

// checkInside counts what the wheel holds: each entry is that of an armed timer
// or counted as stale, and each place is free or has an entry.
func checkInside(t tester, w *Wheel[int]) {
	t.Helper()
	entries, live := 0, 0
	see := func(some []entry[int]) {
		entries += len(some)
		for _, e := range some {
			live += int(w.places.bit(e.timer))
		}
	}
	see(w.run.rest())
	taken := w.taken
	for slot, l := range w.slots {
		if level := slot / positions; (l.head != 0) != (w.occupied[level]>>(slot%positions)&1 != 0) {
			t.Fatalf("the bitmap of level %d is wrong at %d", level, slot%positions)
		}
		for i := l.head; i != 0; i = w.blocks.next[i] {
			see(w.blocks.entries(&l, i)[taken:])
			taken = 0
		}
	}
	if live != w.armed || entries != w.armed+w.stale {
		t.Fatalf("%d entries, %d of them live, for %d armed timers and %d stale entries", entries, live, w.armed, w.stale)
	}
	if used := int(w.places.used - 1); used != entries+int(w.places.free) {
		t.Fatalf("%d places, %d of them free, for %d entries", used, w.places.free, entries)
	}
}

func checkState(t tester, w *Wheel[int], m *model) {
	t.Helper()
	if w.Len() != len(m.timers) || w.Now() != m.now {
		t.Fatalf("Len %d, Now %d; want %d, %d", w.Len(), w.Now(), len(m.timers), m.now)
	}
	next, ok := w.Next()
	if ok != (len(m.timers) > 0) {
		t.Fatalf("Next ok = %v with %d timers", ok, len(m.timers))
	}
	if !ok {
		return
	}
	first := m.timers[0].at
	if next > first {
		t.Fatalf("Next = %d is later than the first timer at %d", next, first)
	}
	if first-m.reached < positions && first/positions == m.reached/positions && m.reached >= 0 && next != first {
		t.Fatalf("Next = %d is not exact for a near timer at %d", next, first)
	}
}

type rapidSource struct{ t *rapid.T }

func (s rapidSource) choose(n int) int { return rapid.IntRange(0, n-1).Draw(s.t, "choice") }
func (s rapidSource) span(k uint) int64 {
	return rapid.Int64Range(0, 1<<k-1).Draw(s.t, "span")
}

func TestWheelMatchesSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Int64Range(-1<<48, 1<<48).Draw(t, "start")
		runModel(t, rapidSource{t}, start, rapid.IntRange(1, 120).Draw(t, "steps"))
	})
}

// byteSource reads choices from fuzzed bytes; an exhausted one yields zeros.
type byteSource struct{ data []byte }

func (s *byteSource) next(n int) uint64 {
	var b [8]byte
	s.data = s.data[copy(b[:n], s.data):]
	return binary.LittleEndian.Uint64(b[:])
}

func (s *byteSource) choose(n int) int { return int(s.next(1)) % n }
func (s *byteSource) span(k uint) int64 {
	return int64(s.next(int(k+7)/8) & (1<<k - 1))
}

func FuzzWheel(f *testing.F) {
	f.Fuzz(func(t *testing.T, start int64, data []byte) {
		start %= 1 << 48
		s := &byteSource{data}
		runModel(t, s, start, min(len(data), 500))
	})
}
