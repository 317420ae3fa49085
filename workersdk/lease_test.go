package workersdk

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

var errGone = status.Error(codes.Unavailable, "the node is gone")

func TestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var ended time.Time
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			err := obey(ctx, task)
			ended = time.Now()
			if !errors.Is(err, ErrTimeout) {
				t.Errorf("cause %v", err)
			}
			return nil
		})
		n.run(w)
		s := n.stream()
		began := time.Now()
		s.assign(within(job(1, "h", ""), 3*time.Second))
		pass(4 * time.Second)
		if got := ended.Sub(began); got != 3*time.Second {
			t.Errorf("the context ended after %v", got)
		}
		want(t, s.onlyResult(), timedOut, "timeout")
	})
}

// stuckHere shows up in a stack.
func stuckHere(release <-chan struct{}) { <-release }

func TestStuck(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(2))
		release := make(chan struct{})
		Handle(w, "h", func(context.Context, *Task[any]) error { stuckHere(release); return nil })
		n.run(w)
		s := n.stream()
		s.assign(within(job(1, "h", ""), time.Second))
		pass(2*time.Second + 200*time.Millisecond) // the node waits for 3 s
		r := s.onlyResult()
		want(t, r, timedOut, "stuck")
		if text := string(r.GetErrorMessage()); !containsAll(text, "ignored", "stuckHere") || r.GetStartTime() == nil {
			t.Errorf("%v", text)
		}
		if credit, _ := s.accounts(); credit != 1 {
			t.Errorf("its place was given away: credit %d", credit)
		}
		pass(time.Hour)
		close(release)
		s.onlyResult()
		if credit, _ := s.accounts(); credit != 2 {
			t.Errorf("its place didn't come back: credit %d", credit)
		}
	})
}

func TestCancel(t *testing.T) {
	for reason, c := range map[carillonv1.CancellationReason]struct {
		cause   error
		outcome carillonv1.AttemptOutcome // unspecified: nothing is told
	}{
		carillonv1.CancellationReason_CANCELLATION_REASON_CANCELLED:  {ErrCancelled, cancelled},
		carillonv1.CancellationReason_CANCELLATION_REASON_TIMED_OUT:  {ErrTimeout, 0},
		carillonv1.CancellationReason_CANCELLATION_REASON_LEASE_LOST: {ErrLeaseLost, 0},
	} {
		bubble(t, func(t *testing.T, n *node) {
			w := n.dial()
			var cause error
			Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
				cause = obey(ctx, task)
				return cause
			}, Concurrency(1))
			n.run(w)
			s := n.stream()
			s.assign(job(1, "h", ""), job(2, "h", ""))
			s.cancel(9, reason) // none of ours
			s.cancel(1, reason)
			if !errors.Is(cause, c.cause) {
				t.Errorf("%v: cause %v", reason, cause)
			}
			cause = nil
			s.assign(job(3, "h", ""))
			s.cancel(3, reason) // waits behind 2
			if cause != nil {
				t.Errorf("another handler was cancelled: %v", cause)
			}
			rs := s.results()
			if c.outcome == 0 && len(rs) != 0 || c.outcome != 0 && len(rs) != 2 {
				t.Fatalf("%v: %v", reason, rs)
			}
			for _, r := range rs {
				want(t, r, c.outcome, "cancelled")
			}
		})
	}
}

func TestSuccessAfterLostLeaseIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error { <-ctx.Done(); return nil })
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		s.cancel(1, carillonv1.CancellationReason_CANCELLATION_REASON_LEASE_LOST)
		want(t, s.onlyResult(), succeeded, "")
	})
}

func TestHeartbeatsKeepTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", obey)
		n.run(w)
		s := n.stream()
		a := within(job(1, "h", ""), 10*time.Hour)
		s.assign(a)
		pass(time.Hour)
		if n.count() != 1 || len(s.results()) != 0 {
			t.Errorf("%d streams, results %v", n.count(), s.results())
		}
		beats := int64(0)
		for _, m := range s.messages() {
			if hb := m.GetHeartbeat(); hb != nil {
				if beats++; hb.GetSequence() != beats {
					t.Fatalf("heartbeat %d has the number %d", beats, hb.GetSequence())
				}
			}
		}
		if beats < 1300 || beats > 1440 {
			t.Errorf("%d heartbeats in an hour", beats)
		}
	})
}

func TestLeaseEndsBeforeTheNodeTakesBack(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var cause error
		var ended time.Time
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			cause = obey(ctx, task)
			ended = time.Now()
			return cause
		})
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		pass(6 * time.Second)
		var acked time.Time // the last heartbeat that the node answers
		for i := len(s.messages()); acked.IsZero(); i = len(s.messages()) {
			pass(time.Millisecond)
			for _, m := range s.messages()[i:] {
				if m.GetHeartbeat() != nil {
					acked = time.Now()
				}
			}
		}
		// It goes deaf, and takes no new stream.
		s.set(func(s *nodeStream) { s.deaf = true })
		n.mu.Lock()
		n.refusal = errGone
		n.mu.Unlock()
		pass(testLease - 10*time.Millisecond)
		if took := ended.Sub(acked); !errors.Is(cause, ErrLeaseLost) || took < 8*time.Second || took > 9200*time.Millisecond {
			t.Fatalf("cause %v, %v after the last heartbeat", cause, took)
		}
		n.mu.Lock()
		n.refusal = nil
		s.set(func(s *nodeStream) { s.deaf = false })
		n.mu.Unlock()
		pass(3 * time.Second)
		next := n.stream()
		if next == s || len(next.hello.GetResults()) != 1 || len(next.hello.GetHeld()) != 1 {
			t.Fatalf("hello: %v", next.hello)
		}
		want(t, next.hello.GetResults()[0], released, "lease_lost")
	})
}

func TestUnansweredHeartbeatsDropTheStream(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", obey)
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		s.set(func(s *nodeStream) { s.deaf = true })
		pass(2*testInterval + 500*time.Millisecond)
		next := n.stream()
		if next == s || len(next.hello.GetHeld()) != 1 || keyOf(next.hello.GetHeld()[0]) != keyOf(testToken(1)) || next.hello.GetCredit() != 63 {
			t.Fatalf("hello: %v", next.hello)
		}
		if len(next.results()) != 0 {
			t.Error("the handler ended with the stream")
		}
	})
}

func TestReconnectPresentsAll(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(5))
		Handle(w, "long", obey)
		Handle(w, "quick", func(context.Context, *Task[any]) error { return nil })
		n.run(w)
		s := n.stream()
		s.set(func(s *nodeStream) { s.muteAcks = true })
		s.assign(job(1, "long", ""))
		s.assign(job(2, "quick", ""))
		s.onlyResult()
		s.set(func(s *nodeStream) { s.muteAcks = false })
		s.close(errGone)
		pass(time.Second)
		next := n.stream()
		h := next.hello
		if next == s || len(h.GetHeld()) != 2 || len(h.GetResults()) != 1 || h.GetCredit() != 3 || h.GetIncarnation() != s.hello.GetIncarnation() {
			t.Fatalf("hello: %v", h)
		}
		if credit, _ := next.accounts(); credit != 4 {
			t.Errorf("credit %d, want all but the running one", credit)
		}
		next.close(errGone)
		pass(time.Second)
		if h := n.stream().hello; len(h.GetHeld()) != 1 || len(h.GetResults()) != 0 || h.GetCredit() != 4 {
			t.Errorf("hello after the acknowledgement: %v", h)
		}
	})
}

func TestUnacknowledgedResultIsSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", func(context.Context, *Task[any]) error { return nil })
		n.run(w)
		s := n.stream()
		s.set(func(s *nodeStream) { s.muteAcks = true })
		s.assign(job(1, "h", ""))
		s.onlyResult()
		pass(testLease/2 + 200*time.Millisecond)
		if got := len(s.results()); got != 2 {
			t.Fatalf("%d results after half a lease", got)
		}
		s.set(func(s *nodeStream) { s.muteAcks = false })
		pass(time.Minute)
		if got := len(s.results()); got != 3 || n.count() != 1 {
			t.Errorf("%d results, %d streams", got, n.count())
		}
	})
}

func TestStaleResultIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", func(context.Context, *Task[any]) error { return nil })
		n.run(w)
		s := n.stream()
		s.set(func(s *nodeStream) { s.staleAcks = true })
		s.assign(job(1, "h", ""))
		pass(time.Minute)
		s.onlyResult()
		s.close(errGone)
		pass(time.Second)
		if h := n.stream().hello; len(h.GetResults()) != 0 || len(h.GetHeld()) != 0 {
			t.Errorf("hello: %v", h)
		}
	})
}

func TestAttestations(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		causes := make(chan error, 2)
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			err := obey(ctx, task)
			causes <- err
			return err
		})
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""), job(2, "h", ""))
		s.close(errGone)
		pass(time.Second)
		next := n.stream()
		next.send(&carillonv1.ConnectResponse{Attestations: []*carillonv1.Attestation{
			{Token: testToken(1), Verdict: carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL},
			{Token: testToken(2), Verdict: carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE},
		}})
		if len(next.results()) != 0 || len(causes) != 1 || !errors.Is(<-causes, ErrLeaseLost) {
			t.Error("the cancelled one didn't end, or something was told of it")
		}
		pass(time.Second)
		if len(causes) != 0 {
			t.Error("the other one ended too")
		}
	})
}

// A node that never comes to know an attempt is asked again and again, and its
// heartbeats don't renew that attempt's lease.
func TestUnknownAttemptKeepsItsOldLease(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var ended time.Time
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			err := obey(ctx, task)
			ended = time.Now()
			return err
		})
		n.run(w)
		s := n.stream()
		began := time.Now()
		s.assign(job(1, "h", ""))
		n.set(func(n *node) { n.unsure = true })
		s.close(errGone)
		pass(14 * time.Second)
		if took := ended.Sub(began); took < 8900*time.Millisecond || took > 9200*time.Millisecond {
			t.Errorf("the lease lasted for %v", took)
		}
		if asked := n.stream().held(); len(asked) < 2 || n.count() != 2 {
			t.Errorf("the node was asked %d times, on %d streams", len(asked), n.count())
		}
	})
}

func TestDrainingNodeKeepsHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var over atomic.Bool
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			defer over.Store(true)
			return obey(ctx, task)
		})
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		s.send(&carillonv1.ConnectResponse{Draining: true})
		pass(time.Second)
		s.close(nil)
		pass(time.Second)
		if next := n.stream(); next == s || len(next.hello.GetHeld()) != 1 || over.Load() {
			t.Errorf("hello: %v, over: %v", next.hello, over.Load())
		}
	})
}

func TestElapsedTakesTheLargerClock(t *testing.T) {
	now := time.Now()
	slept := now.Round(0).Add(-time.Minute) // only a wall clock
	if got := elapsed(slept, now); got != time.Minute {
		t.Error(got)
	}
	if got := elapsed(now.Add(-time.Second), now); got != time.Second {
		t.Error(got)
	}
}
