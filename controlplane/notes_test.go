package controlplane_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// A checkpoint that was saved outlives the worker and the node, and what the handler logged is
// shown with its slot, while it runs and after.
func TestWhatAHandlerSaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.db")
	s := start(t, path, shortLease)
	saved := make(chan struct{})
	var second atomic.Value
	register := func(w *worker.Worker) {
		worker.Handle(w, "h", func(ctx context.Context, t *worker.Task[any]) error {
			if t.Attempt() > 1 {
				second.Store(string(t.Checkpoint()))
				t.Logger().Info("the rest is done")
				return nil
			}
			t.Logger().Info("a page is done", "page", 7)
			t.Progress(7, 9, "pages")
			if err := t.SaveCheckpoint(ctx, []byte("page 7")); err != nil {
				return err
			}
			close(saved)
			<-ctx.Done()
			return errors.New("cut off")
		})
	}
	stop := s.serve(register, worker.ShutdownGrace(0))
	s.create(job("j", "h", scheduleNow()))
	<-saved
	slot := s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_RUNNING)
	if slot.GetCheckpointBytes() != 6 || slot.GetProgress().GetDone() != 7 || !strings.Contains(slot.GetLog(), "page=7") {
		t.Errorf("it runs as %v", slot)
	}
	must(t, s.stop())
	stop()
	s = start(t, path, shortLease)
	s.serve(register)
	slot = s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	if second.Load() != "page 7" || slot.GetCheckpointBytes() != 0 || !strings.Contains(slot.GetLog(), "the rest is done") || strings.Contains(slot.GetLog(), "page=7") {
		t.Errorf("the next attempt got %q; the slot is %v", second.Load(), slot)
	}
	attempts, err := s.slots.ListAttempts(t.Context(), &carillonv1.ListAttemptsRequest{Parent: slot.GetName()})
	must(t, err)
	if log := attempts.GetAttempts()[0].GetLog(); !strings.Contains(log, "page=7") {
		t.Errorf("the first attempt logged %q", log)
	}
}

// Checkpoints of workers without a stream are acknowledged by their next call.
func TestCheckpointsOfAPolledAttempt(t *testing.T) {
	s := newServer(t)
	s.create(job("j", "h", scheduleNow()))
	a := s.polled("w")
	extend := func(sequence int64, checkpoint []byte) *carillonv1.ExtendResponse {
		resp, err := s.workers.Extend(t.Context(), &carillonv1.ExtendRequest{WorkerId: "w", Incarnation: "1", Held: []*carillonv1.AttemptToken{a.GetToken()},
			Progress: []*carillonv1.ProgressReport{{Token: a.GetToken(), Sequence: sequence, Checkpoint: checkpoint}}})
		must(t, err)
		return resp
	}
	extend(1, []byte("c1"))
	s.eventually("it is acknowledged", func() bool {
		acks := extend(1, []byte("c1")).GetProgressAcks()
		return len(acks) > 0 && acks[0].GetSequence() == 1 && proto.Equal(acks[0].GetToken(), a.GetToken())
	})
	_, err := s.workers.Extend(t.Context(), &carillonv1.ExtendRequest{WorkerId: "w", Incarnation: "1",
		Progress: []*carillonv1.ProgressReport{{Token: a.GetToken(), Checkpoint: make([]byte, 64<<10+1)}}})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "progress.checkpoint") {
		t.Errorf("a checkpoint that is too large: %v", err)
	}
	if acks := s.finish("w", "1", &carillonv1.AttemptResult{Token: a.GetToken(), Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED, Checkpoint: []byte("c2"), Log: []byte("bye\xff\n")}); acks[0].GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		t.Errorf("answered by %v", acks)
	}
	if b := s.polled("w"); string(b.GetCheckpoint()) != "c2" || b.GetToken().GetAttempt() != 2 {
		t.Errorf("the next attempt is %v", b)
	}
	attempts, err := s.slots.ListAttempts(t.Context(), &carillonv1.ListAttemptsRequest{Parent: a.GetSlot()})
	must(t, err)
	if got := attempts.GetAttempts()[0].GetLog(); got != "bye\uFFFD\n" {
		t.Errorf("the log is %q", got)
	}
}
