package schedule

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCanonicalText(t *testing.T) {
	for expr, want := range map[string]string{
		"0 2 * * *":                     "0 2 * * *",
		" \t00  02\t*   * *  ":          "0 2 * * *",
		"0 0 lw,015W jan-Mar mon#02,5l": "0 0 LW,15W JAN-MAR MON#2,5L",
		"000-010/05 * * * *":            "0-10/5 * * * *",
		"  @daily ":                     "@daily",
		"30 0 0 ? * 1":                  "30 0 0 ? * 1",
		"10,20,30 * * * *":              "10,20,30 * * * *",
	} {
		if got := mustParse(t, expr).String(); got != want {
			t.Errorf("ParseCron(%q).String() = %q, want %q", expr, got, want)
		}
	}
}

func TestMacros(t *testing.T) {
	for name, expr := range macros {
		macro, plain := mustParse(t, name), mustParse(t, expr)
		if got, want := upcoming(macro, 0, 5), upcoming(plain, 0, 5); got != want {
			t.Errorf("%s fires at %s, %s at %s", name, got, expr, want)
		}
	}
	checkRefused(t, "@Daily", "@Daily", "write @daily")
	checkRefused(t, "@reboot", "@reboot", "no meaning")
	checkRefused(t, "@daily *", "unknown", "@hourly")
	checkRefused(t, "@", "unknown")
}

func TestDescriptions(t *testing.T) {
	for expr, want := range map[string]string{
		"* * * * *":          "every minute, UTC",
		"* * * * * *":        "every second, UTC",
		"*/5 * * * *":        "every 5 minutes, UTC",
		"*/7 * * * *":        "at minutes 0, 7, ..., 56 of every hour, UTC",
		"30 * * * *":         "at minute 30 of every hour, UTC",
		"*/10 * * * * *":     "every 10 seconds, UTC",
		"30 * * * * *":       "at second 30 of every minute, UTC",
		"*/10 5 * * * *":     "every 10 seconds of minute 5 of every hour, UTC",
		"0 2 * * *":          "at 02:00 UTC every day",
		"@daily":             "at 00:00 UTC every day",
		"30 0 2 * * *":       "at 02:00:30 UTC every day",
		"15,45 8,9 * * *":    "at 08:15, 08:45, 09:15 and 09:45 UTC every day",
		"0 22 * * 1-5":       "at 22:00 UTC on Monday to Friday",
		"*/10 9-17 * * 1-5":  "every 10 minutes of hours 9 to 17 UTC on Monday to Friday",
		"0 */2 * * *":        "at minute 0 of hours 0, 2, ..., 22 UTC",
		"0 0 13 * 5":         "at 00:00 UTC on day 13 of the month or on Friday",
		"0 0 */2 * 3":        "at 00:00 UTC on days 1, 3, ..., 31 of the month if that is Wednesday",
		"0 0 29 2 *":         "at 00:00 UTC on day 29 of the month in February",
		"0 0 L * *":          "at 00:00 UTC on the last day of the month",
		"0 0 L-1,L-2 * *":    "at 00:00 UTC on 1 day before the last day and 2 days before the last day of the month",
		"0 0 LW,15W 1-3,6 *": "at 00:00 UTC on the Monday to Friday nearest to day 15 and the last Monday to Friday of the month in January to March and June",
		"0 0 * * 1#1,5L":     "at 00:00 UTC on the 1st Monday of the month and the last Friday of the month",
		"0 0 1-31 * 1":       "at 00:00 UTC every day",
		"0 0 ? * 0,6":        "at 00:00 UTC on Sunday and Saturday",
		"59 59 23 31 12 *":   "at 23:59:59 UTC on day 31 of the month in December",
		"0 0 1 jan,jul *":    "at 00:00 UTC on day 1 of the month in January and July",
	} {
		if got := mustParse(t, expr).Describe(); got != want {
			t.Errorf("%q:\n got %s\nwant %s", expr, got, want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for expr, want := range map[string][]string{
		"0 2 * * *":        nil,
		"*/5 * * * *":      nil,
		"0 9 * * 1-5":      nil,
		"0 0 28 * *":       nil,
		"0 0 L * *":        nil,
		"0 0 30,L * *":     nil,
		"0 0 31 1,3,12 *":  nil,
		"0-0 * * * *":      nil,
		"0 */25 * * *":     {`"*/25" in the hour field fires only at hour 0`},
		"0 0 1 */13 *":     {`"*/13" in the month field fires only at month JAN`},
		"0 0 * * */7":      {`"*/7" in the day of week field fires only at day of week SUN`},
		"10-20/30 * * * *": {`fires only at minute 10`},
		"*/7 * * * *":      {`"*/7" in the minute field starts anew with every hour: the last gap is shorter than 7`},
		"0 0 31 * *":       {"months without a day 31 are skipped"},
		"0 0 30W * *":      {"months without a day 30 are skipped"},
		"0 0 31 * 1-7":     {"either day field suffices"},
		"0 0 29 2 *":       {"fires rarely: up to 8 years"},
	} {
		got := mustParse(t, expr).Warnings()
		if len(got) != len(want) {
			t.Errorf("%q: warnings %q, want %q", expr, got, want)
			continue
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%q: warning %q doesn't say %q", expr, got[i], want[i])
			}
		}
	}
}

func TestWarningsBelongToTheCaller(t *testing.T) {
	c := mustParse(t, "*/7 * * * *")
	first := c.Warnings()
	want := slices.Clone(first)
	first[0] = "changed"
	if got := c.Warnings(); !slices.Equal(got, want) {
		t.Errorf("a caller changed the schedule: %q", got)
	}
}

func TestIntervalLimits(t *testing.T) {
	for _, bad := range []struct {
		every  time.Duration
		anchor int64
		part   string
	}{
		{0, 0, "allowed range of 1s"},
		{-time.Second, 0, "allowed range of 1s"},
		{time.Second - 1, 0, "allowed range of 1s"},
		{1500 * time.Millisecond, 0, "whole seconds"},
		{MaxInterval + time.Second, 0, "36525 days"},
		{1<<63 - 1, 0, "36525 days"},
		{-1 << 63, 0, "allowed range of 1s"},
		{time.Second, MinSecond - 1, "anchor"},
		{time.Second, MaxSecond + 1, "anchor"},
	} {
		_, err := NewInterval(bad.every, bad.anchor)
		var refusal *Error
		if !errors.As(err, &refusal) || !strings.Contains(err.Error(), bad.part) {
			t.Errorf("NewInterval(%v, %d): %v; want %q", bad.every, bad.anchor, err, bad.part)
		}
	}
	if _, err := NewInterval(MaxInterval, MaxSecond); err != nil {
		t.Error(err)
	}
}

func TestIntervalText(t *testing.T) {
	i, err := NewInterval(26*time.Hour+time.Second, MinSecond)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := i.String(), "every 26h0m1s from 0001-01-01T00:00:00Z"; got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
	if got, want := i.Describe(), "every 1 day 2 hours 1 second, on the grid through 0001-01-01 00:00:00 UTC"; got != want {
		t.Errorf("Describe = %q, want %q", got, want)
	}
	if i.Every() != 26*time.Hour+time.Second || i.Anchor() != MinSecond || i.Warnings() != nil {
		t.Error("accessors")
	}
}

func TestNextAndPrevAllocateNothing(t *testing.T) {
	every, err := NewInterval(time.Minute, 7)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Recurrence{mustParse(t, "0 2 * * *"), mustParse(t, "0 0 29 2 */7"), every} {
		if n := testing.AllocsPerRun(100, func() {
			r.Next(1_785_000_000)
			r.Prev(1_785_000_000)
		}); n != 0 {
			t.Errorf("%v: %v allocations", r, n)
		}
	}
}
