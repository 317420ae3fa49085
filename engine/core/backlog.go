package core

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// displace sends a READY slot to the backlog: it leaves memory once its row there
// is written, and comes back in its turn.
func (s *Shard) displace(slot *slotState) {
	slot.displaced = true
	q, p := s.queue(slot.job.spec.handler), priorityOf(slot.row.Trigger)
	q.waiting[p].add(readyAt(&slot.row))
	s.markDirty(slot)
}

// listed notes that a displaced slot's row stands in the backlog.
func (s *Shard) listed(slot *slotState) {
	if !slot.displaced || slot.listed {
		return
	}
	slot.listed = true
	stats := &s.queue(slot.job.spec.handler).waiting[priorityOf(slot.row.Trigger)]
	stats.unwritten--
	if readyAt(&slot.row) <= stats.after.ReadyAt {
		stats.after = store.BacklogKey{} // it lies behind what was brought back: begin again
	}
}

// WaitingLoaded answers a read of the backlog.
type WaitingLoaded struct {
	Read  Read
	Slots []store.BacklogSlot
}

func (e WaitingLoaded) apply(s *Shard) {
	s.reads.open--
	if !e.Read.UID.IsZero() {
		s.cancelWaiting(e)
		return
	}
	stats := &s.queue(e.Read.Handler).waiting[e.Read.Priority]
	stats.reading = false
	for i := range e.Slots {
		w := &e.Slots[i]
		if w.Row.WakeAt > s.now {
			stats.wakeAt = w.Row.WakeAt // the rest sleeps longer
			return
		}
		if slot := s.slots[w.Slot.Key]; slot != nil && slot.displaced {
			stats.paused = true // it hasn't left memory yet: go on from here once it has
			return
		}
		stats.after = w.Row.Key
		stats.rows = max(stats.rows-1, 1)
		s.takeWaiting(w)
	}
	if len(e.Slots) < e.Read.Limit {
		stats.rows = stats.fresh // what was displaced too late to be read
		stats.paused = stats.fresh > 0
	}
}

// takeWaiting brings a slot of the backlog back to memory.
func (s *Shard) takeWaiting(w *store.BacklogSlot) *slotState {
	s.patchEnd(&w.Job)
	if slot := s.slots[w.Slot.Key]; slot != nil {
		return slot // it came back before
	}
	if w.Slot.State != job.Ready {
		// The row has outlived its slot's wait; no writer leaves such a row, but one
		// that is there must not come back for ever.
		s.pending.rows.BacklogDels = append(s.pending.rows.BacklogDels, w.Row.Key)
		return nil
	}
	return s.adopt(w.Slot, &w.Job, true)
}

// wantsWaiting reports whether slots of the backlog should come back: there is
// room, and some are due.
func (s *Shard) wantsWaiting(q *queue, p int32) bool {
	stats := &q.waiting[p]
	return !stats.reading && !stats.paused && q.counts[p] < s.cfg.ReadyLimit/2 && stats.due(s.now)
}

// cancelWaiting cancels the waiting slots of a deleted job, page by page.
func (s *Shard) cancelWaiting(e WaitingLoaded) {
	s.reads.cancelling = nil
	for i := range e.Slots {
		w := &e.Slots[i]
		slot := s.takeWaiting(w)
		if slot != nil && slot.row.State == job.Ready {
			s.cancel(slot, "its job ended")
		}
	}
	if len(e.Slots) == e.Read.Limit {
		s.reads.endedJobs = append(s.reads.endedJobs, e.Read.UID)
		s.reads.cancelsUnwritten = true
	}
}
