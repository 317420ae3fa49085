package checker

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// Invariant is the number of an invariant in the package comment.
type Invariant int8

// String returns I and the number.
func (i Invariant) String() string { return fmt.Sprintf("I%d", int8(i)) }

// Violation is one thing that must not be.
type Violation struct {
	Invariant Invariant
	Shard     shard.ID
	Job       job.UID     // zero: it is of the shard
	Fire      job.Instant // zero: it is of the job
	Text      string      // what is wrong, in a sentence
}

// String returns v in one line.
func (v Violation) String() string {
	where := fmt.Sprintf("%s shard %d", v.Invariant, v.Shard)
	if !v.Job.IsZero() {
		where += " job " + v.Job.String()
	}
	if v.Fire != 0 {
		where += " slot " + v.Fire.ID()
	}
	return where + ": " + v.Text
}

// invariants is the table of the package comment.
var invariants = []struct {
	id    Invariant
	check func(*world)
}{
	{1, eachJob(dueHasSlot)},
	{2, eachSlot(slotIsOwed)},
	{3, eachSlot(oneSuccess)},
	{4, both(eachSlot(rowAgrees), eachShard(rowsHangOnSlots))},
	{5, both(eachSlot(attemptsAreCounted), eachShard(attemptsHaveSlots))},
	{6, eachSlot(attemptsFollow)},
	{7, eachSlot(claimsHaveEpochs)},
	{8, eachShard(epochsGrow)},
	{9, both(eachShard(oldIsListed), eachShard(quietIsQuiet))},
	{10, jobsAreKept},
	{11, both(eachRun(runIsRecorded), strayEffects)},
	{12, eachRun(runIsNotEarly)},
	{13, eachSlot(successIsOneRun)},
	{14, eachSlot(finalIsOver)},
	{15, eachJob(watermarkPassesNoHole)},
	{16, eachSlot(calendarsAreKept)},
	{17, eachShard(skipsAreAllowed)},
	{18, eachJob(limitIsKept)},
}

// Check returns all violations, in order: by invariant, shard, fire time and job.
func Check(h History) []Violation {
	w := newWorld(h)
	for _, i := range invariants {
		w.id = i.id
		i.check(w)
	}
	slices.SortStableFunc(w.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Invariant, b.Invariant), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Fire, b.Fire),
			bytes.Compare(a.Job[:], b.Job[:]), cmp.Compare(a.Text, b.Text))
	})
	return w.found
}

// both checks one thing after the other.
func both(a, b func(*world)) func(*world) {
	return func(w *world) { a(w); b(w) }
}

func eachShard(check func(*world, *view)) func(*world) {
	return func(w *world) {
		for _, v := range w.views {
			check(w, v)
		}
	}
}

// eachJob checks what jobs owe: of those that owe something.
func eachJob(check func(*world, *view, *job.Job)) func(*world) {
	return eachShard(func(w *world, v *view) {
		for i := range v.Jobs {
			if j := &v.Jobs[i]; !v.inbox[j.UID] && j.Quarantine == "" {
				check(w, v, j)
			}
		}
	})
}

func eachSlot(check func(*world, *view, *job.Slot)) func(*world) {
	return eachShard(func(w *world, v *view) {
		for i := range v.Slots {
			check(w, v, &v.Slots[i])
		}
	})
}

// eachRun checks what a handler did in one attempt.
func eachRun(check func(*world, *view, *run)) func(*world) {
	return eachShard(func(w *world, v *view) {
		for i := range v.runs {
			check(w, v, &v.runs[i])
		}
	})
}

// complain notes a violation of the invariant that is being checked.
func (w *world) complain(v *view, key job.SlotKey, format string, args ...any) {
	w.found = append(w.found, Violation{Invariant: w.id, Shard: v.Shard, Job: key.UID, Fire: key.FireTime, Text: fmt.Sprintf(format, args...)})
}
