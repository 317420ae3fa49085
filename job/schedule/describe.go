package schedule

import (
	"cmp"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

var (
	weekdayNames = []string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	monthNames   = []string{"", "January", "February", "March", "April", "May", "June", "July",
		"August", "September", "October", "November", "December"}
	ordinals = []string{"", "1st", "2nd", "3rd", "4th", "5th"}
)

const (
	allMinutes = 1<<60 - 1 // or seconds
	allHours   = 1<<24 - 1
	allMonths  = 1<<13 - 2

	// mostClockTimes is how many times of day are spelled out.
	mostClockTimes = 6
)

// Describe implements Recurrence. Examples: "at 02:00 UTC every day", "every 10
// minutes of hours 9 to 17 UTC on Monday to Friday".
func (c *Cron) Describe() string {
	var b strings.Builder
	clock := c.describeClock()
	if clock != "" {
		b.WriteString(clock + " UTC")
	} else {
		b.WriteString(c.describeTimes())
	}
	days := c.describeDays()
	if days == "" && clock != "" {
		days = "every day"
	}
	if days != "" {
		b.WriteString(" " + days)
	}
	if c.month != allMonths {
		b.WriteString(" in " + and(ranges(uint64(c.month), nameOf(monthNames))))
	}
	if clock == "" && c.hour == allHours {
		b.WriteString(", UTC")
	}
	return b.String()
}

// Describe says in plain English when a plan's job fires.
func (p Plan) Describe() string {
	text := p.Recurrence.Describe()
	switch {
	case p.Spread > 0 && p.Unplaced:
		text += ", later by up to " + spell(p.Spread) + ", which the job's name decides"
	case p.Spread > 0:
		text += fmt.Sprintf(", %s later (of a spread of %s)", cmp.Or(spell(p.Offset), "0 seconds"), spell(p.Spread))
	}
	if p.From > MinSecond {
		text += ", from " + instantText(p.From)
	}
	if p.MaxOccurrences > 0 {
		text += ", " + plural(p.MaxOccurrences, "time") + " at most"
	}
	if p.To < MaxSecond {
		text += ", up to " + instantText(p.To)
	}
	if calendars := p.Except.Calendars(); len(calendars) > 0 {
		names := make([]string, len(calendars))
		for i, c := range calendars {
			names[i] = c.String()
		}
		text += ", except what is in " + and(names)
	}
	return text
}

// describeClock spells the times of day out, if they are few.
func (c *Cron) describeClock() string {
	if bits.OnesCount32(c.hour)*bits.OnesCount64(c.min)*bits.OnesCount64(c.sec) > mostClockTimes {
		return ""
	}
	var times []string
	for s, ok := c.timeFrom(0); ok; s, ok = c.timeFrom(s + 1) {
		text := fmt.Sprintf("%02d:%02d", s/3600, s/60%60)
		if c.sec != 1 {
			text += fmt.Sprintf(":%02d", s%60)
		}
		times = append(times, text)
	}
	return "at " + and(times)
}

// describeTimes describes the times of day by field.
func (c *Cron) describeTimes() string {
	var parts []string
	if c.sec != 1 {
		parts = append(parts, sixtieths(c.sec, "second"))
	}
	switch {
	case c.sec == 1:
		parts = append(parts, sixtieths(c.min, "minute"))
	case c.min != allMinutes:
		parts = append(parts, "of "+count("minute", uint64(c.min)))
	case !strings.HasPrefix(parts[0], "every"):
		parts = append(parts, "of every minute")
	}
	switch {
	case c.hour != allHours:
		parts = append(parts, "of "+count("hour", uint64(c.hour))+" UTC")
	case c.min != allMinutes && !strings.HasPrefix(parts[len(parts)-1], "every"):
		parts = append(parts, "of every hour")
	}
	return strings.Join(parts, " ")
}

// sixtieths describes a set of seconds or minutes.
func sixtieths(set uint64, unit string) string {
	if set == allMinutes {
		return "every " + unit
	}
	for step := 2; step <= 30; step++ {
		if 60%step == 0 && set == valueBits(0, 59, step) {
			return fmt.Sprintf("every %d %ss", step, unit)
		}
	}
	return "at " + count(unit, set)
}

// count says "hour 9" or "hours 9 to 17".
func count(unit string, set uint64) string {
	if set&(set-1) != 0 {
		unit += "s"
	}
	return unit + " " + and(ranges(set, strconv.Itoa))
}

// describeDays describes both day fields, or returns "" for every day.
func (c *Cron) describeDays() string {
	dom, dow := c.dom.describe(), c.dow.describe()
	domBinds, dowBinds := c.domBinds(), c.dowBinds()
	both := c.dom.starred || c.dow.starred
	switch {
	case domBinds && dowBinds && both:
		return "on " + dom + " if that is " + dow
	case domBinds && dowBinds:
		return "on " + dom + " or on " + dow
	case domBinds && both:
		return "on " + dom
	case dowBinds && both:
		return "on " + dow
	}
	return "" // both fields match every day, or one of them does and suffices
}

func (s *domSpec) describe() string {
	var parts []string
	if s.days != 0 {
		parts = append(parts, count("day", uint64(s.days)))
	}
	for set := s.fromLast; set != 0; set &= set - 1 {
		if n := bits.TrailingZeros32(set); n > 0 {
			parts = append(parts, plural(int64(n), "day")+" before the last day")
		} else {
			parts = append(parts, "the last day")
		}
	}
	for set := s.nearest; set != 0; set &= set - 1 {
		parts = append(parts, fmt.Sprintf("the Monday to Friday nearest to day %d", bits.TrailingZeros32(set)))
	}
	if s.lastWeekday {
		parts = append(parts, "the last Monday to Friday")
	}
	return and(parts) + " of the month"
}

func (s *dowSpec) describe() string {
	var parts []string
	if s.days != 0 {
		parts = ranges(uint64(s.days), nameOf(weekdayNames))
	}
	for n := 1; n <= 5; n++ {
		parts = append(parts, s.ofMonth(s.nth[n], ordinals[n])...)
	}
	return and(append(parts, s.ofMonth(s.last, "last")...))
}

func (s *dowSpec) ofMonth(set uint8, which string) (parts []string) {
	for ; set != 0; set &= set - 1 {
		parts = append(parts, "the "+which+" "+weekdayNames[bits.TrailingZeros8(set)]+" of the month")
	}
	return parts
}

func nameOf(names []string) func(int) string {
	return func(i int) string { return names[i] }
}

// ranges lists a set, with runs of three and more as "a to b" and a set of
// four and more at equal distances as "a, b, ..., z".
func ranges(set uint64, name func(int) string) (parts []string) {
	low, high := bits.TrailingZeros64(set), bits.Len64(set)-1
	if bits.OnesCount64(set) >= 4 {
		step := bits.TrailingZeros64(set>>low>>1) + 1
		if step > 1 && set == valueBits(low, high, step) {
			return []string{name(low) + ", " + name(low+step) + ", ..., " + name(high)}
		}
	}
	for v := low; v <= high; v++ {
		if set>>v&1 == 0 {
			continue
		}
		end := v + bits.TrailingZeros64(^(set >> v)) - 1
		switch {
		case end-v >= 2:
			parts = append(parts, name(v)+" to "+name(end))
			v = end
		default:
			parts = append(parts, name(v))
		}
	}
	return parts
}

// and joins with commas and a last "and".
func and(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}
