package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	if _, err := s.slots.RedriveSlot(t.Context(), &carillonv1.RedriveSlotRequest{Name: again.GetName(), Params: &carillonv1.Json{Text: "{"}}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "params") {
		t.Errorf("parameters that are no JSON: %v", err)
	}
	redriven, err := s.slots.RedriveSlot(t.Context(), &carillonv1.RedriveSlotRequest{Name: again.GetName(), Reason: "ann: repaired", Params: &carillonv1.Json{Text: `{}`}})
	must(t, err)
	if redriven.GetSlot().GetParams().GetText() != `{}` {
		t.Errorf("redriven with other parameters: %v", redriven)
	}
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

// Many dead letters are counted, redriven at a rate, watched by a brake that stops when they
// fail again, and given up.
func TestManyDeadLetters(t *testing.T) {
	s := newServer(t)
	var repaired atomic.Bool
	s.serve(func(w *worker.Worker) {
		for _, name := range []string{"h", "other"} {
			worker.Handle(w, name, func(context.Context, *worker.Task[struct{}]) error {
				if repaired.Load() {
					return nil
				}
				return worker.Coded("broken", errors.New("the pipe is broken"))
			})
		}
	})
	const many = 30
	for i := range many + 5 {
		handler := "h"
		if i >= many {
			handler = "other"
		}
		req := job(fmt.Sprintf("j%d", i), handler, scheduleNow())
		req.Job.RetryPolicy.NonRetryableCodes = []string{"broken"}
		s.create(req)
	}
	letters := carillonv1.NewDeadLetterServiceClient(s.conn)
	count := func(handler string) int64 {
		resp, err := letters.GroupDeadLetters(t.Context(), &carillonv1.GroupDeadLettersRequest{Parent: ns})
		must(t, err)
		for _, g := range resp.GetGroups() {
			if g.GetHandler() == handler {
				return g.GetCount()
			}
		}
		return 0
	}
	s.eventually("all are dead", func() bool { return count("h") == many && count("other") == 5 })
	redrive := func(req *carillonv1.RedriveDeadLettersRequest) (first, last *carillonv1.RedriveDeadLettersResponse) {
		req.Parent, req.Filter = ns, &carillonv1.DeadLetterFilter{Handler: "h", ErrorCode: "broken"}
		stream, err := letters.RedriveDeadLetters(t.Context(), req)
		must(t, err)
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return first, last
			}
			must(t, err)
			if first == nil {
				first = m
			}
			last = m
		}
	}
	first, last := redrive(&carillonv1.RedriveDeadLettersRequest{ValidateOnly: true})
	if first != last || first.GetTotalCount() != many || first.GetRedrivenCount() != 0 || len(first.GetGroups()) != 1 || first.GetGroups()[0].GetCount() != many || count("h") != many {
		t.Errorf("a dry run: %v", first)
	}
	_, last = redrive(&carillonv1.RedriveDeadLettersRequest{RateLimit: 20, BrakePercent: 50, Reason: "ann: perhaps"})
	if last.GetState() != carillonv1.BulkState_BULK_STATE_BRAKED || last.GetFailedAgainCount() < 10 || last.GetRedrivenCount() == many {
		t.Errorf("the brake: %v", last)
	}
	s.eventually("what was redriven is dead again", func() bool { return count("h") == many })
	repaired.Store(true)
	_, last = redrive(&carillonv1.RedriveDeadLettersRequest{RateLimit: 1000, BrakePercent: 50, Reason: "ann: repaired"})
	if last.GetState() != carillonv1.BulkState_BULK_STATE_DONE || last.GetRedrivenCount() != many || last.GetRefusedCount() != 0 {
		t.Errorf("all: %v", last)
	}
	s.eventually("they are gone", func() bool { return count("h") == 0 })
	list, err := letters.ListDeadLetters(t.Context(), &carillonv1.ListDeadLettersRequest{Parent: ns, Filter: &carillonv1.DeadLetterFilter{Job: ns + "/jobs/j32"}})
	must(t, err)
	if len(list.GetDeadLetters()) != 1 || !strings.HasPrefix(list.GetDeadLetters()[0].GetSlot(), ns+"/jobs/j32/slots/") || list.GetDeadLetters()[0].GetErrorCode() != "broken" {
		t.Errorf("listed %v", list)
	}
	code, answer := s.post("/v1/namespaces/default/deadLetters:discard", `{"filter":{"handler":"other"},"reason":"ann: too late"}`)
	if code != http.StatusOK || !strings.Contains(answer, `"discardedCount":"5"`) && !strings.Contains(answer, `"discardedCount":5`) || !strings.Contains(answer, `{"result":`) {
		t.Errorf("discard over REST: %d %s", code, answer)
	}
	if n := count("other"); n != 0 {
		t.Errorf("%d are left", n)
	}
	for body, want := range map[string]string{`{"rateLimit":-1}`: "rate_limit", `{"brakePercent":100}`: "brake_percent", `{"filter":{"job":"namespaces/else/jobs/x"}}`: "NOT_FOUND"} {
		if code, answer := s.post("/v1/namespaces/default/deadLetters:redrive", body); code == http.StatusOK || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %s", body, code, answer, want)
		}
	}
}
