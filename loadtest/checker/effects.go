package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// mayBeGone reports whether a job may have been deleted, long after it ended.
func (w *world) mayBeGone(uid job.UID) bool { return slices.Contains(w.Ledger.Ended, uid) }

// I11, of what the jobs of a shard did.
func runIsRecorded(w *world, v *view, r *run) {
	s := v.slots[r.key]
	if w.younger(r.since) || s == nil && r.key.FireTime < v.RetainedFrom {
		return
	}
	if s == nil {
		w.complain(v, r.key, "ran attempt %d and is not there", r.attempt)
		return
	}
	if _, known := v.attempt(s, r.attempt); !known {
		w.complain(v, r.key, "ran attempt %d, which was never claimed", r.attempt)
	}
	if len(r.began) != 1 {
		w.complain(v, r.key, "began attempt %d %d times", r.attempt, len(r.began))
	}
}

// I11, of what no job that is known did.
func strayEffects(w *world) {
	for _, e := range w.stray {
		if !w.mayBeGone(e.Job) && !w.younger(e.At) {
			w.complain(nowhere, job.SlotKey{FireTime: e.Fire, UID: e.Job}, "ran attempt %d of a job that is not there", e.Attempt)
		}
	}
}

// I12.
func runIsNotEarly(w *world, v *view, r *run) {
	claimed := r.key.FireTime
	if s := v.slots[r.key]; s != nil {
		a, _ := v.attempt(s, r.attempt)
		claimed = max(claimed, a.ClaimedAt)
	}
	for _, at := range r.began {
		if w.before(at, claimed) {
			w.complain(v, r.key, "began attempt %d at %s, before its fire time or its claim at %s", r.attempt, at, claimed)
		}
	}
}

// I13.
func successIsOneRun(w *world, v *view, s *job.Slot) {
	if w.Effects == nil {
		return
	}
	var complete []*run
	for _, r := range v.runsOf[s.Key] {
		if r.done > 0 {
			complete = append(complete, r)
		}
	}
	slices.SortFunc(complete, func(a, b *run) int { return cmp.Compare(a.attempt, b.attempt) })
	succeeded := 0
	for i, r := range complete {
		if r.attempt == s.Attempt {
			succeeded = r.done
		}
		if i+1 == len(complete) {
			break
		}
		if a, known := v.attempt(s, r.attempt); known && !takenAway(a.Outcome) {
			w.complain(v, s.Key, "completed attempt %d, which came to %v, and again attempt %d", r.attempt, a.Outcome, complete[i+1].attempt)
		}
	}
	if s.State == job.Succeeded && succeeded != 1 && !w.younger(s.FinishedAt) {
		w.complain(v, s.Key, "succeeded by attempt %d, which was completed %d times", s.Attempt, succeeded)
	}
}

// takenAway reports whether an attempt ended for its shard while its worker may have
// gone on.
func takenAway(o job.Outcome) bool {
	switch o {
	case job.OutcomeTimedOut, job.OutcomeLeaseLost, job.OutcomeReleased, job.OutcomeUnclaimed:
		return true
	}
	return false
}
