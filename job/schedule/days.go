package schedule

import (
	"math/bits"
	"strings"
)

// domSpec is the day-of-month field.
type domSpec struct {
	starred     bool   // begins with * or is ?
	lastWeekday bool   // LW
	days        uint32 // bit d: day d
	fromLast    uint32 // bit n: n days before the last (L is bit 0)
	nearest     uint32 // bit d: the weekday nearest to day d
}

// special takes the extensions L, L-n, LW and nW. Anything else is left to the
// common grammar, whose errors name the field and its range.
func (s *domSpec) special(item string) bool {
	switch {
	case item == "L":
		s.fromLast |= 1
	case item == "LW":
		s.lastWeekday = true
	case strings.HasPrefix(item, "L-"):
		n, ok := number(item[2:])
		if !ok || n < 1 || n > 30 {
			return false
		}
		s.fromLast |= 1 << n
	case strings.HasSuffix(item, "W"):
		d, ok := number(item[:len(item)-1])
		if !ok || d < 1 || d > 31 {
			return false
		}
		s.nearest |= 1 << d
	default:
		return false
	}
	return true
}

// in returns the days (bit d) of a month with length days whose first day is
// weekday first.
func (s *domSpec) in(length, first int) uint32 {
	days := s.days
	for set := s.fromLast; set != 0; set &= set - 1 {
		if d := length - bits.TrailingZeros32(set); d >= 1 {
			days |= 1 << d
		}
	}
	for set := s.nearest; set != 0; set &= set - 1 {
		if d := bits.TrailingZeros32(set); d <= length {
			days |= 1 << nearestWeekday(d, length, first)
		}
	}
	if s.lastWeekday {
		days |= 1 << nearestWeekday(length, length, first)
	}
	return days & monthBits(length)
}

// nearestWeekday returns the Monday to Friday nearest to day d, inside the
// month. For the last day of a month that is its last one.
func nearestWeekday(d, length, first int) int {
	switch (first + d - 1) % 7 {
	case 6: // Saturday
		if d == 1 {
			return 3
		}
		return d - 1
	case 0: // Sunday
		if d == length {
			return d - 2
		}
		return d + 1
	}
	return d
}

// dowSpec is the day-of-week field.
type dowSpec struct {
	starred bool
	days    uint8    // bit w: weekday w, 0 being Sunday
	last    uint8    // bit w: the last weekday w of the month
	nth     [6]uint8 // nth[n], bit w: the n-th weekday w of the month, n from 1
	maxNth  int      // the highest n in use
}

// special takes the extensions d#n and dL.
func (s *dowSpec) special(item string) bool {
	if day, n, ok := strings.Cut(item, "#"); ok {
		w, okDay := weekdayValue(day)
		k, okN := number(n)
		if !okDay || !okN || k < 1 || k > 5 {
			return false
		}
		s.nth[k] |= 1 << w
		s.maxNth = max(s.maxNth, k)
		return true
	}
	if day, ok := strings.CutSuffix(item, "L"); ok {
		w, okDay := weekdayValue(day)
		if okDay {
			s.last |= 1 << w
		}
		return okDay
	}
	return false
}

func weekdayValue(text string) (w int, ok bool) {
	for i, name := range dowField.names {
		if text == name {
			return i, true
		}
	}
	n, ok := number(text)
	return n % 7, ok && n <= 7
}

// in returns the days (bit d) of a month with length days whose first day is
// weekday first.
func (s *dowSpec) in(length, first int) (days uint32) {
	const everyWeek = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28
	for w := range 7 {
		date := 1 + (w-first+7)%7 // of the first weekday w
		bit := uint8(1) << w
		if s.days&bit != 0 {
			days |= everyWeek << date
		}
		if s.last&bit != 0 {
			days |= 1 << (date + (length-date)/7*7)
		}
		for n := 1; n <= s.maxNth; n++ {
			if s.nth[n]&bit != 0 {
				days |= 1 << (date + 7*(n-1))
			}
		}
	}
	return days & monthBits(length)
}

// monthBits returns the bits 1 to length.
func monthBits(length int) uint32 { return uint32(2)<<length - 2 }

// daysIn applies the day rule: both fields if one is starred, else either.
func (c *Cron) daysIn(length, first int) uint32 {
	dom, dow := c.dom.in(length, first), c.dow.in(length, first)
	if c.dom.starred || c.dow.starred {
		return dom & dow
	}
	return dom | dow
}

// tabulate fills the table of days: a month is known by its length and the
// weekday of its first day.
func (c *Cron) tabulate() {
	for length := 28; length <= 31; length++ {
		for first := range 7 {
			c.days[length-28][first] = c.daysIn(length, first)
		}
	}
}

// everFires says whether there is a day at all. In the 400 years after which
// the calendar repeats, every month begins on each weekday, and February does
// so in common and in leap years; so it is enough to look at the table.
func (c *Cron) everFires() bool {
	for month := 1; month <= 12; month++ {
		if c.month>>month&1 == 0 {
			continue
		}
		for first := range 7 {
			if c.daysOfKind(monthLength(2001, month), first) != 0 || c.daysOfKind(monthLength(2000, month), first) != 0 {
				return true
			}
		}
	}
	return false
}

func (c *Cron) daysOfKind(length, first int) uint32 { return c.days[length-28][first] }
