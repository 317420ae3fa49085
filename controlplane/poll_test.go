package controlplane_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// poll asks for attempts; held are those that the worker has.
func (s *server) poll(id string, held ...*carillonv1.AttemptToken) *carillonv1.PollResponse {
	s.t.Helper()
	resp, err := s.workers.Poll(s.t.Context(), &carillonv1.PollRequest{WorkerId: id, Incarnation: "1", Handlers: []string{"h"}, MaxAttempts: 10, Held: held})
	must(s.t, err)
	return resp
}

// polled asks until there is an attempt.
func (s *server) polled(id string, held ...*carillonv1.AttemptToken) *carillonv1.Assignment {
	s.t.Helper()
	for range 3 {
		if resp := s.poll(id, held...); len(resp.GetAssignments()) > 0 {
			return resp.GetAssignments()[0]
		}
	}
	s.t.Fatal("no attempt was handed out")
	return nil
}

func (s *server) extend(id string, held ...*carillonv1.AttemptToken) []carillonv1.AttestationVerdict {
	s.t.Helper()
	resp, err := s.workers.Extend(s.t.Context(), &carillonv1.ExtendRequest{WorkerId: id, Incarnation: "1", Held: held})
	must(s.t, err)
	verdicts := make([]carillonv1.AttestationVerdict, len(resp.GetAttestations()))
	for i, a := range resp.GetAttestations() {
		verdicts[i] = a.GetVerdict()
	}
	return verdicts
}

func (s *server) finish(id, incarnation string, results ...*carillonv1.AttemptResult) []*carillonv1.ResultAck {
	s.t.Helper()
	resp, err := s.workers.Finish(s.t.Context(), &carillonv1.FinishRequest{WorkerId: id, Incarnation: incarnation, Results: results})
	must(s.t, err)
	return resp.GetAcks()
}

// A worker in any language, without a stream: curl would do.
func TestAWorkerOverREST(t *testing.T) {
	s := newServer(t)
	s.create(job("j", "h", scheduleNow()))
	code, body := s.post("/v1/workers/curl:poll", `{"incarnation": "1", "handlers": ["h"]}`)
	var polled carillonv1.PollResponse
	if err := protojson.Unmarshal([]byte(body), &polled); code != http.StatusOK || err != nil || len(polled.GetAssignments()) != 1 {
		t.Fatalf("polled %d %s: %v", code, body, err)
	}
	token, err := protojson.Marshal(polled.GetAssignments()[0].GetToken())
	must(t, err)
	if code, body := s.post("/v1/workers/curl:extend", fmt.Sprintf(`{"incarnation": "1", "held": [%s]}`, token)); code != http.StatusOK || !strings.Contains(body, `"ATTESTATION_VERDICT_CONTINUE"`) {
		t.Errorf("extended %d %s", code, body)
	}
	code, body = s.post("/v1/workers/curl:finish", fmt.Sprintf(`{"incarnation": "1", "results": [{"token": %s, "outcome": "ATTEMPT_OUTCOME_SUCCEEDED", "result": {"rows": 3}}]}`, token))
	if code != http.StatusOK || !strings.Contains(body, `"RESULT_VERDICT_ACCEPTED"`) {
		t.Errorf("finished %d %s", code, body)
	}
	slot := s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	if slot.GetWorker() != "curl" || slot.GetResult().GetText() != `{"rows": 3}` {
		t.Errorf("the slot is %v", slot)
	}
}

// Each attempt has a lease of its own, since no stream tells whether its process lives.
func TestALeaseOfAPolledAttempt(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "carillon.db"), shortLease)
	s.create(job("kept", "h", scheduleNow()))
	kept := s.polled("w")
	s.create(job("left", "h", scheduleNow()))
	left := s.polled("w", kept.GetToken())
	s.eventually("the attempt that nobody names is taken back", func() bool {
		if got := s.extend("w", kept.GetToken()); got[0] != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE {
			t.Fatalf("the attempt that is extended is told to %v", got)
		}
		return s.newest(ns+"/jobs/left").GetState() == carillonv1.SlotState_SLOT_STATE_READY
	})
	if slot := s.newest(ns + "/jobs/left"); slot.GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_LOST || slot.GetFailures() != 1 {
		t.Errorf("the one that was left is %v", slot)
	}
	if got := s.extend("w", left.GetToken(), kept.GetToken()); got[0] != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL || got[1] != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE {
		t.Errorf("extended: %v", got)
	}
	if ack := s.finish("w", "1", succeeded(kept))[0]; ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		t.Errorf("answered by %v", ack)
	}
}

// A Poll whose answer was lost is made up for by the next one: the very same attempt, and
// no failure.
func TestALostAnswerOfAPoll(t *testing.T) {
	s := newServer(t)
	s.create(job("j", "h", scheduleNow()))
	first := s.polled("w")
	if again := s.polled("w"); again.GetToken().GetAttempt() != 1 || again.GetToken().GetJobUid() != first.GetToken().GetJobUid() {
		t.Errorf("polled %v after %v", again, first)
	}
	if resp := s.pollFor("w", 0, first.GetToken()); len(resp.GetAssignments()) != 0 || resp.GetAttestations()[0].GetVerdict() != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE {
		t.Errorf("polled %v", resp)
	}
	if ack := s.finish("w", "1", succeeded(first), succeeded(first))[0]; ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		t.Errorf("answered by %v", ack)
	}
	if ack := s.finish("w", "1", succeeded(first))[0]; ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		t.Errorf("the repeat was answered by %v", ack)
	}
	if ack := s.finish("w", "2", succeeded(first))[0]; ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_STALE {
		t.Errorf("another incarnation was answered by %v", ack)
	}
}

func (s *server) pollFor(id string, wait time.Duration, held ...*carillonv1.AttemptToken) *carillonv1.PollResponse {
	s.t.Helper()
	resp, err := s.workers.Poll(s.t.Context(), &carillonv1.PollRequest{WorkerId: id, Incarnation: "1", Handlers: []string{"h"}, Held: held, Wait: durationpb.New(wait)})
	must(s.t, err)
	return resp
}

// A Poll that its caller gives up leaves nothing behind, and one that another overtakes ends.
func TestPollsThatEndEarly(t *testing.T) {
	s := newServer(t)
	ctx, giveUp := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	ask := func(ctx context.Context) {
		_, err := s.workers.Poll(ctx, &carillonv1.PollRequest{WorkerId: "w", Incarnation: "1", Handlers: []string{"h"}})
		ends <- err
	}
	go ask(ctx)
	s.eventually("the poll waits", func() bool { return s.live("h") == 1 })
	giveUp()
	if err := <-ends; status.Code(err) != codes.Canceled {
		t.Errorf("a call that was given up ended with %v", err)
	}
	go ask(t.Context())
	overtaken := false
	for !overtaken {
		s.pollFor("w", 0)
		select {
		case err := <-ends:
			if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "connected again") {
				t.Errorf("a call that was overtaken ended with %v", err)
			}
			overtaken = true
		default:
		}
	}
	s.create(job("j", "h", scheduleNow()))
	if a := s.polled("w"); a.GetToken().GetAttempt() != 1 {
		t.Errorf("polled %v", a)
	}
}

// What a cancel, a newer incarnation or a stream mean for a worker that polls.
func TestPolledAttemptsThatMustStop(t *testing.T) {
	s := newServer(t)
	s.create(job("cancelled", "h", scheduleNow()))
	a := s.polled("w")
	_, err := s.slots.CancelSlot(t.Context(), &carillonv1.CancelSlotRequest{Name: a.GetSlot()})
	must(t, err)
	if got := s.extend("w", a.GetToken()); got[0] != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL {
		t.Errorf("a cancelled attempt is told to %v", got)
	}
	s.create(job("taken", "h", scheduleNow()))
	b := s.polled("w")
	next := s.connect(hello("w", "2"))
	if second := next.assignment(); second.GetToken().GetAttempt() != 2 {
		t.Errorf("the next incarnation is given %v", second)
	}
	_, err = s.workers.Extend(t.Context(), &carillonv1.ExtendRequest{WorkerId: "w", Incarnation: "1", Held: []*carillonv1.AttemptToken{b.GetToken()}})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "worker_id") {
		t.Errorf("a worker with a stream was extended: %v", err)
	}
	if ack := s.finish("w", "1", succeeded(b))[0]; ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_STALE {
		t.Errorf("the old incarnation was answered by %v", ack)
	}
}

func TestCallsOfWorkersThatAreRefused(t *testing.T) {
	s := newServer(t)
	token := &carillonv1.AttemptToken{JobUid: "x"}
	for field, call := range map[string]func() error{
		"worker_id":    func() error { return s.pollError(func(r *carillonv1.PollRequest) { r.WorkerId = "a b" }) },
		"incarnation":  func() error { return s.pollError(func(r *carillonv1.PollRequest) { r.Incarnation = "" }) },
		"handlers:":    func() error { return s.pollError(func(r *carillonv1.PollRequest) { r.Handlers = nil }) },
		"handlers[1]":  func() error { return s.pollError(func(r *carillonv1.PollRequest) { r.Handlers = []string{"h", "h"} }) },
		"max_attempts": func() error { return s.pollError(func(r *carillonv1.PollRequest) { r.MaxAttempts = 1001 }) },
		"wait": func() error {
			return s.pollError(func(r *carillonv1.PollRequest) { r.Wait = durationpb.New(time.Minute) })
		},
		"results": func() error {
			_, err := s.workers.Finish(t.Context(), &carillonv1.FinishRequest{WorkerId: "w", Incarnation: "1"})
			return err
		},
		"results.token": func() error {
			_, err := s.workers.Finish(t.Context(), &carillonv1.FinishRequest{WorkerId: "w", Incarnation: "1",
				Results: []*carillonv1.AttemptResult{{Token: token, Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED}}})
			return err
		},
		"progress.token": func() error {
			_, err := s.workers.Extend(t.Context(), &carillonv1.ExtendRequest{WorkerId: "w", Incarnation: "1", Progress: []*carillonv1.ProgressReport{{Token: token}}})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if got := s.extend("w", token); got[0] == carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE {
		t.Errorf("a token that nobody gave out: %v", got)
	}
}

func (s *server) pollError(change func(*carillonv1.PollRequest)) error {
	req := &carillonv1.PollRequest{WorkerId: "w", Incarnation: "1", Handlers: []string{"h"}, Wait: durationpb.New(0)}
	change(req)
	_, err := s.workers.Poll(s.t.Context(), req)
	return err
}

// An answer is no larger than a message may be: what doesn't fit is handed back, and comes
// with a later one.
func TestPollsAreBoundedInBytes(t *testing.T) {
	s := newServer(t)
	const jobs = 16
	for i := range jobs {
		req := job(fmt.Sprint("j-", i), "h", scheduleNow())
		req.Job.Params = &carillonv1.Json{Text: `"` + strings.Repeat("x", 200<<10) + `"`}
		s.create(req)
	}
	left := jobs
	for calls := 0; left > 0 && calls < 60; calls++ {
		resp := s.poll("w")
		if size := proto.Size(resp); size > 1<<20+300<<10 {
			t.Fatalf("an answer has %d bytes", size)
		}
		for _, a := range resp.GetAssignments() {
			if a.GetFailures() != 0 {
				t.Errorf("%s has failed", a.GetSlot())
			}
			s.finish("w", "1", succeeded(a))
			left--
		}
	}
	if left != 0 {
		t.Errorf("%d jobs are left", left)
	}
}
