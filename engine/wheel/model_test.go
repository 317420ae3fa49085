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

func (m *model) cancel(h Timer) (int, bool) {
	i := slices.IndexFunc(m.timers, func(t modelTimer) bool { return t.handle == h })
	if i < 0 {
		return 0, false
	}
	id := m.timers[i].id
	m.timers = slices.Delete(m.timers, i, i+1)
	return id, true
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

// runModel drives wheel and model through the same steps and compares all that
// can be seen.
func runModel(t interface {
	Helper()
	Fatalf(string, ...any)
}, s source, start int64, steps int) {
	t.Helper()
	w := New[int](start)
	w.slack = s.choose(4) // sweeps must happen in small wheels too
	m := &model{now: start, reached: start}
	var handles []Timer
	for range steps {
		switch s.choose(8) {
		case 0, 1, 2:
			at := m.now + s.span(uint(s.choose(45))) - s.span(6)
			h := w.Add(at, m.seq+1)
			m.add(at, h)
			handles = append(handles, h)
		case 3: // the same tick as another timer
			if len(m.timers) > 0 {
				at := m.timers[s.choose(len(m.timers))].at
				h := w.Add(at, m.seq+1)
				m.add(at, h)
				handles = append(handles, h)
			}
		case 4, 5: // any handle ever given out: most are stale in the long run
			if len(handles) > 0 {
				h := handles[s.choose(len(handles))]
				v, ok := w.Cancel(h)
				id, want := m.cancel(h)
				if v != id || ok != want {
					t.Fatalf("Cancel(%x) = %d, %v; want %d, %v", h, v, ok, id, want)
				}
				if ok && w.stale > w.armed+w.slack {
					t.Fatalf("%d stale entries for %d timers", w.stale, w.armed)
				}
			}
		case 6, 7:
			now := m.now + s.span(uint(s.choose(45))) - s.span(3)
			checkAdvance(t, w, m, now, 1+s.choose(6))
		}
		checkState(t, w, m)
	}
	for more := true; more; {
		more = checkAdvance(t, w, m, m.now+1<<50, 7)
	}
	checkState(t, w, m)
	if w.stale != 0 || w.nonEmpty != 0 {
		t.Fatalf("%d stale entries, levels %b in an empty wheel", w.stale, w.nonEmpty)
	}
}

func checkAdvance(t interface {
	Helper()
	Fatalf(string, ...any)
}, w *Wheel[int], m *model, now int64, max int) bool {
	t.Helper()
	out, more := w.Advance(now, max, nil)
	ids, wantMore := m.advance(now, max)
	if !slices.Equal(out, ids) || more != wantMore {
		t.Fatalf("Advance(%d, %d) = %v, %v; want %v, %v", now, max, out, more, ids, wantMore)
	}
	return more
}

func checkState(t interface {
	Helper()
	Fatalf(string, ...any)
}, w *Wheel[int], m *model) {
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
	f.Add(int64(0), []byte("\x00\x05\x07\x02\x06\x01\x01\x00"))
	f.Add(int64(-1), []byte("\x01\x20\xff\xff\xff\xff\x3f\x03\x00\x06\x2c\xff\xff\xff\xff\xff\xff\x07\x02\x04\x00"))
	f.Add(int64(1_785_000_000_123), []byte{0, 30, 1, 2, 3, 4, 5, 3, 0, 4, 1, 6, 40, 9, 9, 9, 9, 9, 1, 2})
	f.Fuzz(func(t *testing.T, start int64, data []byte) {
		start %= 1 << 48
		s := &byteSource{data}
		runModel(t, s, start, min(len(data), 2000))
	})
}
