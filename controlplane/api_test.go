package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

const ns = "namespaces/default"

func scheduleNow() *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}
}

func scheduleCron(expr string) *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: expr}}
}

func scheduleAt(t time.Time) *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_RunAt{RunAt: timestamppb.New(t.Truncate(time.Second))}}
}

// job builds a create of a job.
func job(id, handler string, schedule *carillonv1.Schedule) *carillonv1.CreateJobRequest {
	return &carillonv1.CreateJobRequest{Parent: ns, JobId: id, AllowUnregisteredHandler: true, Job: &carillonv1.Job{
		Handler: handler, Schedule: schedule, RetryPolicy: &carillonv1.RetryPolicy{InitialBackoff: durationpb.New(10 * time.Millisecond)},
	}}
}

func (s *server) create(req *carillonv1.CreateJobRequest) *carillonv1.Job {
	s.t.Helper()
	resp, err := s.jobs.CreateJob(s.t.Context(), req)
	must(s.t, err)
	return resp.GetJob()
}

// newest returns the newest slot of a job, or nil.
func (s *server) newest(jobName string) *carillonv1.Slot {
	s.t.Helper()
	resp, err := s.slots.ListSlots(s.t.Context(), &carillonv1.ListSlotsRequest{Parent: jobName, PageSize: 1})
	must(s.t, err)
	if len(resp.GetSlots()) == 0 {
		return nil
	}
	return resp.GetSlots()[0]
}

// becomes waits until a job's newest slot is in a state, and returns it.
func (s *server) becomes(jobName string, state carillonv1.SlotState) *carillonv1.Slot {
	s.t.Helper()
	var slot *carillonv1.Slot
	s.eventually(fmt.Sprintf("the newest slot of %s is %v", jobName, state), func() bool {
		slot = s.newest(jobName)
		return slot.GetState() == state
	})
	return slot
}

// reason explains a slot and returns the deciding reason.
func (s *server) reason(name string) (carillonv1.ReasonCode, string) {
	s.t.Helper()
	resp, err := s.slots.ExplainSlot(s.t.Context(), &carillonv1.ExplainSlotRequest{Name: name})
	must(s.t, err)
	if len(resp.GetReasons()) == 0 {
		s.t.Fatalf("%s has no reason", name)
	}
	return resp.GetReasons()[0].GetCode(), resp.GetReasons()[0].GetMessage()
}

// serve runs a worker until the test ends.
func (s *server) serve(register func(w *worker.Worker), opts ...worker.Option) (stop func()) {
	s.t.Helper()
	w, err := worker.Dial(s.t.Context(), s.grpc, append([]worker.Option{worker.ShutdownGrace(time.Second)}, opts...)...)
	must(s.t, err)
	register(w)
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- w.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			must(s.t, <-end)
		}
	}
	s.t.Cleanup(stop)
	return stop
}

func TestARequestIsRepeatable(t *testing.T) {
	s := newServer(t)
	for name, req := range map[string]*carillonv1.CreateJobRequest{
		"with a name": job("named", "h", scheduleCron("0 2 * * *")), "without": job("", "h", scheduleNow()),
		"an interval": job("grid", "h", &carillonv1.Schedule{Kind: &carillonv1.Schedule_Interval{Interval: &carillonv1.IntervalSchedule{Every: durationpb.New(time.Hour)}}}),
	} {
		req.RequestId = "request-" + strings.ReplaceAll(name, " ", "-")
		first, again := s.create(req), s.create(req)
		if first.GetUid() != again.GetUid() || first.GetName() != again.GetName() || first.GetCreateTime().AsTime() != again.GetCreateTime().AsTime() {
			t.Errorf("%s: first %v, then %v", name, first, again)
		}
		req.Job.Handler = "other"
		_, err := s.jobs.CreateJob(t.Context(), req)
		if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "request_id") {
			t.Errorf("%s: another body: %v", name, err)
		}
	}
	_, err := s.jobs.CreateJob(t.Context(), job("named", "h", scheduleCron("0 2 * * *")))
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("the same name without a request id: %v", err)
	}
	code, answer := s.post(create+"&job_id=named", cron("0 3 * * *"))
	if reason, _ := parseFailure(t, answer).reason(); code != http.StatusConflict || reason != "JOB_EXISTS" {
		t.Errorf("over REST: %d %s", code, answer)
	}
	if n := s.countJobs(); n != 3 {
		t.Errorf("%d jobs are stored, want 3", n)
	}
}

func TestDefaultsAreShown(t *testing.T) {
	s := newServer(t)
	_, answer := s.post(create+"&job_id=j", cron("*/120 * * * *"))
	var j struct {
		AttemptTimeout string
		RetryPolicy    map[string]any
		NextFireTime   string
		State          string
		Warnings       []string
		EndTime        *string
	}
	must(t, json.Unmarshal([]byte(answer), &j))
	policy := fmt.Sprint(j.RetryPolicy)
	if j.AttemptTimeout != "600s" || policy != "map[backoffFactor:2 initialBackoff:1s jitter:0.2 maxAttempts:5 maxBackoff:300s nonRetryableCodes:[] retryWindow:<nil>]" ||
		j.NextFireTime == "" || j.State != "JOB_STATE_ACTIVE" || len(j.Warnings) != 1 || j.EndTime != nil {
		t.Errorf("answered %s", answer)
	}
	if _, again := s.get("/v1/" + ns + "/jobs/j"); !strings.Contains(again, `"attemptTimeout":"600s"`) {
		t.Errorf("read %s", again)
	}
}

func TestValidateOnlyStoresNothing(t *testing.T) {
	s := newServer(t)
	req := job("j", "h", scheduleCron("0 2 * * *"))
	req.ValidateOnly = true
	if j := s.create(req); j.GetNextFireTime() == nil || j.GetName() != ns+"/jobs/j" {
		t.Errorf("answered %v", j)
	}
	if n := s.countJobs(); n != 0 {
		t.Errorf("%d jobs are stored", n)
	}
}

func TestBatchCreateIsAllOrNothing(t *testing.T) {
	s := newServer(t)
	var ran atomic.Int32
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "h", func(context.Context, *worker.Task[struct{}]) error { ran.Add(1); return nil })
	})
	s.create(job("taken", "h", scheduleCron("0 2 * * *")))
	batch := func(ids ...string) (*carillonv1.BatchCreateJobsResponse, error) {
		req := &carillonv1.BatchCreateJobsRequest{Parent: ns}
		for _, id := range ids {
			r := job(id, "h", scheduleNow())
			r.Parent, r.RequestId = "", "r-"+strings.ReplaceAll(id, " ", "-")
			req.Requests = append(req.Requests, r)
		}
		return s.jobs.BatchCreateJobs(t.Context(), req)
	}
	if _, err := batch("free", "taken"); status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "requests[1]") {
		t.Errorf("a batch with a taken name: %v", err)
	}
	if _, err := batch("a", "b", "a"); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "requests[2].job_id") {
		t.Errorf("a name twice: %v", err)
	}
	if _, err := batch("fine", "not fine"); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "requests[1].job_id") {
		t.Errorf("a bad name: %v", err)
	}
	if _, err := batch(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an empty batch: %v", err)
	}
	if n := s.countJobs(); n != 1 {
		t.Fatalf("%d jobs are stored, want 1", n)
	}
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("job-%d", i))
	}
	first, err := batch(ids...)
	must(t, err)
	again, err := batch(ids...)
	must(t, err)
	for i := range ids {
		if first.GetJobs()[i].GetEffectiveFrom() == nil || first.GetJobs()[i].GetUid() != again.GetJobs()[i].GetUid() || first.GetJobs()[i].GetName() != ns+"/jobs/"+ids[i] {
			t.Fatalf("job %d: first %v, then %v", i, first.GetJobs()[i], again.GetJobs()[i])
		}
	}
	s.eventually("all jobs of the batch ran", func() bool { return ran.Load() >= 1000 })
	s.becomes(ns+"/jobs/job-999", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	if n := ran.Load(); n != 1000 {
		t.Errorf("%d runs, want 1000", n)
	}
}

func TestAnExecutionIsRecorded(t *testing.T) {
	s := newServer(t)
	type args struct {
		Big json.Number `json:"big"`
	}
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "echo", func(_ context.Context, task *worker.Task[args]) error {
			return task.SetResult(map[string]any{"got": task.Args.Big, "fence": task.Fence(), "raw": json.RawMessage(task.Params())})
		})
	}, worker.ID("w1"))
	req := job("j", "echo", scheduleNow())
	req.Job.Params = &carillonv1.Json{Text: `{"big":  9007199254740993}`}
	s.create(req)
	slot := s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	if slot.GetAttempt() != 1 || slot.GetWorker() != "w1" || slot.GetTrigger() != carillonv1.SlotTrigger_SLOT_TRIGGER_IMMEDIATE ||
		slot.GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED || slot.GetLateness().AsDuration() <= 0 || slot.GetFinishTime() == nil {
		t.Errorf("slot %v", slot)
	}
	_, answer := s.get("/v1/" + slot.GetName())
	if !strings.Contains(answer, `9007199254740993`) || !strings.Contains(answer, `"epoch":"`) || !strings.Contains(answer, `"result":{"`) {
		t.Errorf("over REST: %s", answer)
	}
	if _, answer := s.get("/v1/" + slot.GetName() + "/attempts"); !strings.Contains(answer, `"attempt":1`) || !strings.Contains(answer, "ATTEMPT_OUTCOME_SUCCEEDED") {
		t.Errorf("attempts: %s", answer)
	}
	if code, _ := s.reason(slot.GetName()); code != carillonv1.ReasonCode_REASON_CODE_SUCCEEDED {
		t.Errorf("explained by %v", code)
	}
	if _, answer := s.get("/v1/handlers/echo"); !strings.Contains(answer, `"liveWorkers":1`) {
		t.Errorf("handler: %s", answer)
	}
}

func TestRunJobIsRepeatable(t *testing.T) {
	s := newServer(t)
	s.create(job("j", "h", scheduleCron("0 2 * * *")))
	run := func(id string) *carillonv1.Slot {
		resp, err := s.jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: ns + "/jobs/j", RequestId: id})
		must(t, err)
		return resp.GetSlot()
	}
	first, again, other := run("r"), run("r"), run("s")
	unnamed, another := run(""), run("")
	if first.GetName() != again.GetName() || first.GetName() == other.GetName() || unnamed.GetName() == another.GetName() {
		t.Errorf("slots %s, %s, %s", first.GetName(), again.GetName(), other.GetName())
	}
	s.create(job("k", "h", scheduleCron("0 2 * * *")))
	if _, err := s.jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: ns + "/jobs/nobody", RequestId: "r"}); status.Code(err) != codes.NotFound {
		t.Errorf("a job that isn't there: %v", err)
	}
	// B157: thousands of runs of one job, read page by page.
	seen, token := map[string]bool{}, ""
	for i := range 300 {
		run(fmt.Sprintf("many-%d", i))
	}
	for {
		resp, err := s.slots.ListSlots(t.Context(), &carillonv1.ListSlotsRequest{Parent: ns + "/jobs/j", PageSize: 7, PageToken: token})
		must(t, err)
		for _, slot := range resp.GetSlots() {
			if seen[slot.GetName()] {
				t.Fatalf("%s was listed twice", slot.GetName())
			}
			seen[slot.GetName()] = true
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(seen) != 304 {
		t.Errorf("listed %d slots, want 304", len(seen))
	}
}

func TestDeleteFreesTheName(t *testing.T) {
	s := newServer(t)
	old := s.create(job("j", "h", scheduleCron("* * * * * *")))
	s.eventually("it fired", func() bool { return s.newest(ns+"/jobs/j") != nil })
	resp, err := s.jobs.DeleteJob(t.Context(), &carillonv1.DeleteJobRequest{Name: ns + "/jobs/j"})
	must(t, err)
	if resp.GetJob().GetState() != carillonv1.JobState_JOB_STATE_DELETED || resp.GetJob().GetEndTime() == nil || resp.GetJob().GetNextFireTime() != nil {
		t.Errorf("deleted %v", resp.GetJob())
	}
	if slot := s.newest(ns + "/jobs/j"); slot.GetState() != carillonv1.SlotState_SLOT_STATE_CANCELLED {
		t.Errorf("the slot that waited is %v", slot.GetState())
	}
	if _, err := s.jobs.DeleteJob(t.Context(), &carillonv1.DeleteJobRequest{Name: ns + "/jobs/j"}); status.Code(err) != codes.NotFound {
		t.Errorf("a second delete: %v", err)
	}
	if _, err := s.jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: ns + "/jobs/j"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a run of a deleted job: %v", err)
	}
	next := s.create(job("j", "h", scheduleCron("0 2 * * *")))
	byUID, err := s.jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Name: ns + "/jobs/" + old.GetUid()})
	must(t, err)
	if next.GetUid() == old.GetUid() || byUID.GetJob().GetUid() != old.GetUid() || byUID.GetJob().GetState() != carillonv1.JobState_JOB_STATE_DELETED {
		t.Errorf("next %v, by uid %v", next.GetUid(), byUID.GetJob())
	}
	if slot := s.newest(ns + "/jobs/j"); slot == nil || slot.GetJobUid() != old.GetUid() {
		t.Errorf("the history of the name begins with %v, want the old job's slots", slot)
	}
}

// Rows with the same time must be neither skipped nor repeated at a page's border.
func TestPagesOfSlotsWithOneFireTime(t *testing.T) {
	s := newServer(t)
	at := time.Now().Add(-time.Hour)
	for i := range 100 {
		s.create(job(fmt.Sprintf("j-%d", i), "h", scheduleAt(at)))
	}
	for _, parent := range []string{ns + "/jobs/-"} {
		seen, token, pages := map[string]bool{}, "", 0
		for {
			resp, err := s.slots.ListSlots(t.Context(), &carillonv1.ListSlotsRequest{Parent: parent, PageSize: 7, PageToken: token})
			must(t, err)
			for _, slot := range resp.GetSlots() {
				if seen[slot.GetName()] {
					t.Fatalf("%s was listed twice", slot.GetName())
				}
				seen[slot.GetName()] = true
			}
			pages++
			if token = resp.GetNextPageToken(); token == "" {
				break
			}
			if _, err := s.slots.ListSlots(t.Context(), &carillonv1.ListSlotsRequest{Parent: parent, PageToken: token,
				States: []carillonv1.SlotState{carillonv1.SlotState_SLOT_STATE_DEAD}}); status.Code(err) != codes.InvalidArgument {
				t.Fatalf("a token with another filter: %v", err)
			}
		}
		if len(seen) != 100 || pages != 15 {
			t.Errorf("listed %d slots on %d pages, want 100 on 15", len(seen), pages)
		}
	}
}

// A page with large parameters is cut by its size, so that every client can read
// it.
func TestPagesAreBoundedInBytes(t *testing.T) {
	s := newServer(t)
	for i := range 12 {
		req := job(fmt.Sprintf("j-%d", i), "h", scheduleCron("0 2 * * *"))
		req.Job.Params = &carillonv1.Json{Text: `"` + strings.Repeat("x", 250<<10) + `"`}
		s.create(req)
	}
	seen, token := 0, ""
	for {
		code, answer := s.get("/v1/" + ns + "/jobs?page_size=1000&page_token=" + token)
		if code != http.StatusOK || len(answer) > 2<<20 {
			t.Fatalf("%d, %d bytes", code, len(answer))
		}
		var page struct {
			Jobs          []json.RawMessage
			NextPageToken string
		}
		must(t, json.Unmarshal([]byte(answer), &page))
		seen += len(page.Jobs)
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if seen != 12 {
		t.Errorf("listed %d jobs, want 12", seen)
	}
}

func TestExplain(t *testing.T) {
	s := newServer(t)
	s.create(job("daily", "h", scheduleCron("0 2 * * *")))
	s.create(job("waits", "nobody", scheduleNow()))
	s.create(job("broken", "broken", scheduleNow()))
	slow := make(chan struct{})
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "broken", func(context.Context, *worker.Task[struct{}]) error {
			return worker.Permanent(errors.New("disk on fire"))
		})
		worker.Handle(w, "later", func(context.Context, *worker.Task[struct{}]) error {
			return worker.RetryAfter(time.Hour, errors.New("not yet"))
		})
		worker.Handle(w, "slow", func(context.Context, *worker.Task[struct{}]) error { <-slow; return nil })
	}, worker.Capacity(3))
	defer close(slow)
	s.create(job("later", "later", scheduleNow()))
	for i := range 4 {
		s.create(job(fmt.Sprintf("slow-%d", i), "slow", scheduleNow()))
	}
	s.becomes(ns+"/jobs/broken", carillonv1.SlotState_SLOT_STATE_DEAD)
	s.eventually("the retry waits", func() bool { return s.newest(ns+"/jobs/later").GetNotBefore() != nil })
	s.becomes(ns+"/jobs/slow-0", carillonv1.SlotState_SLOT_STATE_RUNNING)
	deleted := s.create(job("gone", "h", scheduleCron("0 2 * * *")))
	_, err := s.jobs.DeleteJob(t.Context(), &carillonv1.DeleteJobRequest{Name: deleted.GetName()})
	must(t, err)
	for name, want := range map[string]carillonv1.ReasonCode{
		"daily/slots/-":                carillonv1.ReasonCode_REASON_CODE_NOT_DUE,
		"daily/slots/20400101T020000Z": carillonv1.ReasonCode_REASON_CODE_NOT_DUE,
		"daily/slots/20400101T030000Z": carillonv1.ReasonCode_REASON_CODE_NOT_SCHEDULED,
		"daily/slots/20200101T020000Z": carillonv1.ReasonCode_REASON_CODE_NOT_SCHEDULED,
		"gone/slots/20400101T020000Z":  carillonv1.ReasonCode_REASON_CODE_JOB_ENDED,
		"waits/slots/-":                carillonv1.ReasonCode_REASON_CODE_NO_WORKER_FOR_HANDLER,
		"broken/slots/-":               carillonv1.ReasonCode_REASON_CODE_DEAD_LETTERED,
		"later/slots/-":                carillonv1.ReasonCode_REASON_CODE_RETRY_BACKOFF,
		"slow-0/slots/-":               carillonv1.ReasonCode_REASON_CODE_LEASE_HELD,
		"slow-3/slots/-":               carillonv1.ReasonCode_REASON_CODE_WORKERS_FULL,
	} {
		if code, message := s.reason(ns + "/jobs/" + name); code != want {
			t.Errorf("%s: %v (%s), want %v", name, code, message, want)
		}
	}
	if _, message := s.reason(ns + "/jobs/broken/slots/-"); !strings.Contains(message, "disk on fire") {
		t.Errorf("the dead letter says %q", message)
	}
}

func TestCancelEndsTheHandlersContext(t *testing.T) {
	s := newServer(t)
	causes := make(chan error, 1)
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "slow", func(ctx context.Context, task *worker.Task[struct{}]) error {
			task.Progress(3, 10, "working")
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
	})
	s.create(job("j", "slow", scheduleNow()))
	slot := s.becomes(ns+"/jobs/j", carillonv1.SlotState_SLOT_STATE_RUNNING)
	if slot.GetDeadline() == nil || slot.GetClaimTime() == nil {
		t.Errorf("a running slot without deadline or claim time: %v", slot)
	}
	s.eventually("start, lease and progress show", func() bool {
		slot = s.newest(ns + "/jobs/j")
		return slot.GetStartTime() != nil && slot.GetLeaseEndTime() != nil && slot.GetProgress().GetDone() == 3
	})
	resp, err := s.slots.CancelSlot(t.Context(), &carillonv1.CancelSlotRequest{Name: slot.GetName(), Reason: "not needed"})
	must(t, err)
	if resp.GetSlot().GetState() != carillonv1.SlotState_SLOT_STATE_CANCELLED {
		t.Errorf("cancelled %v", resp.GetSlot())
	}
	if cause := <-causes; !errors.Is(cause, worker.ErrCancelled) {
		t.Errorf("the handler's context ended by %v", cause)
	}
	if code, message := s.reason(slot.GetName()); code != carillonv1.ReasonCode_REASON_CODE_CANCELLED || !strings.Contains(message, "not needed") {
		t.Errorf("explained by %v: %s", code, message)
	}
	if _, err := s.slots.CancelSlot(t.Context(), &carillonv1.CancelSlotRequest{Name: slot.GetName()}); err != nil {
		t.Errorf("a second cancel: %v", err)
	}
}

func TestRetriesAndTimeouts(t *testing.T) {
	s := newServer(t)
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "flaky", func(_ context.Context, task *worker.Task[struct{}]) error {
			if task.Attempt() < 3 {
				return worker.Coded("flaky", errors.New("bad \x00 byte \xff"))
			}
			return nil
		})
		worker.Handle(w, "hangs", func(ctx context.Context, _ *worker.Task[struct{}]) error { <-ctx.Done(); return ctx.Err() })
		worker.Handle(w, "panics", func(context.Context, *worker.Task[struct{}]) error { panic("oh no") })
	})
	s.create(job("flaky", "flaky", scheduleNow()))
	slot := s.becomes(ns+"/jobs/flaky", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	attempts, err := s.slots.ListAttempts(t.Context(), &carillonv1.ListAttemptsRequest{Parent: slot.GetName()})
	must(t, err)
	if slot.GetAttempt() != 3 || slot.GetFailures() != 2 || len(attempts.GetAttempts()) != 3 {
		t.Fatalf("slot %v, attempts %v", slot, attempts)
	}
	if a := attempts.GetAttempts()[0]; a.GetErrorCode() != "flaky" || strings.ContainsRune(a.GetErrorMessage(), 0) || !strings.Contains(a.GetErrorMessage(), "bad") {
		t.Errorf("the first attempt: %v", a)
	}
	for _, name := range []string{"hangs", "panics"} {
		req := job(name, name, scheduleNow())
		req.Job.AttemptTimeout = durationpb.New(50 * time.Millisecond)
		req.Job.RetryPolicy.MaxAttempts = new(int32)
		*req.Job.RetryPolicy.MaxAttempts = 2
		s.create(req)
	}
	if slot := s.becomes(ns+"/jobs/hangs", carillonv1.SlotState_SLOT_STATE_DEAD); slot.GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_TIMED_OUT || slot.GetFailures() != 2 {
		t.Errorf("the slot of a handler that hangs: %v", slot)
	}
	if slot := s.becomes(ns+"/jobs/panics", carillonv1.SlotState_SLOT_STATE_DEAD); slot.GetErrorCode() != "panic" || !strings.Contains(slot.GetErrorMessage(), "oh no") {
		t.Errorf("the slot of a handler that panics: %v", slot)
	}
}

func TestARestartForgetsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.db")
	s := start(t, path)
	every := s.create(job("every", "h", scheduleCron("* * * * * *")))
	s.create(job("later", "h", scheduleAt(time.Now().Add(3*time.Second))))
	s.create(job("now", "h", scheduleNow()))
	must(t, s.stop())
	s = start(t, path)
	var ran atomic.Int32
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "h", func(context.Context, *worker.Task[struct{}]) error { ran.Add(1); return nil })
	})
	s.becomes(ns+"/jobs/now", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	s.becomes(ns+"/jobs/later", carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
	resp, err := s.slots.ListSlots(t.Context(), &carillonv1.ListSlotsRequest{Parent: every.GetName(), PageSize: 1000})
	must(t, err)
	last := resp.GetSlots()[0].GetFireTime().GetSeconds()
	for i, slot := range resp.GetSlots() {
		if slot.GetFireTime().GetSeconds() != last-int64(i) {
			t.Fatalf("slot %d is of %v, want every second", i, slot.GetFireTime().AsTime())
		}
	}
	first := resp.GetSlots()[len(resp.GetSlots())-1].GetFireTime().GetSeconds()
	if want := every.GetEffectiveFrom().GetSeconds() + 1; first != want {
		t.Errorf("the first slot is of %d, want %d", first, want)
	}
}
