package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// down lets the shard be without an owner for a while.
func (r *rig) down(d time.Duration) {
	r.t.Helper()
	r.s.Abandon()
	r.now = r.now.Add(d)
	r.restart()
	r.sleep(2 * time.Second)
}

// ranges lists what was left out of a job together: from, to and how many, seconds after t0.
func (r *rig) ranges(j job.Job) (out []string) {
	for _, k := range r.skips {
		if k.UID == j.UID {
			out = append(out, fmt.Sprintf("%03d-%d %d %s", k.From.Seconds()-t0, k.To.Seconds()-t0, k.Count, k.Code))
		}
	}
	slices.Sort(out)
	return out
}

// What a downtime of a minute leaves of a job, by its catch-up and its overlap.
func TestCatchUp(t *testing.T) {
	for what, c := range map[string]struct {
		policies job.Policies
		made     string
		left     string
	}{
		"all":                 {job.Policies{}, "20 30 40 50 60 70", ""},
		"the newest two":      {job.Policies{CatchUp: job.CatchUp{MaxCount: 2}}, "60 70", "020-50 4 not_caught_up"},
		"more than there are": {job.Policies{CatchUp: job.CatchUp{MaxCount: 9}}, "20 30 40 50 60 70", ""},
		"no older than 25 s":  {job.Policies{CatchUp: job.CatchUp{MaxAge: 25 * time.Second}}, "50 60 70", "020-40 3 not_caught_up"},
		"latest":              {job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpLatest}}, "70", "020-60 5 not_caught_up"},
		"latest, too old":     {job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpLatest, MaxAge: time.Second / 2}}, "", "020-70 6 not_caught_up"},
		"none":                {job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpNone}}, "", "020-70 6 not_caught_up"},
		"skip":                {job.Policies{Overlap: job.Overlap{Mode: job.OverlapSkip}}, "70", "020-60 5 overlaps"},
		"replace":             {job.Policies{Overlap: job.Overlap{Mode: job.OverlapReplace}}, "70", "020-60 5 overlaps"},
		"skip, none":          {job.Policies{Overlap: job.Overlap{Mode: job.OverlapSkip}, CatchUp: job.CatchUp{Mode: job.CatchUpNone}}, "", "020-70 6 not_caught_up"},
		"queue":               {job.Policies{Overlap: job.Overlap{Mode: job.OverlapQueue}}, "20 30 40 50 60 70", ""},
	} {
		for _, s := range []job.Schedule{everyTen, {Kind: job.KindInterval, Every: 10 * time.Second, Anchor: job.AtSecond(t0)}} {
			r := newRig(t)
			r.cfg.GapChunk = 2
			r.restart()
			r.join("w", 100)
			j := r.createWith("j", s, c.policies)
			r.sleep(11 * time.Second)
			r.serveAll()
			r.down(60 * time.Second)
			r.serveAll()
			var made []string
			for _, slot := range r.of(j)[1:] {
				made = append(made, strings.Fields(slot)[0])
			}
			if got := strings.Join(made, " "); got != c.made {
				t.Errorf("%s: made %s, want %s", what, got, c.made)
			}
			if got := strings.Join(r.ranges(j), " "); got != c.left {
				t.Errorf("%s: left out %s, want %s", what, got, c.left)
			}
			r.sleep(10 * time.Second)
			if got := r.of(j); got[len(got)-1] != "80 RUNNING" {
				t.Errorf("%s: afterwards %q", what, got)
			}
		}
	}
}

// A job that fires once, and was missed.
func TestCatchUpOfAJobThatFiresOnce(t *testing.T) {
	for what, c := range map[string]struct {
		catchUp job.CatchUp
		want    string
	}{
		"all":      {job.CatchUp{}, "30 RUNNING"},
		"latest":   {job.CatchUp{Mode: job.CatchUpLatest}, "30 RUNNING"},
		"none":     {job.CatchUp{Mode: job.CatchUpNone}, "30 SKIPPED not_caught_up"},
		"too old":  {job.CatchUp{MaxAge: 10 * time.Second}, "30 SKIPPED not_caught_up"},
		"just old": {job.CatchUp{MaxAge: 60 * time.Second}, "30 RUNNING"},
	} {
		r := newRig(t)
		r.join("w", 100)
		j := r.createWith("j", onceAt(30*time.Second), job.Policies{CatchUp: c.catchUp})
		r.sleep(11 * time.Second)
		r.down(60 * time.Second)
		if got := r.of(j); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %q, want %s", what, got, c.want)
		}
	}
}

// The newest of several downtimes counts, and a crash in the middle of a gap changes
// nothing: what was to be left out is, and nothing else.
func TestCatchUpOverSeveralGaps(t *testing.T) {
	r := newRig(t)
	r.cfg.GapChunk = 1
	r.restart()
	r.join("w", 100)
	latest := r.createWith("latest", everyTen, job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpLatest}})
	three := r.createWith("three", everyTen, job.Policies{CatchUp: job.CatchUp{MaxCount: 3}})
	r.createWith("all", everyTen, job.Policies{})
	r.sleep(11 * time.Second)
	r.serveAll()
	r.s.Abandon()
	r.now = r.now.Add(40 * time.Second) // the gap of 20 to 50
	r.room = func() int { return 1 }
	owned, loaded := r.load()
	r.s = New(r.cfg, owned, loaded, r.workers, r.now)
	for range 3 { // it is recorded, and hardly begun
		if b := r.s.Ready(r.now, 1); b != nil {
			r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
		}
	}
	r.s.Abandon()
	r.now = r.now.Add(20 * time.Second) // that of 60 to 70
	r.restart()
	r.sleep(5 * time.Second)
	r.serveAll()
	r.wantSlots(latest, "10 SUCCEEDED", "70 SUCCEEDED")
	r.wantSlots(three, "10 SUCCEEDED", "50 SUCCEEDED", "60 SUCCEEDED", "70 SUCCEEDED")
	if len(r.gaps) > 0 {
		t.Errorf("gaps %v", r.gaps)
	}
}

// A job that runs in order has its part of a gap made before its next live slot, although
// the gap owes years of others.
func TestQueueDoesNotWaitForTheGapsOfOthers(t *testing.T) {
	r := newRig(t)
	r.cfg.GapChunk = 1
	r.restart()
	r.join("w", 1000)
	queued := r.createWith("queued", everyTen, job.Policies{Overlap: job.Overlap{Mode: job.OverlapQueue}})
	for n := range 5 {
		r.createWith(fmt.Sprint("other", n), everySecond, job.Policies{})
	}
	r.sleep(time.Second)
	r.s.Abandon()
	r.now = r.now.Add(38 * time.Second) // gap of 10 to 30
	// The gap of the others is not walked to its end before the job's next fire time.
	r.room = func() int { return 6 }
	owned, loaded := r.load()
	r.s = New(r.cfg, owned, loaded, r.workers, r.now)
	turn := func() {
		if b := r.s.Ready(r.now, r.room()); b != nil {
			r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
		}
		for _, read := range r.s.Reads() {
			r.s.Step(r.now, r.answer(read))
		}
		r.said = append(r.said, r.s.Messages()...)
	}
	var order []int64
	for range 30 {
		r.now = r.now.Add(100 * time.Millisecond)
		r.s.Step(r.now, Tick{})
		turn()
		for _, a := range takeAll[Assign](r) {
			if a.Token.Key.UID == queued.UID {
				order = append(order, a.Token.Key.FireTime.Seconds()-t0)
			}
			r.s.Step(r.now, Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeSucceeded, StartedAt: r.now})
			r.workers.AddCredit(r.workers.Get(a.Worker.ID), 1)
		}
	}
	if len(r.s.Gaps()) == 0 {
		t.Fatal("the gap is closed: the test shows nothing")
	}
	if fmt.Sprint(order) != "[10 20 30 40]" {
		t.Errorf("ran %v", order)
	}
}

// After a downtime a live slot waits for the one that is made up for, and is never skipped
// for it; the next one is, for the one that waits.
func TestSkipAfterADowntime(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.newJob("j", everyTen)
	j.Policies.Overlap.Mode, j.Timeout = job.OverlapSkip, time.Hour
	j = r.create(j)
	r.sleep(time.Second)
	r.down(35 * time.Second)
	r.sleep(17 * time.Second)
	r.wantSlots(j, "30 RUNNING", "40 READY", "50 SKIPPED overlaps")
	r.serveAll()
	r.wantSlots(j, "30 SUCCEEDED", "40 SUCCEEDED", "50 SKIPPED overlaps")
}

// What is made up for late never takes the place of a newer one.
func TestReplaceAfterADowntime(t *testing.T) {
	r := newRig(t)
	j := r.newJob("j", everyTen)
	j.Policies.Overlap.Mode, j.Timeout = job.OverlapReplace, time.Hour
	j = r.create(j)
	r.sleep(time.Second)
	r.s.Abandon()
	r.now = r.now.Add(38 * time.Second)
	owned, loaded := r.load()
	r.room = func() int { return 1 }
	r.s = New(r.cfg, owned, loaded, r.workers, r.now)
	if b := r.s.Ready(r.now, 1); b != nil { // the gap is recorded
		r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
	}
	r.now = r.now.Add(2 * time.Second)
	r.room = func() int { return 2000 }
	r.step(Tick{}) // the live slot of 40 comes before the one of 30 is made
	r.sleep(time.Second)
	r.join("w", 10)
	r.serveAll()
	r.wantSlots(j, "30 SKIPPED superseded", "40 SUCCEEDED")
}

// A year without an owner, of a job of every minute: its half million slots are made and
// run, little of them is in memory at any time, and live work is on time.
func TestAYearOfDowntime(t *testing.T) {
	r := newRig(t)
	minutely := r.newJob("minutely", job.Schedule{Kind: job.KindCron, Cron: "0 * * * * *"})
	live := r.newJob("live", everyTen)
	live.Policies.CatchUp.Mode = job.CatchUpNone
	for _, j := range []*job.Job{&minutely, &live} {
		j.EffectiveFrom = r.now
	}
	start := r.now
	r.now = r.now.Add(365 * 24 * time.Hour)
	key := r.join("w", 500)
	worker := r.workers.Get("w")
	proof := shard.Proof{Shard: 3, Epoch: 9}
	s := New(r.cfg, store.Owned{Proof: proof, Watermark: start, OpenFrom: start}, store.Loaded{Recurring: []job.Job{minutely, live}}, r.workers, r.now)
	done, lives, most, latest := 0, 0, 0, time.Duration(0)
	for turns := 0; done < 525_600; turns++ {
		if turns > 20_000 {
			t.Fatalf("%d slots ran in %s", done, time.Duration(turns)*25*time.Millisecond)
		}
		r.now = r.now.Add(25 * time.Millisecond) // a commit takes so long
		worker.LeaseUntil = r.now.Add(r.cfg.Lease)
		s.Step(r.now, Tick{})
		for s.Dispatch("h") {
		}
		if b := s.Ready(r.now, store.MaxBatchRows); b != nil {
			for _, k := range b.Rows.Skips {
				if k.UID != live.UID {
					t.Fatalf("left out %+v", k)
				}
			}
			s.Step(r.now, Committed{})
		}
		for _, read := range s.Reads() {
			if read.Kind == ReadWaiting {
				t.Fatal("the slots went to the backlog: this test doesn't keep it")
			}
			s.Step(r.now, (&model{}).answer(read))
		}
		most = max(most, len(s.slots))
		for _, m := range s.Messages() {
			a, assigned := m.(Assign)
			if !assigned {
				continue
			}
			done++
			if a.Token.Key.UID == live.UID {
				done--
				lives++
				latest = max(latest, r.now.Sub(a.Token.Key.FireTime))
			}
			s.Step(r.now, Result{Worker: key, Token: a.Token, Outcome: job.OutcomeSucceeded, StartedAt: r.now})
			r.workers.AddCredit(worker, 1)
		}
	}
	if lives < 2 || latest > time.Second || most > r.cfg.ReadyLimit+store.MaxBatchRows {
		t.Errorf("%d live slots ran, the latest after %s; %d slots were in memory", lives, latest, most)
	}
	t.Logf("%s, %d live slots, the latest after %s, at most %d slots in memory", r.now.Sub(start)-365*24*time.Hour, lives, latest, most)
}
