package core

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// checks are what is known of the slots in the backlog that expire, or miss an objective,
// though nothing makes room for them: the earliest instant, and what a read can't see.
type checks struct {
	at      job.Instant // no row is to be checked earlier
	fresh   job.Instant // of rows that the read under way can't see
	reading bool
	paused  bool // what was read is to be written first
}

// note notes that a row in the backlog is to be checked at an instant.
func (c *checks) note(at job.Instant) {
	c.at = min(c.at, at)
	if c.reading {
		c.fresh = min(c.fresh, at)
	}
}

// armCheck sets the timer of an open slot's next deadline or objective.
func (s *Shard) armCheck(slot *slotState) {
	s.wheel.Cancel(slot.check)
	slot.check = 0
	if !slot.row.State.Open() {
		return
	}
	if at := slot.job.spec.policies.CheckAt(&slot.row, slot.started); at < job.MaxInstant {
		slot.check = s.wheel.Add(at.Milliseconds(), timer{timerCheck, slot.ref})
	}
}

// check notes what a slot misses by now. It returns false if the slot has ended by that.
func (s *Shard) check(slot *slotState) bool {
	if !slot.row.State.Open() {
		return false
	}
	s.noteMissed(slot, slot.started)
	if slot.job.spec.policies.ExpiresAt(&slot.row) <= s.now {
		s.expireSlot(slot)
		return false
	}
	s.armCheck(slot)
	return true
}

// expireSlot ends a slot whose own deadline has passed.
func (s *Shard) expireSlot(slot *slotState) {
	row, p := &slot.row, &slot.job.spec.policies
	text := fmt.Sprintf("it had not ended %s after %s", p.TotalDeadline, row.Start())
	if p.TotalEnd(row) > s.now {
		text = fmt.Sprintf("it had not begun %s after %s", p.StartDeadline, row.Start())
	}
	if row.ErrorText != "" {
		text += "; " + row.ErrorText
	}
	row.ErrorCode, row.ErrorText = job.CodeExpired, job.CleanText([]byte(text), job.MaxErrorBytes)
	s.finish(slot, job.Expired)
}

// noteMissed notes the objectives that a slot misses, once. started is when its handler's
// first line ran, or zero. What is made up for is late in any case: it has no event.
func (s *Shard) noteMissed(slot *slotState, started job.Instant) {
	p, row := &slot.job.spec.policies, &slot.row
	missed := p.Missed(row, started, s.now)
	if missed == 0 {
		return
	}
	row.Breaches |= missed
	slot.touched = true
	s.markDirty(slot)
	for _, m := range []struct {
		breach job.Breach
		what   string
	}{
		{job.BreachStart, fmt.Sprintf("it had not started %s after %s", p.StartWithin, row.Start())},
		{job.BreachFinish, fmt.Sprintf("it had not ended %s after %s", p.FinishWithin, row.Start())},
	} {
		if missed&m.breach == 0 {
			continue
		}
		s.observe(slot, Observation{Kind: ObjectiveMissed, Breach: m.breach})
		if row.Trigger != job.TriggerBackfill {
			s.note(store.EventObjectiveMissed, row.Key.UID, row.Key.FireTime, m.what)
		}
	}
}

// checkReads asks for the slots of the backlog that are to be checked.
func (s *Shard) checkReads() []Read {
	if c := &s.checks; c.at > s.now || c.reading || c.paused {
		return nil
	}
	s.checks.reading, s.checks.fresh = true, job.MaxInstant
	return []Read{{Kind: ReadWaiting, Checks: true, Limit: s.cfg.PageLimit}}
}

// checkWaiting checks the slots of the backlog whose time has come. Each of them is
// written, or has left the backlog, before the next ones are read.
func (s *Shard) checkWaiting(e WaitingLoaded) {
	c := &s.checks
	c.reading = false
	next := job.MaxInstant
	for i := range e.Slots {
		w := &e.Slots[i]
		if w.Row.CheckAt > s.now {
			next = w.Row.CheckAt
			break
		}
		c.paused = true
		slot := s.slots[w.Slot.Key]
		if slot == nil {
			slot = s.takeAny(w)
		}
		if slot == nil || slot.displaced {
			continue // its row goes, or is on its way
		}
		slot.relist = true // the row's instant has passed
		s.markDirty(slot)
	}
	if len(e.Slots) == e.Read.Limit && next == job.MaxInstant {
		next = s.now
	}
	c.at = min(next, c.fresh)
}
