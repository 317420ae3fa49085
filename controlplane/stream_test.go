package controlplane_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-scheduler/carillon/engine"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// rawWorker speaks the protocol by hand.
type rawWorker struct {
	s      *server
	stream carillonv1.WorkerService_ConnectClient
	hangUp context.CancelFunc
	inbox  chan *carillonv1.ConnectResponse
	err    chan error
}

func (s *server) connect(hello *carillonv1.Hello) *rawWorker {
	s.t.Helper()
	w := s.dialRaw()
	must(s.t, w.stream.Send(&carillonv1.ConnectRequest{Hello: hello}))
	return w
}

func (s *server) dialRaw() *rawWorker {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	stream, err := carillonv1.NewWorkerServiceClient(s.conn).Connect(ctx)
	must(s.t, err)
	w := &rawWorker{s: s, stream: stream, hangUp: cancel, inbox: make(chan *carillonv1.ConnectResponse, 1000), err: make(chan error, 1)}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				w.err <- err
				return
			}
			w.inbox <- m
		}
	}()
	return w
}

func hello(id, incarnation string) *carillonv1.Hello {
	return &carillonv1.Hello{WorkerId: id, Incarnation: incarnation, Capacity: 10, Credit: 10, Handlers: []*carillonv1.HandlerRegistration{{Name: "h"}}}
}

// next waits for a message that match accepts.
func next[T any](w *rawWorker, what string, match func(*carillonv1.ConnectResponse) []T) T {
	w.s.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case m := <-w.inbox:
			if found := match(m); len(found) > 0 {
				return found[0]
			}
		case err := <-w.err:
			w.s.t.Fatalf("waiting for %s the stream ended: %v", what, err)
		case <-deadline:
			w.s.t.Fatalf("no %s came", what)
		}
	}
}

func (w *rawWorker) assignment() *carillonv1.Assignment {
	w.s.t.Helper()
	return next(w, "assignment", (*carillonv1.ConnectResponse).GetAssignments)
}

func (w *rawWorker) ack() *carillonv1.ResultAck {
	w.s.t.Helper()
	return next(w, "acknowledgement", (*carillonv1.ConnectResponse).GetResultAcks)
}

func (w *rawWorker) report(r *carillonv1.AttemptResult) {
	w.s.t.Helper()
	must(w.s.t, w.stream.Send(&carillonv1.ConnectRequest{Results: []*carillonv1.AttemptResult{r}, Credit: 1}))
}

func succeeded(a *carillonv1.Assignment) *carillonv1.AttemptResult {
	return &carillonv1.AttemptResult{Token: a.GetToken(), Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED}
}

// end waits for the stream's end.
func (w *rawWorker) end() error {
	w.s.t.Helper()
	select {
	case err := <-w.err:
		return err
	case <-time.After(20 * time.Second):
		w.s.t.Fatal("the stream did not end")
		return nil
	}
}

// shortLease makes leases end within a test's patience.
func shortLease(cfg *engine.Config) {
	cfg.Core.Lease, cfg.Core.HeartbeatEvery, cfg.Core.LeaseMargin = time.Second, 200*time.Millisecond, 100*time.Millisecond
}

// A worker that is silent for its lease loses its attempts to another one, with a
// higher fence. What it still reports is refused, recorded, and it is told.
func TestALostLeaseAndItsLateResult(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "carillon.db"), shortLease)
	silent := s.connect(hello("silent", "1"))
	s.create(job("j", "h", scheduleNow()))
	first := silent.assignment()
	slot := s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_READY)
	if slot.GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_LOST || slot.GetFailures() != 1 {
		t.Errorf("after the lease: %v", slot)
	}
	other := s.connect(hello("other", "1"))
	second := other.assignment()
	if second.GetToken().GetAttempt() != first.GetToken().GetAttempt()+1 {
		t.Errorf("fence %d after %d", second.GetToken().GetAttempt(), first.GetToken().GetAttempt())
	}
	h := hello("silent", "1")
	h.Results = []*carillonv1.AttemptResult{succeeded(first)}
	silent = s.connect(h)
	if ack := silent.ack(); ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_STALE || ack.GetMessage() == "" {
		t.Errorf("the late result was answered by %v", ack)
	}
	other.report(succeeded(second))
	if ack := other.ack(); ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		t.Errorf("the result was answered by %v", ack)
	}
	slot = s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	attempts, err := s.slots.ListAttempts(t.Context(), &carillonv1.ListAttemptsRequest{Parent: slot.GetName()})
	must(t, err)
	if a := attempts.GetAttempts()[0]; a.GetLateResult() != "SUCCEEDED" || a.GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_LOST {
		t.Errorf("the first attempt: %v", a)
	}
}

// A success that comes after the lease, but before anybody took the slot, saves
// the work.
func TestALateSuccessThatNobodyOvertook(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "carillon.db"), shortLease)
	w := s.connect(hello("w", "1"))
	req := job("j", "h", scheduleNow())
	req.Job.RetryPolicy.InitialBackoff = nil // a second, in which nobody takes it
	s.create(req)
	a := w.assignment()
	s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_READY)
	h := hello("w", "1")
	h.Credit, h.Held = 0, []*carillonv1.AttemptToken{a.GetToken()}
	w = s.connect(h)
	verdict := next(w, "attestation", (*carillonv1.ConnectResponse).GetAttestations)
	if verdict.GetVerdict() != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL {
		t.Errorf("the lost attempt is attested with %v", verdict)
	}
	w.report(succeeded(a))
	if ack := w.ack(); ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		t.Errorf("answered by %v", ack)
	}
	s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	w.report(succeeded(a))
	if ack := w.ack(); ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		t.Errorf("the repeat was answered by %v", ack)
	}
}

// A broken stream is no lost lease: the worker comes back with what it holds.
func TestABrokenStreamLosesNothing(t *testing.T) {
	s := newServer(t)
	w := s.connect(hello("w", "1"))
	s.create(job("held", "h", scheduleNow()))
	held := w.assignment()
	s.create(job("reported", "h", scheduleNow()))
	reported := w.assignment()
	w.hangUp()
	h := hello("w", "1")
	h.Credit, h.Held, h.Results = 8, []*carillonv1.AttemptToken{held.GetToken()}, []*carillonv1.AttemptResult{succeeded(reported)}
	w = s.connect(h)
	if v := next(w, "attestation", (*carillonv1.ConnectResponse).GetAttestations); v.GetVerdict() != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE {
		t.Errorf("attested with %v", v)
	}
	if ack := w.ack(); ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		t.Errorf("answered by %v", ack)
	}
	w.report(succeeded(held))
	for _, name := range []string{"held", "reported"} {
		if slot := s.becomes(ns+"/jobs/"+name, carillonv1.SlotState_SLOT_STATE_SUCCEEDED); slot.GetAttempt() != 1 {
			t.Errorf("%s took %d attempts", name, slot.GetAttempt())
		}
	}
}

// A new incarnation of a worker loses at once what the old one held.
func TestANewIncarnationLosesTheOldOnesWork(t *testing.T) {
	s := newServer(t)
	old := s.connect(hello("w", "1"))
	s.create(job("j", "h", scheduleNow()))
	first := old.assignment()
	fresh := s.connect(hello("w", "2"))
	if second := fresh.assignment(); second.GetToken().GetAttempt() != 2 || second.GetFailures() != 1 {
		t.Errorf("assigned %v after %v", second, first)
	}
	if err := old.end(); err == nil {
		t.Error("the old stream was not closed")
	}
}

func TestASecondStreamClosesTheFirst(t *testing.T) {
	s := newServer(t)
	first := s.connect(hello("w", "1"))
	s.eventually("the first is known", func() bool { return s.live("h") == 1 })
	s.connect(hello("w", "1"))
	if err := first.end(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "connected again") {
		t.Errorf("the first stream ended with %v", err)
	}
	if n := s.live("h"); n != 1 {
		t.Errorf("%d workers live, want 1", n)
	}
}

// live returns how many workers serve a handler.
func (s *server) live(handler string) int32 {
	resp, err := s.handlers.GetHandler(s.t.Context(), &carillonv1.GetHandlerRequest{Name: "handlers/" + handler})
	if status.Code(err) == codes.NotFound {
		return 0
	}
	must(s.t, err)
	return resp.GetHandler().GetLiveWorkers()
}

func TestHellosThatAreRefused(t *testing.T) {
	s := newServer(t)
	for field, change := range map[string]func(*carillonv1.Hello){
		"hello.worker_id":        func(h *carillonv1.Hello) { h.WorkerId = "a b" },
		"hello.incarnation":      func(h *carillonv1.Hello) { h.Incarnation = "" },
		"hello.capacity":         func(h *carillonv1.Hello) { h.Capacity = 0 },
		"hello.credit":           func(h *carillonv1.Hello) { h.Credit = 11 },
		"hello.handlers":         func(h *carillonv1.Hello) { h.Handlers = nil },
		"hello.handlers[0].name": func(h *carillonv1.Hello) { h.Handlers[0].Name = "a/b" },
	} {
		h := hello("w", "1")
		change(h)
		if err := s.connect(h).end(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	w := s.dialRaw()
	must(t, w.stream.Send(&carillonv1.ConnectRequest{Credit: 5}))
	if err := w.end(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no hello: %v", err)
	}
}

func TestMessagesThatAreRefused(t *testing.T) {
	s := newServer(t)
	for field, m := range map[string]*carillonv1.ConnectRequest{
		"credit":        {Credit: -1},
		"hello":         {Hello: hello("w", "1")},
		"results.token": {Results: []*carillonv1.AttemptResult{{Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED}}},
		"results.outcome": {Results: []*carillonv1.AttemptResult{{Token: &carillonv1.AttemptToken{JobUid: "0198c0de-0000-7000-8000-000000000000", Attempt: 1},
			Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_LOST}}},
	} {
		w := s.connect(hello("w-"+strings.ReplaceAll(field, ".", "-"), "1"))
		must(t, w.stream.Send(m))
		if err := w.end(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Whatever bytes a handler's error holds, and whatever its result is, the end of
// the attempt is recorded.
func TestAnyResultIsRecorded(t *testing.T) {
	s := newServer(t)
	w := s.connect(hello("w", "1"))
	for i, c := range []struct {
		outcome carillonv1.AttemptOutcome
		text    []byte
		result  string
		state   carillonv1.SlotState
	}{
		{carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED, []byte("nul \x00 and \xff"), "", carillonv1.SlotState_SLOT_STATE_DEAD},
		{carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED, make([]byte, 5<<20), "", carillonv1.SlotState_SLOT_STATE_DEAD},
		{carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED, nil, `{"a":"\u0000"}`, carillonv1.SlotState_SLOT_STATE_SUCCEEDED},
		{carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED, nil, `not JSON`, carillonv1.SlotState_SLOT_STATE_SUCCEEDED},
		{carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED, nil, `"` + strings.Repeat("x", 5<<20) + `"`, carillonv1.SlotState_SLOT_STATE_SUCCEEDED},
	} {
		name := "j-" + string(rune('a'+i))
		s.create(job(name, "h", scheduleNow()))
		a := w.assignment()
		w.report(&carillonv1.AttemptResult{Token: a.GetToken(), Outcome: c.outcome, ErrorMessage: c.text, Permanent: true, Result: &carillonv1.Json{Text: c.result}})
		if ack := w.ack(); ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
			t.Errorf("%d: answered by %v", i, ack)
		}
		slot := s.becomes(ns+"/jobs/"+name, c.state)
		if strings.ContainsRune(slot.GetErrorMessage(), 0) || len(slot.GetErrorMessage()) > 16<<10 {
			t.Errorf("%d: the error text is %.50q…, %d bytes", i, slot.GetErrorMessage(), len(slot.GetErrorMessage()))
		}
		if c.result != "" && (slot.GetResult() != nil || !strings.Contains(slot.GetErrorMessage(), "left out")) {
			t.Errorf("%d: the result is %.50v, the text %q", i, slot.GetResult(), slot.GetErrorMessage())
		}
	}
}
