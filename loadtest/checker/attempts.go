package checker

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// I3.
func oneSuccess(w *world, v *view, s *job.Slot) {
	n := 0
	for _, a := range v.attempts[s.Key] {
		if a.Outcome == job.OutcomeSucceeded {
			n++
		}
	}
	if s.State == job.Succeeded {
		n++
	}
	if n > 1 {
		w.complain(v, s.Key, "has %d successes", n)
	}
}

// I5, of a slot.
func attemptsAreCounted(w *world, v *view, s *job.Slot) {
	rows := map[int32]int{}
	for _, a := range v.attempts[s.Key] {
		rows[a.Number]++
	}
	for n, times := range rows {
		if n < 1 || n > s.Attempt || times > 1 {
			w.complain(v, s.Key, "has attempt %d recorded %d times and is at attempt %d", n, times, s.Attempt)
		}
	}
	for n := int32(1); n < s.Attempt; n++ {
		if rows[n] == 0 {
			w.complain(v, s.Key, "has no record of attempt %d of %d", n, s.Attempt)
		}
	}
	ended := rows[s.Attempt] > 0
	if s.Attempt > 0 && s.State == job.Ready && !ended || s.State == job.Running && ended {
		w.complain(v, s.Key, "is %v; that its attempt %d ended without ending it is recorded: %v", s.State, s.Attempt, ended)
	}
	countFailures(w, v, s)
}

func countFailures(w *world, v *view, s *job.Slot) {
	failed := int32(0)
	for _, a := range v.tries(s) {
		if a.Outcome.CountsAsFailure() {
			failed++
		}
	}
	if s.Failures != failed && !w.redriven[s.Key] {
		w.complain(v, s.Key, "counts %d failures, its attempts %d", s.Failures, failed)
	}
	if j := v.jobs[s.Key.UID]; j != nil && s.Failures > j.Retry.MaxAttempts {
		w.complain(v, s.Key, "counts %d failures, allowed are %d", s.Failures, j.Retry.MaxAttempts)
	}
}

// I5, of a shard.
func attemptsHaveSlots(w *world, v *view) {
	for _, r := range v.Attempts {
		if v.slots[r.Key] == nil {
			w.complain(v, r.Key, "has a record of attempt %d and is not there", r.Attempt.Number)
		}
	}
}

// I6.
func attemptsFollow(w *world, v *view, s *job.Slot) {
	tries := v.tries(s)
	for i, a := range tries {
		if a.EndedAt != 0 && w.before(a.EndedAt, a.ClaimedAt) {
			w.complain(v, s.Key, "has attempt %d ended at %s, before its claim at %s", a.Number, a.EndedAt, a.ClaimedAt)
		}
		if i == 0 || a.Number != tries[i-1].Number+1 {
			continue // I5's
		}
		before := tries[i-1]
		early := w.before(a.ClaimedAt, before.EndedAt)
		if a.Epoch == before.Epoch { // one clock
			early = a.ClaimedAt < before.EndedAt
		}
		if early || before.EndedAt == 0 {
			w.complain(v, s.Key, "has attempt %d claimed at %s, before attempt %d ended at %s", a.Number, a.ClaimedAt, before.Number, before.EndedAt)
		}
	}
}

// I7.
func claimsHaveEpochs(w *world, v *view, s *job.Slot) {
	tries := v.tries(s)
	for i, a := range tries {
		place, known := v.taken[a.Epoch]
		if !known {
			w.complain(v, s.Key, "has attempt %d claimed under epoch %d, which never was", a.Number, a.Epoch)
			continue
		}
		if i > 0 && a.Epoch < tries[i-1].Epoch {
			w.complain(v, s.Key, "has attempt %d claimed under epoch %d, after one under epoch %d", a.Number, a.Epoch, tries[i-1].Epoch)
		}
		if from := v.TakeOvers[place].At; w.before(a.ClaimedAt, from) {
			w.complain(v, s.Key, "has attempt %d claimed at %s under epoch %d, which began at %s", a.Number, a.ClaimedAt, a.Epoch, from)
		}
		if place+1 == len(v.TakeOvers) {
			continue
		}
		if until := v.TakeOvers[place+1].At; w.before(until, a.ClaimedAt) {
			w.complain(v, s.Key, "has attempt %d claimed at %s under epoch %d, which ended at %s", a.Number, a.ClaimedAt, a.Epoch, until)
		}
	}
}

// attempt returns an attempt of a slot by its number.
func (v *view) attempt(s *job.Slot, number int32) (job.Attempt, bool) {
	tries := v.tries(s)
	i := slices.IndexFunc(tries, func(a job.Attempt) bool { return a.Number == number })
	if i < 0 {
		return job.Attempt{}, false
	}
	return tries[i], true
}
