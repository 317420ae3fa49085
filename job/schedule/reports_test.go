package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The tests of this file are named by the public fault reports of other
// schedulers that they make impossible here. B-numbers are those of the
// project's collection of such reports.

type firing struct{ expr, from, want string }

func checkFirings(t *testing.T, rows ...firing) {
	t.Helper()
	for _, r := range rows {
		c, err := ParseCron(r.expr)
		if err != nil {
			t.Errorf("ParseCron(%q): %v", r.expr, err)
			continue
		}
		if got := upcoming(c, unix(t, r.from), 3); got != r.want {
			t.Errorf("%q from %s:\n got %s\nwant %s", r.expr, r.from, got, r.want)
		}
	}
}

// checkRefused wants an *Error that contains every part.
func checkRefused(t *testing.T, expr string, parts ...string) {
	t.Helper()
	_, err := ParseCron(expr)
	var refusal *Error
	if !errors.As(err, &refusal) {
		t.Errorf("ParseCron(%q) = %v, want an *Error", expr, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("ParseCron(%q): %q does not say %q", expr, err, part)
		}
	}
}

func TestB01TimeZonePrefixIsRefused(t *testing.T) {
	for _, expr := range []string{
		"TZ=0", "CRON_TZ=UTC", "TZ=TZ=TZ=", "TZ=", "TZ= * * * * *",
		"TZ=Europe/Berlin 0 2 * * *", "CRON_TZ=UTC 0 2 * * *", "tz=UTC 0 2 * * *",
	} {
		checkRefused(t, expr, "time zone", "schedules are UTC")
	}
}

func TestB02NegativeStepIsRefused(t *testing.T) {
	checkRefused(t, "0-0/-005 * * * *", "minute", "-005", "0-59")
	checkRefused(t, "*/-5 * * * *", "minute", "*/-5", "0-59")
	checkFast(t, "0-0/-005 * * * *")
}

// checkFast parses a few times and wants the fastest to be within 1 ms: the
// others may have met a busy machine.
func checkFast(t *testing.T, expr string) {
	t.Helper()
	fastest := time.Hour
	for range 20 {
		start := time.Now()
		_, _ = ParseCron(expr)
		fastest = min(fastest, time.Since(start))
	}
	if fastest > time.Millisecond {
		t.Errorf("ParseCron(%q) takes %v, want at most 1ms", expr, fastest)
	}
}

func TestB03ZeroStepIsRefused(t *testing.T) {
	checkRefused(t, "*/0 * * * *", "minute", "*/0", "step of 0")
	checkRefused(t, "0 0 */0 * *", "day of month", "*/0", "1-31")
	checkRefused(t, "1-5/0 * * * *", "minute", "1-5/0")
}

func TestB04ErrorsNameFieldTokenAndRange(t *testing.T) {
	checkRefused(t, "* 30 * * *", "hour", `"30"`, "0-23")
	checkRefused(t, "60 * * * *", "minute", `"60"`, "0-59")
	checkRefused(t, "* 24 * * *", "hour", `"24"`, "0-23")
	checkRefused(t, "* * 0 * *", "day of month", `"0"`, "1-31")
	checkRefused(t, "* * * 13 *", "month", `"13"`, "1-12", "JAN-DEC")
	checkRefused(t, "* * * * 8", "day of week", `"8"`, "0-7", "SUN-SAT")
	checkRefused(t, "* * 30 * * *", "hour", `"30"`, "0-23")
	checkRefused(t, "60 * * * * *", "second", `"60"`, "0-59")
}

func TestB05StepAboveTheFieldWarns(t *testing.T) {
	checkFirings(t,
		firing{"*/120 * * * *", "2026-03-10T12:00:00Z", "2026-03-10T13:00:00Z,2026-03-10T14:00:00Z,2026-03-10T15:00:00Z"},
		firing{"*/60 * * * *", "2026-03-10T12:00:00Z", "2026-03-10T13:00:00Z,2026-03-10T14:00:00Z,2026-03-10T15:00:00Z"},
		firing{"*/90 * * * *", "2026-03-10T12:00:00Z", "2026-03-10T13:00:00Z,2026-03-10T14:00:00Z,2026-03-10T15:00:00Z"},
	)
	for _, step := range []string{"60", "90", "120"} {
		warned(t, "*/"+step+" * * * *", "*/"+step, "fires only at minute 0")
	}
}

func TestB07WeekWrittenMondayFirst(t *testing.T) {
	checkFirings(t, firing{"0 0 * * 1-7", "2017-07-18T13:47:00Z", "2017-07-19T00:00:00Z,2017-07-20T00:00:00Z,2017-07-21T00:00:00Z"})
	// Sunday by name is 0, as in cronie: a reversed range, but with a hint.
	checkRefused(t, "0 0 * * MON-SUN", "day of week", "MON-SUN", "reversed", "1-7")
}

func TestB09LeadingZerosAreDecimal(t *testing.T) {
	checkFirings(t,
		firing{"10 20 09 02 *", "2018-01-11T16:04:01Z", "2018-02-09T20:10:00Z,2019-02-09T20:10:00Z,2020-02-09T20:10:00Z"},
		firing{"09 09 09 09 *", "2026-09-09T09:09:00Z", "2027-09-09T09:09:00Z,2028-09-09T09:09:00Z,2029-09-09T09:09:00Z"},
	)
}

func TestB10StepOnASingleNumberIsRefusedWithAHint(t *testing.T) {
	checkRefused(t, "0 0 1/1 * *", "day of month", `"1/1"`, "write 1-31/1")
	checkRefused(t, "5/15 * * * *", "minute", `"5/15"`, "write 5-59/15")
	checkRefused(t, "0 0 * * 1/2", "day of week", "write 1-6/2")
}

func TestB12RangeStepKeepsItsFirstValue(t *testing.T) {
	checkFirings(t, firing{"0-59/59 10 * * *", "2020-08-20T09:30:00Z", "2020-08-20T10:00:00Z,2020-08-20T10:59:00Z,2020-08-21T10:00:00Z"})
}

func TestB15StarStepDayFieldMeansAnd(t *testing.T) {
	checkFirings(t,
		firing{"0 0 */2 * 3", "2024-08-17T00:00:00Z", "2024-08-21T00:00:00Z,2024-09-11T00:00:00Z,2024-09-25T00:00:00Z"},
		firing{"0 0 1-31/2 * 3", "2024-08-17T00:00:00Z", "2024-08-19T00:00:00Z,2024-08-21T00:00:00Z,2024-08-23T00:00:00Z"},
	)
	warned(t, "0 0 */2 * 3", "both day fields must match")
	warned(t, "0 0 1-31/2 * 3", "either day field suffices")
}

func TestB16FirstTuesdayIdiomWarns(t *testing.T) {
	checkFirings(t,
		firing{"0 9 1-7 * 2", "2022-05-12T09:30:00Z", "2022-05-17T09:00:00Z,2022-05-24T09:00:00Z,2022-05-31T09:00:00Z"},
		firing{"0 9 * * 2#1", "2022-05-12T09:30:00Z", "2022-06-07T09:00:00Z,2022-07-05T09:00:00Z,2022-08-02T09:00:00Z"},
	)
	warned(t, "0 9 1-7 * 2", "either day field suffices")
}

func TestB19FridayTheThirteenth(t *testing.T) {
	checkFirings(t, firing{"0 0 13 * 5", "2026-03-10T00:00:00Z", "2026-03-13T00:00:00Z,2026-03-20T00:00:00Z,2026-03-27T00:00:00Z"})
}

func TestB21SloppyListsAndSignsAreRefused(t *testing.T) {
	for expr, token := range map[string]string{
		", * * * *": `","`, "1, * * * *": `"1,"`, ",1 * * * *": `",1"`, "1,,2 * * * *": `"1,,2"`,
		"+5 * * * *": `"+5"`, "*-10 * * * *": `"*-10"`, "0\u00a02 * * *": `"\u00a0"`,
		"MON * * * *": `"MON"`, "1-2-3 * * * *": `"1-2-3"`, "１ * * * *": `"\uff11"`, "٣ * * * *": `"\u0663"`,
		"0 2 * * *\n": `"\n"`, "0 2 * * *\r": `"\r"`, "0\v2 * * *": `"\v"`, "0 2 * * *\x00": `"\x00"`, "\xff * * * *": `"\xff"`,
		"*5 * * * *": `"*5"`, "** * * * *": `"**"`, "1- * * * *": `"1-"`, "*/5/2 * * * *": `"*/5/2"`,
		"0 0 ?/2 * *": `"?/2"`, "0 0 1,? * *": `"?"`, "? * * * *": `"?"`, "0 0 L/2 * *": `"L/2"`, "0 0 1-L * *": `"1-L"`,
		"0 0 L-0 * *": `"L-0"`, "0 0 L-31 * *": `"L-31"`, "0 0 0W * *": `"0W"`, "0 0 32W * *": `"32W"`, "0 0 W * *": `"W"`,
		"0 0 * * L": `"L"`, "0 0 * * 8L": `"8L"`, "0 0 * * 1#0": `"1#0"`, "0 0 * * 1#6": `"1#6"`, "0 0 * * #1": `"#1"`,
		"0 0 * * 1#": `"1#"`, "0 0 * L *": `"L"`, "L * * * *": `"L"`, "0 0 * JANUARY *": `"JANUARY"`, "H * * * *": `"H"`,
	} {
		checkRefused(t, expr, token)
	}
	checkRefused(t, "", "empty")
	checkRefused(t, " \t ", "empty")
	checkRefused(t, "* * * *", "4 fields", "5 or 6")
	checkRefused(t, "* * * * * * *", "7 fields", "no year field")
	checkRefused(t, strings.Repeat("0,", 200)+"0 * * * *", "bytes")
}

func TestB22MonthEndAndNearestWeekday(t *testing.T) {
	const from = "2026-03-10T12:34:56Z"
	checkFirings(t,
		firing{"0 0 L * *", from, "2026-03-31T00:00:00Z,2026-04-30T00:00:00Z,2026-05-31T00:00:00Z"},
		firing{"0 0 1W * *", from, "2026-04-01T00:00:00Z,2026-05-01T00:00:00Z,2026-06-01T00:00:00Z"},
		firing{"0 0 LW * *", from, "2026-03-31T00:00:00Z,2026-04-30T00:00:00Z,2026-05-29T00:00:00Z"},
		firing{"0 0 * * 5L", from, "2026-03-27T00:00:00Z,2026-04-24T00:00:00Z,2026-05-29T00:00:00Z"},
		firing{"0 0 * * 1#5", from, "2026-03-30T00:00:00Z,2026-06-29T00:00:00Z,2026-08-31T00:00:00Z"},
		firing{"0 0 ? * 1", from, "2026-03-16T00:00:00Z,2026-03-23T00:00:00Z,2026-03-30T00:00:00Z"},
		firing{"0 0 L-2 2 *", from, "2027-02-26T00:00:00Z,2028-02-27T00:00:00Z,2029-02-26T00:00:00Z"},
		// 2026-08-01 is a Saturday, 2026-11-01 a Sunday: 1W stays in the month.
		firing{"0 0 1w * *", "2026-07-30T00:00:00Z", "2026-08-03T00:00:00Z,2026-09-01T00:00:00Z,2026-10-01T00:00:00Z"},
		firing{"0 0 1W * *", "2026-10-30T00:00:00Z", "2026-11-02T00:00:00Z,2026-12-01T00:00:00Z,2027-01-01T00:00:00Z"},
		// 2026-05-31 is a Sunday: 31W is the Friday before; months without a 31st have none.
		firing{"0 0 31W * *", "2026-05-01T00:00:00Z", "2026-05-29T00:00:00Z,2026-07-31T00:00:00Z,2026-08-31T00:00:00Z"},
		firing{"0 0 * * fril", from, "2026-03-27T00:00:00Z,2026-04-24T00:00:00Z,2026-05-29T00:00:00Z"},
		firing{"0 0 1,L * *", from, "2026-03-31T00:00:00Z,2026-04-01T00:00:00Z,2026-04-30T00:00:00Z"},
	)
}

func TestB23ImpossibleDatesAreRefusedFast(t *testing.T) {
	impossible := []string{
		"0 0 30 2 *", "0 0 31 2 *", "0 0 31 4,6,9,11 *", "0 0 31 4 *", "0 0 30W 2 *", "0 0 L-29 2 *",
		"0 0 */31 * 1#2", "0 0 31 2 */2",
	}
	for _, expr := range impossible {
		checkRefused(t, expr, "never fires")
		checkFast(t, expr)
	}
}

func TestB24NoNextTimeMeansNever(t *testing.T) {
	c := mustParse(t, "0 0 29 2 *")
	if next, ok := c.Next(unix(t, "9996-02-29T00:00:00Z")); ok {
		t.Errorf("after the last leap day of the range: %s", rfc3339(next))
	}
	if prev, ok := c.Prev(unix(t, "0004-02-29T00:00:00Z")); ok {
		t.Errorf("before the first leap day of the range: %s", rfc3339(prev))
	}
}

func TestB26B28LeapDays(t *testing.T) {
	checkFirings(t,
		firing{"0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z,2032-02-29T00:00:00Z,2036-02-29T00:00:00Z"},
		firing{"0 9 29 2 *", "2016-02-29T09:00:00Z", "2020-02-29T09:00:00Z,2024-02-29T09:00:00Z,2028-02-29T09:00:00Z"},
		firing{"0 0 29 2 *", "1896-02-29T00:00:00Z", "1904-02-29T00:00:00Z,1908-02-29T00:00:00Z,1912-02-29T00:00:00Z"},
		// Both must match: a leap day that is a Sunday.
		firing{"0 0 29 2 */7", "2026-01-01T00:00:00Z", "2032-02-29T00:00:00Z,2060-02-29T00:00:00Z,2088-02-29T00:00:00Z"},
		firing{"0 0 29 2 */7", "2089-01-01T00:00:00Z", "2128-02-29T00:00:00Z,2156-02-29T00:00:00Z,2184-02-29T00:00:00Z"},
	)
	warned(t, "0 0 29 2 *", "fires rarely: up to 8 years")
	warned(t, "0 0 29 2 */7", "fires rarely: up to 40 years")
}

func TestB30B32TodayCounts(t *testing.T) {
	checkFirings(t,
		firing{"0 * * * 1-5", "2016-02-29T11:00:00Z", "2016-02-29T12:00:00Z,2016-02-29T13:00:00Z,2016-02-29T14:00:00Z"},
		firing{"30 17 * * 1-5", "2013-06-10T17:08:09Z", "2013-06-10T17:30:00Z,2013-06-11T17:30:00Z,2013-06-12T17:30:00Z"},
	)
}

func TestB34B36B40ProcessTimeZoneIsIrrelevant(t *testing.T) {
	old := time.Local
	defer func() { time.Local = old }()
	for _, zone := range []*time.Location{
		time.UTC, time.FixedZone("Honolulu", -10*3600), time.FixedZone("Kiritimati", 14*3600), loadZone("Europe/Berlin"), loadZone("America/New_York"),
	} {
		time.Local = zone
		checkFirings(t,
			firing{"0 12 * * 0", "2022-03-24T11:00:00Z", "2022-03-27T12:00:00Z,2022-04-03T12:00:00Z,2022-04-10T12:00:00Z"},
			firing{"30 2 * * *", "2026-03-07T12:00:00Z", "2026-03-08T02:30:00Z,2026-03-09T02:30:00Z,2026-03-10T02:30:00Z"},
			firing{"0 2 * * *", "2026-10-24T15:00:00Z", "2026-10-25T02:00:00Z,2026-10-26T02:00:00Z,2026-10-27T02:00:00Z"},
		)
		every, err := NewInterval(time.Hour, unix(t, "2026-03-08T00:30:00Z"))
		if err != nil {
			t.Fatal(err)
		}
		if got := every.String(); got != "every 1h0m0s from 2026-03-08T00:30:00Z" {
			t.Errorf("in zone %v: %s", zone, got)
		}
	}
}

// loadZone falls back to a fixed offset where no zone database is installed.
func loadZone(name string) *time.Location {
	if zone, err := time.LoadLocation(name); err == nil {
		return zone
	}
	return time.FixedZone(name, -5*3600)
}

func TestB37IntervalsKeepTheirGrid(t *testing.T) {
	anchor := unix(t, "2026-03-10T00:00:07Z")
	every, err := NewInterval(time.Minute, anchor)
	if err != nil {
		t.Fatal(err)
	}
	// Asking late, after a run of 24 s or a restart, doesn't move the grid.
	at := anchor
	for k := range int64(10) {
		next, ok := every.Next(at + 24*(k%2))
		if !ok || next != at+60 {
			t.Fatalf("run %d: next %s, want %s", k, rfc3339(next), rfc3339(at+60))
		}
		at = next
	}
	checkRefused(t, "@every 1m", "@every", "interval")
}

func TestB39OverdueScheduleGoesOn(t *testing.T) {
	c := mustParse(t, "* * * * *")
	last := unix(t, "2026-03-10T12:00:00Z")
	now := last + 5*60 + 17
	missed := 0
	for at, _ := c.Next(last); at <= now; at, _ = c.Next(at) {
		missed++
	}
	if next, ok := c.Next(now); missed != 5 || !ok || next <= now {
		t.Errorf("%d missed, next %s after %s", missed, rfc3339(next), rfc3339(now))
	}
}

func TestB151B153RangeOfYears(t *testing.T) {
	checkFirings(t,
		firing{"0 0 1 3 *", "2100-02-28T00:00:00Z", "2100-03-01T00:00:00Z,2101-03-01T00:00:00Z,2102-03-01T00:00:00Z"},
		firing{"0 0 * * *", "2106-02-06T12:00:00Z", "2106-02-07T00:00:00Z,2106-02-08T00:00:00Z,2106-02-09T00:00:00Z"},
		firing{"47 23 11 4 *", "2262-04-11T23:46:00Z", "2262-04-11T23:47:00Z,2263-04-11T23:47:00Z,2264-04-11T23:47:00Z"},
		firing{"0 0 1 1 *", "9997-06-01T00:00:00Z", "9998-01-01T00:00:00Z,9999-01-01T00:00:00Z,NONE"},
		firing{"* * * * *", "0001-01-01T00:00:00Z", "0001-01-01T00:01:00Z,0001-01-01T00:02:00Z,0001-01-01T00:03:00Z"},
		firing{"0 0 1 1 *", "1968-06-01T00:00:00Z", "1969-01-01T00:00:00Z,1970-01-01T00:00:00Z,1971-01-01T00:00:00Z"},
	)
	every, err := NewInterval(time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Recurrence{mustParse(t, "* * * * * *"), every} {
		checkBounds(t, r)
	}
}

// checkBounds asks a schedule that fires every second at and beyond the ends of
// the range.
func checkBounds(t *testing.T, r Recurrence) {
	t.Helper()
	const lowest, highest = -1 << 63, 1<<63 - 1
	for _, q := range []struct {
		name   string
		method func(int64) (int64, bool)
		arg    int64
		want   int64
		ok     bool
	}{
		{"Next", r.Next, lowest, MinSecond, true},
		{"Next", r.Next, MinSecond - 2, MinSecond, true},
		{"Next", r.Next, MinSecond - 1, MinSecond, true},
		{"Next", r.Next, MinSecond, MinSecond + 1, true},
		{"Next", r.Next, MaxSecond - 1, MaxSecond, true},
		{"Next", r.Next, MaxSecond, 0, false},
		{"Next", r.Next, highest, 0, false},
		{"Prev", r.Prev, highest, MaxSecond, true},
		{"Prev", r.Prev, MaxSecond + 1, MaxSecond, true},
		{"Prev", r.Prev, MaxSecond, MaxSecond - 1, true},
		{"Prev", r.Prev, MinSecond + 1, MinSecond, true},
		{"Prev", r.Prev, MinSecond, 0, false},
		{"Prev", r.Prev, lowest, 0, false},
	} {
		got, ok := q.method(q.arg)
		if ok != q.ok || ok && got != q.want {
			t.Errorf("%v: %s(%d) = %d, %v; want %d, %v", r, q.name, q.arg, got, ok, q.want, q.ok)
		}
	}
}

func TestB173DescriptionSaysUTC(t *testing.T) {
	checkFirings(t, firing{"*/5 14 * * *", "2024-09-13T14:15:00Z", "2024-09-13T14:20:00Z,2024-09-13T14:25:00Z,2024-09-13T14:30:00Z"})
	if got := mustParse(t, "*/5 14 * * *").Describe(); !strings.Contains(got, "UTC") {
		t.Errorf("description %q does not say UTC", got)
	}
}

func mustParse(t testing.TB, expr string) *Cron {
	t.Helper()
	c, err := ParseCron(expr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// warned wants a warning that contains every part.
func warned(t *testing.T, expr string, parts ...string) {
	t.Helper()
	all := mustParse(t, expr).Warnings()
	for _, w := range all {
		found := true
		for _, part := range parts {
			found = found && strings.Contains(w, part)
		}
		if found {
			return
		}
	}
	t.Errorf("%q: no warning says %q among %q", expr, parts, all)
}
