package schedule

import "math/bits"

// Count implements Recurrence.
func (c *Cron) Count(after, upTo int64) int64 {
	if upTo <= after {
		return 0
	}
	return c.rank(upTo) - c.rank(after)
}

// Nth implements Recurrence.
func (c *Cron) Nth(after, n int64) (t int64, ok bool) {
	if n < 1 {
		return 0, false
	}
	before := c.rank(after)
	if n > c.years.cycle*25-before { // more than 9999 years have; spares an overflow below
		return 0, false
	}
	return c.ofRank(before + n)
}

// yearCounts is how many fire times there are in a year, by its kind, and in the 400
// years of the calendar's cycle.
type yearCounts struct {
	kind  [2][7]int64 // [leap][weekday of 1 January]
	cycle int64
	day   int64 // fire times of a day that has any
}

const cycleYears = 400

// countYears counts the fire times of years.
func (c *Cron) countYears() (y yearCounts) {
	y.day = int64(bits.OnesCount32(c.hour) * bits.OnesCount64(c.min) * bits.OnesCount64(c.sec))
	for leap := range 2 {
		for first := range 7 {
			start := first
			for month := 1; month <= 12; month++ {
				length := monthLength(2001-leap, month) // 2000 was a leap year
				y.kind[leap][first] += y.day * int64(c.daysOfMonth(month, length, start))
				start = (start + length) % 7
			}
		}
	}
	first := firstWeekday
	for year := 1; year <= cycleYears; year++ {
		y.cycle += y.of(year, &first)
	}
	return y
}

// firstWeekday is that of 1 January of year 1, and so of every cycle: a Monday.
const firstWeekday = 1

// of returns the count of a year that begins on a weekday, which becomes that of the
// next year.
func (y *yearCounts) of(year int, first *int) int64 {
	leap, days := 0, 365
	if isLeap(year) {
		leap, days = 1, 366
	}
	n := y.kind[leap][*first]
	*first = (*first + days) % 7
	return n
}

// daysOfMonth returns how many days of a month c fires on.
func (c *Cron) daysOfMonth(month, length, first int) int {
	if c.month>>month&1 == 0 {
		return 0
	}
	return bits.OnesCount32(c.daysOfKind(length, first))
}

// rank returns how many fire times there are up to and at an instant.
func (c *Cron) rank(at int64) int64 {
	y := &c.years
	if at < MinSecond {
		return 0
	}
	from := min(at, MaxSecond) - MinSecond
	day := from/secondsPerDay + MinSecond/secondsPerDay
	year, month, d := civilFromDays(day)
	n := y.cycle * int64((year-1)/cycleYears)
	first := firstWeekday
	for before := (year-1)/cycleYears*cycleYears + 1; before < year; before++ {
		n += y.of(before, &first)
	}
	for m := 1; m < month; m++ {
		n += y.day * int64(c.daysOfMonth(m, monthLength(year, m), first))
		first = (first + monthLength(year, m)) % 7
	}
	days := c.daysOf(year, month, day-int64(d)+1)
	n += y.day * int64(bits.OnesCount32(days&(1<<d-1)))
	if days>>d&1 != 0 {
		n += int64(c.timesUpTo(int(from % secondsPerDay)))
	}
	return n
}

// timesUpTo returns how many fire times a day has up to and at second s of it.
func (c *Cron) timesUpTo(s int) int {
	h, m := s/3600, s/60%60
	perMinute := bits.OnesCount64(c.sec)
	perHour := perMinute * bits.OnesCount64(c.min)
	n := perHour * bits.OnesCount32(c.hour&(1<<h-1))
	if c.hour>>h&1 == 0 {
		return n
	}
	n += perMinute * bits.OnesCount64(c.min&(1<<m-1))
	if c.min>>m&1 == 0 {
		return n
	}
	return n + bits.OnesCount64(c.sec&(2<<(s%60)-1))
}

// ofRank returns the fire time up to which there are so many, itself included.
func (c *Cron) ofRank(rank int64) (t int64, ok bool) {
	y := &c.years
	cycles := (rank - 1) / y.cycle
	rank -= cycles * y.cycle
	year, first := int(cycles)*cycleYears+1, firstWeekday
	for {
		was := first
		n := y.of(year, &first)
		if n >= rank {
			first = was
			break
		}
		rank -= n
		year++
	}
	if year > 9999 {
		return 0, false
	}
	month := 1
	for {
		length := monthLength(year, month)
		n := y.day * int64(c.daysOfMonth(month, length, first))
		if n >= rank {
			break
		}
		rank -= n
		first = (first + length) % 7
		month++
	}
	days := c.daysOfKind(monthLength(year, month), first)
	d := nthBit(uint64(days), (rank-1)/y.day)
	day := daysFromCivil(year, month, d)
	return day*secondsPerDay + int64(c.nthTime((rank-1)%y.day)), true
}

// nthTime returns the fire time of a day that n others come before, in seconds.
func (c *Cron) nthTime(n int64) int {
	perMinute := int64(bits.OnesCount64(c.sec))
	perHour := perMinute * int64(bits.OnesCount64(c.min))
	h := nthBit(uint64(c.hour), n/perHour)
	m := nthBit(c.min, n%perHour/perMinute)
	return h*3600 + m*60 + nthBit(c.sec, n%perMinute)
}

// nthBit returns the place of the bit that n others come before. There must be so many.
func nthBit(set uint64, n int64) int {
	for ; n > 0; n-- {
		set &= set - 1
	}
	return bits.TrailingZeros64(set)
}

// Count implements Recurrence.
func (i *Interval) Count(after, upTo int64) int64 {
	after, upTo = max(after, MinSecond-1), min(upTo, MaxSecond)
	if upTo <= after {
		return 0
	}
	// From the grid's point at or before after to that at or before upTo.
	span := upTo - floorMod(upTo-i.anchor, i.every) - (after - floorMod(after-i.anchor, i.every))
	return span / i.every
}

// Nth implements Recurrence.
func (i *Interval) Nth(after, n int64) (t int64, ok bool) {
	first, ok := i.Next(after)
	if !ok || n < 1 || n-1 > (MaxSecond-first)/i.every {
		return 0, false
	}
	return first + (n-1)*i.every, true
}
