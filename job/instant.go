package job

import (
	"errors"
	"strings"
	"time"
)

// Instant is a point in time: microseconds since the Unix epoch, UTC. Zero means
// "none" wherever a field may be empty. Sixty-four bits of microseconds reach
// far beyond the years 1 to 9999 that the API can carry.
type Instant int64

// The range of instants that the API carries: years 1 to 9999.
const (
	MinInstant Instant = -62_135_596_800_000_000
	MaxInstant Instant = 253_402_300_799_999_999
)

// Second is one second in an Instant's unit.
const Second = 1_000_000

// At returns the instant of t, cut to microseconds.
func At(t time.Time) Instant { return Instant(t.UnixMicro()) }

// AtSecond returns the instant of a Unix time in whole seconds.
func AtSecond(unix int64) Instant { return Instant(unix * Second) }

// Time returns i as a time.Time in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// Seconds returns i in whole Unix seconds, rounded down.
func (i Instant) Seconds() int64 {
	s := int64(i) / Second
	if int64(i)%Second < 0 {
		s--
	}
	return s
}

// Milliseconds returns i in Unix milliseconds, rounded up, so that a timer set
// to it never runs before i.
func (i Instant) Milliseconds() int64 {
	ms := int64(i) / 1000
	if int64(i)%1000 > 0 {
		ms++
	}
	return ms
}

// Add returns i plus d, cut to microseconds.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Microseconds()) }

// Sub returns the time from o to i.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i-o) * time.Microsecond }

// Whole reports whether i falls on a whole second, as scheduled fire times do.
func (i Instant) Whole() bool { return i%Second == 0 }

// String returns i in RFC 3339, or "none".
func (i Instant) String() string {
	if i == 0 {
		return "none"
	}
	return i.Time().Format(time.RFC3339Nano)
}

const (
	wholeIDLayout = "20060102T150405Z"
	microIDLayout = "20060102T150405.000000Z"
)

// ID returns i as it stands in the resource name of a slot: 20261130T020000Z, or
// 20261130T020000.123456Z where it carries microseconds.
func (i Instant) ID() string {
	if i.Whole() {
		return i.Time().Format(wholeIDLayout)
	}
	return i.Time().Format(microIDLayout)
}

// ParseInstantID reads what ID wrote. It refuses every other spelling, so that a
// slot has exactly one name.
func ParseInstantID(s string) (Instant, error) {
	layout := wholeIDLayout
	if strings.Contains(s, ".") {
		layout = microIDLayout
	}
	t, err := time.Parse(layout, s)
	if err != nil || At(t).ID() != s {
		return 0, errors.New("a fire time is written as 20261130T020000Z, or as 20261130T020000.123456Z")
	}
	return At(t), nil
}
