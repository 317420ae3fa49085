package checker

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// plan is when a recurring job fires: its recurrence, and what the job adds.
type plan struct {
	recurrence
	job      *job.Job
	excluded []func(time.Time) bool
	last     job.Instant // of a job with a number of occurrences: it fires no later
}

// planOf reads the schedule of a recurring job.
func planOf(j *job.Job) (*plan, error) {
	c, err := recurrenceOf(j.Schedule)
	if err != nil {
		return nil, err
	}
	p := &plan{recurrence: c, job: j, last: job.MaxInstant}
	if p.excluded, err = parseExcluded(j.Schedule.Calendars); err != nil {
		return nil, err
	}
	if j.Schedule.End != 0 {
		p.last = j.Schedule.End
	}
	return p, nil
}

// limit finds the last of a number of occurrences, as far as it isn't after an instant.
func (p *plan) limit(until job.Instant) {
	left := p.job.Schedule.MaxOccurrences
	if left == 0 {
		return
	}
	for at := range p.within(p.job.EffectiveFrom, until) {
		if p.excludes(at) {
			continue
		}
		if left--; left == 0 {
			p.last = min(p.last, at)
			return
		}
	}
}

// within yields the occurrences after an instant, up to and with another.
func (p *plan) within(after, until job.Instant) iter.Seq[job.Instant] {
	s := &p.job.Schedule
	after, until = max(after, s.Start-1, p.job.EffectiveFrom), min(until, p.last)
	return func(yield func(job.Instant) bool) {
		for at := range p.recurrence.within(after.Add(-s.Offset), until.Add(-s.Offset)) {
			if !yield(at.Add(s.Offset)) {
				return
			}
		}
	}
}

// has reports whether an instant is an occurrence.
func (p *plan) has(at job.Instant) bool {
	s := &p.job.Schedule
	return p.recurrence.has(at.Add(-s.Offset)) && at >= s.Start && at <= p.last
}

// excludes reports whether a calendar of the job excludes an instant.
func (p *plan) excludes(at job.Instant) bool {
	t := at.Time()
	return slices.ContainsFunc(p.excluded, func(holds func(time.Time) bool) bool { return holds(t) })
}

// parseExcluded reads the calendars that are stored with a job, of which each is its
// name and version, an equals sign and its items.
func parseExcluded(text string) (rules []func(time.Time) bool, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ";") {
		_, items, found := strings.Cut(one, "=")
		if !found {
			return nil, fmt.Errorf("calendar %q has no items", one)
		}
		for item := range strings.SplitSeq(items, ",") {
			rule, err := parseDayOff(item)
			if err != nil {
				return nil, err
			}
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

// parseDayOff reads an item: a weekday, a day of every year, dates or instants.
func parseDayOff(item string) (func(time.Time) bool, error) {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if strings.HasPrefix(strings.ToUpper(day.String()), item) && len(item) == 3 {
			return func(t time.Time) bool { return t.Weekday() == day }, nil
		}
	}
	if len(item) == 5 {
		return func(t time.Time) bool { return t.Format("01-02") == item }, nil
	}
	first, last, found := strings.Cut(item, "/")
	if !found {
		last = first
	}
	from, err1 := time.Parse(time.DateOnly, first)
	to, err2 := time.Parse(time.DateOnly, last)
	to = to.AddDate(0, 0, 1)
	if err1 != nil || err2 != nil {
		from, err1 = time.Parse(time.RFC3339, first)
		to, err2 = time.Parse(time.RFC3339, last)
	}
	return func(t time.Time) bool { return !t.Before(from) && t.Before(to) }, errors.Join(err1, err2)
}

// I16. What a job still owes when it has ended is cancelled, whatever calendars say.
func calendarsAreKept(w *world, v *view, s *job.Slot) {
	j := v.jobs[s.Key.UID]
	if j == nil || !j.Schedule.Kind.Recurring() || s.Trigger != job.TriggerSchedule && s.Trigger != job.TriggerBackfill {
		return
	}
	p := w.plan(j)
	if p == nil {
		return
	}
	switch excluded := p.excludes(s.Key.FireTime); {
	case excluded && s.State != job.Skipped && s.State != job.Cancelled:
		w.complain(v, s.Key, "is %v, although a calendar excludes it", s.State)
	case !excluded && s.State == job.Skipped && s.ErrorCode == job.CodeExcluded:
		w.complain(v, s.Key, "was skipped, although no calendar excludes it")
	}
}
