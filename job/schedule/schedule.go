// Package schedule says when a recurring job fires: cron expressions and
// intervals on a stored grid.
//
// All instants are int64 Unix seconds in UTC, from year 1 to 9999; there are no
// time zones, no leap seconds and no fractions. A schedule is a pure function
// of time: Next and Prev depend on nothing but their argument, so that every
// node computes the same fire times, whatever the TZ of its process.
//
// # Cron dialect
//
// The grammar and the day rule are those of cronie (the cron of most Linux
// systems):
//
//	field         values             also
//	minute        0-59
//	hour          0-23
//	day of month  1-31               ? L L-n LW nW
//	month         1-12, JAN-DEC
//	day of week   0-7, SUN-SAT       ? d#n dL        (0 and 7 are Sunday)
//
// A field is a list (1,15) of values, ranges (9-17), ranges with a step
// (0-20/2), * or */step. Fields are separated by spaces or TABs. Six fields
// begin with one for seconds (0-59), else the second is 0. The macros @hourly,
// @daily, @midnight, @weekly, @monthly, @yearly and @annually are accepted.
//
// If a day field begins with * (or is ?), a day must match both day fields;
// otherwise either one suffices. So "0 0 13 * 5" fires on Fridays and on
// 13ths, and "0 0 */2 * 3" on the odd days that are Wednesdays.
//
// The extensions to cronie: L is the last day of the month, L-n the day n days
// before it, LW its last Monday to Friday, nW the Monday to Friday nearest to
// day n within the month (none in a month without day n), d#n the n-th weekday
// d of the month, and dL its last.
//
// An expression that can never fire is refused by ParseCron. One that says
// something else than it seems to is accepted, with Warnings.
//
// # Plans
//
// A Plan is a recurrence with what a job adds to it: the first and the last instant at
// which it may fire, an offset that spreads jobs of the same schedule, and calendars
// whose days it leaves out. An occurrence that a calendar excludes stays one: it is
// recorded as skipped.
package schedule

// DialectVersion names the reading of schedules that this package implements. It
// grows when a stored schedule may fire at other times than a program of before
// would think: 1 knows cron expressions and intervals, 2 bounds, spreads and calendars
// too. Nothing that a version fires is ever fired otherwise by a later one.
const DialectVersion = 2

// The range of instants, in Unix seconds: the first second of year 1 and the
// last of year 9999, as in protobuf's Timestamp.
const (
	MinSecond int64 = -62135596800
	MaxSecond int64 = 253402300799
)

// Recurrence is a schedule with a first, second, third … fire time. It is
// immutable and safe for concurrent use.
type Recurrence interface {
	// Next returns the first fire time strictly after the instant (Unix
	// seconds), or ok == false if there is none up to MaxSecond: never, not
	// now. It allocates nothing.
	Next(after int64) (t int64, ok bool)

	// Prev returns the last fire time strictly before the instant (Unix
	// seconds), or ok == false if there is none down to MinSecond. It
	// allocates nothing.
	Prev(before int64) (t int64, ok bool)

	// Count returns how many fire times lie after one instant, up to and at
	// another. Its cost doesn't depend on how far apart they are. It allocates
	// nothing.
	Count(after, upTo int64) int64

	// Nth returns the n-th fire time after an instant: the first is what Next
	// returns. ok is false if there are not so many up to MaxSecond, or n is
	// below 1. It allocates nothing.
	Nth(after, n int64) (t int64, ok bool)

	// Describe says in plain English when the schedule fires.
	Describe() string

	// Warnings lists what the author of the schedule may not have meant, a
	// sentence each.
	Warnings() []string

	// String returns the canonical source text. Equal texts fire equally.
	String() string
}

var (
	_ Recurrence = (*Cron)(nil)
	_ Recurrence = (*Interval)(nil)
)
