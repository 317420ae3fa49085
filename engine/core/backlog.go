package core

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// displace sends a READY slot to the backlog: it leaves memory once its row there
// is written, and comes back in its turn.
func (s *Shard) displace(slot *slotState) {
	slot.displaced = true
	q, p := s.queue(slot.job.Handler), priorityOf(slot.row.Trigger)
	q.waiting[p].add(readyAt(&slot.row))
	s.markDirty(slot)
}

// WaitingLoaded answers a read of the backlog.
type WaitingLoaded struct {
	Read  Read
	Slots []store.BacklogSlot
}

func (e WaitingLoaded) apply(s *Shard) {
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
		stats.after = w.Row.Key
		stats.rows = max(stats.rows-1, 1)
		s.takeWaiting(w)
	}
	if len(e.Slots) < e.Read.Limit {
		stats.rows = 0
	}
}

// takeWaiting brings a slot of the backlog back to memory.
func (s *Shard) takeWaiting(w *store.BacklogSlot) *slotState {
	if slot := s.slots[w.Slot.Key]; slot != nil {
		slot.displaced = false // it hadn't left yet
		s.enqueue(slot)
		return slot
	}
	return s.adopt(w.Slot, &w.Job, true)
}

// wantsWaiting reports whether slots of the backlog should come back: there is
// room, and some are due.
func (s *Shard) wantsWaiting(q *queue, p int32) bool {
	stats := &q.waiting[p]
	return !stats.reading && q.counts[p] < s.cfg.ReadyLimit/2 && stats.due(s.now)
}

// cancelWaiting cancels the waiting slots of a deleted job, page by page.
func (s *Shard) cancelWaiting(e WaitingLoaded) {
	s.reads.ended = nil
	for i := range e.Slots {
		w := &e.Slots[i]
		slot := s.takeWaiting(w)
		if slot != nil && slot.row.State == job.Ready {
			s.cancel(slot, "its job ended")
		}
	}
	if len(e.Slots) == e.Read.Limit {
		s.reads.endedJobs = append(s.reads.endedJobs, e.Read.UID)
	}
}
