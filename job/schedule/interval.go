package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/intern"
)

// MaxInterval is the longest interval: 100 years of 365.25 days.
const MaxInterval = 36525 * 24 * time.Hour

// Interval fires on a grid: at anchor + k*every for every integer k, before the
// anchor too. Its fire times depend neither on how long a run takes nor on when
// a scheduler was started.
type Interval struct {
	every  int64 // seconds
	anchor int64 // Unix seconds
}

// NewInterval returns the grid through anchor (Unix seconds, MinSecond to
// MaxSecond) with spacing every, which must be whole seconds from one second to
// MaxInterval. A refusal is an *Error.
func NewInterval(every time.Duration, anchor int64) (*Interval, error) {
	refuse := func(field, reason, hint string) (*Interval, error) {
		return nil, &Error{Expr: every.String(), Field: field, Offset: -1, Reason: reason, Hint: hint}
	}
	switch {
	case every < time.Second:
		return refuse("interval", "is below the allowed range of 1s to "+days(MaxInterval), "")
	case every > MaxInterval:
		return refuse("interval", "is above the allowed range of 1s to "+days(MaxInterval), "")
	case every%time.Second != 0:
		return refuse("interval", "must be whole seconds", "round to "+every.Round(time.Second).String())
	case anchor < MinSecond || anchor > MaxSecond:
		return refuse("anchor", fmt.Sprintf("%d is outside the allowed range of %d to %d seconds (years 1 to 9999)",
			anchor, MinSecond, MaxSecond), "")
	}
	return &Interval{every: int64(every / time.Second), anchor: anchor}, nil
}

// grids are the grids through the Unix epoch that are in use.
var grids intern.Pool[time.Duration, Interval]

// Grid returns the grid through the Unix epoch, the same one for equal spacings. A
// refusal is an *Error.
func Grid(every time.Duration) (*Interval, error) {
	return grids.Get(every, func() (*Interval, error) { return NewInterval(every, 0) })
}

// Phase returns the distance from a point of the grid to an instant (Unix seconds),
// from 0 on and below the spacing.
func (i *Interval) Phase(at int64) int64 { return floorMod(at-i.anchor, i.every) }

func days(d time.Duration) string { return fmt.Sprintf("%d days", d/(24*time.Hour)) }

// Next implements Recurrence.
func (i *Interval) Next(after int64) (t int64, ok bool) {
	after = min(max(after, MinSecond-1), MaxSecond)
	t = after - floorMod(after-i.anchor, i.every) + i.every
	if t > MaxSecond {
		return 0, false
	}
	return t, true
}

// Prev implements Recurrence.
func (i *Interval) Prev(before int64) (t int64, ok bool) {
	last := min(max(before, MinSecond), MaxSecond+1) - 1
	t = last - floorMod(last-i.anchor, i.every)
	if t < MinSecond {
		return 0, false
	}
	return t, true
}

// Every returns the spacing of the grid.
func (i *Interval) Every() time.Duration { return time.Duration(i.every) * time.Second }

// Anchor returns the instant that the grid was given by (Unix seconds).
func (i *Interval) Anchor() int64 { return i.anchor }

// Describe implements Recurrence.
func (i *Interval) Describe() string {
	return "every " + spell(i.every) + ", on the grid through " +
		time.Unix(i.anchor, 0).UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// Warnings implements Recurrence. An interval has none.
func (i *Interval) Warnings() []string { return nil }

// String returns the spacing and the anchor, such as
// "every 1h30m0s from 2026-03-10T00:00:00Z".
func (i *Interval) String() string {
	return "every " + i.Every().String() + " from " + time.Unix(i.anchor, 0).UTC().Format(time.RFC3339)
}

// spell says a duration in words: "1 day 2 hours".
func spell(seconds int64) string {
	var parts []string
	for _, u := range []struct {
		name    string
		seconds int64
	}{{"day", secondsPerDay}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		if n := seconds / u.seconds; n > 0 {
			parts = append(parts, plural(n, u.name))
			seconds %= u.seconds
		}
	}
	return strings.Join(parts, " ")
}

func plural(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
