package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
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

// More slots than a line holds are asked for, of a job that skips or replaces: all of them
// run, one by one, and no more than one live slot waits beside them.
func TestALongBackfillOfAJobThatSkipsOrReplaces(t *testing.T) {
	for _, mode := range []job.OverlapMode{job.OverlapSkip, job.OverlapReplace} {
		r := newRig(t)
		j := r.newJob("j", everySecond)
		j.Policies = job.Policies{Overlap: job.Overlap{Mode: mode}, CatchUp: job.CatchUp{Mode: job.CatchUpNone}}
		j.Timeout = time.Hour
		j = r.create(j)
		r.down(300 * time.Second)
		r.join("w", 10)
		made := int64(r.cfg.LineLimit + 36)
		r.backfill(j, 1, 1+made, 0)
		for range 2*made + 10 { // each runs for five seconds
			r.sleep(5 * time.Second)
			for _, a := range r.assigned() {
				r.finish(a, job.OutcomeSucceeded)
			}
			live := 0
			for key, s := range r.slots {
				if s.State.Open() && key.FireTime > job.AtSecond(t0+300) {
					live++
				}
			}
			if live > 2 {
				t.Fatalf("%v: %d live slots wait: %s", mode, live, r.states())
			}
		}
		for key, s := range r.slots {
			if s.RequestedAt != 0 && s.State != job.Succeeded {
				t.Fatalf("%v: the slot of %v is %v; %s", mode, key.FireTime, s.State, r.states())
			}
		}
		if len(r.backlog) > 0 {
			t.Errorf("%v: %d rows in the backlog", mode, len(r.backlog))
		}
	}
}

// The slots of a chunk push others, or each other, out of a full line: the cursor of the gap
// moves only in a batch that has them all, however little room there was.
func TestNoneOfAChunkIsLostWithAFullLine(t *testing.T) {
	r := newRig(t)
	r.cfg.OpenFromLag, r.cfg.OpenFromEvery = 10*time.Second, time.Second
	r.restart()
	j := r.createWith("j", everySecond, job.Policies{Overlap: job.Overlap{Mode: job.OverlapQueue}, CatchUp: job.CatchUp{Mode: job.CatchUpNone}})
	r.down(1000 * time.Second)
	r.sleep(100 * time.Second)
	before := len(r.of(j))
	r.s.Step(r.now, Backfill{Tag: 7, Job: r.jobs[j.UID], From: job.AtSecond(t0 + 1), Until: job.AtSecond(t0 + 601), Reason: "test"})
	b := r.s.Ready(r.now, r.cfg.GapChunk+5)
	if len(b.Rows.GapMoves) == 0 {
		t.Fatal("the batch doesn't move the gap")
	}
	r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
	r.s.Abandon()
	r.restart()
	r.sleep(5 * time.Second)
	if made := len(r.of(j)) - before - 5; made != 600 {
		t.Errorf("made %d of 600 slots", made)
	}
}

// A backfill is cancelled and asked for again before either was written.
func TestABackfillIsAskedForAgainInTheBatchOfItsCancel(t *testing.T) {
	r := newRig(t)
	j := r.createWith("j", everyTen, job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpNone}})
	r.down(91 * time.Second)
	again := Backfill{Tag: 7, Job: r.jobs[j.UID], From: job.AtSecond(t0 + 10), Until: job.AtSecond(t0 + 51), Rate: 1, Reason: "test"}
	r.step(again)
	r.sleep(1500 * time.Millisecond)
	r.hold = true
	r.step(Trigger{Tag: 3, Job: r.jobs[j.UID]})
	r.step(CancelBackfill{Tag: 8, Key: r.s.Gaps()[0].Key, Reason: "test"})
	r.step(again)
	r.release()
	r.down(0) // what was recorded goes on
	r.sleep(5 * time.Second)
	if got := strings.Join(r.of(j), " "); !strings.Contains(got, "10 READY 20 READY 30 READY 40 READY 50 READY") {
		t.Errorf("slots: %s; gaps %v", got, r.gaps)
	}
}

// A job that ended is kept while a backfill needs it, and no longer.
func TestACancelledBackfillKeepsNoJob(t *testing.T) {
	r := newRig(t)
	j := r.createWith("j", everyTen, job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpNone}})
	r.down(95 * time.Second)
	r.backfill(j, 10, 51, 1)
	r.step(Delete{Tag: 2, Job: r.jobs[j.UID]})
	if len(r.s.Gaps()) != 1 || r.s.jobs.len() != 1 {
		t.Fatalf("gaps %v, %d jobs", r.s.Gaps(), r.s.jobs.len())
	}
	r.step(CancelBackfill{Tag: 8, Key: r.s.Gaps()[0].Key, Reason: "test"})
	r.sleep(10 * time.Second)
	if n := r.s.jobs.len(); n != 0 {
		t.Errorf("%d jobs are in memory", n)
	}
}

// The first of the last runs of a range is found by counting as by walking.
func TestLastRuns(t *testing.T) {
	for kind, s := range map[string]job.Schedule{
		"cron":     {Kind: job.KindCron, Cron: "*/7 3,9 * * * *"},
		"interval": {Kind: job.KindInterval, Every: 77 * time.Second, Anchor: job.AtSecond(t0 + 5)},
	} {
		s.Dialect = schedule.DialectVersion
		recurrence, err := s.Recurrence()
		if err != nil {
			t.Fatal(err)
		}
		plan := schedule.Always(recurrence)
		for limit := int64(0); limit < 60; limit++ {
			from, to := t0+13*limit, t0+3*3600+limit
			var runs []int64
			for at, ok := plan.NextRun(from, to); ok; at, ok = plan.NextRun(at, to) {
				runs = append(runs, at)
			}
			first, more := lastRuns(plan, from, to, limit)
			if more != (int64(len(runs)) > limit) {
				t.Fatalf("%s: of %d runs, more than %d: %v", kind, len(runs), limit, more)
			}
			if want := append(runs, to+1)[len(runs)-int(min(limit, int64(len(runs))))]; more && first != want {
				t.Fatalf("%s: the last %d begin at %d, want %d", kind, limit, first, want)
			}
		}
	}
}
