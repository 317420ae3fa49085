package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// everyTen fires at the tens of seconds; so does t0.
var everyTen = job.Schedule{Kind: job.KindCron, Cron: "*/10 * * * * *"}

// kinds are schedules of all kinds, each of which has an occurrence within ten seconds.
func kinds() map[string]job.Schedule {
	return map[string]job.Schedule{"immediate": {Kind: job.KindImmediate}, "once": onceAt(5 * time.Second), "cron": everyTen,
		"interval": {Kind: job.KindInterval, Every: 10 * time.Second, Anchor: job.AtSecond(t0)}}
}

// createWith creates a job with policies.
func (r *rig) createWith(name string, s job.Schedule, p job.Policies) job.Job {
	r.t.Helper()
	j := r.newJob(name, s)
	j.Policies = p
	return r.create(j)
}

// trigger asks for an extra slot of a job, and returns it as it was answered.
func (r *rig) trigger(j job.Job) job.Slot {
	r.t.Helper()
	r.step(Trigger{Tag: 77, Job: r.jobs[j.UID]})
	reply := find[Reply](r)
	if reply.Slot == nil {
		r.t.Fatalf("trigger of %s: %+v", j.Name, reply)
	}
	return *reply.Slot
}

// of lists the slots of a job in order: what became of each, seconds after t0.
func (r *rig) of(j job.Job) (out []string) {
	var keys []job.SlotKey
	for key := range r.slots {
		if key.UID == j.UID {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	for _, key := range keys {
		s := r.slots[key]
		text := fmt.Sprintf("%d %v", key.FireTime.Seconds()-t0, s.State)
		if s.State == job.Skipped || s.State == job.Cancelled || s.State == job.Expired {
			text += " " + s.ErrorCode
		}
		out = append(out, text)
	}
	return out
}

func (r *rig) wantSlots(j job.Job, want ...string) {
	r.t.Helper()
	if got := r.of(j); !slices.Equal(got, want) {
		r.t.Errorf("slots of %s: %q, want %q", j.Name, got, want)
	}
}

// serveAll finishes what was assigned, and what follows from that.
func (r *rig) serveAll() {
	r.t.Helper()
	for all := r.assigned(); len(all) > 0; all = r.assigned() {
		for _, a := range all {
			r.finish(a, job.OutcomeSucceeded)
		}
	}
}

// In every kind of schedule, each overlap mode decides what becomes of the runs that are
// asked for while a slot runs.
func TestOverlapInEveryKindOfSchedule(t *testing.T) {
	for kind, s := range kinds() {
		for mode, c := range map[string]struct {
			overlap              job.Overlap
			first, second, third job.State // while the first ran
			after                []job.State
		}{
			"allow":     {job.Overlap{}, job.Running, job.Running, job.Running, []job.State{job.Succeeded, job.Succeeded, job.Succeeded}},
			"up to two": {job.Overlap{MaxRunning: 2}, job.Running, job.Running, job.Ready, []job.State{job.Succeeded, job.Succeeded, job.Succeeded}},
			"queue":     {job.Overlap{Mode: job.OverlapQueue}, job.Running, job.Ready, job.Ready, []job.State{job.Succeeded, job.Succeeded, job.Succeeded}},
			"skip":      {job.Overlap{Mode: job.OverlapSkip}, job.Running, job.Skipped, job.Skipped, []job.State{job.Succeeded, job.Skipped, job.Skipped}},
			"replace":   {job.Overlap{Mode: job.OverlapReplace}, job.Running, job.Ready, job.Ready, []job.State{job.Cancelled, job.Cancelled, job.Succeeded}},
		} {
			r := newRig(t)
			r.join("w", 10)
			j := r.createWith("j", s, job.Policies{Overlap: c.overlap})
			r.sleep(11 * time.Second)
			first := r.assigned()
			if len(first) != 1 {
				t.Fatalf("%s, %s: %d assignments", kind, mode, len(first))
			}
			second, third := r.trigger(j), r.trigger(j)
			for i, want := range []job.State{c.first, c.second, c.third} {
				key := []job.SlotKey{first[0].Token.Key, second.Key, third.Key}[i]
				got := r.slots[key].State
				if mode == "replace" && i == 1 {
					want = job.Cancelled // the third took its place
				}
				if got != want {
					t.Errorf("%s, %s: slot %d is %v, want %v", kind, mode, i, got, want)
				}
			}
			for _, stop := range takeAll[Stop](r) {
				r.step(Result{Worker: stop.Worker, Token: stop.Token, Outcome: job.OutcomeCancelled, StartedAt: r.now})
				first = nil
			}
			for _, a := range first {
				r.finish(a, job.OutcomeSucceeded)
			}
			r.serveAll()
			for i, want := range c.after {
				key := []job.SlotKey{{FireTime: r.firstOf(j), UID: j.UID}, second.Key, third.Key}[i]
				if got := r.slots[key].State; got != want {
					t.Errorf("%s, %s: in the end slot %d is %v, want %v", kind, mode, i, got, want)
				}
			}
		}
	}
}

// firstOf returns the fire time of a job's first slot.
func (r *rig) firstOf(j job.Job) job.Instant {
	first := job.MaxInstant
	for key := range r.slots {
		if key.UID == j.UID {
			first = min(first, key.FireTime)
		}
	}
	return first
}

// A handler that takes longer than its job's interval, through a failover in the middle.
func TestOverlapOfLongRuns(t *testing.T) {
	for mode, c := range map[job.OverlapMode]struct {
		during, after []string
	}{
		job.OverlapQueue: {
			[]string{"10 RUNNING", "20 READY", "30 READY", "40 READY"},
			[]string{"10 SUCCEEDED", "20 SUCCEEDED", "30 SUCCEEDED", "40 SUCCEEDED"}},
		job.OverlapSkip: {
			[]string{"10 RUNNING", "20 SKIPPED overlaps", "30 SKIPPED overlaps", "40 SKIPPED overlaps"},
			[]string{"10 SUCCEEDED", "20 SKIPPED overlaps", "30 SKIPPED overlaps", "40 SKIPPED overlaps"}},
		job.OverlapReplace: {
			[]string{"10 RUNNING", "20 CANCELLED replaced", "30 CANCELLED replaced", "40 READY"},
			[]string{"10 CANCELLED replaced", "20 CANCELLED replaced", "30 CANCELLED replaced", "40 SUCCEEDED"}},
	} {
		r := newRig(t)
		w := r.join("w", 10)
		j := r.newJob("j", everyTen)
		j.Policies.Overlap.Mode, j.Timeout = mode, time.Hour
		j = r.create(j)
		r.sleep(25 * time.Second)
		held := r.assigned()
		r.restart() // nothing was missed: what runs is presented by its worker
		r.workers.Join(w, []string{"h"}, 10, 9, r.now.Add(r.cfg.Lease))
		if !r.s.Attest(w, held[0].Token) {
			t.Fatal("the attempt is lost")
		}
		r.sleep(20 * time.Second)
		r.wantSlots(j, c.during...)
		outcome := job.OutcomeSucceeded
		if mode == job.OverlapReplace {
			if stops := takeAll[Stop](r); len(stops) != 2 || stops[0].Token != held[0].Token {
				t.Errorf("the new owner tells the worker again to stop: %+v", stops)
			}
			outcome = job.OutcomeCancelled
		}
		r.finish(held[0], outcome)
		r.serveAll()
		r.wantSlots(j, c.after...)
	}
}

// A worker that is told to stop and doesn't keeps its place, until its attempt times out.
func TestAReplacedAttemptThatGoesOn(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.newJob("j", everyTen)
	j.Policies.Overlap.Mode, j.Timeout = job.OverlapReplace, 14*time.Second
	j = r.create(j)
	r.sleep(21 * time.Second)
	r.wantSlots(j, "10 RUNNING", "20 READY")
	r.sleep(6 * time.Second) // beyond its deadline and the grace
	r.wantSlots(j, "10 CANCELLED replaced", "20 RUNNING")
}

// What succeeds although it was to be replaced has succeeded.
func TestAReplacedAttemptThatSucceeds(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.createWith("j", everyTen, job.Policies{Overlap: job.Overlap{Mode: job.OverlapReplace}})
	r.sleep(21 * time.Second)
	r.finish(r.assigned()[0], job.OutcomeSucceeded)
	r.serveAll()
	r.wantSlots(j, "10 SUCCEEDED", "20 SUCCEEDED")
}

// Among jobs that are limited and those that aren't, nobody waits behind a job that has to
// wait for itself.
func TestALimitedJobHoldsUpNobody(t *testing.T) {
	r := newRig(t)
	r.join("w", 3)
	r.createWith("limited", everySecond, job.Policies{Overlap: job.Overlap{Mode: job.OverlapQueue}, Priority: 5})
	other := r.createWith("other", everyTen, job.Policies{})
	r.sleep(11 * time.Second)
	r.wantSlots(other, "10 RUNNING")
}

// Thousands of slots in line are kept in the database, and run in their order.
func TestALongLine(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 1)
	r.cfg.OpenFromLag = 20 * time.Second
	r.restart()
	j := r.newJob("j", everySecond)
	j.Policies.Overlap.Mode, j.Timeout = job.OverlapQueue, time.Hour
	j = r.create(j)
	r.sleep(1500 * time.Second)
	if n := len(r.s.slots); n > r.cfg.LineLimit+2 {
		t.Errorf("%d slots are in memory", n)
	}
	if n := len(r.backlog); n < 1400 {
		t.Errorf("%d rows in the backlog", n)
	}
	r.s.Abandon()
	r.restart()
	held := r.assigned()
	r.workers.Join(w, []string{"h"}, 1, 0, r.now.Add(r.cfg.Lease))
	r.s.Attest(w, held[0].Token)
	r.pump()
	last := job.Instant(0)
	for n := 0; len(held) > 0; n++ {
		a := held[0]
		if a.Token.Key.FireTime <= last {
			t.Fatalf("%v ran after %v", a.Token.Key.FireTime, last)
		}
		last = a.Token.Key.FireTime
		r.finish(a, job.OutcomeSucceeded)
		if held = r.assigned(); n == 1499 {
			break
		}
	}
	if got := r.of(j); len(got) < 1500 || got[1498] != "1499 SUCCEEDED" {
		t.Errorf("%d slots, the last ones %q", len(got), got[max(0, len(got)-5):])
	}
}

// A run that somebody asked for again goes on, whatever newer slots of its job there are.
func TestReplaceSparesARedrivenRun(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.createWith("j", everyTen, job.Policies{Overlap: job.Overlap{Mode: job.OverlapReplace}})
	r.sleep(11 * time.Second)
	a := r.assigned()[0]
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed, Permanent: true})
	r.workers.AddCredit(r.workers.Get("w"), 1)
	r.sleep(10 * time.Second)
	r.serveAll()
	r.step(RedriveSlot{Tag: 8, Found: store.SlotOf{Slot: r.slots[a.Token.Key], Job: r.jobs[j.UID]}, Reason: "test"})
	r.sleep(time.Millisecond)
	r.wantSlots(j, "10 RUNNING", "20 SUCCEEDED")
	r.backfill(j, 20, 21, 0) // that slot exists: nothing comes of it
	r.sleep(10 * time.Second)
	r.wantSlots(j, "10 RUNNING", "20 SUCCEEDED", "30 READY")
	if stops := takeAll[Stop](r); len(stops) > 0 {
		t.Errorf("%+v", stops)
	}
	r.serveAll()
	r.wantSlots(j, "10 SUCCEEDED", "20 SUCCEEDED", "30 SUCCEEDED")
}

// The slots of a job that was set aside wait where they are, however many there are: they
// neither fill the memory nor hold up others, before a restart and after it.
func TestAJobSetAsideFillsNoMemory(t *testing.T) {
	for _, mode := range []job.OverlapMode{job.OverlapAllow, job.OverlapQueue} {
		r := newRig(t)
		r.cfg.ReadyLimit, r.cfg.OpenFromLag = 20, 10*time.Second
		r.restart()
		j := r.createWith("j", everySecond, job.Policies{Overlap: job.Overlap{Mode: mode}})
		r.sleep(500 * time.Second)
		row := r.jobs[j.UID]
		row.Quarantine = "test"
		r.jobs[j.UID] = row
		r.down(0)
		r.join("w", 30)
		r.sleep(time.Minute)
		if len(r.s.slots) > 0 || len(r.backlog) != 500 || len(r.s.lanes) > 0 {
			t.Errorf("%v: %d slots and %d lanes in memory, %d rows in the backlog", mode, len(r.s.slots), len(r.s.lanes), len(r.backlog))
		}
		other := r.createWith("other", everyTen, job.Policies{})
		r.sleep(11 * time.Second)
		if got := r.of(other); len(got) == 0 || !strings.HasSuffix(got[0], "RUNNING") {
			t.Errorf("%v: slots of other: %q", mode, got)
		}
	}
}

// With room for one slot in line, what waited in the backlog never came back.
func TestALineOfOne(t *testing.T) {
	r := newRig(t)
	r.cfg.LineLimit = 1
	r.restart()
	j := r.createWith("j", everySecond, job.Policies{Overlap: job.Overlap{Mode: job.OverlapQueue}})
	r.sleep(5*time.Second + 500*time.Millisecond)
	r.join("w", 1)
	for range 20 {
		r.s.Dispatch("h")
		r.pump()
		r.serve(job.OutcomeSucceeded)
	}
	if done := r.successes; len(done) < 5 {
		t.Errorf("%d of the slots ran: %v", len(done), r.of(j))
	}
}
