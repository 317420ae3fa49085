package core

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const day = 24 * time.Hour

// days lets days go by in which the shard does nothing but look after itself: hour by
// hour, since every second would take long.
func (r *rig) days(n int) {
	r.t.Helper()
	for range n * 24 {
		r.now = r.now.Add(time.Hour)
		for key := range r.workers.All() {
			r.workers.Get(key).LeaseUntil = r.now.Add(r.cfg.Lease)
		}
		r.step(Tick{})
		r.sleep(15 * time.Second)
	}
}

// serve lets a worker end everything that it gets.
func (r *rig) serve(outcome job.Outcome) {
	r.t.Helper()
	for {
		all := r.assigned()
		for _, a := range all {
			r.finish(a, outcome)
		}
		if len(all) == 0 {
			return
		}
	}
}

func once(at time.Duration) job.Schedule { return onceAt(at) }

func TestASlotGoesAfterItsRetention(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	r.create(r.newJob("j", once(time.Second)))
	r.sleep(2 * time.Second)
	r.serve(job.OutcomeSucceeded)
	r.wantStates("SUCCEEDED:1 ")
	r.days(6)
	r.wantStates("SUCCEEDED:1 ")
	r.days(2)
	r.wantStates("")
	r.days(8)
	if len(r.jobs) > 0 {
		t.Errorf("%+v are left", r.jobs)
	}
}

// A job that ended by itself keeps its name for a day. Then another one may have it.
func TestANameIsFreeADayAfterItsJobEnded(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	first := r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	r.serve(job.OutcomeSucceeded)
	r.now = r.now.Add(23 * time.Hour)
	r.sleep(2 * time.Minute)
	r.step(Create{Tag: 1, Job: r.newJob("j", everySecond)})
	if reply := find[Reply](r); reply.Existing == nil || reply.Existing.UID != first.UID {
		t.Fatalf("after 23 hours: %+v", reply)
	}
	r.now = r.now.Add(2 * time.Hour)
	r.sleep(2 * time.Minute)
	r.create(r.newJob("j", once(30*day)))
}

// A job whose slot is dead may be redriven: it has not ended.
func TestADeadLetterHoldsTheNameOfItsJob(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
	j.Retry.MaxAttempts = 1
	j = r.create(j)
	r.serve(job.OutcomeFailed)
	r.wantStates("DEAD:1 ")
	r.days(29)
	if r.jobs[j.UID].EndedAt != 0 {
		t.Error("the job of a dead letter ended")
	}
	r.wantStates("DEAD:1 ")
	r.days(3)
	r.wantStates("")
	if len(r.dead) > 0 {
		t.Errorf("dead letters %v are left", r.dead)
	}
	if r.jobs[j.UID].EndedAt == 0 {
		t.Error("the job of a dead letter that is gone has not ended")
	}
}

// Thirty days of downtime with seven days of retention: what is made up for is as
// young as everything else that was made today, and nothing is lost.
func TestADowntimeLongerThanTheRetention(t *testing.T) {
	r := newRig(t)
	daily := r.create(r.newJob("daily", job.Schedule{Kind: job.KindCron, Cron: "0 0 * * *"}))
	r.now = r.now.Add(30 * day)
	r.restart()
	r.sleep(3 * time.Minute) // a pass has been, and nobody has run anything
	r.join("w", 100)
	r.sleep(time.Second)
	r.serve(job.OutcomeSucceeded)
	r.wantStates("SUCCEEDED:30 ")
	r.days(6)
	if n := r.slotsDueIn(daily, 30*day); n != 30 {
		t.Errorf("%d of the 30 are left after six days", n)
	}
	r.serve(job.OutcomeSucceeded)
	r.days(2)
	if n := r.slotsDueIn(daily, 30*day); n > 0 {
		t.Errorf("%d of the 30 are left after eight days", n)
	}
}

func (r *rig) slotsDueIn(j job.Job, d time.Duration) (n int) {
	for key := range r.slots {
		if key.UID == j.UID && key.FireTime < job.AtSecond(t0).Add(d) {
			n++
		}
	}
	return n
}

// While a gap is filled below the line, nothing that it may still make counts as
// settled: the line waits for its cursor.
func TestAFillerBelowTheLine(t *testing.T) {
	r := newRig(t)
	r.cfg.GapChunk = 1
	r.create(r.newJob("hourly", job.Schedule{Kind: job.KindCron, Cron: "0 * * * *"}))
	r.now = r.now.Add(10 * day)
	r.hold = true
	r.restart()
	passed := false
	for chunk := 0; r.held != nil && chunk < 100; chunk++ { // one occurrence each, of 240
		b := r.held
		r.held = nil
		r.now = r.now.Add(2 * time.Second)
		r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
		for _, read := range r.s.Reads() {
			passed = passed || read.Kind == ReadOldSlots
			r.s.Step(r.now, r.answer(read))
		}
		r.pump()
	}
	if len(r.gaps) != 1 || !passed || r.retained == 0 {
		t.Fatalf("gaps %v, a pass while one is open: %v, retained from %s", r.gaps, passed, r.retained)
	}
	r.release()
	r.join("w", 1000)
	r.sleep(time.Second)
	r.serve(job.OutcomeSucceeded)
	r.wantStates("SUCCEEDED:240 ")
}

// The result of a slot that is gone is refused, and its worker is told.
func TestALateResultOfAPrunedSlot(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 10)
	j := r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	a := r.assigned()[0]
	r.step(CancelSlot{Tag: 1, Found: store.SlotOf{Slot: r.slots[a.Token.Key], Job: j}, Reason: "test"})
	r.days(8)
	r.wantStates("")
	r.said = nil
	r.step(Result{Worker: w, Token: a.Token, Outcome: job.OutcomeSucceeded})
	if ack := find[Ack](r); ack.Accepted || !strings.Contains(ack.Why, "too old") {
		t.Errorf("answered %+v", ack)
	}
	r.wantStates("")
}

func TestARequestIsRememberedForItsRetention(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.create(r.newJob("j", once(300*day)))
	r.step(Trigger{Tag: 1, Job: j, RequestID: "r", Hash: "h"})
	r.serve(job.OutcomeSucceeded)
	r.days(6)
	if len(r.requests) != 1 {
		t.Fatalf("requests %v after six days", r.requests)
	}
	r.days(2)
	if len(r.requests) != 0 {
		t.Fatalf("requests %v after eight days", r.requests)
	}
	if r.jobs[j.UID].EndedAt != 0 {
		t.Error("a job that has not fired yet ended")
	}
}

// Deleting goes on behind a new owner too, and a job is kept as long as one of its
// slots.
func TestAJobStaysWithItsSlots(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.newJob("j", job.Schedule{Kind: job.KindCron, Cron: "0 */6 * * *"})
	j.Retry.MaxAttempts = 1
	j = r.create(j)
	r.days(1)
	r.serve(job.OutcomeFailed)
	r.step(Delete{Tag: 1, Job: j})
	r.wantStates("DEAD:4 ")
	for range 3 {
		r.days(9)
		r.restart()
	}
	if _, ok := r.jobs[j.UID]; !ok {
		t.Fatal("the job is gone, its dead letters are not")
	}
	r.days(5)
	r.wantStates("")
	if _, ok := r.jobs[j.UID]; ok {
		t.Error("the job is left")
	}
}

// A name is kept for a day after the job's slots ended, however long they waited.
func TestANameIsKeptAfterALongWait(t *testing.T) {
	r := newRig(t)
	first := r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	r.now = r.now.Add(25 * time.Hour)
	r.join("w", 10)
	r.serve(job.OutcomeSucceeded)
	r.wantStates("SUCCEEDED:1 ")
	r.sleep(3 * time.Minute)
	if r.jobs[first.UID].EndedAt != 0 {
		t.Fatal("the job lost its name minutes after its slot had ended")
	}
	r.days(2)
	if j := r.jobs[first.UID]; j.EndedAt == 0 || !j.EndedByItself {
		t.Errorf("two days later: %+v", j)
	}
}

// A job that is run once more while the retention reads that it is done has not
// ended: the run was acknowledged.
func TestARunBesideTheRetention(t *testing.T) {
	r := newRig(t)
	r.cfg.ReadyLimit = 1
	r.restart()
	r.join("w", 1)
	j := r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	r.serve(job.OutcomeSucceeded)
	for _, name := range []string{"a", "b", "c"} { // the queue is full, and the worker busy
		r.create(r.newJob(name, job.Schedule{Kind: job.KindImmediate}))
	}
	r.now = r.now.Add(25 * time.Hour)
	var answers []Event
	for range 20 {
		r.s.Step(r.now, Tick{})
		for b := r.s.Ready(r.now, store.MaxBatchRows); b != nil; b = r.s.Ready(r.now, store.MaxBatchRows) {
			r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
		}
		for _, read := range r.s.Reads() {
			if e := r.answer(read); read.Kind == ReadDoneJobs {
				answers = append(answers, e) // it is late
			} else {
				r.s.Step(r.now, e)
			}
		}
		r.now = r.now.Add(time.Second)
	}
	if len(answers) == 0 {
		t.Fatal("nobody asked for the jobs that are done")
	}
	r.step(Trigger{Tag: 7, Job: r.jobs[j.UID]})
	made := find[Reply](r).Slot
	for _, e := range answers {
		r.step(e)
	}
	if made == nil || !r.slots[made.Key].State.Open() {
		t.Errorf("the run is %+v, stored %+v", made, r.slots[made.Key])
	}
}

// A read that fails is not repeated at once, and not given up for ever.
func TestAFailedReadOfTheRetention(t *testing.T) {
	r := newRig(t)
	asked := func() (kinds int) {
		for range 100 {
			r.now = r.now.Add(time.Second)
			r.s.Step(r.now, Tick{})
			if b := r.s.Ready(r.now, store.MaxBatchRows); b != nil {
				r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
			}
			for _, read := range r.s.Reads() {
				if read.Kind >= ReadOldSlots {
					kinds++
					r.s.Step(r.now, RetainFailed{Read: read})
				} else {
					r.s.Step(r.now, r.answer(read))
				}
			}
		}
		return kinds
	}
	if n := asked() + asked(); n < 2 || n > 8 {
		t.Errorf("the failing reads were asked for %d times in 200 seconds", n)
	}
}

// A walk that waits for something else wakes nobody meanwhile.
func TestAWaitingWalkDoesNotSpin(t *testing.T) {
	r := newRig(t)
	r.now = r.now.Add(10 * time.Minute)
	for range 5 { // a walk is under way
		r.s.Step(r.now, Tick{})
		if b := r.s.Ready(r.now, store.MaxBatchRows); b != nil {
			r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
		}
		r.s.Reads()
		r.now = r.now.Add(300 * time.Millisecond)
	}
	r.s.Step(r.now, InboxHint{})
	if b := r.s.Ready(r.now, store.MaxBatchRows); b != nil {
		r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
	}
	r.s.Reads() // of the inbox, whose answer takes long
	if wake := r.s.NextWake(); wake <= r.now {
		t.Errorf("it wants to be woken at %s, now is %s", wake, r.now)
	}
}

// A job may keep its slots for longer than all others are kept, in every kind of schedule, and
// stays as long as they do.
func TestARetentionOfItsOwn(t *testing.T) {
	for kind, s := range kinds() {
		r := newRig(t)
		r.join("w", 10)
		if s.Kind.Recurring() {
			s.MaxOccurrences = 1
		}
		j := r.createWith("j", s, job.Policies{Retention: 20 * day})
		r.create(r.newJob("other", once(time.Second)))
		r.sleep(11 * time.Second)
		r.serve(job.OutcomeSucceeded)
		r.days(9)
		r.wantStates("SUCCEEDED:1 ")
		r.days(10)
		if got := r.of(j); len(got) != 1 {
			t.Errorf("%s: after 19 days %q", kind, got)
		}
		r.days(3)
		if got := r.of(j); len(got) != 0 {
			t.Errorf("%s: after 22 days %q", kind, got)
		}
	}
}
