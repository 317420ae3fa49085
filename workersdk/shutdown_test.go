package workersdk

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func TestShutdownOfAnIdleWorker(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", obey)
		r := n.run(w)
		s := n.stream()
		if took := r.end(); took > time.Second {
			t.Errorf("it took %v", took)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.over {
			t.Error("the stream is open")
		}
	})
}

func TestShutdownWithoutANode(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.refusal = errGone
		w := n.dial()
		Handle(w, "h", obey)
		r := n.run(w)
		pass(time.Minute)
		if took := r.end(); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestShutdownLetsHandlersFinish(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(3))
		Handle(w, "h", func(ctx context.Context, _ *Task[any]) error {
			time.Sleep(4 * time.Second)
			return ctx.Err()
		})
		r := n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		r.stop()
		pass(time.Second)
		if ms := s.messages(); !ms[len(ms)-1].GetDraining() {
			t.Error("the node wasn't told")
		}
		// What was under way meanwhile.
		s.assign(job(2, "h", ""))
		want(t, s.onlyResult(), released, "shutdown")
		if took := r.end(); took > 3100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		want(t, s.results()[1], succeeded, "")
		for _, m := range s.messages()[1:] {
			if m.GetCredit() != 0 {
				t.Error("credit was granted while the worker stopped")
			}
		}
	})
}

func TestShutdownHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var ended atomic.Int64 // nanoseconds; 0: not yet
		began := time.Now()
		Handle(w, "obeys", func(ctx context.Context, task *Task[any]) error {
			err := obey(ctx, task)
			ended.Store(int64(time.Since(began)))
			if !errors.Is(err, ErrShutdown) {
				t.Errorf("cause %v", err)
			}
			return Permanent(errors.New("interrupted"))
		})
		release := make(chan struct{})
		Handle(w, "ignores", func(context.Context, *Task[any]) error { <-release; return nil })
		Handle(w, "queued", func(ctx context.Context, task *Task[any]) error { return obey(ctx, task) }, Concurrency(1))
		r := n.run(w)
		s := n.stream()
		s.assign(job(1, "obeys", ""), job(2, "ignores", ""), job(3, "queued", ""), job(4, "queued", ""))
		r.stop()
		want(t, s.onlyResult(), released, "shutdown") // at once: the one that waits
		if keyOf(s.onlyResult().GetToken()) != keyOf(testToken(4)) {
			t.Error("it is another one")
		}
		pass(4900 * time.Millisecond)
		beats := 0
		for _, m := range s.messages() {
			if m.GetHeartbeat() != nil {
				beats++
			}
		}
		if ended.Load() != 0 || beats < 1 {
			t.Errorf("ended %v, %d heartbeats within the grace", ended.Load(), beats)
		}
		r.end()
		if got := time.Duration(ended.Load()); got < 5*time.Second || got > 5200*time.Millisecond {
			t.Errorf("the handler had %v", got)
		}
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		rs := s.results()
		if len(rs) != 4 {
			t.Fatalf("%d results", len(rs))
		}
		for _, r := range rs {
			want(t, r, released, "shutdown")
		}
		close(release)
	})
}

func TestShutdownIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		release := make(chan struct{})
		Handle(w, "h", func(context.Context, *Task[any]) error { <-release; return nil })
		r := n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		s.set(func(s *nodeStream) { s.muteAcks, s.deaf = true, true })
		if took := r.end(); took > 9*time.Second {
			t.Errorf("it took %v", took)
		}
		close(release)
	})
}

func TestShutdownDeliversOnANewStream(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", func(context.Context, *Task[any]) error { time.Sleep(2 * time.Second); return nil })
		r := n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		r.stop()
		pass(time.Second)
		s.close(errGone)
		r.end()
		next := n.stream()
		if next == s || next.hello.GetCredit() != 0 {
			t.Fatalf("hello: %v", next.hello)
		}
		want(t, next.onlyResult(), succeeded, "")
	})
}
