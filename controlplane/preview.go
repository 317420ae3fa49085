package controlplane

import (
	"context"
	"fmt"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of a preview.
const (
	defaultPreview  = 3
	maxPreview      = 1000
	maxBatchPreview = 1000
	maxBatchTimes   = 100_000
)

// PreviewSchedule implements JobService.
func (s jobService) PreviewSchedule(ctx context.Context, req *carillonv1.PreviewScheduleRequest) (*carillonv1.PreviewScheduleResponse, error) {
	var v violations
	j := job.Job{Namespace: "default", Schedule: scheduleSpec(&v, "schedule", req.GetSchedule())}
	if req.GetJob() != "" {
		ref, err := parseJob(req.GetJob())
		if v.check("job", err) {
			j.Namespace, j.Name = ref.namespace, ref.name
		}
	}
	for _, at := range []struct {
		field string
		t     *timestamppb.Timestamp
	}{{"from", req.GetFrom()}, {"until", req.GetUntil()}} {
		if at.t != nil && at.t.CheckValid() != nil {
			v.add(at.field, reasonInvalidField, "must be in the years 1 to 9999")
		}
	}
	count := int(req.GetCount())
	if count < 0 || count > maxPreview {
		v.add("count", reasonInvalidField, fmt.Sprintf("must be 1 to %d, or not set", maxPreview))
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	from := now()
	if req.GetFrom() != nil {
		from = instant(req.GetFrom())
	}
	if until := instant(req.GetUntil()); req.GetUntil() != nil && (until < from || until > from.Add(searchAhead)) {
		v.add("until", reasonInvalidField, "must lie at or after from, and at most 100 years after it")
	}
	if err := s.decidePreview(ctx, &v, req, &j, from); err != nil {
		return nil, err
	}
	if count == 0 {
		count = defaultPreview
	}
	return preview(&j, from, req.GetUntil(), count)
}

// decidePreview decides what the schedule leaves open, as a create would.
func (s jobService) decidePreview(ctx context.Context, v *violations, req *carillonv1.PreviewScheduleRequest, j *job.Job, from job.Instant) error {
	if j.Schedule.Kind == job.KindInterval && req.GetSchedule().GetInterval().GetAnchor() == nil {
		j.Schedule.Anchor = job.AtSecond(now().Seconds())
	}
	if j.Name != "" {
		j.ChooseOffset()
	}
	if err := s.resolveCalendars(ctx, v, "schedule.calendars", j.Namespace, &j.Schedule); err != nil {
		return err
	}
	checkFires(v, "schedule", j.Schedule, from)
	return v.err()
}

// preview shows what a job does after an instant.
func preview(j *job.Job, from job.Instant, until *timestamppb.Timestamp, count int) (*carillonv1.PreviewScheduleResponse, error) {
	resp := &carillonv1.PreviewScheduleResponse{FireTimes: []*timestamppb.Timestamp{}}
	if !j.Schedule.Kind.Recurring() {
		var m carillonv1.Job
		describe(&m, j, from)
		resp.Description = m.GetScheduleDescription()
		if at := j.Schedule.At; at > from {
			resp.FireTimes = append(resp.FireTimes, timestamp(at))
			if until != nil && at <= instant(until) {
				resp.OccurrenceCount = 1
			}
		}
		return resp, nil
	}
	plan, err := j.Schedule.Plan(from)
	if err != nil {
		return nil, invalid("schedule", reasonInvalidSchedule, err.Error())
	}
	after := from.Seconds()
	resp.Description, resp.Warnings = plan.Describe(), plan.Warnings(after)
	if until != nil {
		resp.OccurrenceCount = plan.CountRuns(after, until.GetSeconds())
		resp.SkippedCount = plan.Count(after, until.GetSeconds()) - resp.OccurrenceCount
	}
	for t, ok := plan.NextRun(after, schedule.MaxSecond); ok && len(resp.FireTimes) < count; t, ok = plan.NextRun(t, schedule.MaxSecond) {
		resp.FireTimes = append(resp.FireTimes, &timestamppb.Timestamp{Seconds: t})
		after = t
	}
	if plan.Except != nil {
		resp.Skipped = skipped(plan, from.Seconds(), after)
	}
	return resp, nil
}

// skipped lists what calendars exclude of a range.
func skipped(plan schedule.Plan, after, upTo int64) (all []*carillonv1.SkippedOccurrence) {
	for t := range plan.Between(after, upTo) {
		by := plan.Except.By(t)
		if by == nil {
			continue
		}
		if all = append(all, &carillonv1.SkippedOccurrence{FireTime: &timestamppb.Timestamp{Seconds: t}, Calendar: by.String()}); len(all) == maxPreview {
			break
		}
	}
	return all
}

// BatchPreviewSchedules implements JobService.
func (s jobService) BatchPreviewSchedules(ctx context.Context, req *carillonv1.BatchPreviewSchedulesRequest) (*carillonv1.BatchPreviewSchedulesResponse, error) {
	var v violations
	if n := len(req.GetRequests()); n < 1 || n > maxBatchPreview {
		v.add("requests", reasonInvalidField, fmt.Sprintf("must be 1 to %d schedules, are %d", maxBatchPreview, n))
	}
	times := 0
	for _, r := range req.GetRequests() {
		times += max(int(r.GetCount()), defaultPreview)
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
