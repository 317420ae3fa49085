package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// read reads a job.
func (s *server) read(id string) *carillonv1.Job {
	s.t.Helper()
	resp, err := s.jobs.GetJob(s.t.Context(), &carillonv1.GetJobRequest{Name: ns + "/jobs/" + id})
	must(s.t, err)
	return resp.GetJob()
}

// What a job says is stored as it was said, the defaults are shown, and what can't be is
// refused with the name of its field.
func TestPoliciesAreReadAndShown(t *testing.T) {
	s := newServer(t)
	seconds := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }
	req := job("all", "h", scheduleCron("0 2 * * *"))
	req.AllowUnregisteredHandler = true
	asked := req.GetJob()
	asked.StartDeadline, asked.TotalDeadline, asked.Priority, asked.OnDeadLetter = seconds(60), seconds(3600), -3, "page"
	asked.CatchUp = &carillonv1.CatchUpPolicy{Mode: carillonv1.CatchUpMode_CATCH_UP_MODE_LATEST, MaxAge: seconds(600)}
	asked.Overlap = &carillonv1.OverlapPolicy{Mode: carillonv1.OverlapMode_OVERLAP_MODE_QUEUE}
	asked.Objectives = &carillonv1.Objectives{StartWithin: seconds(5), FinishWithin: seconds(50)}
	want := proto.Clone(asked).(*carillonv1.Job)
	for _, got := range []*carillonv1.Job{s.create(req), s.read("all")} {
		got := &carillonv1.Job{StartDeadline: got.StartDeadline, TotalDeadline: got.TotalDeadline, Priority: got.Priority, OnDeadLetter: got.OnDeadLetter,
			CatchUp: got.CatchUp, Overlap: got.Overlap, Objectives: got.Objectives, Handler: want.Handler, Schedule: want.Schedule, Params: want.Params,
			RetryPolicy: want.RetryPolicy}
		if !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	plain := job("plain", "h", scheduleCron("0 2 * * *"))
	plain.AllowUnregisteredHandler = true
	got := s.create(plain)
	if got.GetCatchUp().GetMode() != carillonv1.CatchUpMode_CATCH_UP_MODE_ALL || got.GetOverlap().GetMode() != carillonv1.OverlapMode_OVERLAP_MODE_ALLOW || got.GetStartDeadline() != nil {
		t.Errorf("the defaults are %v", got)
	}
	for fields, field := range map[string]string{
		`"startDeadline":"0s"`:                                  "job.start_deadline",
		`"totalDeadline":"-1s"`:                                 "job.total_deadline",
		`"startDeadline":"9s","totalDeadline":"8s"`:             "job.start_deadline",
		`"catchUp":{"mode":"LATEST"}`:                           "catchUp.mode",
		`"catchUp":{"mode":7}`:                                  "job.catch_up.mode",
		`"catchUp":{"maxCount":-1}`:                             "job.catch_up.max_count",
		`"catchUp":{"maxCount":100001}`:                         "job.catch_up.max_count",
		`"catchUp":{"mode":"CATCH_UP_MODE_NONE","maxAge":"5s"}`: "job.catch_up.max_age",
		`"overlap":{"mode":9}`:                                  "job.overlap.mode",
		`"overlap":{"maxRunning":1001}`:                         "job.overlap.max_running",
		`"overlap":{"mode":"OVERLAP_MODE_SKIP","maxRunning":2}`: "job.overlap.max_running",
		`"priority":11`:                                         "job.priority",
		`"objectives":{"startWithin":"0s"}`:                     "job.objectives.start_within",
		`"retention":"3600s"`:                                   "job.retention",
		`"retention":"1s"`:                                      "job.retention",
		`"onDeadLetter":"a b"`:                                  "job.on_dead_letter",
	} {
		if code, answer := s.post(create, body(immediate+","+fields)); code != http.StatusBadRequest || !strings.Contains(answer, field) {
			t.Errorf("%s: %d %s, want a 400 that names %s", fields, code, answer, field)
		}
	}
	if code, answer := s.post("/v1/namespaces/default/jobs", body(immediate+`,"onDeadLetter":"paje"`)); code != http.StatusBadRequest || !strings.Contains(answer, "on_dead_letter") {
		t.Errorf("a handler that nobody registered: %d %s", code, answer)
	}
}

// A slot that waits for another one of its job says so, what is skipped and what has
// expired says why, and a dead letter calls its handler.
func TestPoliciesAreKept(t *testing.T) {
	s := newServer(t)
	release, paged := make(chan struct{}), make(chan string, 1)
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "h", func(ctx context.Context, _ *worker.Task[struct{}]) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		worker.Handle(w, "fails", func(context.Context, *worker.Task[struct{}]) error {
			return worker.Permanent(errors.New("broken pipe"))
		})
		worker.Handle(w, "page", func(_ context.Context, task *worker.Task[json.RawMessage]) error {
			paged <- string(task.Params())
			return nil
		})
	})
	run := func(name string) *carillonv1.Slot {
		resp, err := s.jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: ns + "/jobs/" + name})
		must(t, err)
		return resp.GetSlot()
	}
	for name, mode := range map[string]carillonv1.OverlapMode{"queue": carillonv1.OverlapMode_OVERLAP_MODE_QUEUE, "skip": carillonv1.OverlapMode_OVERLAP_MODE_SKIP} {
		req := job(name, "h", scheduleNow())
		req.Job.Overlap = &carillonv1.OverlapPolicy{Mode: mode}
		s.create(req)
		s.becomes(ns+"/jobs/"+name, carillonv1.SlotState_SLOT_STATE_RUNNING)
	}
	queued, skipped := run("queue"), run("skip")
	if code, text := s.reason(queued.GetName()); code != carillonv1.ReasonCode_REASON_CODE_OVERLAP || !strings.Contains(text, "1 others of its job are before it") {
		t.Errorf("why queued: %v %s", code, text)
	}
	if code, text := s.reason(skipped.GetName()); skipped.GetState() != carillonv1.SlotState_SLOT_STATE_SKIPPED || code != carillonv1.ReasonCode_REASON_CODE_SKIPPED_BY_POLICY || !strings.Contains(text, "was open") {
		t.Errorf("why skipped: %v %v %s", skipped, code, text)
	}
	close(release)
	s.becomes(ns+"/jobs/queue", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)

	late := job("late", "nobody", scheduleNow())
	late.AllowUnregisteredHandler, late.Job.StartDeadline = true, durationpb.New(50*time.Millisecond)
	s.create(late)
	expired := s.becomes(ns+"/jobs/late", carillonv1.SlotState_SLOT_STATE_EXPIRED)
	if code, text := s.reason(expired.GetName()); code != carillonv1.ReasonCode_REASON_CODE_EXPIRED || !strings.Contains(text, "not begun") {
		t.Errorf("why expired: %v %s", code, text)
	}

	dies := job("dies", "fails", scheduleNow())
	dies.Job.OnDeadLetter = "page"
	s.create(dies)
	if text := <-paged; !strings.Contains(text, `"job":"namespaces/default/jobs/dies"`) || !strings.Contains(text, "broken pipe") {
		t.Errorf("the handler was called with %s", text)
	}
}
