package core

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// In every kind of schedule, a slot that nobody starts in time expires, at that time.
func TestTheStartDeadline(t *testing.T) {
	for kind, s := range kinds() {
		r := newRig(t)
		j := r.createWith("j", s, job.Policies{StartDeadline: 3 * time.Second, CatchUp: job.CatchUp{Mode: job.CatchUpNone}})
		r.sleep(9 * time.Second) // the recurring ones begin at 10
		if s.Kind.Recurring() {
			r.sleep(5 * time.Second)
		}
		first := r.slots[job.SlotKey{FireTime: r.firstOf(j), UID: j.UID}]
		if late := first.FinishedAt.Sub(first.Key.FireTime); first.State != job.Expired || first.ErrorCode != job.CodeExpired || late < 3*time.Second || late > 3*time.Second+10*time.Millisecond {
			t.Errorf("%s: %v %s after %s: %s", kind, first.State, first.ErrorCode, late, first.ErrorText)
		}
		if !strings.Contains(first.ErrorText, "not begun 3s after") {
			t.Errorf("%s: %s", kind, first.ErrorText)
		}
	}
}

// A slot that has begun doesn't expire by its start deadline: neither while it runs, nor
// when it is tried again. One whose attempt never reached a worker has not begun.
func TestTheStartDeadlineIsForTheStart(t *testing.T) {
	for outcome, want := range map[job.Outcome]string{
		job.OutcomeFailed: "READY:1 ", job.OutcomeReleased: "READY:1 ", job.OutcomeLeaseLost: "READY:1 ", job.OutcomeUnclaimed: "EXPIRED:1 ",
	} {
		r := newRig(t)
		w := r.join("w", 1)
		j := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
		j.Policies.StartDeadline = 3 * time.Second
		j.Retry.InitialBackoff = time.Minute
		r.create(j)
		r.sleep(10 * time.Second)
		r.wantStates("RUNNING:1 ")
		a := r.assigned()[0]
		switch outcome {
		case job.OutcomeUnclaimed:
			r.workers.Remove(w.ID)
			r.step(Undeliverable{Worker: w, Token: a.Token})
		case job.OutcomeLeaseLost:
			r.workers.Remove(w.ID)
			r.step(WorkerLost{Worker: w})
		default:
			r.workers.Remove(w.ID)
			r.step(Result{Worker: w, Token: a.Token, Outcome: outcome, StartedAt: r.now})
		}
		r.sleep(10 * time.Second)
		if got := r.states(); got != want {
			t.Errorf("%v: %s, want %s", outcome, got, want)
		}
	}
}

// The total deadline ends whatever a slot does: waiting, running, or waiting for its next
// attempt. The worker is told how long it may take.
func TestTheTotalDeadline(t *testing.T) {
	policies := job.Policies{TotalDeadline: 20 * time.Second}
	immediate := job.Schedule{Kind: job.KindImmediate}
	r := newRig(t)
	waits := r.createWith("waits", immediate, policies)
	r.sleep(15 * time.Second)
	r.join("w", 1)
	a := r.assigned()[0]
	if a.Work.Timeout < 4*time.Second || a.Work.Timeout > 5*time.Second+time.Millisecond {
		t.Errorf("the worker may take %s, want the 5 s that are left", a.Work.Timeout)
	}
	r.wantSlots(waits, "0 RUNNING")
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeReleased, StartedAt: r.now})
	r.workers.Remove("w")
	r.sleep(6 * time.Second)
	r.wantSlots(waits, "0 EXPIRED expired")

	r = newRig(t)
	r.join("w", 1)
	runs := r.createWith("runs", immediate, policies)
	r.sleep(30 * time.Second) // its worker says nothing: the deadline, and the grace
	r.wantSlots(runs, "0 EXPIRED expired")
	if stops := takeAll[Stop](r); len(stops) != 1 || stops[0].Reason != StopTimedOut {
		t.Errorf("stops %+v", stops)
	}

	r = newRig(t)
	r.join("w", 1)
	fails := r.newJob("fails", immediate)
	fails.Policies, fails.Retry.InitialBackoff = policies, 30*time.Second
	r.create(fails)
	r.failFirst("boom")
	r.wantSlots(fails, "0 EXPIRED expired") // it can't be tried again in time
	if s := r.slots[job.SlotKey{FireTime: r.firstOf(fails), UID: fails.UID}]; s.Failures != 1 {
		t.Errorf("%+v", s)
	}

	r = newRig(t)
	r.join("w", 1)
	dies := r.newJob("dies", immediate)
	dies.Policies, dies.Retry.MaxAttempts = policies, 1
	r.create(dies)
	r.failFirst("boom")
	r.wantSlots(dies, "0 DEAD") // its retries are exhausted before
}

// A slot that a person redrives counts from then on, and has begun.
func TestDeadlinesAfterARedrive(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	j := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
	j.Policies, j.Retry.MaxAttempts = job.Policies{StartDeadline: 5 * time.Second, TotalDeadline: 20 * time.Second}, 1
	j.Retry.Window = 10 * time.Second
	j = r.create(j)
	r.failFirst("boom")
	r.workers.Remove("w")
	r.sleep(time.Minute)
	key := job.SlotKey{FireTime: r.firstOf(j), UID: j.UID}
	r.step(RedriveSlot{Tag: 5, Found: store.SlotOf{Slot: r.slots[key], Job: r.jobs[j.UID]}, Reason: "repaired"})
	r.sleep(15 * time.Second)
	r.wantSlots(j, "0 READY")
	r.sleep(6 * time.Second)
	r.wantSlots(j, "0 EXPIRED expired")
}

// Slots in the backlog expire although nothing makes room for them, also those of an owner
// that has died, and the timers of those that are gone don't matter.
func TestSlotsInTheBacklogExpire(t *testing.T) {
	r := newRig(t)
	r.cfg.ReadyLimit, r.cfg.PageLimit = 3, 7
	r.restart()
	for n := range 40 {
		r.createWith(fmt.Sprint("j", n), job.Schedule{Kind: job.KindImmediate}, job.Policies{StartDeadline: time.Duration(20+n) * time.Second})
	}
	r.sleep(time.Second)
	if n := len(r.s.slots); n > 3 {
		t.Fatalf("%d slots are in memory", n)
	}
	r.sleep(30 * time.Second)
	expired := 0
	for _, s := range r.slots {
		if s.State == job.Expired {
			expired++
			if at := s.Key.FireTime.Add(r.jobs[s.Key.UID].Policies.StartDeadline); s.FinishedAt.Sub(at) > 1100*time.Millisecond {
				t.Errorf("%v expired at %v, due at %v", s.Key, s.FinishedAt, at)
			}
		}
	}
	if expired < 10 || expired > 12 {
		t.Errorf("%d slots expired, want 11", expired)
	}
	r.down(10 * time.Second)
	r.sleep(30 * time.Second)
	r.wantStates("EXPIRED:40 ")
	if len(r.backlog) > 0 || len(r.s.slots) > 0 {
		t.Errorf("backlog %v, memory %v", r.backlog, r.s.slots)
	}
}

// What is missed and past its deadline expires when it is made up for; nothing runs.
func TestMissedSlotsExpire(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.createWith("j", everyTen, job.Policies{StartDeadline: 15 * time.Second})
	r.sleep(time.Second)
	r.down(45 * time.Second)
	r.wantSlots(j, "10 EXPIRED expired", "20 EXPIRED expired", "30 EXPIRED expired", "40 RUNNING")
}

// An objective that is missed is noticed when it is, once, and the slot goes on.
func TestObjectives(t *testing.T) {
	for kind, s := range kinds() {
		r := newRig(t)
		w := r.join("w", 1)
		blocker := r.newJob("blocker", job.Schedule{Kind: job.KindImmediate})
		blocker.Timeout = time.Hour
		r.create(blocker)
		held := r.assigned()[0]
		r.createWith("j", s, job.Policies{StartWithin: 2 * time.Second, FinishWithin: 5 * time.Second, Priority: 1})
		var missed []string
		for range 200 {
			r.sleep(100 * time.Millisecond)
			for _, o := range takeAll[Observation](r) {
				if o.Kind == ObjectiveMissed {
					missed = append(missed, fmt.Sprintf("%d", o.Breach))
				}
			}
			if len(missed) == 2 {
				break
			}
		}
		if strings.Join(missed, " ") != "1 2" {
			t.Fatalf("%s: missed %v", kind, missed)
		}
		events := 0
		for _, e := range r.events {
			if e.Kind == store.EventObjectiveMissed {
				events++
			}
		}
		r.finish(held, job.OutcomeSucceeded)
		r.step(Started{Worker: w, Token: r.assigned()[0].Token, At: r.now})
		r.restart()
		r.sleep(3 * time.Second)
		for _, o := range takeAll[Observation](r) {
			if o.Kind == ObjectiveMissed {
				t.Errorf("%s: missed again: %+v", kind, o)
			}
		}
		if events != 2 {
			t.Errorf("%s: %d events", kind, events)
		}
	}
}

// The more urgent slots go first, but a slot that has waited for long enough isn't kept
// waiting by them, in memory and out of it; live work goes before what is made up for.
func TestPriorityAges(t *testing.T) {
	for what, limit := range map[string]int{"in memory": 5000, "in the backlog": 2} {
		r := newRig(t)
		r.cfg.ReadyLimit = limit
		r.restart()
		r.createWith("old", job.Schedule{Kind: job.KindImmediate}, job.Policies{})
		r.sleep(25 * time.Second)
		for _, p := range []int32{-1, 0, 1, 3} {
			r.createWith(fmt.Sprint("p", p), job.Schedule{Kind: job.KindImmediate}, job.Policies{Priority: p})
			r.sleep(time.Second)
		}
		r.sleep(10 * time.Second)
		r.join("w", 1)
		var got []string
		for range 20 {
			for _, a := range r.assigned() {
				got = append(got, a.Work.Name)
				r.finish(a, job.OutcomeSucceeded)
			}
			r.sleep(100 * time.Millisecond)
		}
		// old has waited 25 s longer than p0: less than p1's 30 s, more than p0's nothing.
		want := []string{"p3", "p1", "old", "p0", "p-1"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: ran %v, want %v", what, got, want)
		}
	}
}

// A dead letter calls the handler that its job names, once for each death, with what it
// must know; that job's own death calls nobody.
func TestOnDeadLetter(t *testing.T) {
	for kind, s := range kinds() {
		r := newRig(t)
		key := WorkerKey{ID: "w", Incarnation: "1"}
		r.workers.Join(key, []string{"h", "page"}, 10, 10, r.now.Add(time.Hour))
		j := r.newJob("j", s)
		j.Policies.OnDeadLetter, j.Retry.MaxAttempts, j.Params = "page", 1, []byte(`{"region":"eu"}`)
		j = r.create(j)
		r.failFirst("boom")
		r.pump()
		calls := r.assigned()
		if len(calls) != 1 || calls[0].Work.Handler != "page" || calls[0].Trigger != job.TriggerImmediate {
			t.Fatalf("%s: %+v", kind, calls)
		}
		var d DeadSlot
		if err := json.Unmarshal([]byte(calls[0].Work.Params), &d); err != nil {
			t.Fatal(err)
		}
		if d.Job != "namespaces/default/jobs/j" || d.ErrorCode != "boom" || d.Attempt != 1 || string(d.Params) != `{"region":"eu"}` || !strings.HasPrefix(d.Slot, d.Job+"/slots/") {
			t.Errorf("%s: %+v", kind, d)
		}
		call := r.jobs[calls[0].Token.Key.UID]
		if call.Policies != (job.Policies{}) || call.Shard != 3 {
			t.Errorf("%s: %+v", kind, call)
		}
		r.restart()
		before := len(r.jobs)
		r.workers.Join(key, []string{"h", "page"}, 10, 9, r.now.Add(time.Hour))
		r.s.Attest(key, calls[0].Token)
		for range 5 {
			for _, a := range append(calls, r.assigned()...) {
				if a.Work.Handler == "page" {
					r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed, Permanent: true})
				}
			}
			calls = nil
			r.sleep(time.Second)
		}
		if len(r.jobs) != before {
			t.Errorf("%s: %d jobs, were %d: the escalation's death called somebody", kind, len(r.jobs), before)
		}
	}
}
