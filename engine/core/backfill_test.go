package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// backfill asks for the slots of a range, seconds after t0.
func (r *rig) backfill(j job.Job, from, until int64, rate int32) Reply {
	r.t.Helper()
	r.step(Backfill{Tag: 88, Job: r.jobs[j.UID], From: job.AtSecond(t0 + from), Until: job.AtSecond(t0 + until), Rate: rate, Reason: "ann: asked for"})
	return find[Reply](r)
}

// The slots of a past range are made, from its first instant on and before its last, once
// however often that is asked for; those that exist stay as they are.
func TestBackfillOfARange(t *testing.T) {
	r := newRig(t)
	r.join("w", 100)
	j := r.createWith("j", everyTen, job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpNone}, StartDeadline: 5 * time.Second})
	r.sleep(21 * time.Second)
	r.serveAll()
	r.down(60 * time.Second)
	r.serveAll()
	r.wantSlots(j, "10 SUCCEEDED", "20 SUCCEEDED")
	for range 2 {
		if reply := r.backfill(j, 20, 60, 0); reply.Gap == nil || reply.Gap.Options.RequestedAt == 0 {
			t.Fatalf("%+v", reply)
		}
		r.sleep(time.Second)
		r.serveAll()
		r.wantSlots(j, "10 SUCCEEDED", "20 SUCCEEDED", "30 SUCCEEDED", "40 SUCCEEDED", "50 SUCCEEDED")
	}
	for _, s := range r.slots {
		if s.Key.FireTime == job.AtSecond(t0+40) && (s.Trigger != job.TriggerBackfill || s.RequestedAt == 0) {
			t.Errorf("%+v", s)
		}
	}
	if len(r.gaps) != 0 {
		t.Errorf("gaps %v", r.gaps)
	}
}

func TestBackfillsThatCannotBe(t *testing.T) {
	r := newRig(t)
	j := r.createWith("j", everyTen, job.Policies{})
	once := r.createWith("once", onceAt(time.Hour), job.Policies{})
	r.sleep(time.Minute)
	for what, c := range map[string]struct {
		job         job.Job
		from, until int64
		want        error
	}{
		"the future":       {j, 10, 3600, ErrBackfillRange},
		"nothing in it":    {j, 11, 20, ErrBackfillRange},
		"before the job":   {j, -500, -100, ErrBackfillRange},
		"a job fires once": {once, 10, 20, ErrJobEnded},
	} {
		if reply := r.backfill(c.job, c.from, c.until, 0); !errors.Is(reply.Err, c.want) {
			t.Errorf("%s: %+v", what, reply)
		}
	}
	r.s.retain.line = job.AtSecond(t0 + 30)
	if reply := r.backfill(j, 20, 60, 0); !errors.Is(reply.Err, ErrBackfillRange) || !strings.Contains(reply.Err.Error(), "are kept") {
		t.Errorf("below what is kept: %+v", reply)
	}
	r.step(Backfill{Tag: 1, Job: r.jobs[j.UID], From: job.AtSecond(t0 + 40), Until: job.AtSecond(t0 + 60), Check: true})
	if reply := find[Reply](r); reply.Gap == nil || len(r.gaps) != 0 {
		t.Errorf("a dry run: %+v, gaps %v", reply, r.gaps)
	}
}

// A backfill keeps to its rate, holds up neither live work nor what a downtime left, survives
// a crash, and can be cancelled.
func TestBackfillAtARate(t *testing.T) {
	r := newRig(t)
	r.join("w", 1000)
	j := r.createWith("j", everySecond, job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpNone}})
	other := r.createWith("other", everySecond, job.Policies{})
	r.sleep(time.Second)
	r.down(300 * time.Second)
	r.serveAll()
	before := len(r.of(j))
	if reply := r.backfill(j, 0, 300, 10); reply.Gap == nil {
		t.Fatalf("%+v", reply)
	}
	r.sleep(5 * time.Second)
	r.serveAll()
	made := len(r.of(j)) - before - 5
	if made < 40 || made > 61 {
		t.Errorf("%d slots were made in 5 s at 10 per second", made)
	}
	r.down(10 * time.Second)
	r.serveAll()
	r.sleep(2 * time.Second)
	if n := len(r.of(other)); n < 314 {
		t.Errorf("the downtime's gap waits for the backfill: %d slots", n)
	}
	gaps := r.s.Gaps()
	if len(gaps) != 1 || gaps[0].Options.Rate != 10 || gaps[0].JobName != "namespaces/default/jobs/j" {
		t.Fatalf("%+v", gaps)
	}
	r.step(CancelBackfill{Tag: 2, Key: gaps[0].Key, Reason: "ann: enough"})
	if reply := find[Reply](r); reply.Gap == nil || len(r.gaps) != 0 || len(r.s.Gaps()) != 0 {
		t.Errorf("%+v; gaps %v", reply, r.gaps)
	}
	r.step(CancelBackfill{Tag: 3, Key: gaps[0].Key, Reason: "again"})
	if reply := find[Reply](r); !errors.Is(reply.Err, ErrNoGap) {
		t.Errorf("%+v", reply)
	}
	if n, text := r.told(store.EventBackfillEnded); n != 1 || !strings.Contains(text, "ann: enough") {
		t.Errorf("told %d times: %s", n, text)
	}
	r.sleep(3 * time.Second)
	if n := len(r.of(j)); n > 200 {
		t.Errorf("it went on: %d slots", n)
	}
}

// A job that runs in order runs what was asked for in its turn; one that skips doesn't skip
// it, nor is a live slot skipped for it.
func TestBackfillAndOverlap(t *testing.T) {
	for mode, want := range map[job.OverlapMode]string{job.OverlapQueue: "30 RUNNING", job.OverlapSkip: "30 RUNNING"} {
		r := newRig(t)
		r.join("w", 10)
		j := r.newJob("j", everyTen)
		j.Policies = job.Policies{Overlap: job.Overlap{Mode: mode}, CatchUp: job.CatchUp{Mode: job.CatchUpNone}}
		j.Timeout = time.Hour
		j = r.create(j)
		r.sleep(time.Second)
		r.down(55 * time.Second)
		r.backfill(j, 30, 50, 0)
		if got := r.of(j); len(got) != 2 || got[0] != want || got[1] != "40 READY" {
			t.Errorf("%v: %q", mode, got)
		}
		r.sleep(4 * time.Second)
		if got := r.of(j); got[len(got)-1] != "60 READY" {
			t.Errorf("%v: a live slot: %q", mode, got)
		}
		r.serveAll()
		for _, s := range r.of(j) {
			if !strings.HasSuffix(s, "SUCCEEDED") {
				t.Errorf("%v: in the end %s", mode, s)
			}
		}
	}
}

// An operator says, while a gap is being filled, that a job need not make up for all; who goes
// on with the gap after a crash knows it.
func TestTheCatchUpOfAGapIsChanged(t *testing.T) {
	r := newRig(t)
	r.cfg.GapChunk = 1
	r.restart()
	r.join("w", 1000)
	j := r.createWith("j", everyTen, job.Policies{})
	other := r.createWith("other", everyTen, job.Policies{})
	r.sleep(time.Second)
	r.s.Abandon()
	r.now = r.now.Add(98 * time.Second)
	owned, loaded := r.load()
	r.s = New(r.cfg, owned, loaded, r.workers, r.now)
	turn := func() {
		if b := r.s.Ready(r.now, 50); b != nil {
			r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
		}
		for _, read := range r.s.Reads() {
			r.s.Step(r.now, r.answer(read))
		}
	}
	for range 6 { // the gap is recorded, and begun
		turn()
	}
	gap := r.s.Gaps()[0]
	top, jobs, owed, left := r.s.OwedBy(gap.Key, 10)
	if jobs != 2 || owed < 10 || owed > 18 || left != 0 || len(top) != 2 {
		t.Errorf("it owes %d of %d jobs, leaves %d: %+v", owed, jobs, left, top)
	}
	r.s.Step(r.now, ChangeCatchUp{Tag: 4, Key: gap.Key, UID: j.UID, CatchUp: job.CatchUp{Mode: job.CatchUpLatest}, Reason: "ann: only the newest"})
	if _, _, owed, left := r.s.OwedBy(gap.Key, 10); left < 5 || owed > 10 {
		t.Errorf("then it owes %d and leaves %d", owed, left)
	}
	turn()
	r.down(0)
	r.sleep(3 * time.Second)
	r.serveAll()
	if got := r.ranges(j); len(got) != 1 || !strings.Contains(got[0], "-80 ") {
		t.Errorf("left out %q", got)
	}
	if got := r.of(other); len(got) < 9 {
		t.Errorf("the other job: %q", got)
	}
	if n, text := r.told(store.EventGapChanged); n != 1 || !strings.Contains(text, "ann: only the newest") {
		t.Errorf("told %d times: %s", n, text)
	}
}
