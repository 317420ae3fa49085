package controlplane

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store"
)

// timestamp maps an instant; none, or one that the API can't carry, is not set.
func timestamp(i job.Instant) *timestamppb.Timestamp {
	if i == 0 || i < job.MinInstant || i > job.MaxInstant {
		return nil
	}
	return timestamppb.New(i.Time())
}

// document maps a JSON document; an empty one is not set.
func document[T []byte | string](b T) *carillonv1.Json {
	if len(b) == 0 {
		return nil
	}
	return &carillonv1.Json{Text: string(b)}
}

// jobMessage maps a job as it is at an instant.
func jobMessage(j *job.Job, now job.Instant) *carillonv1.Job {
	m := &carillonv1.Job{
		Name: j.ResourceName(), Uid: j.UID.String(), Handler: j.Handler, Params: document(j.Params),
		Schedule: scheduleMessage(j.Schedule), RetryPolicy: retryMessage(j.Retry), AttemptTimeout: durationpb.New(j.Timeout),
		CreateTime: timestamp(j.CreatedAt), EffectiveFrom: timestamp(j.EffectiveFrom), EndTime: timestamp(j.EndedAt),
		QuarantineReason: j.Quarantine, Labels: j.Labels,
	}
	policiesMessage(m, &j.Policies)
	next, fires := describe(m, j, now)
	m.NextFireTime = timestamp(next)
	switch {
	case j.EndedAt != 0:
		m.State = carillonv1.JobState_JOB_STATE_DELETED
		if j.EndedByItself {
			m.State = carillonv1.JobState_JOB_STATE_COMPLETED
		}
		m.NextFireTime = nil
	case j.Quarantine != "":
		m.State = carillonv1.JobState_JOB_STATE_QUARANTINED
		m.NextFireTime = nil
	case !fires:
		m.State = carillonv1.JobState_JOB_STATE_COMPLETED
	default:
		m.State = carillonv1.JobState_JOB_STATE_ACTIVE
	}
	return m
}

// describe fills in the plain words of the schedule and returns the next time at which
// the job runs, or zero, and whether it has a further occurrence: one that a calendar
// excludes is none at which it runs.
func describe(m *carillonv1.Job, j *job.Job, now job.Instant) (next job.Instant, fires bool) {
	switch j.Schedule.Kind {
	case job.KindImmediate, job.KindOnce:
		m.ScheduleDescription = j.Schedule.DescribeOnce()
		if j.Schedule.At > now {
			return j.Schedule.At, true
		}
		return 0, false
	}
	plan, err := j.Plan()
	if err != nil {
		if m.QuarantineReason == "" {
			m.QuarantineReason = err.Error()
		}
		return 0, false
	}
	after := max(now, j.EffectiveFrom)
	from := after.Seconds()
	m.ScheduleDescription = plan.Describe()
	if run, ok := plan.NextRun(from, j.Schedule.Horizon(after)); ok {
		m.Warnings = plan.Warnings(from, run)
		return job.AtSecond(run), true
	}
	m.Warnings = plan.Recurrence.Warnings()
	if _, fires = plan.Next(from); fires {
		m.Warnings = append(m.Warnings, "its calendars exclude every occurrence of the next 100 years")
	}
	return 0, fires
}

func scheduleMessage(s job.Schedule) *carillonv1.Schedule {
	m := &carillonv1.Schedule{StartTime: timestamp(s.Start), EndTime: timestamp(s.End), MaxOccurrences: s.MaxOccurrences}
	switch s.Kind {
	case job.KindImmediate:
		m.Kind = &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}
	case job.KindOnce:
		m.Kind = &carillonv1.Schedule_RunAt{RunAt: timestamp(s.At)}
	case job.KindCron:
		m.Kind = &carillonv1.Schedule_Cron{Cron: s.Cron}
	case job.KindInterval:
		m.Kind = &carillonv1.Schedule_Interval{Interval: &carillonv1.IntervalSchedule{Every: durationpb.New(s.Every), Anchor: timestamppb.New(s.Anchor.Time())}}
	default:
		return nil
	}
	if s.Spread > 0 {
		m.Spread, m.SpreadOffset = durationpb.New(s.Spread), durationpb.New(s.Offset)
	}
	if except, err := schedule.ParseExclusions(s.Calendars); err == nil {
		for _, c := range except.Calendars() {
			m.Calendars = append(m.Calendars, c.String())
		}
	}
	return m
}

func retryMessage(p job.RetryPolicy) *carillonv1.RetryPolicy {
	m := &carillonv1.RetryPolicy{
		MaxAttempts: &p.MaxAttempts, InitialBackoff: durationpb.New(p.InitialBackoff), MaxBackoff: durationpb.New(p.MaxBackoff),
		BackoffFactor: &p.Factor, Jitter: &p.Jitter, NonRetryableCodes: p.NonRetryableCodes(),
	}
	if p.Window > 0 {
		m.RetryWindow = durationpb.New(p.Window)
	}
	return m
}

// setDuration maps a duration; zero is not set.
func setDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// policiesMessage fills in what a job says beside its schedule and its retries.
func policiesMessage(m *carillonv1.Job, p *job.Policies) {
	m.StartDeadline, m.TotalDeadline, m.Priority, m.OnDeadLetter = setDuration(p.StartDeadline), setDuration(p.TotalDeadline), p.Priority, p.OnDeadLetter
	m.CatchUp, m.Retention = catchUpMessage(p.CatchUp), setDuration(p.Retention)
	m.Overlap = &carillonv1.OverlapPolicy{Mode: carillonv1.OverlapMode(p.Overlap.Mode + 1), MaxRunning: p.Overlap.MaxRunning}
	if p.StartWithin > 0 || p.FinishWithin > 0 {
		m.Objectives = &carillonv1.Objectives{StartWithin: setDuration(p.StartWithin), FinishWithin: setDuration(p.FinishWithin)}
	}
}

func catchUpMessage(c job.CatchUp) *carillonv1.CatchUpPolicy {
	return &carillonv1.CatchUpPolicy{Mode: carillonv1.CatchUpMode(c.Mode + 1), MaxAge: setDuration(c.MaxAge), MaxCount: c.MaxCount}
}

// slotMessage maps a slot, with what its owner knows beyond the database.
func slotMessage(s *store.SlotOf, live *core.SlotInfo) *carillonv1.Slot {
	row := &s.Slot
	m := &carillonv1.Slot{
		Name: s.Job.SlotName(row.Key.FireTime), JobUid: row.Key.UID.String(), FireTime: timestamp(row.Key.FireTime), Handler: s.Job.Handler,
		Trigger: carillonv1.SlotTrigger(row.Trigger), State: carillonv1.SlotState(row.State),
		Attempt: row.Attempt, Failures: row.Failures, MaxAttempts: s.Job.Retry.MaxAttempts, Worker: row.Worker,
		CreateTime: timestamp(row.CreatedAt), ClaimTime: timestamp(row.ClaimedAt), StartTime: timestamp(row.StartedAt),
		FinishTime: timestamp(row.FinishedAt), NotBefore: timestamp(row.NotBefore), Deadline: timestamp(row.Deadline),
		Outcome: carillonv1.AttemptOutcome(row.Outcome), ErrorCode: row.ErrorCode, ErrorMessage: row.ErrorText,
		Result: document(row.Result), Epoch: int64(row.Epoch), RequestTime: timestamp(row.RequestedAt), Params: document(row.Params),
	}
	if at := s.Job.Policies.ExpiresAt(row); at < job.MaxInstant {
		m.ExpireTime = timestamp(at)
	} else if at := s.Job.Policies.TotalEnd(row); row.State == job.Running && at < job.MaxInstant {
		m.ExpireTime = timestamp(at)
	}
	for _, b := range []job.Breach{job.BreachStart, job.BreachFinish} {
		if row.Breaches&b != 0 {
			m.MissedObjectives = append(m.MissedObjectives, objectiveLabels[b])
		}
	}
	if live != nil && live.Slot.State == job.Running && row.State == job.Running && live.Slot.Attempt == row.Attempt {
		m.StartTime, m.LeaseEndTime = timestamp(live.StartedAt), timestamp(live.LeaseUntil)
		row = &live.Slot // its notes are newer than the stored ones
	}
	n := job.DecodeNotes(row.Notes)
	m.Log, m.CheckpointBytes = n.Log, int32(len(n.Checkpoint))
	if n.Done != 0 || n.Total != 0 || n.Note != "" {
		m.Progress = &carillonv1.Progress{Done: n.Done, Total: n.Total, Note: n.Note}
	}
	if m.StartTime != nil {
		m.Lateness = durationpb.New(m.StartTime.AsTime().Sub(row.Key.FireTime.Time()))
	}
	return m
}

func attemptMessage(a job.Attempt) *carillonv1.Attempt {
	return &carillonv1.Attempt{
		Attempt: a.Number, Worker: a.Worker, ClaimTime: timestamp(a.ClaimedAt), StartTime: timestamp(a.StartedAt), EndTime: timestamp(a.EndedAt),
		Outcome: carillonv1.AttemptOutcome(a.Outcome), ErrorCode: a.ErrorCode, ErrorMessage: a.ErrorText, LateResult: a.Late, Epoch: int64(a.Epoch), Log: a.Log,
	}
}

// instant maps a timestamp that was checked.
func instant(t *timestamppb.Timestamp) job.Instant {
	if t == nil {
		return 0
	}
	return job.At(t.AsTime())
}

// duration maps a duration that was checked.
func duration(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.AsDuration()
}
