package core

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func TestARecurringJobGetsOneSlotASecond(t *testing.T) {
	r := newRig(t)
	r.join("w", 100)
	r.create(r.newJob("j", everySecond))
	r.sleep(10 * time.Second)
	r.wantStates("RUNNING:10 ")
	for _, a := range r.assigned() {
		if got := r.slots[a.Token.Key]; got.Trigger != job.TriggerSchedule || !a.Token.Key.FireTime.Whole() || got.Attempt != 1 {
			t.Errorf("slot %+v", got)
		}
	}
}

// An execution of a recurring job costs two row writes: made and claimed in one,
// and finished in one.
func TestAnExecutionCostsTwoRowWrites(t *testing.T) {
	r := newRig(t)
	r.join("w", 100)
	r.create(r.newJob("j", everySecond))
	before := r.writes
	for range 20 {
		r.sleep(time.Second)
		for _, a := range r.assigned() {
			r.finish(a, job.OutcomeSucceeded)
		}
	}
	if got := r.writes - before; got != 40 {
		t.Errorf("20 executions wrote %d rows, want 40", got)
	}
	r.wantStates("SUCCEEDED:20 ")
}

func TestAssignmentsLeaveOnlyAfterTheirCommit(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	r.create(r.newJob("j", everySecond))
	r.hold = true
	r.sleep(time.Second)
	if got := r.assigned(); len(got) > 0 {
		t.Fatalf("sent %+v before the commit", got)
	}
	r.release()
	if got := r.assigned(); len(got) != 1 {
		t.Fatalf("sent %d assignments after the commit, want 1", len(got))
	}
}

// Between the decision from when a job's schedule counts and the watermark that
// the same batch carries no occurrence may get lost, whatever happens meanwhile.
func TestACreateAcrossASecondLosesNothing(t *testing.T) {
	r := newRig(t)
	r.now += 999_000
	r.hold = true
	r.step(Tick{})
	r.create(r.newJob("j", everySecond))
	r.sleep(5 * time.Second)
	r.release()
	r.sleep(time.Second)
	j := find[Reply](r).Job
	for _, at := range expected(t, *j, r.now) {
		if _, ok := r.slots[job.SlotKey{FireTime: at, UID: j.UID}]; !ok {
			t.Errorf("no slot at %v, effective from %v", at, j.EffectiveFrom)
		}
	}
}

func TestJobsOfOneFireTime(t *testing.T) {
	r := newRig(t)
	r.join("w", 100)
	past, soon, far := r.create(r.newJob("past", onceAt(-time.Hour))), r.create(r.newJob("soon", onceAt(3*time.Second))), r.create(r.newJob("far", onceAt(2*time.Hour)))
	r.wantStates("RUNNING:1 ")
	if _, ok := r.slots[job.SlotKey{FireTime: past.Schedule.At, UID: past.UID}]; !ok {
		t.Error("a job in the past has no slot with its own fire time")
	}
	if r.s.jobs.get(far.UID) != nil {
		t.Error("a job beyond the window is in memory")
	}
	r.sleep(3 * time.Second)
	if _, ok := r.slots[job.SlotKey{FireTime: soon.Schedule.At, UID: soon.UID}]; !ok {
		t.Error("a job in the window did not fire")
	}
	r.sleep(2 * time.Hour)
	slot, ok := r.slots[job.SlotKey{FireTime: far.Schedule.At, UID: far.UID}]
	if !ok || slot.CreatedAt.Sub(slot.Key.FireTime) > 10*time.Millisecond {
		t.Errorf("a job from beyond the window: %v, %+v", ok, slot)
	}
}

func TestAnImmediateJobIsWrittenWithItsClaimedSlot(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	before := r.writes
	r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	if got := r.writes - before; got != 2 {
		t.Errorf("wrote %d rows, want the job and its slot", got)
	}
	a := r.assigned()
	if len(a) != 1 || a[0].Token.Key.FireTime.Whole() {
		t.Errorf("assigned %+v, want one with microseconds", a)
	}
	r.finish(a[0], job.OutcomeSucceeded)
	if r.s.jobs.len() > 0 || len(r.s.slots) > 0 {
		t.Errorf("%d jobs and %d slots are left in memory", r.s.jobs.len(), len(r.s.slots))
	}
}

func TestRetriesThenDeadLetter(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	for i, wait := range []time.Duration{0, time.Second, 2 * time.Second} {
		r.sleep(wait - time.Millisecond)
		if i > 0 && len(r.assigned()) > 0 {
			t.Fatalf("attempt %d came before its back-off was over", i+1)
		}
		r.sleep(2 * time.Millisecond)
		a := find[Assign](r)
		if a.Token.Attempt != int32(i+1) || a.Failures != int32(i) {
			t.Fatalf("attempt %d after %d failures, want %d", a.Token.Attempt, a.Failures, i+1)
		}
		r.finish(a, job.OutcomeFailed)
	}
	r.wantStates("DEAD:1 ")
	for key, s := range r.slots {
		if s.Failures != 3 || len(r.attempts[key]) != 2 || s.ErrorText != "text" {
			t.Errorf("slot %+v, attempts %+v", s, r.attempts[key])
		}
	}
}

func TestAPermanentFailureAndAGivenDelay(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	a := find[Assign](r)
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed, RetryAfter: time.Minute})
	r.workers.AddCredit(r.workers.Get("w"), 1)
	r.sleep(59 * time.Second)
	if len(r.assigned()) > 0 {
		t.Fatal("the attempt came before the delay that its handler gave")
	}
	r.sleep(time.Second)
	a = find[Assign](r)
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed, Permanent: true})
	r.wantStates("DEAD:1 ")
}

func TestAnAttemptThatNobodyEndsTimesOut(t *testing.T) {
	r := newRig(t)
	r.join("w", 2)
	r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	first := find[Assign](r)
	r.sleep(30*time.Second + r.cfg.TimeoutGrace - time.Millisecond)
	r.wantStates("RUNNING:1 ")
	r.sleep(2 * time.Millisecond)
	if stop := find[Stop](r); stop.Token != first.Token || stop.Reason != StopTimedOut {
		t.Errorf("told %+v", stop)
	}
	r.sleep(time.Second)
	if second := find[Assign](r); second.Token.Attempt != 2 || second.Failures != 1 {
		t.Errorf("then assigned %+v", second)
	}
	r.finish(first, job.OutcomeSucceeded)
	if ack := find[Ack](r); ack.Accepted {
		t.Error("the success of a timed out attempt was accepted")
	}
	if len(r.late) != 1 {
		t.Errorf("late results: %+v", r.late)
	}
}

// What becomes of a success that comes after its lease was lost.
func TestLateSuccess(t *testing.T) {
	lose := func(r *rig) (Assign, WorkerKey) {
		key := r.join("w", 1)
		r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
		a := find[Assign](r)
		r.workers.Remove("w")
		r.step(WorkerLost{Worker: key})
		return a, key
	}
	report := func(r *rig, a Assign) Ack {
		r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeSucceeded})
		return find[Ack](r)
	}
	t.Run("nobody has claimed the slot since", func(t *testing.T) {
		r := newRig(t)
		a, _ := lose(r)
		r.wantStates("READY:1 ")
		if !report(r, a).Accepted {
			t.Error("refused")
		}
		r.wantStates("SUCCEEDED:1 ")
		if got := r.slots[a.Token.Key].Failures; got != 0 {
			t.Errorf("%d failures of a slot whose only attempt succeeded", got)
		}
		if !report(r, a).Accepted {
			t.Error("the repeated result was refused")
		}
	})
	t.Run("another worker has it", func(t *testing.T) {
		r := newRig(t)
		a, _ := lose(r)
		r.join("v", 1)
		r.sleep(2 * time.Second)
		second := find[Assign](r)
		if second.Token.Attempt != a.Token.Attempt+1 {
			t.Errorf("fence %d after %d", second.Token.Attempt, a.Token.Attempt)
		}
		if ack := report(r, a); ack.Accepted || ack.Why == "" {
			t.Errorf("answered %+v", ack)
		}
		r.finish(second, job.OutcomeSucceeded)
		r.wantStates("SUCCEEDED:1 ")
		if len(r.late) != 1 || r.late[0].Attempt != 1 {
			t.Errorf("recorded %+v", r.late)
		}
	})
	t.Run("the slot is dead by the lost lease", func(t *testing.T) {
		r := newRig(t)
		key := r.join("w", 1)
		j := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
		j.Retry.MaxAttempts = 1
		r.create(j)
		a := find[Assign](r)
		r.workers.Remove("w")
		r.step(WorkerLost{Worker: key})
		r.wantStates("DEAD:1 ")
		if !report(r, a).Accepted {
			t.Error("refused")
		}
		r.wantStates("SUCCEEDED:1 ")
	})
	t.Run("the slot was cancelled", func(t *testing.T) {
		r := newRig(t)
		a, _ := lose(r)
		found := store.SlotOf{Slot: r.slots[a.Token.Key], Job: r.jobs[a.Token.Key.UID]}
		r.step(CancelSlot{Tag: 9, Found: found, Reason: "why"})
		if report(r, a).Accepted {
			t.Error("accepted")
		}
		r.wantStates("CANCELLED:1 ")
	})
}

// A result whose answer was lost, or is still to come, is no late result.
// While the database was away, a result that had been accepted was repeated until the slot was claimed
// again, and each repeat was then refused and recorded as too late: the worker heard both.
func TestARepeatOfAnAcceptedResultIsAcknowledgedOnceTheSlotIsClaimedAgain(t *testing.T) {
	for _, hold := range []bool{false, true} { // the database is away
		r := newRig(t)
		r.join("w", 2)
		r.create(r.newJob("fails", job.Schedule{Kind: job.KindImmediate}))
		a := find[Assign](r)
		r.hold = hold
		r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeReleased})
		r.pump()
		r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeReleased})
		r.release()
		if got := r.slots[a.Token.Key]; got.State != job.Running || got.Attempt != 2 {
			t.Fatalf("%+v", got)
		}
		r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeReleased})
		acks := takeAll[Ack](r)
		for _, ack := range acks {
			if !ack.Accepted {
				t.Errorf("with held commits %v: refused: %+v", hold, ack)
			}
		}
		if len(acks) != 3 || len(r.late) > 0 {
			t.Errorf("with held commits %v: %d answers, late results %+v", hold, len(acks), r.late)
		}
		// The same by what the next owner has loaded.
		r.create(r.newJob("loaded", job.Schedule{Kind: job.KindImmediate}))
		b := find[Assign](r)
		r.finish(b, job.OutcomeFailed)
		r.restart()
		r.said = nil
		r.step(Result{Worker: b.Worker, Token: b.Token, Outcome: job.OutcomeFailed})
		r.workers.Join(b.Worker, []string{"h"}, 4, 4, r.now.Add(r.cfg.Lease))
		r.sleep(2 * time.Second)
		r.step(Result{Worker: b.Worker, Token: b.Token, Outcome: job.OutcomeFailed})
		for _, ack := range takeAll[Ack](r) {
			if !ack.Accepted {
				t.Errorf("with held commits %v: the next owner refused: %+v", hold, ack)
			}
		}
		// Another outcome of the same attempt is none that was accepted.
		r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeSucceeded})
		if find[Ack](r).Accepted {
			t.Error("a success was accepted of an attempt that had been handed back")
		}
	}
}

func TestARepeatedResultIsAcknowledgedAgain(t *testing.T) {
	r := newRig(t)
	r.join("w", 2)
	r.create(r.newJob("fails", job.Schedule{Kind: job.KindImmediate}))
	a := find[Assign](r)
	r.finish(a, job.OutcomeFailed)
	r.said = nil
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed})
	if !find[Ack](r).Accepted {
		t.Error("the repeat of a failure was refused while the slot waits for its retry")
	}
	r.create(r.newJob("succeeds", job.Schedule{Kind: job.KindImmediate}))
	a = find[Assign](r)
	r.hold = true
	r.finish(a, job.OutcomeSucceeded)
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeSucceeded})
	if acks := takeAll[Ack](r); len(acks) > 0 {
		t.Errorf("acknowledged before the commit: %+v", acks)
	}
	r.release()
	for _, ack := range takeAll[Ack](r) {
		if !ack.Accepted {
			t.Error("the repeat of a success was refused while its commit was under way")
		}
	}
	if len(r.late) > 0 {
		t.Errorf("late results: %+v", r.late)
	}
}

func TestAssignmentsThatNeverArrivedCostNothing(t *testing.T) {
	r := newRig(t)
	key := r.join("w", 2)
	r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	a := find[Assign](r)
	r.step(Undeliverable{Worker: a.Worker, Token: a.Token})
	second := find[Assign](r)
	if second.Token.Attempt != 2 || second.Failures != 0 {
		t.Errorf("assigned %+v", second)
	}
	// It comes back, and lists nothing: the very same is sent again, without a write.
	r.now = r.now.Add(time.Second)
	r.step(Tick{})
	before := r.slots[second.Token.Key]
	if n := r.s.SendAgain(key, map[job.SlotKey]int32{}); n != 1 {
		t.Fatalf("%d attempts are sent again", n)
	}
	r.pump()
	again := find[Assign](r)
	if again.Token != second.Token || again.Work.Timeout != second.Work.Timeout-time.Second {
		t.Errorf("sent again %+v, after %+v", again, second)
	}
	if n := r.s.SendAgain(key, map[job.SlotKey]int32{again.Token.Key: again.Token.Attempt}); n != 0 {
		t.Errorf("%d attempts are sent again that the worker holds", n)
	}
	if n := r.s.SendAgain(key, map[job.SlotKey]int32{again.Token.Key: again.Token.Attempt - 1}); n != 1 {
		t.Errorf("%d attempts are sent again to a worker that holds an older one", n)
	}
	if after := r.slots[second.Token.Key]; !reflect.DeepEqual(after, before) {
		t.Errorf("sending it again wrote %+v, after %+v", after, before)
	}
}

func TestAttestationAfterATakeOver(t *testing.T) {
	r := newRig(t)
	key := r.join("w", 2)
	r.create(r.newJob("a", job.Schedule{Kind: job.KindImmediate}))
	r.create(r.newJob("b", job.Schedule{Kind: job.KindImmediate}))
	held := r.assigned()
	r.restart()
	r.workers.Join(key, []string{"h"}, 2, 0, r.now)
	if !r.s.Attest(key, held[0].Token) {
		t.Fatal("a held attempt was not attested")
	}
	wrong := held[1].Token
	wrong.Attempt++
	if r.s.Attest(key, wrong) || r.s.Attest(WorkerKey{"w", "other"}, held[1].Token) {
		t.Fatal("an attempt was attested with a wrong token")
	}
	r.sleep(r.cfg.Lease + r.cfg.LeaseMargin - time.Millisecond)
	r.wantStates("RUNNING:2 ")
	r.sleep(2 * time.Millisecond)
	r.wantStates("READY:1 RUNNING:1 ")
	lost := r.slots[held[1].Token.Key]
	if lost.Outcome != job.OutcomeUnclaimed || lost.Failures != 0 {
		t.Errorf("the attempt that nobody vouched for: %+v", lost)
	}
	r.finish(held[0], job.OutcomeSucceeded)
	r.wantStates("RUNNING:1 SUCCEEDED:1 ")
}

func TestDowntimeIsMadeUpFor(t *testing.T) {
	r := newRig(t)
	r.create(r.newJob("every", everySecond))
	r.create(r.newJob("once", onceAt(30*time.Minute)))
	deleted := r.create(r.newJob("deleted", everySecond))
	r.sleep(10 * time.Second)
	r.now = r.now.Add(time.Hour)
	r.cfg.GapChunk = 100
	r.hold = true
	r.restart()
	r.release()
	r.step(Delete{Tag: 77, Job: r.jobs[deleted.UID]})
	r.sleep(time.Second)
	if len(r.gaps) > 0 {
		t.Fatalf("gaps are left: %+v", r.gaps)
	}
	for name, j := range r.jobs {
		for _, at := range expected(t, j, r.now) {
			s, ok := r.slots[job.SlotKey{FireTime: at, UID: name}]
			if !ok {
				t.Fatalf("%s has no slot at %v", j.Name, at)
			}
			if j.Name == "deleted" && s.State != job.Cancelled {
				t.Fatalf("a slot that a deleted job owed is %v", s.State)
			}
		}
	}
	if got := len(r.slots); got < 7200 || got > 7230 {
		t.Errorf("%d slots", got)
	}
}

// A year of downtime of a job that fires every minute must cost no memory.
func TestALongDowntimeHasFlatMemory(t *testing.T) {
	r := newRig(t)
	r.cfg.ReadyLimit = 200
	j := r.create(r.newJob("j", job.Schedule{Kind: job.KindCron, Cron: "* * * * *"}))
	r.now = r.now.Add(20 * 24 * time.Hour)
	peak := 0
	owned, loaded := r.load()
	r.s = New(r.cfg, owned, loaded, r.workers, r.now)
	for len(r.gaps) > 0 || r.s.inflight == nil && r.s.HasPending() || !r.s.opened {
		for _, read := range r.s.Reads() {
			r.s.Step(r.now, r.answer(read))
		}
		b := r.s.Ready(r.now, store.MaxBatchRows)
		if b == nil {
			break
		}
		r.checkless(b)
		r.now += 1000
		peak = max(peak, len(r.s.slots))
	}
	if want := len(expected(t, j, r.now)); len(r.slots) != want {
		t.Errorf("made %d slots, want %d", len(r.slots), want)
	}
	if peak > r.cfg.ReadyLimit+3*r.cfg.GapChunk {
		t.Errorf("%d slots were in memory", peak)
	}
}

// checkless commits without the model's checks, which are quadratic.
func (r *rig) checkless(b *Batch) {
	jobs := r.jobs
	r.jobs = map[job.UID]job.Job{}
	out := r.commit(b.Rows)
	r.jobs = jobs
	r.s.Step(r.now, Committed{Outcome: out})
}

func TestTheBacklogHoldsWhatMemoryDoesNot(t *testing.T) {
	r := newRig(t)
	r.cfg.ReadyLimit = 10
	r.restart()
	r.create(r.newJob("j", everySecond))
	r.sleep(100 * time.Second)
	if got := len(r.s.slots); got > 20 {
		t.Errorf("%d slots are in memory", got)
	}
	if len(r.backlog) < 80 {
		t.Errorf("%d rows are in the backlog", len(r.backlog))
	}
	key := r.join("w", 5)
	var order []job.Instant
	for len(order) < 100 {
		assigned := r.assigned()
		if len(assigned) == 0 {
			r.sleep(100 * time.Millisecond)
			assigned = r.assigned()
			if len(assigned) == 0 {
				t.Fatalf("only %d slots came back; %s, backlog %d", len(order), r.states(), len(r.backlog))
			}
		}
		for _, a := range assigned {
			order = append(order, a.Token.Key.FireTime)
			r.finish(a, job.OutcomeSucceeded)
		}
	}
	for i := 1; i < 100; i++ {
		if order[i] <= order[i-1] {
			t.Fatalf("slot %d came out of order", i)
		}
	}
	_ = key
}

func TestSlotsThatStayOpenAreFoundAfterARestart(t *testing.T) {
	r := newRig(t)
	j := r.newJob("j", onceAt(time.Second))
	j.Timeout = time.Hour
	r.create(j)
	r.create(r.newJob("waits", onceAt(2*time.Second)))
	r.sleep(time.Second)
	key := r.join("w", 1)
	r.sleep(20 * time.Minute)
	r.wantStates("READY:1 RUNNING:1 ")
	if r.openFrom < job.AtSecond(t0).Add(10*time.Minute) {
		t.Fatalf("open-from is at %v", r.openFrom)
	}
	r.workers.Silence(r.workers.Get("w"))
	r.restart()
	r.workers.Join(key, []string{"h"}, 3, 1, r.now)
	if a := r.assigned(); !r.s.Attest(key, a[0].Token) {
		t.Error("the running slot is not known any more")
	}
	r.sleep(time.Second)
	r.wantStates("RUNNING:2 ")
}

func TestDeleteCancelsWhatWaits(t *testing.T) {
	r := newRig(t)
	r.cfg.ReadyLimit = 5
	r.restart()
	r.join("w", 1)
	j := r.create(r.newJob("j", everySecond))
	r.sleep(30 * time.Second)
	running := find[Assign](r)
	r.step(Delete{Tag: 5, Job: r.jobs[j.UID]})
	ended := find[Reply](r).Job
	if ended == nil || ended.EndedAt == 0 {
		t.Fatalf("ended %+v", ended)
	}
	r.sleep(2 * time.Second)
	r.wantStates("RUNNING:1 CANCELLED:29 ")
	r.finish(running, job.OutcomeFailed)
	r.wantStates("CANCELLED:30 ")
	if r.s.jobs.len() > 0 {
		t.Error("the job is still in memory")
	}
	next := r.create(r.newJob("j", everySecond))
	r.sleep(time.Second)
	for key := range r.slots {
		if key.UID == next.UID && key.FireTime <= ended.EndedAt {
			t.Error("the new job has a slot at or before its predecessor's end")
		}
	}
}

func TestAConflictingCreateLeavesNothing(t *testing.T) {
	r := newRig(t)
	first := r.create(r.newJob("j", everySecond))
	r.join("w", 1)
	again := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
	r.step(Create{Tag: 5, Job: again})
	if reply := find[Reply](r); reply.Existing == nil || reply.Existing.UID != first.UID {
		t.Fatalf("answered %+v", reply)
	}
	if len(r.assigned()) > 0 || r.s.jobs.get(again.UID) != nil || len(r.slots) > 0 {
		t.Error("something of the refused job is left")
	}
	if _, free := r.workers.Serving("h"); free != 1 {
		t.Error("the worker's credit was not given back")
	}
}

func TestATriggerIsRepeatable(t *testing.T) {
	r := newRig(t)
	j := r.create(r.newJob("j", everySecond))
	trigger := Trigger{Tag: 5, Job: j, RequestID: "r", Hash: "h"}
	r.step(trigger)
	first := find[Reply](r).Slot
	if first == nil || first.Trigger != job.TriggerManual || first.Key.FireTime.Whole() {
		t.Fatalf("made %+v", first)
	}
	r.step(trigger)
	if again := find[Reply](r).Earlier; again == nil || *again != first.Key {
		t.Errorf("the repeat answered %+v", again)
	}
	trigger.Hash = "other"
	r.step(trigger)
	if err := find[Reply](r).Err; err != ErrRequestReused {
		t.Errorf("another request under the same id: %v", err)
	}
	trigger.RequestID = ""
	r.step(trigger)
	r.step(trigger)
	r.wantStates("READY:3 ")
}

func TestCancelOfARunningSlot(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	a := find[Assign](r)
	found := store.SlotOf{Slot: r.slots[a.Token.Key], Job: r.jobs[a.Token.Key.UID]}
	r.step(CancelSlot{Tag: 5, Found: found, Reason: "because"})
	if reply := find[Reply](r); reply.Slot == nil || reply.Slot.State != job.Cancelled || reply.Slot.ErrorText != "because" {
		t.Errorf("answered %+v", reply)
	}
	if stop := find[Stop](r); stop.Reason != StopCancelled || stop.Token != a.Token {
		t.Errorf("told %+v", stop)
	}
	r.finish(a, job.OutcomeSucceeded)
	if find[Ack](r).Accepted {
		t.Error("the result of a cancelled attempt was accepted")
	}
	r.step(CancelSlot{Tag: 6, Found: store.SlotOf{Slot: r.slots[a.Token.Key], Job: found.Job}})
	if reply := find[Reply](r); reply.Tag != 6 || reply.Slot.State != job.Cancelled {
		t.Errorf("a second cancel answered %+v", reply)
	}
}

func TestAHandBackCountsNoFailure(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	for range 10 {
		r.finish(find[Assign](r), job.OutcomeReleased)
	}
	if a := find[Assign](r); a.Token.Attempt != 11 || a.Failures != 0 {
		t.Errorf("assigned %+v", a)
	}
}

func TestTimeGoingBackFiresNothingTwice(t *testing.T) {
	r := newRig(t)
	r.create(r.newJob("j", everySecond))
	r.sleep(10 * time.Second)
	real := r.now
	r.now = r.now.Add(-time.Hour)
	r.step(Tick{})
	r.restart()
	r.now = real.Add(time.Second)
	r.step(Tick{})
	r.wantStates("READY:11 ")
}

func TestRowsThatTheDatabaseRefusesSetTheirJobAside(t *testing.T) {
	r := newRig(t)
	good, bad := r.create(r.newJob("good", everySecond)), r.create(r.newJob("bad", everySecond))
	r.sleep(999 * time.Millisecond)
	r.hold = true
	r.sleep(time.Millisecond)
	b := r.held
	r.held, r.hold = nil, false
	r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows.Without(bad.UID)), Refused: map[job.UID]error{bad.UID: fmt.Errorf("no")}})
	r.pump()
	// The model checks that every job has its slots; this one is set aside.
	delete(r.jobs, bad.UID)
	r.sleep(5 * time.Second)
	for key := range r.slots {
		if key.UID == bad.UID {
			t.Errorf("a slot of the refused job was made at %v", key.FireTime)
		}
	}
	if got := len(r.slots); got != 6 || r.s.jobs.get(good.UID) == nil {
		t.Errorf("%d slots of the good job", got)
	}
}

func TestADamagedJobIsSetAsideAtLoad(t *testing.T) {
	r := newRig(t)
	j := r.create(r.newJob("j", everySecond))
	damaged := r.newJob("damaged", job.Schedule{Kind: job.KindCron, Cron: "*/0 * * * *"})
	owned, loaded := r.load()
	loaded.Recurring = append(loaded.Recurring, damaged)
	r.s = New(r.cfg, owned, loaded, r.workers, r.now)
	b := r.s.Ready(r.now, store.MaxBatchRows)
	if len(b.Rows.Quarantines) != 1 || b.Rows.Quarantines[0].UID != damaged.UID {
		t.Errorf("set aside %+v", b.Rows.Quarantines)
	}
	if r.s.jobs.get(j.UID) == nil || r.s.jobs.get(damaged.UID) != nil {
		t.Error("the wrong job is in memory")
	}
}

func TestInboxJobsOweNothing(t *testing.T) {
	for _, length := range []time.Duration{5 * time.Second, 10 * time.Minute} {
		r := newRig(t)
		jobs := []job.Job{r.newJob("every", everySecond), r.newJob("now", job.Schedule{Kind: job.KindImmediate}),
			r.newJob("soon", onceAt(2*time.Second)), r.newJob("later", onceAt(time.Hour))}
		for _, j := range jobs {
			j.EffectiveFrom, j.CreatedAt = r.now, r.now
			r.jobs[j.UID], r.inbox[j.UID] = j, true
		}
		r.now = r.now.Add(length)
		r.step(Tick{})
		r.step(InboxHint{})
		r.sleep(2 * time.Hour / 20)
		if len(r.inbox) > 0 || len(r.gaps) > 0 {
			t.Fatalf("inbox %v, gaps %v", r.inbox, r.gaps)
		}
		for _, j := range jobs[:3] {
			found := false
			for key := range r.slots {
				found = found || key.UID == j.UID
			}
			if !found {
				t.Errorf("%s has no slot after %s in the inbox", j.Name, length)
			}
		}
	}
}

// A slot that stands in the database already, made by a predecessor whose
// watermark didn't get that far, is taken as it stands.
func TestAMadeSlotIsTakenAsItStands(t *testing.T) {
	r := newRig(t)
	j := r.create(r.newJob("j", everySecond))
	at := r.now.Add(2 * time.Second)
	done := job.Slot{Key: job.SlotKey{FireTime: at, UID: j.UID}, State: job.Succeeded, Attempt: 1, Worker: "x", CreatedAt: at}
	r.slots[done.Key] = done
	r.join("w", 10)
	r.sleep(3 * time.Second)
	for _, a := range r.assigned() {
		if a.Token.Key == done.Key {
			t.Error("a finished slot was assigned again")
		}
	}
	if got := r.slots[done.Key]; got.State != job.Succeeded || got.Worker != "x" {
		t.Errorf("the slot became %+v", got)
	}
	if _, free := r.workers.Serving("h"); free != 1 || r.workers.Get("w").credit != 8 {
		t.Errorf("credit %d, want 8: that of the attempt that was never sent comes back", r.workers.Get("w").credit)
	}
}

func TestFiringStopsWhileTooMuchWaitsToBeWritten(t *testing.T) {
	r := newRig(t)
	r.cfg.PendingLimit = 50
	r.restart()
	for i := range 20 {
		r.create(r.newJob(fmt.Sprintf("j%d", i), everySecond))
	}
	r.hold = true
	r.sleep(30 * time.Second)
	if got := len(r.s.pending.dirty); got > 50+1024 {
		t.Errorf("%d slots wait to be written", got)
	}
	r.release()
	r.sleep(time.Second)
	for uid, j := range r.jobs {
		for _, at := range expected(t, j, r.now.Add(-time.Second)) {
			if _, ok := r.slots[job.SlotKey{FireTime: at, UID: uid}]; !ok {
				t.Fatalf("%s has no slot at %v", j.Name, at)
			}
		}
	}
}
