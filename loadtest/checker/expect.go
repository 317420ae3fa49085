package checker

import (
	"fmt"
	"iter"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// recurrence is when a cron expression or an interval fires.
type recurrence interface {
	// within yields the fire times after an instant, up to and with another.
	within(after, until job.Instant) iter.Seq[job.Instant]
	// has reports whether an instant is a fire time.
	has(at job.Instant) bool
}

// recurrenceOf reads a recurring schedule.
func recurrenceOf(s job.Schedule) (recurrence, error) {
	switch {
	case s.Kind == job.KindCron:
		return parseCron(s.Cron)
	case s.Kind != job.KindInterval:
		return nil, fmt.Errorf("kind %d does not recur", s.Kind)
	case s.Every < time.Second:
		return nil, fmt.Errorf("an interval of %s", s.Every)
	}
	return grid{anchor: s.Anchor, every: job.Instant(s.Every.Microseconds())}, nil
}

// grid is an interval: anchor + k · every, for every whole k.
type grid struct{ anchor, every job.Instant }

func (g grid) within(after, until job.Instant) iter.Seq[job.Instant] {
	return func(yield func(job.Instant) bool) {
		at := g.anchor + (after-g.anchor)/g.every*g.every - g.every // one or two too early
		for ; at <= until; at += g.every {
			if at > after && !yield(at) {
				return
			}
		}
	}
}

func (g grid) has(at job.Instant) bool { return (at-g.anchor)%g.every == 0 }
