package core

import (
	"container/heap"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// queue holds the READY slots of one handler that may run now, and counts those
// that wait in the backlog.
type queue struct {
	ready   readyHeap
	counts  [2]int // queued slots by priority
	asleep  [2]int // slots that wait for their not-before, by priority
	dead    int    // places in the heap whose slots have left
	waiting [2]backlogStats
}

// backlogStats is what is known of the rows of one handler and priority in the
// backlog.
type backlogStats struct {
	rows    int              // that are not in memory
	after   store.BacklogKey // all rows up to it were brought back
	wakeAt  job.Instant      // no row wakes earlier; may be too early, never too late
	reading bool

	unwritten int  // displaced slots whose rows aren't in the database yet
	fresh     int  // rows that the read under way can't see
	paused    bool // there is nothing to be read before the next batch is written
}

// backlogged reports whether slots of the handler wait in the backlog.
func (q *queue) backlogged() bool {
	return q.waiting[priorityLive].rows > 0 || q.waiting[priorityBackfill].rows > 0
}

// due reports whether rows should come back to memory by now.
func (b *backlogStats) due(now job.Instant) bool { return b.rows > 0 && b.wakeAt <= now }

func (b *backlogStats) add(wakeAt job.Instant) {
	if b.rows == 0 || wakeAt < b.wakeAt {
		b.wakeAt = wakeAt
	}
	b.rows++
	b.unwritten++
	b.fresh++
}

// readyHeap orders slots by priority, then by the instant from which they may
// run, then by key. Slots that were claimed or cancelled stay until they come up.
type readyHeap []*slotState

func (h readyHeap) Len() int      { return len(h) }
func (h readyHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h readyHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if pa, pb := priorityOf(a.row.Trigger), priorityOf(b.row.Trigger); pa != pb {
		return pa < pb
	}
	if ra, rb := readyAt(&a.row), readyAt(&b.row); ra != rb {
		return ra < rb
	}
	return a.row.Key.Less(b.row.Key)
}
func (h *readyHeap) Push(x any) { *h = append(*h, x.(*slotState)) }
func (h *readyHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}

// push adds a slot that may run now.
func (q *queue) push(s *slotState) {
	s.queued = true
	q.counts[priorityOf(s.row.Trigger)]++
	heap.Push(&q.ready, s)
}

// sleep counts a slot that waits for its not-before.
func (q *queue) sleep(s *slotState) {
	s.asleep = true
	q.asleep[priorityOf(s.row.Trigger)]++
}

// minSweep is how many places of slots that have left there may be at least.
const minSweep = 64

// leave takes a slot out of the queue. Its place in the heap goes when it comes up,
// or with all others of its kind once they are the most.
func (q *queue) leave(s *slotState) {
	p := priorityOf(s.row.Trigger)
	if s.asleep {
		s.asleep = false
		q.asleep[p]--
	}
	if !s.queued {
		return
	}
	s.queued = false
	q.counts[p]--
	q.dead++
	if q.dead > minSweep && q.dead > len(q.ready)/2 {
		q.ready = slices.DeleteFunc(q.ready, func(s *slotState) bool { return !s.queued })
		heap.Init(&q.ready)
		q.dead = 0
	}
}

// peek returns the first slot that may run, or nil.
func (q *queue) peek() *slotState {
	for len(q.ready) > 0 {
		if s := q.ready[0]; s.queued {
			return s
		}
		heap.Pop(&q.ready)
		q.dead--
	}
	return nil
}

// readyAt is the instant from which a READY slot may run. It depends on nothing
// but the row, so that a slot's place in the backlog can always be computed.
func readyAt(s *job.Slot) job.Instant {
	if s.NotBefore != 0 {
		return s.NotBefore
	}
	return s.CreatedAt
}

// backlogRow computes the row that an open slot has if it has one.
func backlogRow(s *job.Slot, handler string) store.BacklogRow {
	row := store.BacklogRow{
		Key: store.BacklogKey{
			Waiting:  s.State == job.Ready,
			Handler:  handler,
			Priority: priorityOf(s.Trigger),
			ReadyAt:  readyAt(s),
			Slot:     s.Key,
		},
		WakeAt:  readyAt(s),
		Trigger: s.Trigger,
	}
	if s.State == job.Running {
		row.WakeAt = s.Deadline
	}
	return row
}
