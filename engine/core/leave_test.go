package core

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestAShardGivesItselfUpWithItsLastBatch(t *testing.T) {
	r := newRig(t)
	r.create(r.newJob("j", everySecond))
	r.join("w", 1)
	r.sleep(2 * time.Second) // one slot runs, one waits
	r.wantStates("READY:1 RUNNING:1 ")
	running := find[Assign](r)
	r.hold = true
	r.step(Result{Worker: running.Worker, Token: running.Token, Outcome: job.OutcomeSucceeded})
	r.step(Leave{}) // a batch is under way
	if r.s.Live() || r.s.Left() || r.givenUp {
		t.Fatalf("while a batch is under way: live %v, left %v, given up %v", r.s.Live(), r.s.Left(), r.givenUp)
	}
	r.workers.AddCredit(r.workers.Get("w"), 1)
	r.release()
	if !r.s.Left() || !r.givenUp {
		t.Fatalf("left %v, given up %v, want both", r.s.Left(), r.givenUp)
	}
	r.wantStates("READY:1 SUCCEEDED:1 ") // nothing was claimed any more
	if acks := takeAll[Ack](r); len(acks) != 1 || !acks[0].Accepted {
		t.Errorf("the result was answered by %+v", acks)
	}
	if r.watermark != r.now {
		t.Errorf("the watermark is %s, want %s: the next owner would look for what is there", r.watermark, r.now)
	}
	writes := r.writes
	r.now = r.now.Add(5 * time.Second)
	r.step(Tick{})
	r.step(Result{Worker: running.Worker, Token: running.Token, Outcome: job.OutcomeSucceeded})
	r.step(WorkerLost{Worker: running.Worker})
	if r.writes != writes || r.s.HasPending() || r.s.NextWake() != job.MaxInstant {
		t.Errorf("a shard that has left writes %d rows, has pending %v, wakes at %s", r.writes-writes, r.s.HasPending(), r.s.NextWake())
	}
	r.restart()
	r.sleep(time.Second)
	if n := len(r.slots); n != 8 {
		t.Errorf("%d slots after the next owner took the shard, want 8", n)
	}
}

func TestAShardLeavesThoughMuchIsToBeWritten(t *testing.T) {
	r := newRig(t)
	for i := range 40 {
		r.create(r.newJob(string(rune('a'+i%26))+string(rune('a'+i/26)), everySecond))
	}
	r.hold = true
	r.now = r.now.Add(3 * time.Second)
	r.step(Tick{})
	r.room = func() int { return 7 }
	r.step(Leave{})
	r.release()
	if !r.s.Left() || len(r.slots) != 120 {
		t.Errorf("left %v with %d slots, want 120", r.s.Left(), len(r.slots))
	}
}

// The window of jobs that fire once was read late, and came while the shard gave itself up: its last
// watermark passed a job of the window that it didn't fire any more, and the next owner looked no
// further back.
func TestAWindowThatComesLateIsLeftToTheNextOwner(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	due := r.s.once.to.FireTime.Add(3 * time.Second)
	j := r.create(r.newJob("j", job.Schedule{Kind: job.KindOnce, At: job.AtSecond(due.Seconds())}))
	r.deaf = func(read Read) bool { return read.Kind == ReadOnce }
	r.sleep(due.Sub(r.now) + 2*time.Second)
	if len(r.unheard) == 0 || len(r.slots) > 0 {
		t.Fatalf("%d reads wait, %d slots", len(r.unheard), len(r.slots))
	}
	r.hold = true
	r.s.Step(r.now, Trigger{Tag: 1, Job: r.jobs[j.UID]}) // something is to be written
	r.pump()
	r.s.Step(r.now, Leave{})
	r.s.Step(r.now, r.answer(r.unheard[0]))
	r.release()
	r.deaf = nil
	r.restart()
	r.sleep(time.Second)
	if s := r.slots[job.SlotKey{FireTime: j.Schedule.At, UID: j.UID}]; s.State == job.StateNone {
		t.Errorf("the job never fired; the watermark is %s", r.watermark)
	}
}

// The owner before had accepted a result, and its worker repeats it to the next one, which is about to
// make the same slot: it said that the result had come too late.
func TestAResultOfASlotThatTheOwnerBeforeMadeIsNotRefused(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	j := r.create(r.newJob("j", everySecond))
	r.sleep(time.Second)
	a := r.assigned()[0]
	r.finish(a, job.OutcomeSucceeded)
	r.watermark = a.Token.Key.FireTime - 1 // it died before it wrote how far it had come
	r.said = nil
	owned, loaded := r.load()
	r.s = New(r.cfg, owned, loaded, r.workers, r.now)
	r.hold = true
	for range 5 { // until the batch is under way that makes the slot again
		r.pump()
		if r.held != nil && len(r.held.Rows.Slots) > 0 {
			break
		}
		b := r.held
		r.held = nil
		r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
	}
	if r.held == nil || len(r.held.Rows.Slots) == 0 || r.held.Rows.Slots[0].Key.UID != j.UID {
		t.Fatal("the slot isn't made again")
	}
	r.s.Step(r.now, Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeSucceeded})
	r.release()
	if acks := takeAll[Ack](r); len(acks) != 1 || !acks[0].Accepted || len(r.late) > 0 {
		t.Errorf("answered by %+v, late results %+v", acks, r.late)
	}
}
