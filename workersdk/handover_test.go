package workersdk

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// A stream that is too old is left only once the next one is welcomed: at no time is there
// none, no attempt is lost between them, and none runs twice.
func TestHandover(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(4))
		var runs atomic.Int32
		release := make(chan struct{})
		Handle(w, "h", func(context.Context, *Task[any]) error { runs.Add(1); <-release; return nil })
		n.run(w)
		old := n.stream()
		old.assign(job(1, "h", ""))
		old.send(&carillonv1.ConnectResponse{Reconnect: true})
		fresh := n.stream()
		if fresh == old || n.count() != 2 {
			t.Fatalf("%d streams were opened", n.count())
		}
		if held := fresh.hello.GetHeld(); len(held) != 1 || fresh.hello.GetCredit() != 3 {
			t.Errorf("the hello presents %v and grants %d", held, fresh.hello.GetCredit())
		}
		if !old.isOver() {
			t.Error("the old stream was not left")
		}
		// What was on its way over the old stream comes again over the new one.
		fresh.assign(job(2, "h", ""))
		fresh.again(job(1, "h", ""))
		pass(time.Minute / 2)
		if n.count() != 2 || runs.Load() != 2 {
			t.Errorf("%d streams, %d runs", n.count(), runs.Load())
		}
		close(release)
		if got := len(fresh.results()); got != 2 {
			t.Errorf("%d results came over the new stream", got)
		}
		fresh.again(job(1, "h", "")) // as late as it may be
		pass(time.Second)
		if runs.Load() != 2 {
			t.Error("an attempt that had ended ran again")
		}
		if _, most := fresh.accounts(); most > 4 {
			t.Errorf("it was responsible for %d attempts at the same time", most)
		}
	})
}

// Until the new stream is welcomed the old one does all the work; also if it never is.
func TestAHandoverThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var cause atomic.Value
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			err := obey(ctx, task)
			cause.Store(err)
			return err
		})
		n.run(w)
		old := n.stream()
		old.assign(within(job(1, "h", ""), time.Hour))
		n.refuse(errGone)
		old.send(&carillonv1.ConnectResponse{Reconnect: true})
		pass(time.Minute)
		if old.isOver() || cause.Load() != nil {
			t.Fatalf("the old stream is over: %v, and its handler was ended by %v", old.isOver(), cause.Load())
		}
		old.assign(job(2, "h", ""))
		n.refuse(nil)
		pass(5 * time.Second)
		fresh := n.stream()
		if fresh == old || len(fresh.hello.GetHeld()) != 2 || !old.isOver() {
			t.Errorf("the hello of the next stream presents %v; the old one is over: %v", fresh.hello.GetHeld(), old.isOver())
		}
	})
}

// The old stream may break while the next one is being opened.
func TestAHandoverWhoseOldStreamBreaks(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", obey)
		r := n.run(w)
		old := n.stream()
		old.assign(within(job(1, "h", ""), time.Hour))
		n.refuse(errGone)
		old.send(&carillonv1.ConnectResponse{Reconnect: true})
		pass(time.Second)
		old.close(errGone)
		n.refuse(nil)
		pass(5 * time.Second)
		if fresh := n.stream(); fresh == old || len(fresh.hello.GetHeld()) != 1 {
			t.Errorf("the hello presents %v", fresh.hello.GetHeld())
		}
		r.end()
	})
}

// Who owns a shard is told by the higher epoch: what a lower one says changes nothing, and
// the new owner is asked about what is held.
func TestLowerEpochsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var ended, runs atomic.Int32
		release := make(chan struct{})
		Handle(w, "h", func(ctx context.Context, _ *Task[any]) error {
			runs.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
				ended.Add(1)
			}
			return nil
		})
		n.run(w)
		s := n.stream()
		s.assign(within(job(1, "h", ""), time.Hour)) // epoch 7
		s.send(&carillonv1.ConnectResponse{Ownerships: []*carillonv1.Ownership{{Shard: 3, Epoch: 9}, {Shard: 4, Epoch: 2}}})
		if asked := s.held(); len(asked) != 1 || asked[0].GetFireTimeUs() != testToken(1).GetFireTimeUs() {
			t.Fatalf("the new owner was asked about %v", asked)
		}
		token := testToken(1)
		s.send(&carillonv1.ConnectResponse{
			Attestations:  []*carillonv1.Attestation{{Token: token, Verdict: carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL, Epoch: 8}},
			Cancellations: []*carillonv1.Cancellation{{Token: token, Reason: carillonv1.CancellationReason_CANCELLATION_REASON_CANCELLED, Epoch: 7}},
		})
		s.assign(job(2, "h", "")) // by the old owner, under epoch 7
		pass(time.Second)
		if ended.Load() != 0 || runs.Load() != 1 {
			t.Errorf("%d handlers ended, %d ran", ended.Load(), runs.Load())
		}
		if r := s.onlyResult(); r.GetOutcome() != released || r.GetErrorCode() != codeOldEpoch {
			t.Errorf("the old owner's assignment was answered by %v", r)
		}
		late := job(3, "h", "") // a claim under epoch 7, handed out by the owner
		late.Epoch = 9
		s.assign(late)
		if pass(time.Second); runs.Load() != 2 {
			t.Errorf("%d ran after the owner's word", runs.Load())
		}
		s.set(func(s *nodeStream) { s.muteAcks = true })
		close(release)
		s.send(&carillonv1.ConnectResponse{ResultAcks: []*carillonv1.ResultAck{{Token: token, Verdict: carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED, Epoch: 8}}})
		before := len(s.results())
		pass(testLease)
		if after := len(s.results()); after <= before {
			t.Error("a result was taken for stored because of a word of the old owner")
		}
		s.send(&carillonv1.ConnectResponse{ResultAcks: []*carillonv1.ResultAck{
			{Token: token, Verdict: carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED, Epoch: 9}, {Token: testToken(3), Verdict: carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED, Epoch: 9}}})
		before = len(s.results())
		pass(testLease)
		if after := len(s.results()); after != before {
			t.Error("a result was sent again after the owner's word")
		}
	})
}

// again sends what the worker was given before.
func (s *nodeStream) again(a *carillonv1.Assignment) {
	s.set(func(s *nodeStream) { s.credit-- })
	s.send(&carillonv1.ConnectResponse{Assignments: []*carillonv1.Assignment{a}})
}

// A cluster that was made anew begins its epochs anew: a worker that holds nothing of the old
// one doesn't hold them against it.
func TestEpochsOfAnotherCluster(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var runs atomic.Int32
		Handle(w, "h", func(context.Context, *Task[any]) error { runs.Add(1); return nil })
		n.run(w)
		old := n.stream()
		old.send(&carillonv1.ConnectResponse{Ownerships: []*carillonv1.Ownership{{Shard: 3, Epoch: 99}}})
		old.close(errGone)
		pass(5 * time.Second)
		fresh := n.stream()
		fresh.assign(job(1, "h", "")) // under epoch 7
		pass(time.Second)
		if r := fresh.onlyResult(); fresh == old || runs.Load() != 1 || r.GetOutcome() != succeeded {
			t.Errorf("%d runs, %v", runs.Load(), r)
		}
	})
}

func TestWhatEndedIsRememberedWithinBounds(t *testing.T) {
	var r recent
	for i := range 3 * maxRecent {
		r.add(key{fireUS: int64(i)})
		r.add(key{fireUS: int64(i)})
	}
	if len(r.keys) != maxRecent || len(r.order) != maxRecent || !r.holds(key{fireUS: 3*maxRecent - 1}) || !r.holds(key{fireUS: 2 * maxRecent}) || r.holds(key{fireUS: 2*maxRecent - 1}) {
		t.Errorf("%d are remembered", len(r.keys))
	}
}
