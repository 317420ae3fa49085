package controlplane

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// jobSpec reads what a create asks for, with every default, and notes under
// prefix what is wrong with it.
func jobSpec(v *violations, prefix string, m *carillonv1.Job) job.Job {
	if m == nil {
		v.add(prefix, reasonInvalidField, "is required")
		return job.Job{}
	}
	prefix += "."
	j := job.Job{Handler: m.GetHandler(), Retry: job.DefaultRetryPolicy, Timeout: job.DefaultTimeout}
	if j.Handler == "" {
		v.add(prefix+"handler", reasonInvalidField, "is required")
	} else {
		v.check(prefix+"handler", job.CheckName(j.Handler))
	}
	if text := m.GetParams().GetText(); text != "" {
		j.Params = []byte(text)
		v.check(prefix+"params", job.CheckDocument(j.Params))
	}
	j.Schedule = scheduleSpec(v, prefix+"schedule", m.GetSchedule())
	retrySpec(v, prefix+"retry_policy.", m.GetRetryPolicy(), &j.Retry)
	durationSpec(v, prefix+"attempt_timeout", m.GetAttemptTimeout(), time.Millisecond, &j.Timeout)
	if v.check(prefix+"labels", job.CheckLabels(m.GetLabels())) && len(m.GetLabels()) > 0 {
		j.Labels = m.GetLabels()
	}
	return j
}

// scheduleSpec reads a schedule. Its calendars are the names that were given.
func scheduleSpec(v *violations, field string, m *carillonv1.Schedule) job.Schedule {
	s := scheduleKind(v, field, m)
	if zone := m.GetTimeZone(); zone != "" && zone != "UTC" {
		v.add(field+".time_zone", reasonInvalidSchedule, fmt.Sprintf("schedules are UTC: time zones such as %q are not supported; leave it empty", zone))
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
func scheduleKind(v *violations, field string, m *carillonv1.Schedule) job.Schedule {
	switch kind := m.GetKind().(type) {
	case *carillonv1.Schedule_Immediate:
		return job.Schedule{Kind: job.KindImmediate}
	case *carillonv1.Schedule_RunAt:
		return job.Schedule{Kind: job.KindOnce, At: laterSecond(v, field+".run_at", kind.RunAt)}
	case *carillonv1.Schedule_Cron:
		s := job.Schedule{Kind: job.KindCron, Cron: kind.Cron, Dialect: schedule.DialectVersion}
		checkRecurrence(v, field+".cron", s)
		return s
	case *carillonv1.Schedule_Interval:
		return intervalSpec(v, field+".interval", kind.Interval)
	}
	v.add(field, reasonInvalidSchedule, "is required: one of immediate, run_at, cron and interval")
	return job.Schedule{}
}

// scheduleLimits reads what a recurring schedule adds to its recurrence.
func scheduleLimits(v *violations, prefix string, m *carillonv1.Schedule, s *job.Schedule) {
	if m.GetStartTime() != nil {
		s.Start = laterSecond(v, prefix+"start_time", m.GetStartTime())
	}
	if m.GetEndTime() != nil {
		s.End = laterSecond(v, prefix+"end_time", m.GetEndTime())
		if s.End != 0 && s.End < s.Start {
			v.add(prefix+"end_time", reasonInvalidSchedule, "must not lie before start_time")
		}
	}
	if s.MaxOccurrences = m.GetMaxOccurrences(); s.MaxOccurrences < 0 || s.MaxOccurrences > job.MaxOccurrencesLimit {
		v.add(prefix+"max_occurrences", reasonInvalidSchedule, fmt.Sprintf("must be 1 to %d, or not set", int64(job.MaxOccurrencesLimit)))
	}
	if m.GetSpread() != nil {
		err := m.GetSpread().CheckValid()
		if s.Spread = m.GetSpread().AsDuration(); err == nil {
			err = schedule.CheckSpread(s.Spread)
		}
		if err != nil {
			s.Spread = 0
			v.add(prefix+"spread", reasonInvalidSchedule, err.Error())
		}
	}
	s.Calendars = calendarNames(v, prefix+"calendars", m.GetCalendars())
}

// refuseLimits refuses, for a job that fires once, what only a recurring one may have.
func refuseLimits(v *violations, prefix string, m *carillonv1.Schedule) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"start_time", m.GetStartTime() != nil}, {"end_time", m.GetEndTime() != nil}, {"max_occurrences", m.GetMaxOccurrences() != 0},
		{"spread", m.GetSpread() != nil}, {"calendars", len(m.GetCalendars()) > 0},
	} {
		if f.set {
			v.add(prefix+f.name, reasonInvalidSchedule, "is for cron and interval: this job fires once")
		}
	}
}

// searchAhead is how far ahead a job that is created must fire. What doesn't fire in a
// century never does, or is a mistake; and the search must end.
const searchAhead = 36525 * 24 * time.Hour

// checkFires refuses a schedule that never fires. What it adds to its recurrence must
// have been resolved.
func checkFires(v *violations, field string, s job.Schedule, from job.Instant) {
	if !s.Kind.Recurring() || len(v.fields) > 0 {
		return
	}
	plan, err := s.Plan(from)
	if err != nil {
		v.add(field, reasonInvalidSchedule, err.Error())
		return
	}
	until := min(max(from, s.Start).Add(searchAhead).Seconds(), schedule.MaxSecond)
	if _, fires := plan.NextRun(from.Seconds(), until); fires {
		return
	}
	switch next, ok := plan.Next(from.Seconds()); {
	case s.End != 0 && s.End <= from:
		v.add(field+".end_time", reasonInvalidSchedule, "has passed: the job would never fire")
	case ok && next <= until && s.Calendars != "":
		v.add(field+".calendars", reasonInvalidSchedule, "exclude every occurrence of the next 100 years: the job would never fire")
	default:
		v.add(field, reasonInvalidSchedule, "has no fire time from "+max(from, s.Start).String()+" on: the job would never fire")
	}
}

func intervalSpec(v *violations, field string, m *carillonv1.IntervalSchedule) job.Schedule {
	s := job.Schedule{Kind: job.KindInterval, Dialect: schedule.DialectVersion}
	if m.GetEvery() == nil {
		v.add(field+".every", reasonInvalidSchedule, "is required")
		return s
	}
	if err := m.GetEvery().CheckValid(); err != nil {
		v.add(field+".every", reasonInvalidSchedule, "is not a valid duration")
		return s
	}
	s.Every = m.GetEvery().AsDuration()
	checkRecurrence(v, field+".every", s)
	if m.GetAnchor() != nil {
		s.Anchor = wholeSecond(v, field+".anchor", m.GetAnchor())
	}
	return s
}

func checkRecurrence(v *violations, field string, s job.Schedule) {
	if _, err := s.Recurrence(); err != nil {
		v.add(field, reasonInvalidSchedule, err.Error())
	}
}

// laterSecond reads a scheduled instant after the epoch: zero is none.
func laterSecond(v *violations, field string, t *timestamppb.Timestamp) job.Instant {
	before := len(v.fields)
	at := wholeSecond(v, field, t)
	if at <= 0 && len(v.fields) == before {
		v.add(field, reasonInvalidField, "must be after 1970-01-01T00:00:00Z")
	}
	return at
}

// wholeSecond reads a scheduled instant.
func wholeSecond(v *violations, field string, t *timestamppb.Timestamp) job.Instant {
	switch {
	case t == nil:
		v.add(field, reasonInvalidField, "is required")
	case t.CheckValid() != nil:
		v.add(field, reasonInvalidField, "must be in the years 1 to 9999")
	case t.GetNanos() != 0:
		v.add(field, reasonInvalidField, "must be a whole second")
	default:
		return job.AtSecond(t.GetSeconds())
	}
	return 0
}

func retrySpec(v *violations, prefix string, m *carillonv1.RetryPolicy, p *job.RetryPolicy) {
	if m == nil {
		return
	}
	if m.MaxAttempts != nil {
		p.MaxAttempts = m.GetMaxAttempts()
		v.check(prefix+"max_attempts", between(float64(p.MaxAttempts), 1, job.MaxAttemptsLimit))
	}
	durationSpec(v, prefix+"initial_backoff", m.GetInitialBackoff(), time.Millisecond, &p.InitialBackoff)
	if m.GetMaxBackoff() == nil {
		p.MaxBackoff = max(p.MaxBackoff, p.InitialBackoff)
	}
	if durationSpec(v, prefix+"max_backoff", m.GetMaxBackoff(), time.Millisecond, &p.MaxBackoff) && p.MaxBackoff < p.InitialBackoff {
		v.add(prefix+"max_backoff", reasonInvalidField, "must be at least initial_backoff")
	}
	if m.BackoffFactor != nil {
		p.Factor = m.GetBackoffFactor()
		v.check(prefix+"backoff_factor", between(p.Factor, 1, job.MaxFactor))
	}
	if m.Jitter != nil {
		p.Jitter = m.GetJitter()
		v.check(prefix+"jitter", between(p.Jitter, 0, 1))
	}
}

// between reports a number that lies outside of its range, or is none.
func between(x, low, high float64) error {
	if math.IsNaN(x) || x < low || x > high {
		return fmt.Errorf("must be %g to %g", low, high)
	}
	return nil
}

// durationSpec reads a duration, if it is set, and reports whether it is fine.
func durationSpec(v *violations, field string, d *durationpb.Duration, least time.Duration, into *time.Duration) bool {
	if d == nil {
		return true
	}
	err := d.CheckValid()
	value := d.AsDuration()
	if err != nil || value < least || value > job.MaxDuration {
		err = fmt.Errorf("must be %s to %d days", least, job.MaxDuration/(24*time.Hour))
	} else {
		*into = value.Truncate(time.Microsecond)
	}
	return v.check(field, err)
}

const maxReasonBytes = 1024

func checkReason(reason string) error {
	if len(reason) > maxReasonBytes {
		return fmt.Errorf("must be at most %d bytes", maxReasonBytes)
	}
	if reason != job.CleanText([]byte(reason), maxReasonBytes) {
		return errors.New("must not hold the character NUL")
	}
	return nil
}
