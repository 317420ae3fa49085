package main

import "time"

// This file says which occurrences there must be. It counts whole seconds since the
// Unix epoch and knows nothing of cron: each job states its rule beside its schedule.

// rule is when a job of the demo fires.
type rule struct {
	immediate bool
	once      time.Time     // in whole seconds; zero: not a once-job
	every     time.Duration // a recurring job fires at offset + k * every, in UTC
	offset    time.Duration
}

const day = 24 * time.Hour

// next returns the first fire time of a recurring job after an instant.
func (r rule) next(after time.Time) time.Time {
	every, offset := int64(r.every/time.Second), int64(r.offset/time.Second)
	k := floorDiv(after.Unix()-offset, every) + 1
	return time.Unix(offset+k*every, 0).UTC()
}

// occurrences returns the scheduled fire times after from, up to and including
// until. A once-job fires whatever from is: an instant in the past fires at once.
func (r rule) occurrences(from, until time.Time) []time.Time {
	switch {
	case r.immediate:
		return nil
	case !r.once.IsZero():
		if r.once.After(until) {
			return nil
		}
		return []time.Time{r.once}
	}
	var all []time.Time
	for at := r.next(from); !at.After(until); at = r.next(at) {
		all = append(all, at)
	}
	return all
}

// fires reports whether a recurring job fires at an instant.
func (r rule) fires(at time.Time) bool {
	return r.every > 0 && r.next(at.Add(-time.Nanosecond)).Equal(at)
}

// floorDiv divides and rounds down.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// outage is the time in which no server ran.
type outage struct {
	from, to time.Time // both zero: there was none
}

// during reports whether nobody could fire at an instant.
func (o outage) during(at time.Time) bool { return at.After(o.from) && at.Before(o.to) }

// percentile returns the smallest value that at least p percent of the values don't
// exceed; zero of none. The values must be sorted.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}
