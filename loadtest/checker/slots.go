package checker

import (
	"cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// I4, of a slot.
func rowAgrees(w *world, v *view, s *job.Slot) {
	claimed := s.ClaimedAt != 0 && s.Worker != "" && s.Epoch != 0
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{s.State < job.Ready || s.State > job.Discarded, "is in no state that is known"},
		{s.Attempt == 0 && (claimed || s.Outcome != job.OutcomeNone), "was never claimed and shows an attempt"},
		{s.Attempt > 0 && !claimed, "was claimed, but not when, by whom and under which epoch"},
		{s.Attempt == 0 && (s.State == job.Running || s.State == job.Succeeded || s.State == job.Dead), "needs an attempt to be where it is"},
		{s.State.Open() && s.FinishedAt != 0, "is open and has an end"},
		{(s.State == job.Running) != (s.Deadline != 0), "must have a deadline if and only if it runs"},
		{(s.State == job.Succeeded) != (s.Outcome == job.OutcomeSucceeded), "must have succeeded if and only if its newest attempt did"},
		{s.State == job.Ready && s.Attempt > 0 && (s.Outcome == job.OutcomeNone || s.Outcome == job.OutcomeCancelled), "waits again, and not for how its attempt ended"},
		{len(s.Result) > 0 && s.State != job.Succeeded, "has a result and no success"},
		{s.State == job.Dead && !s.Outcome.CountsAsFailure(), "is dead without a failure"},
		{s.State == job.Dead && s.FinishedAt == 0, "is dead and has no end"},
	} {
		if rule.broken {
			w.complain(v, s.Key, "%s: state %v, attempt %d, outcome %v", rule.text, s.State, s.Attempt, s.Outcome)
		}
	}
	letterAgrees(w, v, s)
	attemptsAgree(w, v, s)
	backlogAgrees(w, v, s)
}

// letterAgrees: a dead slot has a dead letter, and no other has one.
func letterAgrees(w *world, v *view, s *job.Slot) {
	letter := v.letters[s.Key]
	switch {
	case (letter != nil) != (s.State == job.Dead):
		w.complain(v, s.Key, "is %v; has a dead letter: %v", s.State, letter != nil)
	case letter != nil && (letter.At != s.FinishedAt || letter.ErrorCode != s.ErrorCode):
		w.complain(v, s.Key, "died at %s of %q, its dead letter says at %s of %q", s.FinishedAt, s.ErrorCode, letter.At, letter.ErrorCode)
	}
}

// attemptsAgree: what is recorded as an attempt that didn't end the slot didn't. Only
// an attempt that was lost may still have succeeded.
func attemptsAgree(w *world, v *view, s *job.Slot) {
	for _, a := range v.attempts[s.Key] {
		lost := a.Outcome == job.OutcomeLeaseLost || a.Outcome == job.OutcomeUnclaimed
		switch {
		case a.Outcome == job.OutcomeNone || a.Outcome == job.OutcomeCancelled, a.Outcome == job.OutcomeSucceeded && s.State != job.Succeeded:
			w.complain(v, s.Key, "is %v, and goes on after attempt %d came to %v", s.State, a.Number, a.Outcome)
		case s.State == job.Succeeded && a.Number == s.Attempt && !lost:
			w.complain(v, s.Key, "succeeded by attempt %d, which had come to %v", a.Number, a.Outcome)
		}
	}
}

// backlogAgrees: a row of the backlog is what its slot makes of it. Those of final
// slots are I14's.
func backlogAgrees(w *world, v *view, s *job.Slot) {
	j := v.jobs[s.Key.UID]
	for _, row := range v.backlog[s.Key] {
		if s.State.Final() {
			continue
		}
		want := backlogRow(s, j)
		want.CheckAt = row.CheckAt
		if !s.State.Open() || row != want || !checkedInTime(s, j, row) {
			w.complain(v, s.Key, "is %v and stands in the backlog as %+v, want %+v", s.State, row, want)
		}
	}
}

// backlogRow is the row that an open slot has in the backlog, if it has one, but for when
// it is to be checked. The tiers of a priority are live work's and what is made up for.
func backlogRow(s *job.Slot, j *job.Job) store.BacklogRow {
	ready := cmp.Or(s.NotBefore, s.CreatedAt)
	row := store.BacklogRow{Key: store.BacklogKey{Waiting: s.State == job.Ready, Rank: ready, Slot: s.Key}, WakeAt: s.NotBefore}
	if s.Key.FireTime.Whole() {
		row.WakeAt = max(row.WakeAt, s.Key.FireTime)
	}
	made := s.Trigger == job.TriggerBackfill
	if s.State == job.Running {
		row.WakeAt = s.Deadline
	}
	if j != nil {
		row.Key.Handler, row.Key.Priority = j.Handler, -2*j.Policies.Priority
		if _, limited := j.Policies.Overlap.Limit(); limited && s.State == job.Ready {
			row.Key.Fairness, row.Key.Rank = s.Key.UID.String(), s.Key.FireTime
			switch j.Policies.Overlap.Mode {
			case job.OverlapQueue:
				made = false
			case job.OverlapSkip, job.OverlapReplace:
				made = s.RequestedAt != 0
			}
		}
	}
	if made {
		row.Key.Priority++
	}
	return row
}

// checkedInTime reports whether a row of the backlog says to look at its slot before that
// expires.
func checkedInTime(s *job.Slot, j *job.Job, row store.BacklogRow) bool {
	if j == nil || s.State != job.Ready {
		return true
	}
	at := j.Policies.ExpiresAt(s)
	return at == job.MaxInstant || row.CheckAt != 0 && row.CheckAt <= at
}

// I4, of a shard.
func rowsHangOnSlots(w *world, v *view) {
	for _, r := range v.Backlog {
		if v.slots[r.Key.Slot] == nil {
			w.complain(v, r.Key.Slot, "stands in the backlog and is not there")
		}
	}
	for _, d := range v.DeadLetters {
		if v.slots[d.Key] == nil {
			w.complain(v, d.Key, "has a dead letter and is not there")
		}
	}
}

// I9, at any time.
func oldIsListed(w *world, v *view) {
	for _, s := range v.Slots {
		if s.State.Open() && s.Key.FireTime < v.OpenFrom && len(v.backlog[s.Key]) == 0 {
			w.complain(v, s.Key, "is %v from before open-from, %s, and not in the backlog", s.State, v.OpenFrom)
		}
	}
}

// I9, once all is quiet.
func quietIsQuiet(w *world, v *view) {
	if !w.Quiet {
		return
	}
	for i := range v.Slots {
		s := &v.Slots[i]
		if wake := max(backlogRow(s, nil).WakeAt, s.CreatedAt); s.State.Open() && !v.aside(s.Key) && !w.younger(wake) {
			w.complain(v, s.Key, "is %v and has been due since %s", s.State, wake)
		}
	}
	for _, r := range v.Backlog {
		if !v.aside(r.Key.Slot) {
			w.complain(v, r.Key.Slot, "waits in the backlog")
		}
	}
	for _, g := range v.Gaps {
		w.complain(v, job.SlotKey{UID: g.Key.UID}, "a gap from %s to %s is open at %s", g.From, g.Key.To, g.Cursor.FireTime)
	}
	for _, uid := range v.Inbox {
		w.complain(v, job.SlotKey{UID: uid}, "waits in the inbox")
	}
}

// aside reports whether a slot's job was set aside: it waits for somebody to look.
func (v *view) aside(key job.SlotKey) bool {
	j := v.jobs[key.UID]
	return j != nil && j.Quarantine != ""
}

// I14.
func finalIsOver(w *world, v *view, s *job.Slot) {
	if !s.State.Final() {
		return
	}
	if s.FinishedAt == 0 {
		w.complain(v, s.Key, "is %v and has no end", s.State)
	}
	if len(v.backlog[s.Key]) > 0 {
		w.complain(v, s.Key, "is %v and stands in the backlog", s.State)
	}
}
