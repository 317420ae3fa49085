package storekit

import (
	"container/heap"
	"context"
	"math"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// Bounds of what one page looks at.
const (
	scanBudget = 20_000 // rows, of all shards together
	minChunk   = 20     // rows of one shard that are read at once
)

// Range asks for the newest slots of one shard before a place in the order of its
// keys: at most Limit, due not before From.
type Range struct {
	Shard  shard.ID
	Before job.SlotKey // exclusive; a uid of zeros stands before all of its instant
	From   job.Instant
	Limit  int
}

// Newest reads the ranges of several shards at once: the answers are in the order
// of the questions.
type Newest func(ctx context.Context, ranges []Range) ([][]store.SlotOf, error)

// SlotsPage merges the slots of all shards into one page, newest first.
//
// It reads of each shard only about its share of the page, and more of those whose
// slots are the newest. Slots of other namespaces, and those that the filter leaves
// out, count as looked at.
func SlotsPage(ctx context.Context, p store.SlotsPage, shards int, read Newest) (page []store.SlotOf, next store.SlotCursor, err error) {
	m := merge{page: p, read: read}
	if err := m.start(ctx, shards); err != nil {
		return nil, next, err
	}
	for looked := 0; len(m.heads) > 0; looked++ {
		if looked == scanBudget {
			return page, next, nil
		}
		s, err := m.take(ctx)
		if err != nil {
			return nil, next, err
		}
		if s.Job.Namespace == p.Namespace && p.Filter.Match(&s) {
			if len(page) == p.Limit {
				return page, cursorOf(page[p.Limit-1]), nil
			}
			page = append(page, s)
		}
		next = cursorOf(s)
	}
	return page, store.SlotCursor{}, nil
}

// merge holds the rows that were read of each shard and not taken yet.
type merge struct {
	page  store.SlotsPage
	read  Newest
	chunk int
	heads headHeap
}

type head struct {
	rows []store.SlotOf
	more bool // the shard may have further rows
}

func (m *merge) start(ctx context.Context, shards int) error {
	m.chunk = max(minChunk, 2*m.page.Limit/shards)
	ranges := make([]Range, shards)
	for id := range ranges {
		ranges[id] = m.rangeOf(shard.ID(id), bound(shard.ID(id), m.page.Before))
	}
	answers, err := m.read(ctx, ranges)
	if err != nil {
		return err
	}
	for _, rows := range answers {
		if len(rows) > 0 {
			m.heads = append(m.heads, head{rows: rows, more: len(rows) == m.chunk})
		}
	}
	heap.Init(&m.heads)
	return nil
}

func (m *merge) rangeOf(id shard.ID, before job.SlotKey) Range {
	if until := m.page.Filter.Until; until != 0 && until <= before.FireTime {
		before = job.SlotKey{FireTime: until}
	}
	from := job.Instant(math.MinInt64) // also beyond what the API can carry
	if m.page.Filter.From != 0 {
		from = m.page.Filter.From
	}
	return Range{Shard: id, Before: before, From: from, Limit: m.chunk}
}

// take returns the newest row that is left, and reads on in its shard if it was the
// last one of those that were read.
func (m *merge) take(ctx context.Context) (store.SlotOf, error) {
	h := &m.heads[0]
	s := h.rows[0]
	h.rows = h.rows[1:]
	if len(h.rows) == 0 && h.more {
		m.chunk = min(2*m.chunk, 1000)
		r := m.rangeOf(s.Job.Shard, s.Slot.Key)
		answers, err := m.read(ctx, []Range{r})
		if err != nil {
			return s, err
		}
		h.rows, h.more = answers[0], len(answers[0]) == r.Limit
	}
	if len(h.rows) == 0 {
		heap.Pop(&m.heads)
	} else {
		heap.Fix(&m.heads, 0)
	}
	return s, nil
}

// headHeap orders shards by their newest row that is left.
type headHeap []head

func (h headHeap) Len() int           { return len(h) }
func (h headHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h headHeap) Less(i, j int) bool { return newer(cursorOf(h[i].rows[0]), cursorOf(h[j].rows[0])) }
func (h *headHeap) Push(x any)        { *h = append(*h, x.(head)) }
func (h *headHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// bound turns a place in the order of all slots into an exclusive upper bound of the
// keys of one shard.
func bound(id shard.ID, c store.SlotCursor) job.SlotKey {
	switch {
	case c == (store.SlotCursor{}):
		return job.SlotKey{FireTime: math.MaxInt64} // also beyond what the API can carry
	case id == c.Shard:
		return c.Key
	case id < c.Shard:
		return job.SlotKey{FireTime: c.Key.FireTime + 1} // its rows of that instant come later
	}
	return job.SlotKey{FireTime: c.Key.FireTime}
}

func cursorOf(s store.SlotOf) store.SlotCursor {
	return store.SlotCursor{Key: s.Slot.Key, Shard: s.Job.Shard}
}

// newer orders the places of slots: later fire times first, then larger shards,
// then larger uids.
func newer(a, b store.SlotCursor) bool {
	if a.Key.FireTime != b.Key.FireTime {
		return a.Key.FireTime > b.Key.FireTime
	}
	if a.Shard != b.Shard {
		return a.Shard > b.Shard
	}
	return b.Key.UID.Less(a.Key.UID)
}

// JobsPage gathers a page of jobs that a filter lets through. read returns at most
// limit jobs after a place, in order.
func JobsPage(p store.JobsPage, read func(after store.JobCursor, limit int) ([]job.Job, error)) (page []job.Job, next store.JobCursor, err error) {
	limit := p.Limit + 1
	for looked := 0; looked < scanBudget; {
		jobs, err := read(p.After, limit)
		if err != nil {
			return nil, next, err
		}
		for i := range jobs {
			if p.Filter.Match(&jobs[i]) {
				if len(page) == p.Limit {
					return page, jobCursor(&page[p.Limit-1]), nil
				}
				page = append(page, jobs[i])
			}
			p.After = jobCursor(&jobs[i])
		}
		if len(jobs) < limit {
			return page, store.JobCursor{}, nil
		}
		looked += len(jobs)
		limit = min(2*limit, 1000)
	}
	return page, p.After, nil
}

func jobCursor(j *job.Job) store.JobCursor { return store.JobCursor{Name: j.Name, UID: j.UID} }

// DeadPage gathers a page of dead letters of a namespace, a handler and a fingerprint.
// read returns at most limit of them after a place, in order.
func DeadPage(p store.DeadLettersPage, read func(after store.DeadCursor, limit int) ([]store.DeadLetterOf, error)) (page []store.DeadLetterOf, next store.DeadCursor, err error) {
	limit := p.Limit + 1
	for looked := 0; looked < scanBudget; {
		letters, err := read(p.After, limit)
		if err != nil {
			return nil, next, err
		}
		for _, d := range letters {
			if d.Namespace == p.Namespace && p.Filter.Match(&d.DeadLetter) {
				if len(page) == p.Limit {
					return page, deadCursor(page[p.Limit-1]), nil
				}
				page = append(page, d)
			}
			p.After = deadCursor(d)
		}
		if len(letters) < limit {
			return page, store.DeadCursor{}, nil
		}
		looked += len(letters)
		limit = min(2*limit, 1000)
	}
	return page, p.After, nil
}

func deadCursor(d store.DeadLetterOf) store.DeadCursor {
	return store.DeadCursor{Shard: d.Shard, Key: d.Key}
}

// CountBudget bounds the slots of one shard that are counted.
const CountBudget = 5000

// Bucket is the length of the ranges of fire times in which slots are counted.
const Bucket = 10 * job.Second

// Count is how many slots of a state a shard has in a bucket.
type Count struct {
	State  job.State
	Bucket job.Instant // its beginning
	Looked int64       // of all namespaces
	Slots  int64       // of the one that was asked for
}

// Tally adds up the counts of all shards.
type Tally struct {
	since  job.Instant
	counts []Count
}

// NewTally begins a count of the slots that were due since an instant, rounded up to
// a bucket.
func NewTally(since job.Instant) Tally {
	t := Tally{since: since - since%Bucket}
	if t.since < since {
		t.since += Bucket
	}
	return t
}

// Since is from when on slots are to be counted.
func (t *Tally) Since() job.Instant { return t.since }

// Shard adds the counts of one shard. If they reach the budget, its oldest bucket is
// not complete.
func (t *Tally) Shard(counts []Count) {
	total, oldest := int64(0), job.MaxInstant
	for _, c := range counts {
		total += c.Looked
		oldest = min(oldest, c.Bucket)
	}
	if total >= CountBudget {
		t.since = max(t.since, oldest+Bucket)
	}
	t.counts = append(t.counts, counts...)
}

// Finish returns the counts.
func (t *Tally) Finish() store.SlotCounts {
	out := store.SlotCounts{ByState: map[job.State]int64{}, Since: t.since}
	for _, c := range t.counts {
		if c.Bucket >= t.since {
			out.ByState[c.State] += c.Slots
		}
	}
	return out
}
