package controlplane_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// A backfill is shown while it is filled, can be asked for again, is cancelled for a reason,
// and leaves its slots.
func TestBackfillsOverTheAPI(t *testing.T) {
	s := newServer(t)
	s.serve(func(w *worker.Worker) {
		worker.Handle(w, "h", func(context.Context, *worker.Task[struct{}]) error { return nil })
	})
	gaps := carillonv1.NewGapServiceClient(s.conn)
	made := s.create(job("j", "h", scheduleCron("* * * * * *")))
	name := ns + "/jobs/j"
	s.eventually("three slots", func() bool { return s.fired("j") >= 3 })
	until := time.Now().Truncate(time.Second)
	from := made.GetCreateTime().AsTime()
	dry, err := gaps.BackfillJob(t.Context(), &carillonv1.BackfillJobRequest{Name: name, FromTime: timestamppb.New(from), ToTime: timestamppb.New(until), ValidateOnly: true})
	must(t, err)
	if n := dry.GetGap().GetOwedCount(); n < 2 {
		t.Errorf("a dry run: %v", dry)
	}
	// One at a time of a slow rate stays long enough to be seen.
	var first *carillonv1.Gap
	for range 2 {
		resp, err := gaps.BackfillJob(t.Context(), &carillonv1.BackfillJobRequest{Name: name, FromTime: timestamppb.New(from), ToTime: timestamppb.New(until), RateLimit: 1, Reason: "ann: test"})
		must(t, err)
		if first == nil {
			first = resp.GetGap()
		}
		if resp.GetGap().GetName() != first.GetName() {
			t.Errorf("asked for again: %v, then %v", first, resp)
		}
	}
	list, err := gaps.ListGaps(t.Context(), &carillonv1.ListGapsRequest{})
	must(t, err)
	if len(list.GetGaps()) != 1 || list.GetGaps()[0].GetJob() != name || list.GetGaps()[0].GetRequestTime() == nil || list.GetGaps()[0].GetRateLimit() != 1 {
		t.Errorf("listed %v", list)
	}
	got, err := gaps.GetGap(t.Context(), &carillonv1.GetGapRequest{Name: first.GetName()})
	must(t, err)
	if len(got.GetGap().GetJobs()) != 1 || got.GetGap().GetJobs()[0].GetJob() != name {
		t.Errorf("read %v", got)
	}
	if code, answer := s.get("/v1/" + first.GetName()); code != http.StatusOK || !strings.Contains(answer, `"rateLimit":1`) {
		t.Errorf("over REST: %d %s", code, answer)
	}
	if code, answer := s.post("/v1/"+first.GetName()+":changeCatchUp", fmt.Sprintf(`{"job":%q,"catchUp":{"mode":"CATCH_UP_MODE_NONE"},"reason":"ann"}`, name)); code != http.StatusNotFound {
		t.Errorf("a backfill has no catch-up: %d %s", code, answer)
	}
	_, err = gaps.CancelBackfill(t.Context(), &carillonv1.CancelBackfillRequest{Name: first.GetName(), Reason: "ann: enough"})
	must(t, err)
	if _, err := gaps.GetGap(t.Context(), &carillonv1.GetGapRequest{Name: first.GetName()}); status.Code(err) != codes.NotFound {
		t.Errorf("after the cancel: %v", err)
	}
	whole, err := gaps.BackfillJob(t.Context(), &carillonv1.BackfillJobRequest{Name: name, FromTime: timestamppb.New(from), ToTime: timestamppb.New(until)})
	must(t, err)
	s.eventually("it is filled", func() bool {
		_, err := gaps.GetGap(t.Context(), &carillonv1.GetGapRequest{Name: whole.GetGap().GetName()})
		return status.Code(err) == codes.NotFound
	})
}

func TestRefusalsOfGaps(t *testing.T) {
	s := newServer(t)
	req := job("j", "h", scheduleCron("0 2 * * *"))
	req.AllowUnregisteredHandler = true
	s.create(req)
	now := job("now", "h", scheduleNow())
	now.AllowUnregisteredHandler = true
	s.create(now)
	for _, c := range []struct{ path, body, want string }{
		{"/v1/namespaces/default/jobs/j:backfill", `{}`, "from_time"},
		{"/v1/namespaces/default/jobs/j:backfill", `{"fromTime":"2026-01-02T00:00:00Z","toTime":"2026-01-01T00:00:00Z"}`, "to_time"},
		{"/v1/namespaces/default/jobs/j:backfill", `{"fromTime":"2026-01-02T00:00:00Z","toTime":"2126-01-01T00:00:00Z"}`, "future"},
		{"/v1/namespaces/default/jobs/j:backfill", `{"fromTime":"2026-01-01T00:00:00Z","toTime":"2026-01-02T00:00:00Z","rateLimit":-1}`, "rate_limit"},
		{"/v1/namespaces/default/jobs/j:backfill", `{"fromTime":"2020-01-01T00:00:00Z","toTime":"2020-01-02T00:00:00Z"}`, "BACKFILL_RANGE"},
		{"/v1/namespaces/default/jobs/now:backfill", `{"fromTime":"2020-01-01T00:00:00Z","toTime":"2020-01-02T00:00:00Z"}`, "JOB_FIRES_ONCE"},
		{"/v1/namespaces/default/jobs/none:backfill", `{"fromTime":"2020-01-01T00:00:00Z","toTime":"2020-01-02T00:00:00Z"}`, "NOT_FOUND"},
		{"/v1/gaps/1:cancel", `{}`, "gaps/{gap}"},
		{"/v1/gaps/1-x:cancel", `{}`, "gaps/{gap}"},
		{"/v1/gaps/1-5-nobody:cancel", `{}`, "gaps/{gap}"},
		{"/v1/gaps/1-5:cancel", `{}`, "NOT_FOUND"},
		{"/v1/gaps/999-5:cancel", `{}`, "SHARD_UNOWNED"},
		{"/v1/gaps/1-5:changeCatchUp", `{"job":"namespaces/default/jobs/j"}`, "catch_up"},
		{"/v1/gaps/1-5:changeCatchUp", `{"job":"namespaces/default/jobs/j","catchUp":{"maxCount":-1},"reason":"x"}`, "catch_up.max_count"},
	} {
		if code, answer := s.post(c.path, c.body); code == http.StatusOK || !strings.Contains(answer, c.want) {
			t.Errorf("%s %s: %d %s, want %s", c.path, c.body, code, answer, c.want)
		}
	}
}
