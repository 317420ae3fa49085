package jobspec

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of a preview.
const (
	DefaultPreview = 3
	MaxPreview     = 1000
	maxSkipped     = 100
)

// Preview says when a job fires, without storing anything. j has the namespace in which
// its calendars are, and the name if it has one; the schedule is the request's. now
// stands for what the request leaves out. What is wrong with the request is noted in v,
// and there is no answer then; the error is one of calendars'.
func Preview(ctx context.Context, v *Violations, req *carillonv1.PreviewScheduleRequest, j job.Job, now job.Instant, calendars Calendars) (*carillonv1.PreviewScheduleResponse, error) {
	j.Schedule = Schedule(v, "schedule", req.GetSchedule())
	from, count := previewRange(v, req, now)
	if len(v.Fields) > 0 {
		return nil, nil
	}
	if err := Decide(ctx, v, "schedule", req.GetSchedule(), &j, now, from, calendars); err != nil {
		return nil, err
	}
	if CheckFires(v, "schedule", j.Schedule, from); len(v.Fields) > 0 {
		return nil, nil
	}
	return show(&j, from, now, req.GetUntil(), count), nil
}

// previewRange reads from when, and how much, is to be shown.
func previewRange(v *Violations, req *carillonv1.PreviewScheduleRequest, now job.Instant) (from job.Instant, count int) {
	from = now
	if t := req.GetFrom(); t != nil {
		if t.CheckValid() != nil {
			v.Add("from", ReasonInvalidField, "must be in the years 1 to 9999")
		}
		from = job.At(t.AsTime())
	}
	if t := req.GetUntil(); t != nil {
		until := job.At(t.AsTime())
		switch {
		case t.CheckValid() != nil:
			v.Add("until", ReasonInvalidField, "must be in the years 1 to 9999")
		case until < from || until > from.Add(job.Reach):
			v.Add("until", ReasonInvalidField, "must lie at or after from, and at most 100 years after it")
		}
	}
	count = int(req.GetCount())
	if count < 0 || count > MaxPreview {
		v.Add("count", ReasonInvalidField, fmt.Sprintf("must be 1 to %d, or not set", MaxPreview))
	}
	if count == 0 {
		count = DefaultPreview
	}
	return from, count
}

// show shows what a job does after an instant.
func show(j *job.Job, from, now job.Instant, until *timestamppb.Timestamp, count int) *carillonv1.PreviewScheduleResponse {
	resp := &carillonv1.PreviewScheduleResponse{FireTimes: []*timestamppb.Timestamp{}}
	if !j.Schedule.Kind.Recurring() {
		resp.Description = j.Schedule.DescribeOnce()
		if j.Schedule.Kind == job.KindOnce && j.Schedule.At <= now {
			resp.Warnings = []string{"the time has passed: the job fires as soon as it is stored"}
		}
		if at := j.Schedule.At; at > from {
			resp.FireTimes = append(resp.FireTimes, timestamppb.New(at.Time()))
			if until != nil && at.Seconds() <= until.GetSeconds() {
				resp.OccurrenceCount = 1
			}
		}
		return resp
	}
	plan, err := j.Schedule.Plan(from)
	if err != nil {
		return resp // CheckFires has said so
	}
	after := from.Seconds()
	plan.Unplaced = j.Name == ""
	resp.Description = plan.Describe()
	if until != nil {
		runs := plan.CountRuns(after, until.GetSeconds())
		resp.OccurrenceCount = uint32(runs) // a century of seconds fits
		resp.SkippedCount = uint32(plan.Count(after, until.GetSeconds()) - runs)
	}
	for len(resp.FireTimes) < count {
		t, ok := plan.NextRun(after, j.Schedule.Horizon(job.AtSecond(after)))
		if !ok {
			break
		}
		resp.FireTimes = append(resp.FireTimes, &timestamppb.Timestamp{Seconds: t})
		after = t
	}
	resp.Warnings = plan.Warnings(from.Seconds(), resp.GetFireTimes()[0].GetSeconds()) // CheckFires has seen to it that there is one
	if plan.Except != nil {
		resp.Skipped, resp.SkippedMore = skipped(plan, from.Seconds(), after)
	}
	return resp
}

// skipped lists what calendars exclude of a range, and says whether there is more.
func skipped(plan schedule.Plan, after, upTo int64) (all []*carillonv1.SkippedOccurrence, more bool) {
	for t := range plan.Between(after, upTo) {
		by := plan.Except.By(t)
		if by == nil {
			continue
		}
		if len(all) == maxSkipped {
			return all, true
		}
		all = append(all, &carillonv1.SkippedOccurrence{FireTime: &timestamppb.Timestamp{Seconds: t}, Calendar: by.String()})
	}
	return all, false
}
