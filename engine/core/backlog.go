package core

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// displace sends a READY slot to the backlog: it leaves memory once its row there
// is written, and comes back in its turn.
func (s *Shard) displace(slot *slotState) {
	slot.displaced = true
	s.queue(slot.job.spec.handler).tierOf(slot).add(wakeAt(&slot.row))
	s.markDirty(slot)
}

// listed notes that a displaced slot's row stands in the backlog.
func (s *Shard) listed(slot *slotState) {
	if !slot.displaced || slot.listed {
		return
	}
	slot.listed = true
	row := backlogRow(&slot.row, slot.job.spec)
	if s.statsOf(slot).wrote(row.Key.Rank) && slot.limited() {
		s.laneOf(slot).lineFor(slot).stale = true
	}
	if row.CheckAt != 0 {
		s.checks.note(row.CheckAt)
	}
	if l := s.lanes[slot.row.Key.UID]; l != nil {
		s.advanceLane(l)
	}
}

// statsOf returns what is known of the rows of the backlog among which a slot's is.
func (s *Shard) statsOf(slot *slotState) *backlogStats {
	if slot.limited() {
		return &s.laneOf(slot).lineFor(slot).far
	}
	return &s.queue(slot.job.spec.handler).tierOf(slot).backlogStats
}

// WaitingLoaded answers a read of the backlog.
type WaitingLoaded struct {
	Read  Read
	Slots []store.BacklogSlot
}

func (e WaitingLoaded) apply(s *Shard) {
	s.reads.open--
	switch {
	case !e.Read.UID.IsZero():
		s.cancelWaiting(e)
		return
	case e.Read.Checks:
		s.checkWaiting(e)
		return
	case e.Read.Fairness != "":
		s.lineLoaded(e)
		return
	}
	stats := &s.queue(e.Read.Handler).tier(e.Read.Priority).backlogStats
	s.takeRows(stats, e)
	stats.answered()
}

// takeRows takes the rows of a read back to memory that are due.
func (s *Shard) takeRows(stats *backlogStats, e WaitingLoaded) {
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
		stats.took(w.Row.Key)
		s.takeWaiting(w)
	}
	if len(e.Slots) < e.Read.Limit {
		stats.end()
	}
}

// takeWaiting brings a slot of the backlog back to memory, unless its job was set aside: then
// it waits there for a person, however many there are.
func (s *Shard) takeWaiting(w *store.BacklogSlot) *slotState {
	if w.Job.Quarantine != "" {
		return nil
	}
	return s.takeAny(w)
}

// takeAny is takeWaiting for any job.
func (s *Shard) takeAny(w *store.BacklogSlot) *slotState {
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
func (s *Shard) wantsWaiting(p *tier) bool {
	return !p.reading && !p.paused && p.counts < s.cfg.ReadyLimit/2 && p.due(s.now)
}

// cancelWaiting cancels the waiting slots of a deleted job, page by page.
func (s *Shard) cancelWaiting(e WaitingLoaded) {
	s.reads.cancelling = nil
	for i := range e.Slots {
		w := &e.Slots[i]
		slot := s.takeAny(w)
		if slot != nil && slot.row.State == job.Ready {
			s.cancel(slot, "its job ended")
		}
	}
	if len(e.Slots) == e.Read.Limit {
		s.reads.endedJobs = append(s.reads.endedJobs, e.Read.UID)
		s.reads.cancelsUnwritten = true
	}
}
