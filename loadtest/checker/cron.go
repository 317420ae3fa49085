package checker

import (
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// This file reads cron expressions as docs/schedules.md describes them. It looks at
// one day after the other; what it must be is obviously right, not fast.

// days says whether an expression fires on a day.
type days func(day time.Time) bool

// cron is when an expression fires: on some days, at the same times on each.
type cron struct {
	on    days
	times []time.Duration // since midnight, ascending
}

// within yields the fire times after an instant, up to and with another.
func (c *cron) within(after, until job.Instant) iter.Seq[job.Instant] {
	return func(yield func(job.Instant) bool) {
		for day := midnight(after.Time()); job.At(day) <= until; day = day.AddDate(0, 0, 1) {
			if !c.on(day) {
				continue
			}
			for _, t := range c.times {
				at := job.At(day).Add(t)
				if at > until {
					return
				}
				if at > after && !yield(at) {
					return
				}
			}
		}
	}
}

// has reports whether an instant is a fire time.
func (c *cron) has(at job.Instant) bool {
	day := midnight(at.Time())
	_, found := slices.BinarySearch(c.times, at.Sub(job.At(day)))
	return found && c.on(day)
}

func midnight(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
}

var macros = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

func parseCron(text string) (*cron, error) {
	text = strings.Trim(text, " \t")
	if full, ok := macros[text]; ok {
		text = full
	}
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(fields) == 5 {
		fields = append([]string{"0"}, fields...)
	}
	if len(fields) != 6 {
		return nil, fmt.Errorf("cron expression %q has %d fields", text, len(fields))
	}
	seconds, err1 := parseValues(fields[0], 0, 59)
	minutes, err2 := parseValues(fields[1], 0, 59)
	hours, err3 := parseValues(fields[2], 0, 23)
	on, err4 := parseDays(fields[3], fields[4], fields[5])
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return nil, fmt.Errorf("cron expression %q: %w", text, err)
		}
	}
	c := &cron{on: on}
	for hour := range hours {
		for minute := range minutes {
			for second := range seconds {
				c.times = append(c.times, time.Duration(hour)*time.Hour+time.Duration(minute)*time.Minute+time.Duration(second)*time.Second)
			}
		}
	}
	slices.Sort(c.times)
	return c, nil
}

// set is the values of a field.
type set map[int]bool

// parseValues reads a list of values, ranges and steps.
func parseValues(text string, low, high int) (set, error) {
	values := set{}
	for item := range strings.SplitSeq(text, ",") {
		some, err := parseItem(item, low, high)
		if err != nil {
			return nil, err
		}
		maps.Copy(values, some)
	}
	return values, nil
}

var itemPattern = regexp.MustCompile(`^(?:\*|(\d+)(-\d+)?)(/\d+)?$`)

// parseItem reads *, */n, a, a-b or a-b/n.
func parseItem(item string, low, high int) (set, error) {
	m := itemPattern.FindStringSubmatch(item)
	if m == nil || m[1] != "" && m[2] == "" && m[3] != "" {
		return nil, fmt.Errorf("%q is not understood", item)
	}
	from, to, step := low, high, 1
	if m[1] != "" {
		from = number(m[1])
		to = from
	}
	if m[2] != "" {
		to = number(m[2][1:])
	}
	if m[3] != "" {
		step = number(m[3][1:])
	}
	if from < low || from > to || to > high || step < 1 {
		return nil, fmt.Errorf("%q is out of range", item)
	}
	values := set{}
	for v := from; v <= to; v += step {
		values[v] = true
	}
	return values, nil
}

// number reads digits. Those that are too many for an int are no value of any
// field, as -1 isn't.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

var namePattern = regexp.MustCompile(`\b([A-Z]{3})(L?)\b`)

// unname puts numbers for the names of months or weekdays.
func unname(text string, names map[string]int) string {
	return namePattern.ReplaceAllStringFunc(strings.ToUpper(text), func(word string) string {
		if n, ok := names[word[:3]]; ok {
			return strconv.Itoa(n) + word[3:]
		}
		return word
	})
}

var (
	months   = numbers(1, 12, func(n int) string { return time.Month(n).String() })
	weekdays = numbers(0, 6, func(n int) string { return time.Weekday(n).String() })
)

// numbers maps the first three letters of names to their numbers.
func numbers(from, to int, name func(int) string) map[string]int {
	byName := map[string]int{}
	for n := from; n <= to; n++ {
		byName[strings.ToUpper(name(n)[:3])] = n
	}
	return byName
}

// parseDays reads the three fields that choose the days.
func parseDays(dayOfMonth, month, dayOfWeek string) (days, error) {
	inMonth, err := parseValues(unname(month, months), 1, 12)
	if err != nil {
		return nil, err
	}
	byMonth, err := parseDayField(strings.ToUpper(dayOfMonth), dayOfMonthItem)
	if err != nil {
		return nil, err
	}
	byWeek, err := parseDayField(unname(dayOfWeek, weekdays), dayOfWeekItem)
	if err != nil {
		return nil, err
	}
	both := strings.ContainsAny(dayOfMonth[:1]+dayOfWeek[:1], "*?")
	return func(day time.Time) bool {
		if !inMonth[int(day.Month())] {
			return false
		}
		if both {
			return byMonth(day) && byWeek(day)
		}
		return byMonth(day) || byWeek(day)
	}, nil
}

// parseDayField reads a list of items, any of which may match.
func parseDayField(text string, parse func(item string) (days, error)) (days, error) {
	if text == "?" {
		text = "*"
	}
	var rules []days
	for item := range strings.SplitSeq(text, ",") {
		on, err := parse(item)
		if err != nil {
			return nil, err
		}
		rules = append(rules, on)
	}
	return func(day time.Time) bool {
		return slices.ContainsFunc(rules, func(on days) bool { return on(day) })
	}, nil
}

var (
	beforeLastPattern = regexp.MustCompile(`^L-(\d+)$`)
	nearestPattern    = regexp.MustCompile(`^(\d+)W$`)
	nthPattern        = regexp.MustCompile(`^([0-7])#([1-5])$`)
	lastPattern       = regexp.MustCompile(`^([0-7])L$`)
)

// dayOfMonthItem reads L, L-n, LW, nW, or plain days.
func dayOfMonthItem(item string) (days, error) {
	switch item {
	case "L":
		return func(day time.Time) bool { return day.Day() == lastOf(day).Day() }, nil
	case "LW":
		return func(day time.Time) bool { return day.Equal(nearestWorkday(lastOf(day))) }, nil
	}
	if m := beforeLastPattern.FindStringSubmatch(item); m != nil {
		n := number(m[1])
		if n < 1 || n > 30 {
			return nil, fmt.Errorf("%q is out of range", item)
		}
		return func(day time.Time) bool { return lastOf(day).Day()-day.Day() == n }, nil
	}
	if m := nearestPattern.FindStringSubmatch(item); m != nil {
		n := number(m[1])
		if n < 1 || n > 31 {
			return nil, fmt.Errorf("%q is out of range", item)
		}
		return func(day time.Time) bool {
			meant := time.Date(day.Year(), day.Month(), n, 0, 0, 0, 0, time.UTC)
			return meant.Month() == day.Month() && day.Equal(nearestWorkday(meant))
		}, nil
	}
	values, err := parseItem(item, 1, 31)
	return func(day time.Time) bool { return values[day.Day()] }, err
}

// dayOfWeekItem reads d#n, dL, or plain weekdays. Sunday is 0 and 7.
func dayOfWeekItem(item string) (days, error) {
	if m := nthPattern.FindStringSubmatch(item); m != nil {
		weekday, n := number(m[1])%7, number(m[2])
		return func(day time.Time) bool { return int(day.Weekday()) == weekday && (day.Day()+6)/7 == n }, nil
	}
	if m := lastPattern.FindStringSubmatch(item); m != nil {
		weekday := number(m[1]) % 7
		return func(day time.Time) bool {
			return int(day.Weekday()) == weekday && day.AddDate(0, 0, 7).Month() != day.Month()
		}, nil
	}
	values, err := parseItem(item, 0, 7)
	return func(day time.Time) bool {
		return values[int(day.Weekday())] || day.Weekday() == time.Sunday && values[7]
	}, err
}

// lastOf returns the last day of a day's month.
func lastOf(day time.Time) time.Time {
	return time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC)
}

// nearestWorkday looks for a Monday to Friday ever farther from a day, within its
// month.
func nearestWorkday(day time.Time) time.Time {
	for distance := 0; ; distance++ {
		for _, near := range []time.Time{day.AddDate(0, 0, -distance), day.AddDate(0, 0, distance)} {
			weekend := near.Weekday() == time.Saturday || near.Weekday() == time.Sunday
			if !weekend && near.Month() == day.Month() {
				return near
			}
		}
	}
}
