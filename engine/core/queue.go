package core

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// queue holds the READY slots of one handler that may run now, and counts those
// that wait in the backlog.
type queue struct {
	ready readyHeap
	dead  int // places in the heap whose slots have left

	live, backfill tier // of the usual priority
	others         map[int32]*tier

	node *waiting // what waits in all shards
}

// tier counts the slots of a handler that have one priority and are, or aren't, what is
// made up for. Each has its own room in memory, so that none of them is kept out by
// another one, and the heap always knows the first of each.
type tier struct {
	counts int // queued slots
	asleep int // slots that wait for their not-before
	backlogStats
}

// tierOf returns the number of a slot's tier: even for live work, odd for what is made up
// for, the lower the more urgent.
func tierOf(priority int32, t job.Trigger) int32 {
	n := -2 * priority
	if t == job.TriggerBackfill {
		n++
	}
	return n
}

// tier returns the tier with a number.
func (q *queue) tier(n int32) *tier {
	switch n {
	case 0:
		return &q.live
	case 1:
		return &q.backfill
	}
	p := q.others[n]
	if p == nil {
		if q.others == nil {
			q.others = map[int32]*tier{}
		}
		p = &tier{}
		q.others[n] = p
	}
	return p
}

// tierOf returns the tier of a slot.
func (q *queue) tierOf(s *slotState) *tier { return q.tier(s.tier()) }

// tiers yields all tiers by their numbers.
func (q *queue) tiers() iter.Seq2[int32, *tier] {
	return func(yield func(int32, *tier) bool) {
		if !yield(0, &q.live) || !yield(1, &q.backfill) || len(q.others) == 0 {
			return
		}
		for _, n := range slices.Sorted(maps.Keys(q.others)) {
			if !yield(n, q.others[n]) {
				return
			}
		}
	}
}

// backlogStats is what is known of the rows of one handler, priority and fairness key in
// the backlog.
type backlogStats struct {
	rows    int              // that are not in memory
	after   store.BacklogKey // all rows up to it were brought back
	wakeAt  job.Instant      // no row wakes earlier; may be too early, never too late
	reading bool

	unwritten int         // displaced slots whose rows aren't in the database yet
	fresh     int         // rows that the read under way can't see
	paused    bool        // there is nothing to be read before the next batch is written
	lowest    job.Instant // rank that was written since the read under way began
}

// backlogged reports whether slots of the handler wait in the backlog.
func (q *queue) backlogged() bool {
	for _, p := range q.tiers() {
		if p.rows > 0 {
			return true
		}
	}
	return false
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

// read notes that a read begins.
func (b *backlogStats) read() { b.reading, b.fresh, b.lowest = true, b.unwritten, job.MaxInstant }

// wrote notes that the row of a displaced slot was written. It reports whether that lies
// behind what was brought back: then all is read again.
func (b *backlogStats) wrote(rank job.Instant) bool {
	b.unwritten--
	if b.reading {
		b.lowest = min(b.lowest, rank)
		return false
	}
	return b.again(rank)
}

// again has all rows read again if one lies behind what was brought back.
func (b *backlogStats) again(rank job.Instant) bool {
	if rank > b.after.Rank {
		return false
	}
	b.after = store.BacklogKey{}
	return true
}

// answered notes that the rows of a read were taken. It reports whether a row was written
// meanwhile that lies behind them.
func (b *backlogStats) answered() bool {
	b.reading = false
	return b.again(b.lowest)
}

// took notes that a row of a read was brought back.
func (b *backlogStats) took(key store.BacklogKey) {
	b.after = key
	b.rows = max(b.rows-1, 1)
}

// end notes that a read found the last row.
func (b *backlogStats) end() {
	b.rows = b.fresh // what was displaced too late to be read
	b.paused = b.fresh > 0
}

// readyHeap orders slots by what makes one go first: live work, then the instant from
// which they may run, a more urgent one counting as earlier, then the key. Slots that were
// claimed or cancelled stay until they come up.
type readyHeap []*slotState

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h readyHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h *readyHeap) Push(x any)        { *h = append(*h, x.(*slotState)) }
func (h *readyHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}

// before reports whether s goes before o.
func (s *slotState) before(o *slotState) bool {
	if a, b := s.tier()&1, o.tier()&1; a != b {
		return a < b
	}
	if d := cmp.Compare(s.urgency(), o.urgency()); d != 0 {
		return d < 0
	}
	return s.row.Key.Less(o.row.Key)
}

// tier returns the number of the tier of s.
func (s *slotState) tier() int32 { return tierOf(s.job.spec.policies.Priority, s.row.Trigger) }

// urgency is the instant from which s may run, less what its priority is worth.
func (s *slotState) urgency() job.Instant {
	at := readyAt(&s.row)
	if p := s.job.spec.policies.Priority; p != 0 {
		at -= job.Instant(p) * job.Instant(job.PriorityStep.Microseconds())
	}
	return at
}

// push adds a slot that may run now.
func (q *queue) push(s *slotState) {
	s.queued = true
	q.tierOf(s).counts++
	q.node.add(1)
	heap.Push(&q.ready, s)
}

// sleep counts a slot that waits for its not-before.
func (q *queue) sleep(s *slotState) {
	s.asleep = true
	q.tierOf(s).asleep++
}

// minSweep is how many places of slots that have left there may be at least.
const minSweep = 64

// leave takes a slot out of the queue. Its place in the heap goes when it comes up,
// or with all others of its kind once they are the most.
func (q *queue) leave(s *slotState) {
	if s.asleep {
		s.asleep = false
		q.tierOf(s).asleep--
	}
	if !s.queued {
		return
	}
	s.queued = false
	q.tierOf(s).counts--
	q.node.add(-1)
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

// wakeAt is the instant before which a READY slot must not run, or zero. One whose fire
// time lies ahead was made by an owner whose clock was ahead. When it was made doesn't
// count: that may lie ahead, too.
func wakeAt(s *job.Slot) job.Instant {
	if s.Key.FireTime.Whole() {
		return max(s.NotBefore, s.Key.FireTime)
	}
	return s.NotBefore
}

// backlogRow computes the row that an open slot has if it has one.
func backlogRow(s *job.Slot, sp *spec) store.BacklogRow {
	row := store.BacklogRow{
		Key: store.BacklogKey{
			Waiting:  s.State == job.Ready,
			Handler:  sp.handler,
			Priority: tierOf(sp.policies.Priority, s.Trigger),
			Rank:     readyAt(s),
			Slot:     s.Key,
		},
		WakeAt:  wakeAt(s),
		ReadyAt: readyAt(s),
		Trigger: s.Trigger,
	}
	if s.State == job.Running {
		row.WakeAt = s.Deadline
		return row
	}
	if at := sp.policies.CheckAt(s, s.StartedAt); at < job.MaxInstant {
		row.CheckAt = at
	}
	if line, limited := lineOf(s, sp); limited {
		row.Key.Fairness, row.Key.Priority, row.Key.Rank = s.Key.UID.String(), tierOf(sp.policies.Priority, line), s.Key.FireTime
	}
	return row
}
