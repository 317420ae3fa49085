package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// steps are what clocks do at a hand-over, or when the machine sleeps or is set.
var steps = []time.Duration{time.Second, -time.Second, time.Minute, -time.Minute, time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour, 365 * 24 * time.Hour, -365 * 24 * time.Hour}

// Whatever the next owner's clock shows, no occurrence has two slots or none, nothing starts
// before its fire time, and what waits goes on: an extra run at once, a retry after its
// back-off, an attempt's timeout after so long.
func TestTheNextOwnersClock(t *testing.T) {
	for _, step := range steps {
		t.Run(step.String(), func(t *testing.T) {
			r := newRig(t)
			w := r.join("w", 10)
			j := r.newJob("j", everyTen)
			j.Policies.CatchUp.MaxCount = 5
			j = r.create(j)
			retried := r.newJob("retried", job.Schedule{Kind: job.KindImmediate})
			retried.Retry.InitialBackoff, retried.Retry.MaxBackoff = 10*time.Second, 10*time.Second
			retried = r.create(retried)
			for _, a := range r.assigned() {
				r.finish(a, job.OutcomeFailed)
			}
			hangs := r.create(r.newJob("hangs", job.Schedule{Kind: job.KindImmediate}))
			held := r.assigned()
			r.sleep(5 * time.Second)
			before := r.now
			r.s.Abandon()
			r.now = r.now.Add(step)
			r.restart()
			r.workers.Join(w, []string{"h"}, 10, 9, r.now.Add(r.cfg.Lease))
			if !r.s.Attest(w, held[0].Token) {
				t.Fatal("the attempt is lost")
			}
			r.pump()
			extra := r.trigger(j)
			if got := r.slots[extra.Key]; got.State != job.Running {
				t.Errorf("an extra run is %v", got.State)
			}
			if step < 0 {
				soon := r.create(r.newJob("soon", job.Schedule{Kind: job.KindOnce, At: job.AtSecond(r.now.Seconds() + 3)}))
				r.sleep(2 * time.Second)
				if got := r.of(soon); len(got) == 1 && r.slots[job.SlotKey{FireTime: r.firstOf(soon), UID: soon.UID}].State != job.Ready {
					t.Errorf("a job started before its time: %q", got)
				}
				r.sleep(2 * time.Second)
				if got := r.slots[job.SlotKey{FireTime: r.firstOf(soon), UID: soon.UID}]; got.State != job.Running {
					t.Errorf("a job was not started in its time: %v", got.State)
				}
			}
			r.sleep(13 * time.Second)
			if got := r.slots[job.SlotKey{FireTime: r.firstOf(retried), UID: retried.UID}]; got.Attempt != 2 {
				t.Errorf("the retry waits: %+v", got)
			}
			r.sleep(30 * time.Second)
			if got := r.slots[job.SlotKey{FireTime: r.firstOf(hangs), UID: hangs.UID}]; len(r.attempts[got.Key]) == 0 || r.attempts[got.Key][0].Outcome != job.OutcomeTimedOut {
				t.Errorf("the attempt goes on: %+v", got)
			}
			for key, s := range r.slots {
				if s.ClaimedAt != 0 && key.FireTime.Whole() && s.ClaimedAt < key.FireTime {
					t.Errorf("%v was claimed at %v", key, s.ClaimedAt)
				}
			}
			// The schedule goes on: after a step back, once its time has come again.
			r.s.Abandon()
			r.now = max(r.now, before).Add(time.Second)
			r.restart()
			r.sleep(11 * time.Second)
			last := job.AtSecond(r.now.Seconds() / 10 * 10)
			if got := r.slots[job.SlotKey{FireTime: last, UID: j.UID}]; got.Trigger != job.TriggerSchedule {
				t.Errorf("at %v there is %+v: %s", last, got, fmt.Sprint(r.of(j)))
			}
		})
	}
}
