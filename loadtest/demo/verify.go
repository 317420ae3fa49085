package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// settled is how long before the outage a slot must have been fired on time.
const settled = 2 * time.Second

// record is one slot as the API lists it, with its attempts.
type record struct {
	slot     *carillonv1.Slot
	attempts []*carillonv1.Attempt
}

// firstStart is when the first line of the slot's handler ran first; zero: never.
func (r record) firstStart() time.Time {
	for _, a := range r.attempts {
		if a.GetStartTime() != nil {
			return a.GetStartTime().AsTime()
		}
	}
	return time.Time{}
}

// lateness is the time from the fire time to the handler's first line.
func (r record) lateness() (time.Duration, bool) {
	start := r.firstStart()
	return start.Sub(r.slot.GetFireTime().AsTime()), !start.IsZero()
}

// world is all that is held against each other.
type world struct {
	jobs    []*job
	end     time.Time // occurrences up to here must be there and final
	outage  outage
	records []record
	listed  time.Time // when the records were complete
}

// verify names everything that isn't as it must be; nothing if all is.
func (w *world) verify() []string {
	wrong := w.twice()
	byJob := map[string][]record{}
	for _, r := range w.records {
		byJob[r.slot.GetJobUid()] = append(byJob[r.slot.GetJobUid()], r)
	}
	for _, j := range w.jobs {
		wrong = append(wrong, w.verifyJob(j, byJob[j.uid])...)
		delete(byJob, j.uid)
	}
	for uid, records := range byJob {
		for _, r := range records {
			wrong = append(wrong, fmt.Sprintf("%s: extra: nobody created the job %s", r.slot.GetName(), uid))
		}
	}
	return wrong
}

// twice finds slots that share their name, or their job and fire time.
func (w *world) twice() []string {
	count := map[string]int{}
	for _, r := range w.records {
		count[r.slot.GetName()]++
		count[fmt.Sprintf("%s at %s", r.slot.GetJobUid(), r.slot.GetFireTime().AsTime())]++
	}
	var wrong []string
	for key, n := range count {
		if n > 1 {
			wrong = append(wrong, fmt.Sprintf("%s: doubled: there are %d slots", key, n))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// verifyJob holds the slots of one job against its rule.
func (w *world) verifyJob(j *job, records []record) []string {
	if j.rule.immediate {
		return w.verifyImmediate(j, records)
	}
	byFire := map[int64]record{} // by microseconds
	for _, r := range records {
		byFire[r.slot.GetFireTime().AsTime().UnixMicro()] = r
	}
	var wrong []string
	for _, at := range j.rule.occurrences(j.from, w.end) {
		r, ok := byFire[at.UnixMicro()]
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s: missing: no slot at %s", j.name, at.Format(time.RFC3339)))
			continue
		}
		wrong = append(wrong, w.verifySlot(j, r)...)
		delete(byFire, at.UnixMicro())
	}
	for _, r := range byFire {
		if !w.mayFollow(j, r.slot.GetFireTime().AsTime()) {
			wrong = append(wrong, r.slot.GetName()+": extra: the job does not fire then")
		}
	}
	return wrong
}

// mayFollow reports whether a slot after the end is one that had to come by now.
func (w *world) mayFollow(j *job, at time.Time) bool {
	return at.After(w.end) && !at.After(w.listed) && j.rule.fires(at)
}

// verifyImmediate: one slot, whose fire time lies within the create call and carries
// microseconds.
func (w *world) verifyImmediate(j *job, records []record) []string {
	if len(records) == 0 {
		return []string{j.name + ": missing: no slot of the immediate job"}
	}
	var wrong []string
	for _, r := range records[1:] {
		wrong = append(wrong, r.slot.GetName()+": extra: an immediate job has one slot")
	}
	at := records[0].slot.GetFireTime().AsTime()
	if at.Before(j.called.Truncate(time.Microsecond)) || at.After(j.answered) || at.Before(j.from) || at.Nanosecond() == 0 {
		wrong = append(wrong, fmt.Sprintf("%s: wrong fire time: want one with microseconds, not before %s, from %s to %s", records[0].slot.GetName(),
			stamp(j.from), stamp(j.called), stamp(j.answered)))
	}
	return append(wrong, w.verifySlot(j, records[0])...)
}

// verifySlot holds one slot against how it must be.
func (w *world) verifySlot(j *job, r record) []string {
	var wrong []string
	complain := func(format string, args ...any) {
		wrong = append(wrong, r.slot.GetName()+": "+fmt.Sprintf(format, args...))
	}
	at := r.slot.GetFireTime().AsTime()
	if want := j.name + "/slots/" + slotID(at); r.slot.GetName() != want {
		complain("wrong name: want %s", want)
	}
	if r.slot.GetState() != j.ending.state {
		complain("wrong state: is %s, want %s", stateWord(r.slot.GetState()), stateWord(j.ending.state))
	}
	if want := w.triggers(j, at); !slices.Contains(want, r.slot.GetTrigger()) {
		complain("wrong trigger: is %s, want %v", r.slot.GetTrigger(), want)
	}
	if late, ok := r.lateness(); ok && late < 0 {
		complain("started %s before its fire time", -late)
	}
	for _, text := range w.verifyAttempts(j, r) {
		complain("%s", text)
	}
	return wrong
}

// triggers are those that a slot of that fire time may have.
func (w *world) triggers(j *job, at time.Time) []carillonv1.SlotTrigger {
	const (
		onTime   = carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE
		backfill = carillonv1.SlotTrigger_SLOT_TRIGGER_BACKFILL
	)
	switch {
	case j.rule.immediate:
		return []carillonv1.SlotTrigger{carillonv1.SlotTrigger_SLOT_TRIGGER_IMMEDIATE}
	case w.outage.during(at):
		return []carillonv1.SlotTrigger{backfill}
	case at.Before(w.outage.from.Add(-settled)) || w.outage.from.IsZero():
		return []carillonv1.SlotTrigger{onTime}
	}
	return []carillonv1.SlotTrigger{onTime, backfill} // at the edges of the outage
}

// verifyAttempts holds the attempts of a slot against its ending.
func (w *world) verifyAttempts(j *job, r record) []string {
	var wrong []string
	cut := 0
	for i, a := range r.attempts {
		if int(a.GetAttempt()) != i+1 {
			wrong = append(wrong, fmt.Sprintf("wrong attempts: number %d stands in place %d", a.GetAttempt(), i+1))
		}
		if w.cutOff(a) {
			cut++
			continue
		}
		if want := j.ending.outcome(i == len(r.attempts)-1); a.GetOutcome() != want {
			wrong = append(wrong, fmt.Sprintf("wrong attempts: number %d came to %s, want %s", i+1, a.GetOutcome(), want))
		}
	}
	want := j.ending.attempts
	if !j.ending.byNumber {
		want += cut
	}
	if len(r.attempts) != want || int(r.slot.GetAttempt()) != want {
		wrong = append(wrong, fmt.Sprintf("wrong attempts: %d listed, newest is %d, want %d", len(r.attempts), r.slot.GetAttempt(), want))
	}
	return wrong
}

// cutOff reports whether the death of the server took an attempt away.
func (w *world) cutOff(a *carillonv1.Attempt) bool {
	switch a.GetOutcome() {
	case carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_UNCLAIMED, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED,
		carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_LOST:
		return a.GetClaimTime().AsTime().Before(w.outage.from)
	}
	return false
}

// outcome is what an attempt must come to.
func (e ending) outcome(last bool) carillonv1.AttemptOutcome {
	if last && e.state == carillonv1.SlotState_SLOT_STATE_SUCCEEDED {
		return carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED
	}
	return carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED
}

// pending counts the slots that are still to come or to end.
func (w *world) pending() int {
	left := 0
	for _, j := range w.jobs {
		want := len(j.rule.occurrences(j.from, w.end))
		if j.rule.immediate {
			want = 1
		}
		left += max(0, want-w.final(j))
	}
	return left
}

// final counts the slots of a job up to the end that are final, or dead letters.
func (w *world) final(j *job) int {
	n := 0
	for _, r := range w.records {
		if r.slot.GetJobUid() != j.uid || r.slot.GetFireTime().AsTime().After(w.end) {
			continue
		}
		switch r.slot.GetState() {
		case carillonv1.SlotState_SLOT_STATE_READY, carillonv1.SlotState_SLOT_STATE_RUNNING:
		default:
			n++
		}
	}
	return n
}

// verifyStored holds a job, as it was read between two instants, against what was
// acknowledged.
func (j *job) verifyStored(m *carillonv1.Job, before, after time.Time) []string {
	var wrong []string
	if m.GetUid() != j.uid {
		wrong = append(wrong, fmt.Sprintf("%s: was acknowledged as uid %s, is now %s", j.name, j.uid, m.GetUid()))
	}
	if got := m.GetEffectiveFrom().AsTime(); !got.Equal(j.from) && !j.guessed {
		wrong = append(wrong, fmt.Sprintf("%s: was acknowledged as effective from %s, is now from %s", j.name, stamp(j.from), stamp(got)))
	}
	if j.rule.every == 0 {
		return wrong
	}
	next, early, late := m.GetNextFireTime().AsTime(), j.rule.next(before), j.rule.next(after)
	if !next.Equal(early) && !next.Equal(late) {
		wrong = append(wrong, fmt.Sprintf("%s: wrong next fire time: is %s, want %s", j.name, next.Format(time.RFC3339), late.Format(time.RFC3339)))
	}
	return wrong
}

// slotID is the last part of a slot's name.
func slotID(at time.Time) string {
	if at.Nanosecond() == 0 {
		return at.Format("20060102T150405Z")
	}
	return at.Format("20060102T150405.000000Z")
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000000") }

func stateWord(s carillonv1.SlotState) string { return strings.TrimPrefix(s.String(), "SLOT_STATE_") }
