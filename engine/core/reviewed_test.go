package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func TestAJobOfTheInboxLeavesItOnlyWithItsSlots(t *testing.T) {
	r := newRig(t)
	r.sleep(5 * time.Second)
	var jobs []job.Job
	for i := range 4 {
		j := r.newJob(fmt.Sprint("i", i), job.Schedule{Kind: job.KindImmediate})
		j.EffectiveFrom, j.CreatedAt = r.now-1000, r.now-1000
		r.jobs[j.UID], r.inbox[j.UID] = j, true
		jobs = append(jobs, j)
	}
	r.s.Step(r.now, InboxHint{})
	for _, read := range r.s.Reads() {
		r.s.Step(r.now, r.answer(read))
	}
	b := r.s.Ready(r.now, 4) // room left by other shards of the group
	r.commit(b.Rows)
	r.restart() // crash
	r.sleep(time.Minute)
	for _, j := range jobs {
		n := 0
		for k := range r.slots {
			if k.UID == j.UID {
				n++
			}
		}
		if n != 1 {
			t.Errorf("job %s has %d slots, inbox %v", j.Name, n, r.inbox[j.UID])
		}
	}
}

func TestACancelThatComesTooLateIsAnswered(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	j := r.create(r.newJob("a", job.Schedule{Kind: job.KindImmediate}))
	a := r.assigned()[0]
	found := store.SlotOf{Slot: r.slots[a.Token.Key], Job: j}
	r.finish(a, job.OutcomeSucceeded)
	r.said = nil
	r.step(CancelSlot{Tag: 99, Found: found, Reason: "x"})
	r.sleep(time.Second)
	for _, m := range takeAll[Reply](r) {
		if m.Tag == 99 {
			return
		}
	}
	t.Fatal("no reply to cancel")
}

func TestAClaimThatWasNeverSentDoesNotTimeOut(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	j := r.newJob("a", job.Schedule{Kind: job.KindImmediate})
	j.Retry.MaxAttempts = 1
	r.hold = true
	r.create(j)
	r.sleep(40 * time.Second) // the database is away
	r.release()
	r.sleep(time.Second)
	for _, s := range r.slots {
		if s.State == job.Dead {
			t.Fatal("dead without ever having been sent")
		}
	}
}

func TestTheWindowIsRefilledWhateverIsInMemory(t *testing.T) {
	r := newRig(t)
	r.cfg.OnceLimit, r.cfg.PageLimit = 4, 1
	for i := range 30 {
		j := r.newJob(fmt.Sprint("o", i), onceAt(time.Duration(60+i)*time.Second))
		j.EffectiveFrom = r.now
		r.jobs[j.UID] = j
	}
	r.restart()
	for i := range 3 {
		r.create(r.newJob(fmt.Sprint("late", i), onceAt(10*time.Minute)))
	}
	r.sleep(3 * time.Minute)
	if len(r.slots) != 30 {
		t.Fatalf("%d of 30 slots after 3 minutes; they were due at 60..89 s", len(r.slots))
	}
}

func TestAJobDeletedInTheInboxLeavesItsRecord(t *testing.T) {
	r := newRig(t)
	r.sleep(5 * time.Second)
	j := r.newJob("i", job.Schedule{Kind: job.KindImmediate})
	j.EffectiveFrom, j.CreatedAt = r.now-1000, r.now-1000
	r.jobs[j.UID], r.inbox[j.UID] = j, true
	r.step(Delete{Tag: 7, Job: j})
	r.step(InboxHint{})
	r.sleep(5 * time.Second)
	if len(r.slots) != 1 {
		t.Errorf("%d slots, inbox %v", len(r.slots), r.inbox)
	}
	if r.s.jobs.len() != 0 {
		t.Errorf("%d jobs leaked in memory", r.s.jobs.len())
	}
}

func TestACancelledClaimThatWasNeverSentStartsNothing(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	r.hold = true
	r.create(r.newJob("x", everySecond)) // occupies the commit
	r.release()
	r.hold = true
	r.now = job.AtSecond(t0 + 1)
	r.s.Step(r.now, Tick{})
	var key job.SlotKey
	for k := range r.s.slots {
		key = k
	}
	sl := r.s.slots[key]
	r.s.Step(r.now, CancelSlot{Tag: 9, Found: store.SlotOf{Slot: sl.row, Job: r.jobs[key.UID]}, Reason: "x"})
	r.hold = false
	r.pump()
	if n := len(r.assigned()); n != 0 {
		t.Errorf("%d assignments were sent", n)
	}
	if _, free := r.workers.Serving("h"); free != 1 {
		t.Error("the credit of the claim was not given back")
	}
	r.wantStates("CANCELLED:1 ")
}

func TestAnEndThatIsWrittenBeforeItsSlots(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	j := r.create(r.newJob("a", everySecond))
	r.sleep(1500 * time.Millisecond)
	for _, a := range r.assigned() {
		r.finish(a, job.OutcomeSucceeded)
	}
	r.workers.Pause()
	r.now = job.AtSecond(t0 + 2)
	r.s.Step(r.now, Tick{})
	r.s.Step(r.now, Delete{Tag: 5, Job: r.jobs[j.UID]})
	b := r.s.Ready(r.now, 1)
	r.commit(b.Rows)
	r.restart()
	r.sleep(3 * time.Second)
	r.wantStates("SUCCEEDED:1 CANCELLED:1 ")
}

func TestSlotsInBackOffStarveNobody(t *testing.T) {
	r := newRig(t)
	r.cfg.ReadyLimit = 10
	r.restart()
	r.join("w", 100)
	bad := r.newJob("bad", everySecond)
	bad.Retry.InitialBackoff, bad.Retry.MaxBackoff = 6*time.Hour, 6*time.Hour
	bad = r.create(bad)
	for range 15 {
		r.sleep(time.Second)
		for _, a := range r.assigned() {
			r.finish(a, job.OutcomeFailed)
		}
	}
	r.step(Delete{Tag: 1, Job: r.newJob("none", everySecond)})
	good := r.create(r.newJob("good", job.Schedule{Kind: job.KindImmediate}))
	r.sleep(time.Hour)
	for k, s := range r.slots {
		if k.UID == good.UID && s.State == job.Ready {
			t.Errorf("a fresh slot of another job is %v after an hour with idle workers", s.State)
		}
	}
}

func TestCancelledSlotsDoNotPileUp(t *testing.T) {
	r := newRig(t)
	j := r.create(r.newJob("a", job.Schedule{Kind: job.KindCron, Cron: "0 0 0 1 1 *"}))
	r.step(Trigger{Tag: 1, Job: j})
	for range 1000 {
		r.now += 1000
		r.step(Trigger{Tag: 1, Job: j})
		s := find[Reply](r).Slot
		r.step(CancelSlot{Tag: 2, Found: store.SlotOf{Slot: *s, Job: j}})
	}
	if n := len(r.s.queues["h"].ready); n > 100 {
		t.Errorf("%d dead entries in the heap, %d slots in memory", n, len(r.s.slots))
	}
}

func TestACallThatReadItsJobBeforeTheDelete(t *testing.T) {
	r := newRig(t)
	j := r.create(r.newJob("a", onceAt(time.Hour*24)))
	r.step(Delete{Tag: 1, Job: j})
	r.sleep(2 * time.Second)
	r.said = nil
	r.step(Trigger{Tag: 2, Job: j}) // read before the delete
	if reply := find[Reply](r); reply.Err == nil {
		t.Errorf("a run of an ended job answered %+v", reply)
	}
	r.step(Delete{Tag: 3, Job: j})
	rep := find[Reply](r)
	if rep.Job.EndedAt != r.jobs[j.UID].EndedAt {
		t.Errorf("delete answered end %v, stored %v", rep.Job.EndedAt, r.jobs[j.UID].EndedAt)
	}
	r.wantStates("")
}

func TestEventsAreBoundedByTheBatch(t *testing.T) {
	r := newRig(t)
	r.join("w", 10000)
	for i := range 100 {
		j := r.newJob(fmt.Sprint("j", i), everySecond)
		r.create(j)
	}
	r.sleep(60 * time.Second)
	r.s.Step(r.now, WorkerLost{Worker: WorkerKey{"w", "1"}})
	b := r.s.Ready(r.now, 100)
	if n := b.Rows.Rows(); n > 3*100 {
		t.Errorf("a batch of %d rows for a room of 100", n)
	}
}

// A worker gets its whole timeout from the moment at which it is told, also after
// its stream broke.
func TestAttestKeepsTheTimeoutOfALateSend(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	j := r.newJob("a", job.Schedule{Kind: job.KindImmediate})
	j.Retry.MaxAttempts = 1
	r.hold = true
	r.create(j)
	r.sleep(4 * j.Timeout) // the database is away
	r.release()
	assigned := r.assigned()
	if len(assigned) != 1 {
		t.Fatalf("%d assignments", len(assigned))
	}
	if a := assigned[0]; !r.s.Attest(a.Worker, a.Token) {
		t.Fatal("not attested")
	}
	r.sleep(j.Timeout - time.Second)
	r.wantStates("RUNNING:1 ")
	r.sleep(10 * time.Second)
	r.wantStates("DEAD:1 ")
}

// While what was adopted waits for its batch, the inbox still shows it: it is not
// read again.
func TestTheInboxIsReadOnce(t *testing.T) {
	r := newRig(t)
	r.sleep(5 * time.Second)
	r.s.cfg.PageLimit = 4
	for i := range 6 {
		j := r.newJob(fmt.Sprint("i", i), job.Schedule{Kind: job.KindImmediate})
		j.EffectiveFrom, j.CreatedAt = r.now-1000, r.now-1000
		r.jobs[j.UID], r.inbox[j.UID] = j, true
	}
	r.s.Step(r.now, InboxHint{})
	reads := 0
	for range 100 { // another shard's group is under way: no Ready here
		for _, read := range r.s.Reads() {
			if read.Kind == ReadInbox {
				reads++
			}
			r.s.Step(r.now, r.answer(read))
		}
		r.s.Step(r.now, InboxHint{})
	}
	if reads != 1 {
		t.Errorf("%d reads of the same page; %d rows to delete for 4 jobs", reads, len(r.s.pending.adopted))
	}
	r.sleep(5 * time.Second)
	if len(r.inbox) != 0 || len(r.slots) != 6 {
		t.Errorf("%d jobs stay in the inbox, %d slots", len(r.inbox), len(r.slots))
	}
}

func TestEndedJobsAreForgotten(t *testing.T) {
	r := newRig(t)
	for i := range 60 {
		j := r.create(r.newJob(fmt.Sprint("j", i), onceAt(time.Hour)))
		r.step(Delete{Tag: uint64(1000 + i), Job: j})
		r.sleep(50 * time.Second)
	}
	if n := len(r.s.reads.ended) + len(r.s.reads.endedBefore); n > 6 {
		t.Errorf("%d ended jobs are remembered", n)
	}
}

// The answer to a second cancellation waits for the write of the first.
func TestASecondCancellationWaitsForTheFirst(t *testing.T) {
	r := newRig(t)
	r.sleep(5 * time.Second)
	j := r.create(r.newJob("a", job.Schedule{Kind: job.KindImmediate}))
	r.sleep(time.Second)
	var key job.SlotKey
	for k := range r.slots {
		key = k
	}
	found := store.SlotOf{Slot: r.slots[key], Job: j}
	r.said = nil
	r.s.Step(r.now, CancelSlot{Tag: 98, Found: found, Reason: "x"})
	r.s.Step(r.now, CancelSlot{Tag: 99, Found: found, Reason: "x"})
	answers := 0
	for answers == 0 {
		b := r.s.Ready(r.now, 1) // what other shards left of the group
		if b == nil {
			t.Fatal("nobody is answered")
		}
		r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
		for _, m := range r.s.Messages() {
			if m, ok := m.(Reply); ok && m.Slot != nil {
				answers++
				if m.Slot.State != job.Cancelled || r.slots[key].State != job.Cancelled {
					t.Errorf("call %d is told %v; the database says %v", m.Tag, m.Slot.State, r.slots[key].State)
				}
			}
		}
	}
	if answers != 2 {
		t.Errorf("%d answers", answers)
	}
}

func TestASilencedWorkerGetsNoRefund(t *testing.T) {
	w := NewWorkers()
	key := WorkerKey{"w", "1"}
	worker := w.Join(key, []string{"h"}, 1, 1, 0)
	w.take("h")
	w.Silence(worker)
	w.Refund(key) // its claim was never sent
	if w.take("h") != nil {
		t.Error("a silenced worker takes attempts")
	}
}

// A read of the backlog that can't see what was displaced, since that isn't written
// yet, is not repeated before it is: it was, in a circle, for as long as the commit
// of another shard took.
func TestTheBacklogIsNotReadInACircle(t *testing.T) {
	r := newRig(t)
	r.cfg.ReadyLimit = 4
	r.restart()
	for i := range 12 {
		r.create(r.newJob(fmt.Sprint("j", i), everySecond))
	}
	r.now = r.now.Add(1100 * time.Millisecond)
	r.s.Step(r.now, Tick{}) // eight are displaced; nothing is written, as if another shard's batch were under way
	r.workers.Join(WorkerKey{ID: "w", Incarnation: "1"}, []string{"h"}, 4, 4, r.now.Add(r.cfg.Lease))
	for r.s.Dispatch("h") { // room in memory
	}
	reads := 0
	for range 10 {
		for _, read := range r.s.Reads() {
			if read.Kind == ReadWaiting {
				reads++
			}
			r.s.Step(r.now, r.answer(read))
		}
	}
	if reads > 1 {
		t.Fatalf("the backlog was read %d times although nothing had been written", reads)
	}
	for range 8 {
		r.pump()
		for _, a := range r.assigned() {
			r.finish(a, job.OutcomeSucceeded)
		}
	}
	r.wantStates("SUCCEEDED:12 ")
}

// A shard that is behind has fired more of some jobs than of others. A job that is
// deleted then ends after its own newest slot, and a new job of its name begins after
// that.
func TestAJobEndsAfterItsNewestSlotOfAShardThatIsBehind(t *testing.T) {
	r := newRig(t)
	r.cfg.PendingLimit = 10
	r.restart()
	j := r.create(r.newJob("j", everySecond))
	r.hold = true
	r.now = r.now.Add(30 * time.Second)
	r.step(Tick{})
	r.step(Delete{Tag: 1, Job: j})
	r.release()
	next := r.create(r.newJob("j", everySecond))
	end := r.jobs[j.UID].EndedAt
	for key := range r.slots {
		if key.UID == j.UID && key.FireTime > end {
			t.Errorf("a slot at %s of a job that ended at %s", key.FireTime, end)
		}
	}
	if begin := r.jobs[next.UID].EffectiveFrom; begin < end {
		t.Errorf("the next job of the name begins at %s, before %s", begin, end)
	}
}

// The window of jobs that fire once was read while a job was adopted: before that it was beyond the
// window, and the read passed over it, since its row of the inbox was still there. It never fired.
func TestTheWindowIsNotReadWhileAJobIsAdopted(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	r.sleep(time.Second)
	r.now = r.s.once.to.FireTime.Add(-time.Second) // the window is to be read
	j := r.newJob("late", job.Schedule{Kind: job.KindOnce, At: job.AtSecond(r.now.Add(r.cfg.OnceWindow / 2).Seconds())})
	j.EffectiveFrom = r.now
	r.jobs[j.UID], r.inbox[j.UID] = j, true
	r.s.Step(r.now, InboxLoaded{Jobs: []job.Job{j}})
	for _, read := range r.s.Reads() {
		r.s.Step(r.now, r.answer(read)) // before the batch is written that adopts the job
	}
	r.pump()
	r.sleep(r.cfg.OnceWindow)
	if s := r.slots[job.SlotKey{FireTime: j.Schedule.At, UID: j.UID}]; s.State == job.StateNone {
		t.Errorf("the job never fired; the shard has come to %s", r.s.watermark)
	}
}
