package core

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// failFirst waits for the first attempt and ends it with an error code.
func (r *rig) failFirst(code string) {
	r.t.Helper()
	for range 120 {
		for _, a := range r.assigned() {
			r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed, StartedAt: r.now, Code: code})
			return
		}
		r.sleep(time.Second)
	}
	r.t.Fatal("nothing was assigned")
}

// In every kind of schedule, a code that isn't retried makes a dead letter at once, and
// others are tried again.
func TestCodesThatAreNotRetried(t *testing.T) {
	for what, s := range map[string]job.Schedule{"immediate": {Kind: job.KindImmediate}, "once": onceAt(time.Second), "cron": {Kind: job.KindCron, Cron: "0 * * * * *"},
		"interval": {Kind: job.KindInterval, Every: time.Minute, Anchor: job.AtSecond(t0)}} {
		for code, want := range map[string]string{"gone": "DEAD:1 ", "busy": "READY:1 "} {
			r := newRig(t)
			r.join("w", 10)
			j := r.newJob("j", s)
			if err := j.Retry.SetNonRetryable([]string{"gone"}); err != nil {
				t.Fatal(err)
			}
			r.create(j)
			r.failFirst(code)
			if got := r.states(); got != want {
				t.Errorf("%s, %s: slots %s, want %s", what, code, got, want)
			}
		}
	}
}

// Beyond its window a slot isn't tried again: neither late, nor by a delay that the
// handler asks for. What was handed back is no failure.
func TestTheWindowOfRetries(t *testing.T) {
	for _, c := range []struct {
		what       string
		retryAfter time.Duration
		want       string
	}{
		{"within", 50 * time.Second, "READY:1 "},
		{"at its end", time.Minute, "READY:1 "},
		{"beyond", time.Minute + time.Millisecond, "DEAD:1 "},
	} {
		r := newRig(t)
		r.join("w", 10)
		j := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
		j.Retry.Window = time.Minute
		r.create(j)
		for _, a := range r.assigned() {
			r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeFailed, StartedAt: r.now, RetryAfter: c.retryAfter})
		}
		if got := r.states(); got != c.want {
			t.Errorf("%s: slots %s, want %s", c.what, got, c.want)
		}
	}
	r := newRig(t)
	r.join("w", 10)
	j := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
	j.Retry.Window = time.Millisecond
	r.create(j)
	held := r.assigned()
	r.sleep(5 * time.Second)
	for _, a := range held {
		r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeReleased, StartedAt: r.now})
	}
	if got := r.states(); got != "READY:1 " && got != "RUNNING:1 " {
		t.Errorf("handed back: slots %s", got)
	}
}
