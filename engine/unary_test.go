package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
)

// immediately creates jobs that fire now.
func (r *rig) immediately(names ...string) (jobs []job.Job) {
	for _, name := range names {
		jobs = append(jobs, r.create(r.job(name, job.Schedule{Kind: job.KindImmediate})))
	}
	time.Sleep(time.Second)
	return jobs
}

// state is that of a job's only slot.
func (r *rig) state(j job.Job) job.Slot {
	r.t.Helper()
	for _, s := range r.slots(j.UID) {
		return s
	}
	r.t.Fatalf("%s has no slot", j.Name)
	return job.Slot{}
}

// A heartbeat may have been answered that the node has not looked at when the stream ends: the
// lease counts from it.
func TestAHeartbeatAtTheLastMoment(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		j := r.immediately("j")[0]
		time.Sleep(7 * time.Second)
		w.heard.Store(true)
		r.node.Disconnect(t.Context(), w.key, w)
		time.Sleep(9900 * time.Millisecond)
		if s := r.state(j); s.State != job.Running || s.Attempt != 1 {
			t.Errorf("before the lease's end the slot is %v, attempt %d", s.State, s.Attempt)
		}
		time.Sleep(time.Second)
		if s := r.state(j); s.Outcome != job.OutcomeLeaseLost {
			t.Errorf("after it the slot is %+v", s)
		}
	})
}

// A worker that goes over from a stream to single calls keeps what these name, and loses the
// rest with the stream's lease.
func TestFromAStreamToSingleCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		jobs := r.immediately("named", "left")
		r.node.Disconnect(t.Context(), w.key, w)
		var named core.Token
		for _, a := range w.got() {
			if a.Token.Key.UID == jobs[0].UID {
				named = a.Token
			}
		}
		for range 8 {
			out, err := r.node.Extend(t.Context(), w.key, []core.Token{named}, nil)
			if err != nil || out.Verdicts[0].Verdict != engine.VerdictContinue {
				t.Fatalf("%+v, %v", out, err)
			}
			time.Sleep(2 * time.Second)
		}
		if s := r.state(jobs[0]); s.State != job.Running || s.Attempt != 1 {
			t.Errorf("the one that is named: %+v", s)
		}
		if s := r.state(jobs[1]); s.Outcome != job.OutcomeLeaseLost {
			t.Errorf("the one that is left: %+v", s)
		}
		time.Sleep(12 * time.Second)
		if s := r.state(jobs[0]); s.Outcome != job.OutcomeLeaseLost {
			t.Errorf("after the last call: %+v", s)
		}
	})
}

// A call that nobody ends takes nothing for ever; one that ends early, or whose caller has
// gone, hands back what it was given, at no failure.
func TestPollsThatAreLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		hello := engine.Hello{Worker: core.WorkerKey{ID: "w", Incarnation: "1"}, Handlers: []string{"h"}, Capacity: 9, Credit: 9}
		left := &stream{node: r.node, key: hello.Worker}
		if _, err := r.node.Poll(t.Context(), hello, left); err != nil {
			t.Fatal(err)
		}
		first := r.immediately("first")[0]
		if len(left.got()) != 1 {
			t.Fatalf("it was given %v", left.got())
		}
		time.Sleep(2 * time.Minute)
		if s := r.state(first); s.State != job.Ready || s.Failures != 0 {
			t.Errorf("what it was given: %+v", s)
		}
		if err := r.node.EndPoll(t.Context(), hello.Worker, left, func(core.Token) bool { return true }); !errors.Is(err, engine.ErrReplaced) {
			t.Errorf("its late end: %v", err)
		}

		gone := &stream{node: r.node, key: hello.Worker}
		_, err := r.node.Poll(t.Context(), hello, gone)
		r.must(err)
		time.Sleep(time.Second)
		r.must(r.node.EndPoll(t.Context(), hello.Worker, gone, func(core.Token) bool { return false }))
		time.Sleep(time.Second)
		if s := r.state(first); len(gone.got()) != 1 || s.State != job.Ready || s.Failures != 0 {
			t.Errorf("what never arrived: %+v", s)
		}

		last := &stream{node: r.node, key: hello.Worker}
		_, err = r.node.Poll(t.Context(), hello, last)
		r.must(err)
		time.Sleep(time.Second)
		r.must(r.node.EndPoll(t.Context(), hello.Worker, last, func(core.Token) bool { return true }))
		if s := r.state(first); s.State != job.Running {
			t.Errorf("what arrived: %+v", s)
		}
		// A new start of the worker loses it at once, although nobody has called for a while.
		time.Sleep(9 * time.Second)
		next := hello
		next.Worker.Incarnation = "2"
		again := &stream{node: r.node, key: next.Worker}
		_, err = r.node.Poll(t.Context(), next, again)
		r.must(err)
		time.Sleep(5 * time.Second)
		if s := r.state(first); s.State != job.Running || s.Failures != 1 || s.Incarnation != "2" {
			t.Errorf("after a new start: %+v", s)
		}
		r.must(r.node.EndPoll(t.Context(), next.Worker, again, func(core.Token) bool { return true }))
	})
}
