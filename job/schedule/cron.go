package schedule

import "math/bits"

// Cron is a parsed cron expression. Make one with ParseCron.
type Cron struct {
	sec, min uint64
	hour     uint32
	month    uint16 // bit m: month m, 1 being January
	dom      domSpec
	dow      dowSpec

	days         [4][7]uint32 // [length of the month - 28][weekday of its first day], bit d: fires on day d
	years        yearCounts
	text         string
	stepWarnings []string
	warnings     func() []string // finds them once: a list of jobs asks for those of each
}

// String returns the expression in canonical form: one space between fields,
// names in upper case, no leading zeros. Macros stay as they are.
func (c *Cron) String() string { return c.text }

// Next implements Recurrence.
func (c *Cron) Next(after int64) (t int64, ok bool) {
	if after >= MaxSecond {
		return 0, false
	}
	from := max(after+1, MinSecond) - MinSecond
	day := from/secondsPerDay + MinSecond/secondsPerDay
	year, month, d := civilFromDays(day)
	today := c.daysOf(year, month, day-int64(d)+1)
	if today>>d&1 != 0 {
		if s, ok := c.timeFrom(int(from % secondsPerDay)); ok {
			return day*secondsPerDay + int64(s), true
		}
	}
	if later := today >> d >> 1; later != 0 {
		day += int64(bits.TrailingZeros32(later)) + 1
		return day*secondsPerDay + int64(c.firstTime()), true
	}
	return c.nextMonth(year, month)
}

// nextMonth returns the first fire time after a month. The search ends, for
// every expression fires within the 400 years of the calendar's cycle.
func (c *Cron) nextMonth(year, month int) (t int64, ok bool) {
	for {
		if later := c.month >> month >> 1; later != 0 {
			month += bits.TrailingZeros16(later) + 1
		} else {
			year++
			month = bits.TrailingZeros16(c.month)
		}
		if year > 9999 {
			return 0, false
		}
		first := daysFromCivil(year, month, 1)
		if days := c.daysOf(year, month, first); days != 0 {
			day := first + int64(bits.TrailingZeros32(days)) - 1
			return day*secondsPerDay + int64(c.firstTime()), true
		}
	}
}

// Prev implements Recurrence.
func (c *Cron) Prev(before int64) (t int64, ok bool) {
	if before <= MinSecond {
		return 0, false
	}
	to := min(before-1, MaxSecond) - MinSecond
	day := to/secondsPerDay + MinSecond/secondsPerDay
	year, month, d := civilFromDays(day)
	today := c.daysOf(year, month, day-int64(d)+1)
	if today>>d&1 != 0 {
		if s, ok := c.timeUpTo(int(to % secondsPerDay)); ok {
			return day*secondsPerDay + int64(s), true
		}
	}
	if earlier := today & (1<<d - 1); earlier != 0 {
		day -= int64(d - (bits.Len32(earlier) - 1))
		return day*secondsPerDay + int64(c.lastTime()), true
	}
	return c.prevMonth(year, month)
}

// prevMonth returns the last fire time before a month.
func (c *Cron) prevMonth(year, month int) (t int64, ok bool) {
	for {
		if earlier := c.month & (1<<month - 1); earlier != 0 {
			month = bits.Len16(earlier) - 1
		} else {
			year--
			month = bits.Len16(c.month) - 1
		}
		if year < 1 {
			return 0, false
		}
		first := daysFromCivil(year, month, 1)
		if days := c.daysOf(year, month, first); days != 0 {
			day := first + int64(bits.Len32(days)) - 2
			return day*secondsPerDay + int64(c.lastTime()), true
		}
	}
}

// daysOf returns the days (bit d) on which c fires in a month that begins on
// day number first.
func (c *Cron) daysOf(year, month int, first int64) uint32 {
	if c.month>>month&1 == 0 {
		return 0
	}
	return c.daysOfKind(monthLength(year, month), weekday(first))
}

// timeFrom returns the first fire time of a day at or after second s of it.
func (c *Cron) timeFrom(s int) (int, bool) {
	h, m := s/3600, s/60%60
	if c.hour>>h&1 != 0 {
		if c.min>>m&1 != 0 {
			if later := c.sec >> (s % 60); later != 0 {
				return s + bits.TrailingZeros64(later), true
			}
		}
		if later := c.min >> m >> 1; later != 0 {
			m += bits.TrailingZeros64(later) + 1
			return h*3600 + m*60 + bits.TrailingZeros64(c.sec), true
		}
	}
	later := c.hour >> h >> 1
	if later == 0 {
		return 0, false
	}
	h += bits.TrailingZeros32(later) + 1
	return h*3600 + bits.TrailingZeros64(c.min)*60 + bits.TrailingZeros64(c.sec), true
}

// timeUpTo returns the last fire time of a day at or before second s of it.
func (c *Cron) timeUpTo(s int) (int, bool) {
	h, m := s/3600, s/60%60
	if c.hour>>h&1 != 0 {
		if c.min>>m&1 != 0 {
			if earlier := c.sec & (2<<(s%60) - 1); earlier != 0 {
				return s - s%60 + highest(earlier), true
			}
		}
		if earlier := c.min & (1<<m - 1); earlier != 0 {
			return h*3600 + highest(earlier)*60 + highest(c.sec), true
		}
	}
	earlier := c.hour & (1<<h - 1)
	if earlier == 0 {
		return 0, false
	}
	return highest(uint64(earlier))*3600 + highest(c.min)*60 + highest(c.sec), true
}

func (c *Cron) firstTime() int {
	return bits.TrailingZeros32(c.hour)*3600 + bits.TrailingZeros64(c.min)*60 + bits.TrailingZeros64(c.sec)
}

func (c *Cron) lastTime() int {
	return highest(uint64(c.hour))*3600 + highest(c.min)*60 + highest(c.sec)
}

// highest returns the highest bit of a set that isn't empty.
func highest(set uint64) int { return bits.Len64(set) - 1 }
