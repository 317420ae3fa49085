package controlplane

import (
	"cmp"
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// history walks the slots of one job, newest first. It needs no index by job: the
// fire times of its schedule are computed and looked up by their keys, and the few
// slots that no schedule asked for have an index of their own. Before the line of
// retention, where most were deleted, it goes over the keys that are left.
type history struct {
	store  store.Reader
	job    *job.Job
	states []job.State
	before job.Instant // exclusive: where it goes on
	oldest job.Instant // before it the slots were deleted
	now    job.Instant
	done   bool
}

// historyChunk is how many fire times are looked up at once; historyBudget how
// many at most for one page.
const (
	historyChunk  = 200
	historyBudget = 5000
)

// page returns the next slots, at most size of them. It may return fewer although
// more follow: done tells.
func (h *history) page(ctx context.Context, size int) ([]store.SlotOf, error) {
	var out []store.SlotOf
	for looked := 0; !h.done && len(out) < size && looked < historyBudget; looked += historyChunk {
		next := h.chunk
		if h.before <= h.oldest && h.job.Schedule.Kind.Recurring() {
			next = h.remaining
			looked += historyBudget / 5
		}
		chunk, err := next(ctx)
		if err != nil {
			return nil, err
		}
		for _, slot := range chunk {
			if len(h.states) > 0 && !slices.Contains(h.states, slot.State) {
				continue
			}
			if len(out) == size {
				h.done = false
				h.before = out[size-1].Slot.Key.FireTime
				return out, nil
			}
			out = append(out, store.SlotOf{Slot: slot, Job: *h.job})
		}
	}
	return out, nil
}

// chunk returns all slots from a lower bound, which becomes the new before, up to
// the old one.
func (h *history) chunk(ctx context.Context) ([]job.Slot, error) {
	keys, low := h.scheduled()
	extra, err := h.store.UnscheduledSlots(ctx, h.job.Shard, h.job.UID, h.before, historyChunk)
	if err != nil {
		return nil, err
	}
	if len(extra) == historyChunk {
		low = max(low, extra[len(extra)-1].Key.FireTime)
	}
	keys = slices.DeleteFunc(keys, func(k job.SlotKey) bool { return k.FireTime < low })
	slots, err := h.store.SlotsByKey(ctx, h.job.Shard, keys)
	if err != nil {
		return nil, err
	}
	for _, s := range extra {
		if s.Key.FireTime >= low {
			slots = append(slots, s)
		}
	}
	slices.SortFunc(slots, func(a, b job.Slot) int { return cmp.Compare(b.Key.FireTime, a.Key.FireTime) })
	h.before, h.done = low, low == job.MinInstant
	return slots, nil
}

// remainingChunk is how many keys of a shard are looked at at once.
const remainingChunk = 5000

// remaining returns the job's slots among the newest keys of its shard before the
// place, which moves behind them.
func (h *history) remaining(ctx context.Context) ([]job.Slot, error) {
	keys, err := h.store.KeysBefore(ctx, h.job.Shard, job.SlotKey{FireTime: h.before}, remainingChunk)
	if err != nil {
		return nil, err
	}
	low := job.MinInstant
	if len(keys) == remainingChunk {
		low = keys[len(keys)-1].FireTime
		// The chunk may have ended in the middle of the slots of this instant.
		keys = append(keys, job.SlotKey{FireTime: low, UID: h.job.UID})
	}
	keys = slices.Compact(slices.DeleteFunc(keys, func(k job.SlotKey) bool { return k.UID != h.job.UID }))
	if len(keys) > historyChunk {
		keys = keys[:historyChunk]
		low = keys[historyChunk-1].FireTime
	}
	if low <= h.job.EffectiveFrom {
		low = job.MinInstant // nothing of the job is older
	}
	slots, err := h.store.SlotsByKey(ctx, h.job.Shard, keys)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(slots, func(a, b job.Slot) int { return cmp.Compare(b.Key.FireTime, a.Key.FireTime) })
	h.before, h.done = low, low == job.MinInstant
	return slots, nil
}

// scheduled computes the newest fire times before the place, and the lower bound
// to which they are complete: MinInstant at the end.
func (h *history) scheduled() ([]job.SlotKey, job.Instant) {
	if h.job.Schedule.Kind == job.KindOnce && h.job.Schedule.At < h.before {
		return []job.SlotKey{{FireTime: h.job.Schedule.At, UID: h.job.UID}}, job.MinInstant
	}
	plan, err := h.job.Plan()
	if err != nil {
		return nil, job.MinInstant
	}
	newest := h.now
	if h.job.EndedAt != 0 {
		newest = min(newest, h.job.EndedAt)
	}
	var keys []job.SlotKey
	for at := min(h.before, newest+1); len(keys) < historyChunk; {
		sec, ok := plan.Prev(ceilSecond(at))
		at = job.AtSecond(sec)
		if !ok || at <= h.job.EffectiveFrom {
			return keys, job.MinInstant
		}
		if at < h.oldest {
			return keys, h.oldest
		}
		keys = append(keys, job.SlotKey{FireTime: at, UID: h.job.UID})
	}
	return keys, keys[len(keys)-1].FireTime
}

// ceilSecond rounds up, so that what lies strictly before it lies before i too.
func ceilSecond(i job.Instant) int64 {
	s := i.Seconds()
	if job.AtSecond(s) < i {
		s++
	}
	return s
}
