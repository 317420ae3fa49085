package jobspec

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Schedule reads a schedule. Its calendars are the names that were given.
func Schedule(v *Violations, field string, m *carillonv1.Schedule) job.Schedule {
	s := scheduleKind(v, field, m)
	if zone := m.GetTimeZone(); zone != "" && zone != "UTC" {
		v.Add(field+".time_zone", ReasonInvalidSchedule, fmt.Sprintf("schedules are UTC: time zones such as %q are not supported; leave it empty", zone))
	}
	if s.Kind.Recurring() {
		scheduleLimits(v, field+".", m, &s)
		s.Dialect = s.NeedsDialect()
	} else if s.Kind != job.KindNone {
		refuseLimits(v, field+".", m)
	}
	return s
}

// scheduleKind reads what kind of schedule it is.
func scheduleKind(v *Violations, field string, m *carillonv1.Schedule) job.Schedule {
	switch kind := m.GetKind().(type) {
	case *carillonv1.Schedule_Immediate:
		return job.Schedule{Kind: job.KindImmediate}
	case *carillonv1.Schedule_RunAt:
		return job.Schedule{Kind: job.KindOnce, At: laterSecond(v, field+".run_at", kind.RunAt)}
	case *carillonv1.Schedule_Cron:
		s := job.Schedule{Kind: job.KindCron, Cron: kind.Cron, Dialect: 1}
		checkRecurrence(v, field+".cron", s)
		return s
	case *carillonv1.Schedule_Interval:
		return intervalSpec(v, field+".interval", kind.Interval)
	}
	v.Add(field, ReasonInvalidSchedule, "is required: one of immediate, run_at, cron and interval")
	return job.Schedule{}
}

// scheduleLimits reads what a recurring schedule adds to its recurrence.
func scheduleLimits(v *Violations, prefix string, m *carillonv1.Schedule, s *job.Schedule) {
	if m.GetStartTime() != nil {
		s.Start = laterSecond(v, prefix+"start_time", m.GetStartTime())
	}
	if m.GetEndTime() != nil {
		s.End = laterSecond(v, prefix+"end_time", m.GetEndTime())
		if s.End != 0 && s.End < s.Start {
			v.Add(prefix+"end_time", ReasonInvalidSchedule, "must not lie before start_time")
		}
	}
	if s.MaxOccurrences = m.GetMaxOccurrences(); s.MaxOccurrences < 0 {
		v.Add(prefix+"max_occurrences", ReasonInvalidSchedule, "must be at least 1, or not set")
	}
	if m.GetSpread() != nil {
		err := m.GetSpread().CheckValid()
		if s.Spread = m.GetSpread().AsDuration(); err == nil {
			err = schedule.CheckSpread(s.Spread)
		}
		if err != nil {
			s.Spread = 0
			v.Add(prefix+"spread", ReasonInvalidSchedule, err.Error())
		}
	}
	s.Calendars = calendarNames(v, prefix+"calendars", m.GetCalendars())
}

// refuseLimits refuses, for a job that fires once, what only a recurring one may have.
func refuseLimits(v *Violations, prefix string, m *carillonv1.Schedule) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"start_time", m.GetStartTime() != nil}, {"end_time", m.GetEndTime() != nil}, {"max_occurrences", m.GetMaxOccurrences() != 0},
		{"spread", m.GetSpread() != nil}, {"calendars", len(m.GetCalendars()) > 0},
	} {
		if f.set {
			v.Add(prefix+f.name, ReasonInvalidSchedule, "is for cron and interval: this job fires once")
		}
	}
}

// CheckFires refuses a schedule that never fires. What it adds to its recurrence must
// have been resolved.
func CheckFires(v *Violations, field string, s job.Schedule, from job.Instant) {
	if !s.Kind.Recurring() || len(v.Fields) > 0 {
		return
	}
	plan, err := s.Plan(from)
	if err != nil {
		v.Add(field, ReasonInvalidSchedule, err.Error())
		return
	}
	until := s.Horizon(from)
	if _, fires := plan.NextRun(from.Seconds(), until); fires {
		return
	}
	switch next, ok := plan.Next(from.Seconds()); {
	case s.End != 0 && s.End <= from:
		v.Add(field+".end_time", ReasonInvalidSchedule, "has passed: the job would never fire")
	case ok && next <= until && s.Calendars != "":
		v.Add(field+".calendars", ReasonInvalidSchedule, "exclude every occurrence up to "+job.AtSecond(min(plan.To, until)).String()+": the job would never fire")
	default:
		v.Add(field, ReasonInvalidSchedule, "has no fire time from "+max(from, s.Start).String()+" on: the job would never fire")
	}
}

func intervalSpec(v *Violations, field string, m *carillonv1.IntervalSchedule) job.Schedule {
	s := job.Schedule{Kind: job.KindInterval, Dialect: 1}
	if m.GetEvery() == nil {
		v.Add(field+".every", ReasonInvalidSchedule, "is required")
		return s
	}
	if err := m.GetEvery().CheckValid(); err != nil {
		v.Add(field+".every", ReasonInvalidSchedule, "is not a valid duration")
		return s
	}
	s.Every = m.GetEvery().AsDuration()
	checkRecurrence(v, field+".every", s)
	if m.GetAnchor() != nil {
		s.Anchor = wholeSecond(v, field+".anchor", m.GetAnchor())
	}
	return s
}

func checkRecurrence(v *Violations, field string, s job.Schedule) {
	if _, err := s.Recurrence(); err != nil {
		v.Add(field, ReasonInvalidSchedule, err.Error())
	}
}

// laterSecond reads a scheduled instant after the epoch: zero is none.
func laterSecond(v *Violations, field string, t *timestamppb.Timestamp) job.Instant {
	before := len(v.Fields)
	at := wholeSecond(v, field, t)
	if at <= 0 && len(v.Fields) == before {
		v.Add(field, ReasonInvalidField, "must be after 1970-01-01T00:00:00Z")
	}
	return at
}

// wholeSecond reads a scheduled instant.
func wholeSecond(v *Violations, field string, t *timestamppb.Timestamp) job.Instant {
	switch {
	case t == nil:
		v.Add(field, ReasonInvalidField, "is required")
	case t.CheckValid() != nil:
		v.Add(field, ReasonInvalidField, "must be in the years 1 to 9999")
	case t.GetNanos() != 0:
		v.Add(field, ReasonInvalidField, "must be a whole second")
	default:
		return job.AtSecond(t.GetSeconds())
	}
	return 0
}

// Decide decides what the schedule of j leaves open, as of an instant: the anchor of an
// interval, the place in a spread (if the job has a name), what its calendars hold, and
// which occurrence is the last of a number, counted from another instant. The error is one
// of calendars'.
func Decide(ctx context.Context, v *Violations, field string, m *carillonv1.Schedule, j *job.Job, now, from job.Instant, calendars Calendars) error {
	if j.Schedule.Kind == job.KindInterval && m.GetInterval().GetAnchor() == nil {
		j.Schedule.Anchor = job.AtSecond(now.Seconds())
	}
	if j.Name != "" {
		j.ChooseOffset()
	}
	if err := resolve(ctx, v, field+".calendars", j, calendars); err != nil || len(v.Fields) > 0 {
		return err
	}
	if err := j.Schedule.Count(from); err != nil {
		v.Add(field, ReasonInvalidSchedule, err.Error())
	}
	return nil
}
