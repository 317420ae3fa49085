package wheel

import (
	"math/rand/v2"
	"testing"
	"time"
)

const benchTimers = 1_000_000

// benchWheel arms a million timers over the next hour and returns their
// handles in order of Add.
func benchWheel(timers int) (*Wheel[int64], []Timer) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := New[int64](1_785_000_000_000)
	handles := make([]Timer, timers)
	for i := range handles {
		handles[i] = w.Add(w.Now()+1+rng.Int64N(hour), int64(i))
	}
	return w, handles
}

// delays is a table of random delays up to an hour, so that the generator's
// own cost is not measured.
func delays() []int64 {
	rng := rand.New(rand.NewPCG(3, 4))
	d := make([]int64, 1<<16)
	for i := range d {
		d[i] = 1 + rng.Int64N(hour)
	}
	return d
}

// BenchmarkAdd adds timers to a wheel that holds between one and two million,
// its slab grown.
func BenchmarkAdd(b *testing.B) {
	w, handles := benchWheel(2 * benchTimers)
	emptyHalf := func() {
		for i := benchTimers; i < 2*benchTimers; i++ {
			w.Cancel(handles[i])
		}
	}
	emptyHalf()
	d := delays()
	b.ReportAllocs()
	i := benchTimers
	for n := 0; b.Loop(); n++ {
		if i == 2*benchTimers {
			b.StopTimer()
			emptyHalf()
			i = benchTimers
			b.StartTimer()
		}
		handles[i] = w.Add(w.Now()+d[n&(1<<16-1)], int64(i))
		i++
	}
}

// BenchmarkCancel cancels timers of a wheel of a million in order of Add, as
// timeouts of finished work are.
func BenchmarkCancel(b *testing.B) {
	w, handles := benchWheel(benchTimers)
	cancelAll(b, w, handles)
}

// BenchmarkCancelRandom cancels them in random order: a cache miss each.
func BenchmarkCancelRandom(b *testing.B) {
	w, handles := benchWheel(benchTimers)
	rand.New(rand.NewPCG(5, 6)).Shuffle(len(handles), func(i, j int) { handles[i], handles[j] = handles[j], handles[i] })
	cancelAll(b, w, handles)
}

// cancelAll measures Cancel over handles, a batch at a time, whose replacements
// are armed off the clock. Sweeps are on the clock.
func cancelAll(b *testing.B, w *Wheel[int64], handles []Timer) {
	const batch = 1 << 16
	d := delays()
	from, i := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if i == batch {
			b.StopTimer()
			for j := range batch {
				handles[from+j] = w.Add(w.Now()+d[j], 0)
			}
			from = (from + batch) % (len(handles) - batch)
			i = 0
			b.StartTimer()
		}
		w.Cancel(handles[from+i])
		i++
	}
}

// horizons are the spans over which a million timers lie: at the project's rate
// of 10,000 a second, and sparse, where most ticks hold one timer or none.
var horizons = []struct {
	name string
	span int64
}{{"over100s", 100 * second}, {"over1h", hour}}

// BenchmarkExpire empties a wheel of a million timers in steps of 10 ms,
// cascades included; it is filled off the clock: in random order, and in order
// of time, as timeouts of equal length are.
func BenchmarkExpire(b *testing.B) {
	for _, h := range horizons {
		b.Run(h.name, func(b *testing.B) { expire(b, func(w *Wheel[int64]) { fill(w, h.span) }) })
	}
	b.Run("inOrder", func(b *testing.B) {
		expire(b, func(w *Wheel[int64]) {
			for i := range int64(benchTimers) {
				w.Add(w.Now()+1+i/10, i)
			}
		})
	})
}

func expire(b *testing.B, fill func(*Wheel[int64])) {
	w := New[int64](1_785_000_000_000)
	b.ReportAllocs()
	for n := 0; n < b.N; {
		b.StopTimer()
		fill(w)
		b.StartTimer()
		for w.Len() > 0 && n < b.N {
			n += step(w, func(int64) {})
		}
	}
}

// BenchmarkExpireAndRearm measures one expiry and one Add of a steady wheel of
// a million timers.
func BenchmarkExpireAndRearm(b *testing.B) {
	for _, h := range horizons {
		b.Run(h.name, func(b *testing.B) {
			w := New[int64](1_785_000_000_000)
			fill(w, h.span)
			d := delays()
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				step(w, func(v int64) {
					w.Add(w.Now()+d[n&(1<<16-1)]%h.span, v)
					n++
				})
			}
		})
	}
}

func fill(w *Wheel[int64], span int64) {
	rng := rand.New(rand.NewPCG(7, 8))
	for i := w.Len(); i < benchTimers; i++ {
		w.Add(w.Now()+1+rng.Int64N(span), int64(i))
	}
}

var batch = make([]int64, 0, 1024)

// step advances w by 10 ms and hands what expires to f.
func step(w *Wheel[int64], f func(int64)) (n int) {
	advance(w, w.Now()+10, func(due int) {
		for _, v := range batch {
			f(v)
		}
		n += due
	})
	return n
}

// BenchmarkNext reads the next wake-up of a wheel with a million timers.
func BenchmarkNext(b *testing.B) {
	w, _ := benchWheel(benchTimers)
	b.ReportAllocs()
	for b.Loop() {
		w.Next()
	}
}

// BenchmarkIdleTick advances a wheel of a million timers by a tick with nothing
// due.
func BenchmarkIdleTick(b *testing.B) {
	const never = 1 << 60
	w := New[int64](1_785_000_000_000)
	for i := range int64(benchTimers) {
		w.Add(never+i, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		batch, _ = w.Advance(w.Now()+1, cap(batch), batch[:0])
	}
}

// BenchmarkLargeTick has 100,000 timers of a million due at one tick, and reports
// the cost of each and what the first batch of 1,024 takes, which sorts them all
// into the run.
func BenchmarkLargeTick(b *testing.B) {
	const large = 100_000
	w, _ := benchWheel(benchTimers - large)
	first, n := time.Duration(0), 0
	for n < b.N {
		b.StopTimer()
		if w.Len() < large { // the others have expired by and by
			w, _ = benchWheel(benchTimers - large)
		}
		at := w.Now() + second
		for range large {
			w.Add(at, 0)
		}
		advance(w, at-positions, func(int) {})
		b.StartTimer()
		began := time.Now()
		batch, _ = w.Advance(at, cap(batch), batch[:0])
		first += time.Since(began)
		n += len(batch)
		advance(w, at, func(due int) { n += due })
	}
	b.ReportMetric(float64(first.Microseconds())/float64(n/large), "µs/first-batch")
}

// advance moves w to now and calls f after each batch with how many expired.
func advance(w *Wheel[int64], now int64, f func(due int)) {
	for more := true; more; {
		batch, more = w.Advance(now, cap(batch), batch[:0])
		f(len(batch))
	}
}
