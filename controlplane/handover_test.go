package controlplane_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-scheduler/carillon/controlplane"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// What a worker should hold and doesn't list was lost on its way: it is sent again, the very
// same, and uses up the credit that the worker counts.
func TestWhatAWorkerNeverGotIsSentAgain(t *testing.T) {
	s := newServer(t)
	first := s.connect(&carillonv1.Hello{WorkerId: "w", Incarnation: "1", Capacity: 2, Credit: 2, Handlers: []*carillonv1.HandlerRegistration{{Name: "h"}}})
	s.create(job("a", "h", scheduleNow()))
	a := first.assignment()
	s.create(job("b", "h", scheduleNow()))
	b := first.assignment()
	s.create(job("c", "h", scheduleNow()))
	second := s.connect(&carillonv1.Hello{WorkerId: "w", Incarnation: "1", Capacity: 2, Credit: 1, Held: []*carillonv1.AttemptToken{a.GetToken()},
		Handlers: []*carillonv1.HandlerRegistration{{Name: "h"}}})
	if again := second.assignment(); again.GetToken().GetJobUid() != b.GetToken().GetJobUid() || again.GetToken().GetAttempt() != 1 {
		t.Errorf("sent again: %v, want %v", again, b)
	}
	second.report(succeeded(b))
	if c := second.assignment(); c.GetToken().GetJobUid() == b.GetToken().GetJobUid() {
		t.Errorf("assigned %v", c)
	}
	if slot := s.becomes(ns+"/jobs/b", carillonv1.SlotState_SLOT_STATE_SUCCEEDED); slot.GetAttempt() != 1 {
		t.Errorf("it took %d attempts", slot.GetAttempt())
	}
}

// A worker may ask at any time about what it holds.
func TestWhatAWorkerAsksAbout(t *testing.T) {
	s := newServer(t)
	w := s.connect(hello("w", "1"))
	s.create(job("a", "h", scheduleNow()))
	a := w.assignment()
	stranger := &carillonv1.AttemptToken{JobUid: "0198c0de-0000-7000-8000-000000000000", Attempt: 1, Epoch: 1}
	must(t, w.stream.Send(&carillonv1.ConnectRequest{Held: []*carillonv1.AttemptToken{a.GetToken(), stranger}}))
	if v := next(w, "attestation", (*carillonv1.ConnectResponse).GetAttestations); v.GetVerdict() != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE || v.GetEpoch() == 0 {
		t.Errorf("attested with %v", v)
	}
	w = s.connect(hello("x", "1"))
	must(t, w.stream.Send(&carillonv1.ConnectRequest{Held: []*carillonv1.AttemptToken{stranger}}))
	if c := next(w, "cancellation", (*carillonv1.ConnectResponse).GetCancellations); c.GetToken().GetJobUid() != stranger.GetJobUid() || c.GetReason() != carillonv1.CancellationReason_CANCELLATION_REASON_LEASE_LOST {
		t.Errorf("told %v", c)
	}
	must(t, w.stream.Send(&carillonv1.ConnectRequest{Held: []*carillonv1.AttemptToken{{JobUid: "x"}}}))
	if err := w.end(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "held") {
		t.Errorf("ended with %v", err)
	}
}

// Streams don't grow old: a worker of today hands over and notices nothing, and one that
// can't is cut off and comes back. Neither loses an attempt.
func TestStreamsThatAreTooOld(t *testing.T) {
	s := startAs(t, filepath.Join(t.TempDir(), "carillon.db"), func(cfg *controlplane.Config) { cfg.StreamMaxAge = 50 * time.Millisecond })
	var running, most, done atomic.Int32
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "h", func(ctx context.Context, t *worker.Task[any]) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			select {
			case <-time.After(200 * time.Millisecond): // some streams long
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			done.Add(1)
			return nil
		})
	}, worker.Capacity(4))
	for i := range 40 {
		s.create(job(fmt.Sprint("j-", i), "h", scheduleNow()))
	}
	s.eventually("all have run", func() bool { return done.Load() >= 40 })
	for i := range 40 {
		if slot := s.becomes(ns+"/jobs/"+fmt.Sprint("j-", i), carillonv1.SlotState_SLOT_STATE_SUCCEEDED); slot.GetAttempt() != 1 {
			attempts, err := s.slots.ListAttempts(t.Context(), &carillonv1.ListAttemptsRequest{Parent: slot.GetName()})
			t.Errorf("%s took %d attempts: %v, %v", slot.GetName(), slot.GetAttempt(), attempts.GetAttempts(), err)
		}
	}
	if done.Load() != 40 || most.Load() > 4 {
		t.Errorf("%d runs, %d at the same time", done.Load(), most.Load())
	}
	old := s.connect(hello("old", "1"))
	if err := old.end(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "too old") {
		t.Errorf("the stream of a worker that can't hand over ended with %v", err)
	}
}
