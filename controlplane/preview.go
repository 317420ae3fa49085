package controlplane

import (
	"context"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of a batch of previews.
const (
	maxBatchPreview = 1000
	maxBatchTimes   = 100_000
)

// PreviewSchedule implements JobService.
func (s jobService) PreviewSchedule(ctx context.Context, req *carillonv1.PreviewScheduleRequest) (*carillonv1.PreviewScheduleResponse, error) {
	var v violations
	j := job.Job{Namespace: "default"}
	if req.GetJob() != "" {
		ref, err := parseJob(req.GetJob())
		if v.check("job", err) {
			j.Namespace, j.Name = ref.namespace, ref.name
		}
	}
	resp, err := jobspec.Preview(ctx, &v.Violations, req, j, s.now(), s.findCalendar)
	if err != nil {
		return nil, err
	}
	return resp, v.err()
}

// BatchPreviewSchedules implements JobService.
func (s jobService) BatchPreviewSchedules(ctx context.Context, req *carillonv1.BatchPreviewSchedulesRequest) (*carillonv1.BatchPreviewSchedulesResponse, error) {
	var v violations
	if n := len(req.GetRequests()); n < 1 || n > maxBatchPreview {
		v.add("requests", reasonInvalidField, fmt.Sprintf("must be 1 to %d schedules, are %d", maxBatchPreview, n))
	}
	times := 0
	for _, r := range req.GetRequests() {
		times += max(int(r.GetCount()), jobspec.DefaultPreview)
	}
	if times > maxBatchTimes {
		v.add("requests", reasonInvalidField, fmt.Sprintf("ask for %d fire times together, at most %d are allowed", times, maxBatchTimes))
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	resp := &carillonv1.BatchPreviewSchedulesResponse{Previews: make([]*carillonv1.SchedulePreview, len(req.GetRequests()))}
	for i, r := range req.GetRequests() {
		one, err := s.PreviewSchedule(ctx, r)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		resp.Previews[i] = &carillonv1.SchedulePreview{Result: &carillonv1.SchedulePreview_Preview{Preview: one}}
		if err != nil {
			resp.Previews[i].Result = &carillonv1.SchedulePreview_Error{Error: status.Convert(err).Proto()}
		}
	}
	return resp, nil
}
