package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
)

// Warnings implements Recurrence.
func (c *Cron) Warnings() []string { return slices.Clone(c.warnings()) }

func (c *Cron) findWarnings() []string {
	w := slices.Clone(c.stepWarnings)
	domBinds, dowBinds := c.domBinds(), c.dowBinds()
	starred := c.dom.starred || c.dow.starred
	switch {
	case !starred:
		w = append(w, "either day field suffices: it fires on days that match the day of month or the day of week, not only on those that match both")
	case domBinds && dowBinds:
		w = append(w, "both day fields must match, because one of them begins with *")
	}
	if gap := c.longestGap(); gap > 366 {
		w = append(w, fmt.Sprintf("fires rarely: up to %d years pass between two days on which it fires", (gap*400+daysPer400/2)/daysPer400))
	} else if d := c.missingDay(); d != 0 && starred {
		w = append(w, fmt.Sprintf("months without a day %d are skipped; L is the last day of every month", d))
	}
	return w
}

// warnStep notes a step that doesn't do what it seems to.
func (p *parser) warnStep(f *field, item string, low, high, step int) {
	item = trimZeros(item) // whoever writes it otherwise shares the Cron, and its warnings
	size := f.last() - f.min + 1
	values := valueBits(low, high, step)
	if f.max == 7 {
		values = values&127 | values>>7
	}
	switch {
	case low < high && values&(values-1) == 0:
		p.warnings = append(p.warnings, fmt.Sprintf("%q in the %s field fires only at %s %s: the step is larger than the range%s",
			item, f.name, f.name, f.label(low), f.interval(step)))
	case low == f.min && high == f.max && size%step != 0:
		p.warnings = append(p.warnings, fmt.Sprintf("%q in the %s field starts anew with every %s: the last gap is shorter than %d%s",
			item, f.name, f.within, step, f.interval(step)))
	}
}

// interval says what a step of a field was likely meant to be.
func (f *field) interval(step int) string {
	units := map[string]string{"second": "s", "minute": "m", "hour": "h"}
	unit, known := units[f.name]
	if !known {
		return ""
	}
	return fmt.Sprintf(" (every %s isn't cron: use an interval of %d%s)", plural(int64(step), f.name), step, unit)
}

// label returns a value as it is best known: by name where there is one.
func (f *field) label(value int) string {
	if f.names == nil {
		return strconv.Itoa(value)
	}
	return f.names[(value-f.min)%len(f.names)]
}

// domBinds and dowBinds say whether a day field excludes any day.
func (c *Cron) domBinds() bool { return c.dom.days != monthBits(31) }
func (c *Cron) dowBinds() bool { return c.dow.days != 127 }

// missingDay returns the first day of month that c names if that is one which
// a month in question doesn't have, else 0.
func (c *Cron) missingDay() int {
	d := bits.TrailingZeros32(c.dom.days | c.dom.nearest)
	if d > 31 || c.dom.fromLast != 0 || c.dom.lastWeekday {
		return 0
	}
	for month := 1; month <= 12; month++ {
		if c.month>>month&1 != 0 && d > monthLength(2001, month) {
			return d
		}
	}
	return 0
}

// longestGap returns the most days between two days in a row on which c fires,
// over the 400 years of the calendar's cycle. Gaps inside a month don't count,
// nor matter.
func (c *Cron) longestGap() int64 {
	var longest, first, last int64
	for year := 2000; year < 2400; year++ {
		for month := 1; month <= 12; month++ {
			start := daysFromCivil(year, month, 1)
			days := c.daysOf(year, month, start)
			if days == 0 {
				continue
			}
			day := start + int64(bits.TrailingZeros32(days))
			if last == 0 {
				first = day
			} else {
				longest = max(longest, day-last)
			}
			last = start + int64(bits.Len32(days)) - 1
		}
	}
	return max(longest, first+daysPer400-last)
}

// Warnings lists what the author of a plan may not have meant, as it is at an instant
// (Unix seconds), a sentence each. next is the first run after it.
func (p Plan) Warnings(now, next int64) []string {
	w := p.Recurrence.Warnings()
	if years := (next - now) / yearSeconds; years >= 1 {
		w = append(w, fmt.Sprintf("the next fire time is more than %s away: %s", plural(years, "year"), instantText(next)))
	}
	if after, ok := p.Next(next); ok && p.Spread > after-next {
		w = append(w, "the spread is longer than the time between two fire times")
	}
	return w
}

const yearSeconds = 36525 * secondsPerDay / 100
