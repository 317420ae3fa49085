package core

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// noted reports on an attempt and returns the versions that are stored after it.
func (r *rig) noted(a Assign, e Progressed) (sequences []int64) {
	e.Worker, e.Token = a.Worker, a.Token
	r.step(e)
	for _, n := range takeAll[Noted](r) {
		sequences = append(sequences, n.Sequence)
	}
	return sequences
}

// What a checkpoint says reaches the next attempt, once it was acknowledged also when worker
// and owner die together; and the attempt after that, until one succeeds.
func TestACheckpointReachesTheNextAttempt(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 1)
	r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	a := r.assigned()[0]
	if a.Checkpoint != nil {
		t.Errorf("the first attempt gets %q", a.Checkpoint)
	}
	log := "one\n"
	if got := r.noted(a, Progressed{Sequence: 1, Checkpoint: []byte("p1"), Log: &log, Progress: &Progress{1, 9, "n"}}); len(got) != 1 || got[0] != 1 {
		t.Fatalf("acknowledged %v", got)
	}
	if got := r.noted(a, Progressed{Sequence: 2, Checkpoint: []byte("p2")}); len(got) != 0 {
		t.Errorf("two were stored within a second: %v", got)
	}
	r.restart() // and the worker is gone too
	r.sleep(time.Minute)
	r.workers.Remove(w.ID)
	r.join("v", 3)
	b := r.assigned()[0]
	if string(b.Checkpoint) != "p1" || b.Token.Attempt != 2 {
		t.Errorf("attempt %d gets %q", b.Token.Attempt, b.Checkpoint)
	}
	key := a.Token.Key
	if got := r.attempts[key]; len(got) != 1 || got[0].Log != "one\n" {
		t.Errorf("the first attempt is recorded as %+v", got)
	}
	if n := job.DecodeNotes(r.slots[key].Notes); n.Log != "" || n.Done != 0 || string(n.Checkpoint) != "p1" {
		t.Errorf("the second attempt begins with %+v", n)
	}
	log = "two\n"
	r.step(Result{Worker: b.Worker, Token: b.Token, Outcome: job.OutcomeFailed, Checkpoint: []byte("p3"), Log: &log})
	r.sleep(5 * time.Second)
	c := r.assigned()[0]
	if string(c.Checkpoint) != "p3" || r.attempts[key][1].Log != "two\n" {
		t.Errorf("the third attempt gets %q; recorded are %+v", c.Checkpoint, r.attempts[key])
	}
	r.finish(c, job.OutcomeSucceeded)
	if n := job.DecodeNotes(r.slots[key].Notes); n.Checkpoint != nil {
		t.Errorf("after the success %+v is left", n)
	}
}

// At most one write for each attempt and second; what has no checkpoint waits longer. An older
// report, and one of an older attempt, change nothing.
func TestHowOftenNotesAreStored(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	j := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
	j.Timeout = time.Hour
	r.create(j)
	a := r.assigned()[0]
	var checkpoints, progress int
	sequence := int64(0)
	for range 100 {
		sequence++
		checkpoints += len(r.noted(a, Progressed{Sequence: sequence, Checkpoint: []byte("x")}))
		r.sleep(100 * time.Millisecond)
	}
	for range 200 {
		sequence++
		progress += len(r.noted(a, Progressed{Sequence: sequence, Progress: &Progress{sequence, 0, ""}}))
		r.sleep(100 * time.Millisecond)
	}
	if checkpoints < 9 || checkpoints > 12 || progress < 3 || progress > 5 {
		t.Errorf("%d checkpoints were stored in 10 s, progress %d times in 20 s", checkpoints, progress)
	}
	shown := func() job.Notes {
		info, _ := r.s.Slot(a.Token.Key)
		return job.DecodeNotes(info.Slot.Notes)
	}
	if n := shown(); n.Done != sequence {
		t.Errorf("shown is %+v, want the newest", n)
	}
	r.noted(a, Progressed{Sequence: 1, Progress: &Progress{1, 0, ""}})
	old := a
	old.Token.Attempt++
	r.noted(old, Progressed{Sequence: sequence + 1, Progress: &Progress{2, 0, ""}})
	if n := shown(); n.Done != sequence {
		t.Errorf("shown is %+v, after an older report", n)
	}
	r.sleep(10 * time.Second)
	if got := r.noted(a, Progressed{Progress: &Progress{7, 0, ""}}); len(got) != 0 {
		t.Errorf("a report that asked for nothing was acknowledged: %v", got)
	}
	if n := job.DecodeNotes(r.slots[a.Token.Key].Notes); n.Done != 7 || string(n.Checkpoint) != "x" {
		t.Errorf("stored is %+v", n)
	}
}

// A dead letter keeps its checkpoint: redriven, it goes on from there.
func TestARedriveGoesOnFromTheCheckpoint(t *testing.T) {
	r := newRig(t)
	r.join("w", 2)
	j := r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
	a := r.assigned()[0]
	log := strings.Repeat("x", 100)
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed, Permanent: true, Checkpoint: []byte("p"), Log: &log})
	r.sleep(time.Second)
	r.step(RedriveSlot{Tag: 1, Found: store.SlotOf{Slot: r.slots[a.Token.Key], Job: r.jobs[j.UID]}, Reason: "r"})
	if b := r.assigned(); len(b) != 1 || string(b[0].Checkpoint) != "p" || r.attempts[a.Token.Key][0].Log != log {
		t.Errorf("redriven as %+v; recorded are %+v", b, r.attempts[a.Token.Key])
	}
}
