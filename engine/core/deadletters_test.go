package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// deadOne returns a job whose only slot is dead, with the slot, as the database has them.
func (r *rig) deadOne(name string) store.SlotOf {
	r.t.Helper()
	j := r.newJob(name, job.Schedule{Kind: job.KindImmediate})
	j.Retry.MaxAttempts = 2
	r.create(j)
	for range 2 {
		r.failFirst("boom")
		r.sleep(5 * time.Second)
	}
	for key, s := range r.slots {
		if key.UID == j.UID && s.State == job.Dead {
			return store.SlotOf{Slot: s, Job: r.jobs[j.UID]}
		}
	}
	r.t.Fatalf("no slot of %s is dead: %s", name, r.states())
	return store.SlotOf{}
}

// A redriven slot is claimed at once, with its whole budget, and its failures stay in the
// record. It may die again.
func TestRedrive(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	found := r.deadOne("j")
	r.step(RedriveSlot{Tag: 5, Found: found, Reason: "repaired"})
	if reply := find[Reply](r); reply.Slot == nil || reply.Slot.State != job.Running || reply.Slot.Failures != 0 || reply.Slot.Attempt != 3 {
		t.Fatalf("redrive: %+v", reply)
	}
	if r.dead[found.Slot.Key] {
		t.Error("the dead letter is still there")
	}
	r.failFirst("boom")
	r.sleep(5 * time.Second)
	r.wantStates("RUNNING:1 ")
	r.serve(job.OutcomeSucceeded)
	r.wantStates("SUCCEEDED:1 ")
	r.step(RedriveSlot{Tag: 6, Found: found, Reason: "again"})
	if reply := find[Reply](r); reply.Slot == nil || reply.Slot.State != job.Succeeded {
		t.Errorf("what the database has now answers a redrive of what was read: %+v", reply)
	}
	r.wantStates("SUCCEEDED:1 ")
}

// A slot may be redriven with other parameters: its worker gets them, also on the next attempt
// and from the next owner, and an event tells.
func TestRedriveWithOtherParameters(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 10)
	found := r.deadOne("j")
	r.step(RedriveSlot{Tag: 5, Found: found, Params: []byte(`{"fixed":true}`), Reason: "ann: a typo"})
	a := r.assigned()[0]
	if a.Work.Params != `{"fixed":true}` {
		t.Errorf("the worker got %s", a.Work.Params)
	}
	if n, text := r.told(store.EventSlotRedriven); n != 1 || !strings.Contains(text, `ann: a typo (with other parameters: {"fixed":true})`) {
		t.Errorf("told %d times: %s", n, text)
	}
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed})
	r.s.Abandon()
	r.restart()
	r.workers.Join(w, []string{"h"}, 10, 10, r.now.Add(r.cfg.Lease))
	r.sleep(2 * time.Second)
	if a := r.assigned()[0]; a.Work.Params != `{"fixed":true}` {
		t.Errorf("the next attempt got %s", a.Work.Params)
	}
}

// Nobody serves the handler: the slot waits as every other one does.
func TestRedriveWithoutAWorker(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 10)
	found := r.deadOne("j")
	r.s.workers.Remove(w.ID)
	r.step(RedriveSlot{Tag: 5, Found: found})
	r.wantStates("READY:1 ")
	r.restart()
	r.sleep(time.Second)
	r.join("v", 1)
	r.s.Dispatch("h")
	r.pump()
	r.serve(job.OutcomeSucceeded)
	r.wantStates("SUCCEEDED:1 ")
}

func TestDiscard(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	found := r.deadOne("j")
	died := r.now
	r.sleep(time.Minute)
	r.step(DiscardSlot{Tag: 5, Found: found, Reason: "ann: not needed"})
	reply := find[Reply](r)
	if reply.Slot == nil || reply.Slot.State != job.Discarded || !strings.Contains(reply.Slot.ErrorText, "ann: not needed") || reply.Slot.ErrorCode != "boom" {
		t.Fatalf("discard: %+v", reply)
	}
	if r.dead[found.Slot.Key] || len(r.s.slots) != 0 {
		t.Errorf("the dead letter is there: %v; %d slots in memory", r.dead[found.Slot.Key], len(r.s.slots))
	}
	r.wantStates("DISCARDED:1 ")
	// Its last attempt seemed to have run until the slot was discarded.
	if tries := r.attempts[found.Slot.Key]; len(tries) == 0 || tries[len(tries)-1].EndedAt > died || tries[len(tries)-1].Number != found.Slot.Attempt {
		t.Errorf("attempts %+v, died at %s", tries, died)
	}
}

// What isn't dead is neither redriven nor discarded, and a job that has ended isn't run.
func TestWhatIsNotRedriven(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 10)
	found := r.deadOne("j")
	r.step(Delete{Tag: 4, Job: r.jobs[found.Job.UID]})
	find[Reply](r)
	r.step(RedriveSlot{Tag: 5, Found: found}) // read before the delete
	if reply := find[Reply](r); !errors.Is(reply.Err, ErrJobEnded) {
		t.Errorf("redrive of a deleted job's slot: %+v", reply)
	}
	r.step(DiscardSlot{Tag: 6, Found: found, Reason: "x"})
	if reply := find[Reply](r); reply.Slot == nil || reply.Slot.State != job.Discarded {
		t.Errorf("discard of a deleted job's slot: %+v", reply)
	}
	r.s.workers.Remove(w.ID)
	waits := r.create(r.newJob("waits", job.Schedule{Kind: job.KindImmediate}))
	for key, s := range r.slots {
		if key.UID != waits.UID {
			continue
		}
		for _, e := range []Event{RedriveSlot{Tag: 7, Found: store.SlotOf{Slot: s, Job: waits}}, DiscardSlot{Tag: 8, Found: store.SlotOf{Slot: s, Job: waits}}} {
			r.step(e)
			if reply := find[Reply](r); !errors.Is(reply.Err, ErrNotDead) {
				t.Errorf("%T of a slot that waits: %+v", e, reply)
			}
		}
	}
}
