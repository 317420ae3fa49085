package jobspec

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Job reads what a create asks for, with every default, and notes under
// prefix what is wrong with it.
func Job(v *Violations, prefix string, m *carillonv1.Job) job.Job {
	if m == nil {
		v.Add(prefix, ReasonInvalidField, "is required")
		return job.Job{}
	}
	prefix += "."
	j := job.Job{Handler: m.GetHandler(), Retry: job.DefaultRetryPolicy, Timeout: job.DefaultTimeout}
	if j.Handler == "" {
		v.Add(prefix+"handler", ReasonInvalidField, "is required")
	} else {
		v.Check(prefix+"handler", job.CheckName(j.Handler))
	}
	if text := m.GetParams().GetText(); text != "" {
		j.Params = []byte(text)
		v.Check(prefix+"params", job.CheckDocument(j.Params))
	}
	j.Schedule = Schedule(v, prefix+"schedule", m.GetSchedule())
	retrySpec(v, prefix+"retry_policy.", m.GetRetryPolicy(), &j.Retry)
	durationSpec(v, prefix+"attempt_timeout", m.GetAttemptTimeout(), time.Millisecond, &j.Timeout)
	policiesSpec(v, prefix, m, &j.Policies)
	if v.Check(prefix+"labels", job.CheckLabels(m.GetLabels())) && len(m.GetLabels()) > 0 {
		j.Labels = m.GetLabels()
	}
	return j
}

// policiesSpec reads what a job says beside its schedule and its retries.
func policiesSpec(v *Violations, prefix string, m *carillonv1.Job, p *job.Policies) {
	durationSpec(v, prefix+"start_deadline", m.GetStartDeadline(), time.Millisecond, &p.StartDeadline)
	durationSpec(v, prefix+"total_deadline", m.GetTotalDeadline(), time.Millisecond, &p.TotalDeadline)
	retentionSpec(v, prefix+"retention", m.GetRetention(), &p.Retention)
	durationSpec(v, prefix+"objectives.start_within", m.GetObjectives().GetStartWithin(), time.Millisecond, &p.StartWithin)
	durationSpec(v, prefix+"objectives.finish_within", m.GetObjectives().GetFinishWithin(), time.Millisecond, &p.FinishWithin)
	p.Overlap.MaxRunning, p.Priority = m.GetOverlap().GetMaxRunning(), m.GetPriority()
	p.CatchUp = CatchUp(v, prefix+"catch_up", m.GetCatchUp())
	p.Overlap.Mode = job.OverlapMode(modeSpec(v, prefix+"overlap.mode", m.GetOverlap().GetMode()))
	if p.OnDeadLetter = m.GetOnDeadLetter(); p.OnDeadLetter != "" {
		v.Check(prefix+"on_dead_letter", job.CheckName(p.OnDeadLetter))
	}
	if field, err := p.Check(); err != nil {
		v.Add(prefix+field, ReasonInvalidField, err.Error())
	}
}

// CatchUp reads which missed occurrences are made up for.
func CatchUp(v *Violations, field string, m *carillonv1.CatchUpPolicy) job.CatchUp {
	c := job.CatchUp{Mode: job.CatchUpMode(modeSpec(v, field+".mode", m.GetMode())), MaxCount: m.GetMaxCount()}
	durationSpec(v, field+".max_age", m.GetMaxAge(), time.Millisecond, &c.MaxAge)
	if part, err := c.Check(); err != nil {
		v.Add(field+"."+part, ReasonInvalidField, err.Error())
	}
	return c
}

// modeSpec reads a mode, of which the first is the default, as the number under which it is
// stored.
func modeSpec[E protoreflect.Enum](v *Violations, field string, mode E) int8 {
	n := mode.Number()
	if mode.Descriptor().Values().ByNumber(n) == nil {
		v.Add(field, ReasonInvalidField, fmt.Sprintf("%d is not a mode", n))
		return 0
	}
	return int8(max(n, 1) - 1)
}

func retrySpec(v *Violations, prefix string, m *carillonv1.RetryPolicy, p *job.RetryPolicy) {
	if m == nil {
		return
	}
	if m.MaxAttempts != nil {
		p.MaxAttempts = m.GetMaxAttempts()
		v.Check(prefix+"max_attempts", Between(float64(p.MaxAttempts), 1, job.MaxAttemptsLimit))
	}
	durationSpec(v, prefix+"initial_backoff", m.GetInitialBackoff(), time.Millisecond, &p.InitialBackoff)
	if m.GetMaxBackoff() == nil {
		p.MaxBackoff = max(p.MaxBackoff, p.InitialBackoff)
	}
	if durationSpec(v, prefix+"max_backoff", m.GetMaxBackoff(), time.Millisecond, &p.MaxBackoff) && p.MaxBackoff < p.InitialBackoff {
		v.Add(prefix+"max_backoff", ReasonInvalidField, "must be at least initial_backoff")
	}
	if m.BackoffFactor != nil {
		p.Factor = m.GetBackoffFactor()
		v.Check(prefix+"backoff_factor", Between(p.Factor, 1, job.MaxFactor))
	}
	if err := p.SetNonRetryable(m.GetNonRetryableCodes()); err != nil {
		v.Add(prefix+"non_retryable_codes", ReasonInvalidField, err.Error())
	}
	durationSpec(v, prefix+"retry_window", m.GetRetryWindow(), time.Millisecond, &p.Window)
	if m.Jitter != nil {
		p.Jitter = m.GetJitter()
		v.Check(prefix+"jitter", Between(p.Jitter, 0, 1))
	}
}

// durationSpec reads a duration, if it is set, and reports whether it is fine.
func durationSpec(v *Violations, field string, d *durationpb.Duration, least time.Duration, into *time.Duration) bool {
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
	return v.Check(field, err)
}

// maxRetention is how long slots are kept at most.
const maxRetention = 10 * 365 * 24 * time.Hour

func retentionSpec(v *Violations, field string, d *durationpb.Duration, into *time.Duration) {
	switch value := d.AsDuration(); {
	case d == nil:
	case d.CheckValid() != nil || value < time.Hour || value > maxRetention:
		v.Add(field, ReasonInvalidField, fmt.Sprintf("must be 1 hour to %d days", maxRetention/(24*time.Hour)))
	default:
		*into = value.Truncate(time.Second)
	}
}

// Between reports a number that lies outside of its range, or is none.
func Between(x, low, high float64) error {
	if math.IsNaN(x) || x < low || x > high {
		return fmt.Errorf("must be %g to %g", low, high)
	}
	return nil
}
