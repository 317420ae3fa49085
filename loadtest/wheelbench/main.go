// Command wheelbench compares the engine's timing wheel with what one would otherwise take:
// a binary heap, the runtime's own timers, and a B-tree. It is a module of its own, so
// that the product needs none of them.
//
// Every structure holds the same timers, due at random within ten minutes from ten
// minutes on. Each way to end them is measured in a structure filled anew: a random half
// is cancelled; all expire tick by tick, as a node drives it, which asks for the earliest
// and lets pass the time until then; all expire with all of the time passed at once.
package main

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/btree"

	"github.com/carillon-scheduler/carillon/engine/wheel"
)

// timers are numbered from 0 and due at ticks, which are milliseconds.
type timers interface {
	add(n int32, at int64)
	cancel(n int32)
	// next is when something may be due, the earliest it could be.
	next() (at int64, ok bool)
	// expire lets everything expire that is due until a tick, and counts it.
	expire(until int64) int
}

type structure struct {
	name string
	make func(n int) timers
	// ownClock is that it wakes by itself, all the time: there is no next, and time is made
	// to pass at once.
	ownClock bool
}

var structures = []structure{
	{name: "engine/wheel", make: func(n int) timers { return &wheelTimers{wheel.New[int32](0), make([]wheel.Timer, n), nil} }},
	{name: "container/heap", make: func(n int) timers { return &heapTimers{place: make([]int32, n)} }},
	{name: "google/btree, degree 64", make: func(n int) timers {
		return &treeTimers{btree.NewG(64, func(a, b entry) bool { return a.at < b.at || a.at == b.at && a.n < b.n }), make([]int64, n)}
	}},
	{name: "time.AfterFunc", make: func(n int) timers { return &runtimeTimers{all: make([]*time.Timer, n)} }, ownClock: true},
}

const (
	minute = 60_000
	first  = 10 * minute
	last   = 20 * minute
)

func main() {
	counts := flag.String("counts", "10000,1000000,10000000", "timers in the structure")
	flag.Parse()
	fmt.Println("| timers | structure | add ns | allocations | cancel ns | expire ns, tick by tick | at once | bytes a timer | GC pause ms | GC ms |")
	fmt.Println("|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, text := range strings.Split(*counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100_000_000 {
			fmt.Fprintf(os.Stderr, "wheelbench: -counts must be numbers from 1 to 100000000, has %q\n", text)
			os.Exit(2)
		}
		for _, s := range structures {
			fmt.Println(measure(s, n))
		}
	}
}

// costs are CPU nanoseconds for each timer, and what one takes in memory.
type costs struct {
	add, allocations, bytes float64
	pause, collection       time.Duration // of a garbage collection while all are there
}

// measure is a line of the table.
func measure(s structure, n int) string {
	var cancel, atOnce float64
	c := live(s, n, func(t timers, order []int32) {
		half := order[:n/2]
		cancel = perTimer(len(half), func() {
			for _, i := range half {
				t.cancel(i)
			}
		})
	})
	live(s, n, func(t timers, _ []int32) { atOnce = expireAll(s, t, n, func() int { return t.expire(last) }) })
	tickByTick := "–"
	if !s.ownClock {
		live(s, n, func(t timers, _ []int32) {
			tickByTick = fmt.Sprintf("%.0f", expireAll(s, t, n, func() int { return drive(t) }))
		})
	}
	return fmt.Sprintf("| %d | %s | %.0f | %.2f | %.0f | %s | %.0f | %.0f | %.2f | %.0f |", n, s.name, c.add, c.allocations, cancel,
		tickByTick, atOnce, c.bytes, c.pause.Seconds()*1000, c.collection.Seconds()*1000)
}

// expireAll is the cost of the end of n timers.
func expireAll(s structure, t timers, n int, expire func() int) float64 {
	expired := 0
	cost := perTimer(n, func() { expired = expire() })
	if expired != n {
		fmt.Fprintf(os.Stderr, "wheelbench: %s: %d of %d timers expired\n", s.name, expired, n)
		os.Exit(1)
	}
	return cost
}

// drive lets all timers expire as a node does.
func drive(t timers) (n int) {
	for {
		at, ok := t.next()
		if !ok {
			return n
		}
		n += t.expire(at)
	}
}

// live is a life of n timers, which then end: each life in one way, so that no cost
// depends on what was done before it.
func live(s structure, n int, end func(t timers, order []int32)) (c costs) {
	delays, order := plan(n)
	var before, added, collected runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	t := s.make(n)
	c.add = perTimer(n, func() {
		for i, at := range delays {
			t.add(int32(i), at)
		}
	})
	runtime.ReadMemStats(&added)
	c.allocations = float64(added.Mallocs-before.Mallocs) / float64(n)
	began := time.Now()
	runtime.GC()
	c.collection = time.Since(began)
	runtime.ReadMemStats(&collected)
	c.pause = time.Duration(collected.PauseNs[(collected.NumGC+255)%256])
	c.bytes = float64(collected.HeapAlloc-before.HeapAlloc) / float64(n)
	end(t, order)
	runtime.KeepAlive(delays) // else it would be missing in the count of bytes
	runtime.KeepAlive(order)
	return c
}

// plan is when each timer is due, and a random order of them.
func plan(n int) (delays []int64, order []int32) {
	r := rand.New(rand.NewPCG(1, 2))
	delays, order = make([]int64, n), make([]int32, n)
	for i := range delays {
		delays[i], order[i] = first+r.Int64N(last-first), int32(i)
	}
	r.Shuffle(n, func(i, k int) { order[i], order[k] = order[k], order[i] })
	return delays, order
}

// perTimer is the CPU time that fn takes, in nanoseconds for each of n: that of all
// threads, for what the runtime does elsewhere counts, too.
func perTimer(n int, fn func()) float64 {
	began := cpu()
	fn()
	return float64(cpu()-began) / float64(max(n, 1))
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no other error than a wrong argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type wheelTimers struct {
	*wheel.Wheel[int32]
	handles []wheel.Timer
	due     []int32
}

func (t *wheelTimers) add(n int32, at int64) { t.handles[n] = t.Add(at, n) }
func (t *wheelTimers) cancel(n int32)        { t.Cancel(t.handles[n]) }

func (t *wheelTimers) next() (at int64, ok bool) { return t.Next() }

// expire asks for no more than a thousand at a time, as the node does.
func (t *wheelTimers) expire(until int64) (n int) {
	for more := true; more; {
		t.due, more = t.Advance(until, 1000, t.due[:0])
		n += len(t.due)
	}
	return n
}

type entry struct {
	at int64
	n  int32
}

// heapTimers knows the place of each timer in the heap, so that it can be cancelled.
type heapTimers struct {
	all   []entry
	place []int32
}

func (t *heapTimers) Len() int           { return len(t.all) }
func (t *heapTimers) Less(i, k int) bool { return t.all[i].at < t.all[k].at }
func (t *heapTimers) Swap(i, k int) {
	t.all[i], t.all[k] = t.all[k], t.all[i]
	t.place[t.all[i].n], t.place[t.all[k].n] = int32(i), int32(k)
}

func (t *heapTimers) Push(x any) {
	e := x.(entry)
	t.place[e.n] = int32(len(t.all))
	t.all = append(t.all, e)
}

func (t *heapTimers) Pop() any {
	e := t.all[len(t.all)-1]
	t.all = t.all[:len(t.all)-1]
	return e
}

func (t *heapTimers) add(n int32, at int64) { heap.Push(t, entry{at, n}) }
func (t *heapTimers) cancel(n int32)        { heap.Remove(t, int(t.place[n])) }

func (t *heapTimers) next() (at int64, ok bool) {
	if len(t.all) == 0 {
		return 0, false
	}
	return t.all[0].at, true
}

func (t *heapTimers) expire(until int64) (n int) {
	for len(t.all) > 0 && t.all[0].at <= until {
		heap.Pop(t)
		n++
	}
	return n
}

type treeTimers struct {
	*btree.BTreeG[entry]
	at []int64
}

func (t *treeTimers) add(n int32, at int64) {
	t.at[n] = at
	t.ReplaceOrInsert(entry{at, n})
}

func (t *treeTimers) cancel(n int32) { t.Delete(entry{t.at[n], n}) }

func (t *treeTimers) next() (at int64, ok bool) {
	e, ok := t.Min()
	return e.at, ok
}

func (t *treeTimers) expire(until int64) (n int) {
	for {
		e, ok := t.Min()
		if !ok || e.at > until {
			return n
		}
		t.DeleteMin()
		n++
	}
}

// runtimeTimers run by the real clock: when they are to expire, they are reset to now.
type runtimeTimers struct {
	all   []*time.Timer
	fired atomic.Int64
}

func (t *runtimeTimers) add(n int32, at int64) {
	t.all[n] = time.AfterFunc(time.Duration(at)*time.Millisecond, func() { t.fired.Add(1) })
}

func (t *runtimeTimers) cancel(n int32) {
	t.all[n].Stop()
	t.all[n] = nil
}

func (t *runtimeTimers) next() (at int64, ok bool) { return 0, false }

func (t *runtimeTimers) expire(int64) int {
	left := slices.DeleteFunc(t.all, func(timer *time.Timer) bool { return timer == nil })
	for _, timer := range left {
		timer.Reset(0)
	}
	for int(t.fired.Load()) < len(left) {
		time.Sleep(time.Millisecond)
	}
	return int(t.fired.Load())
}
