package controlplane_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// A dead letter is redriven once its cause is repaired, or given up; both are told, and
// neither is done to what isn't dead.
func TestDeadLettersAreSettled(t *testing.T) {
	s := newServer(t)
	var repaired atomic.Bool
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "h", func(context.Context, *worker.Task[struct{}]) error {
			if repaired.Load() {
				return nil
			}
			return worker.Coded("broken", errors.New("not yet"))
		})
	})
	for _, name := range []string{"again", "never"} {
		req := job(name, "h", scheduleNow())
		req.Job.RetryPolicy.NonRetryableCodes = []string{"broken"}
		s.create(req)
		dead := s.becomes(ns+"/jobs/"+name, carillonv1.SlotState_SLOT_STATE_DEAD)
		if dead.GetFailures() != 1 || dead.GetErrorCode() != "broken" {
			t.Errorf("a code that isn't retried: %v", dead)
		}
	}
	repaired.Store(true)
	again, never := s.newest(ns+"/jobs/again"), s.newest(ns+"/jobs/never")
	redriven, err := s.slots.RedriveSlot(t.Context(), &carillonv1.RedriveSlotRequest{Name: again.GetName(), Reason: "ann: repaired"})
	must(t, err)
	if redriven.GetSlot().GetFailures() != 0 {
		t.Errorf("redriven: %v", redriven)
	}
	slot := s.becomes(ns+"/jobs/again", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	if slot.GetAttempt() != 2 {
		t.Errorf("after the redrive: %v", slot)
	}
	attempts, err := s.slots.ListAttempts(t.Context(), &carillonv1.ListAttemptsRequest{Parent: slot.GetName()})
	must(t, err)
	if all := attempts.GetAttempts(); len(all) != 2 || all[0].GetErrorCode() != "broken" {
		t.Errorf("attempts %v", all)
	}
	if _, err := s.slots.RedriveSlot(t.Context(), &carillonv1.RedriveSlotRequest{Name: slot.GetName()}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "SUCCEEDED") {
		t.Errorf("redrive of a success: %v", err)
	}
	path := "/v1/" + never.GetName()
	if code, answer := s.post(path+":discard", `{}`); code != http.StatusBadRequest || !strings.Contains(answer, "reason") {
		t.Errorf("discard without a reason: %d %s", code, answer)
	}
	if code, answer := s.post(path+":discard", `{"reason":"ann: not needed"}`); code != http.StatusOK || !strings.Contains(answer, "SLOT_STATE_DISCARDED") || !strings.Contains(answer, "ann: not needed") {
		t.Errorf("discard: %d %s", code, answer)
	}
	if code, why := s.reason(never.GetName()); code != carillonv1.ReasonCode_REASON_CODE_DISCARDED || !strings.Contains(why, "ann: not needed") {
		t.Errorf("explained as %v, %s", code, why)
	}
	if code, answer := s.post(path+":redrive", `{}`); code != http.StatusBadRequest || !strings.Contains(answer, "SLOT_NOT_DEAD") {
		t.Errorf("redrive of what was discarded: %d %s", code, answer)
	}
	if _, err := s.slots.DiscardSlot(t.Context(), &carillonv1.DiscardSlotRequest{Name: ns + "/jobs/nobody/slots/20261130T020000Z", Reason: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("discard of nothing: %v", err)
	}
}
