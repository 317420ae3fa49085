package calendarfile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job/schedule"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// event returns an iCalendar file with an event of these lines.
func event(lines ...string) string {
	return "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:1\r\nSUMMARY:Feast\r\n" + strings.Join(lines, "\r\n") + "\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
}

func TestEvents(t *testing.T) {
	for want, lines := range map[string][]string{
		"2026-12-25/2026-12-25":                                                                   {"DTSTART;VALUE=DATE:20261225", "TRANSP:TRANSPARENT"},
		"2026-12-24/2026-12-26":                                                                   {"DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20261227"},
		"2026-12-24/2027-01-06":                                                                   {"DTSTART;VALUE=DATE:20261224", "DURATION:P2W"},
		"2026-12-24T18:00:00Z/2026-12-25T06:30:00Z":                                               {"DTSTART:20261224T180000Z", "DURATION:PT12H30M"},
		"2026-07-01T20:00:00Z/2026-07-02T04:00:00Z":                                               {"DTSTART;TZID=Europe/Berlin:20260701T220000", "DTEND;TZID=Europe/Berlin:20260702T060000"},
		"2026-12-01T22:00:00Z/2026-12-01T23:00:00Z":                                               {"DTSTART:20261201T220000", "DTEND:20261201T230000"},
		"2026-12-12/2026-12-12 2026-12-15/2026-12-15":                                             {"DTSTART;VALUE=DATE:20261212", "RDATE;VALUE=DATE:20261215,20261217", "EXDATE;VALUE=DATE:20261217"},
		"2026-12-20/2026-12-20 2027-12-20/2027-12-20 2026-12-22/2026-12-22":                       {"DTSTART;VALUE=DATE:20261220", "RRULE:FREQ=YEARLY;COUNT=2", "RDATE;VALUE=DATE:20261222"},
		"2026-12-01/2026-12-01 2026-12-02/2026-12-02 2026-12-01/2026-12-01 2026-12-08/2026-12-08": {"DTSTART;VALUE=DATE:20261201", "RRULE:FREQ=DAILY;COUNT=2", "RRULE:FREQ=WEEKLY;COUNT=2"},
		"2026-12-03/2026-12-03":                                                                   {"DTSTART;VALUE=DATE:20261203", "DTEND;VALUE=DATE:20261203"},
		"SAT SUN":                                                                                 {"DTSTART;VALUE=DATE:20261205", "RRULE:FREQ=WEEKLY;BYDAY=SA,SU"},
		"THU":                                                                                     {"DTSTART;VALUE=DATE:20261203", "RRULE:FREQ=WEEKLY"},
		"2026-07-01T20:00:00Z/2026-07-01T21:00:00Z":                                               {"DTSTART;TZID=/mozilla.org/20050126_1/Europe/Berlin:20260701T220000", "DURATION:PT1H"},
		"12-25":       {"DTSTART;VALUE=DATE:20001225", "RRULE:FREQ=YEARLY"},
		"12-31 01-01": {"DTSTART;VALUE=DATE:19991231", "DTEND;VALUE=DATE:20000102", "RRULE:FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=31"},
		"":            {"DTSTART;VALUE=DATE:20261225", "STATUS:CANCELLED"},
		"2026-01-05/2026-01-05 2026-01-06/2026-01-06": {"DTSTART;VALUE=DATE:20251231", "RRULE:FREQ=DAILY;UNTIL=20260106", "EXDATE;VALUE=DATE:20260101,20260102", "EXDATE;VALUE=DATE:20260103", "EXDATE;VALUE=DATE:20260104"},
	} {
		items, warnings, err := FromICS(t.Context(), event(lines...), now)
		if err != nil || strings.Join(items, " ") != want {
			t.Errorf("%v: %v, %v %v; want %s", lines, items, warnings, err, want)
		}
	}
}

// Thanksgiving is no date of every year: it is expanded, and a warning says how far.
func TestEventsThatRecurAreExpanded(t *testing.T) {
	items, warnings, err := FromICS(t.Context(), event("DTSTART;VALUE=DATE:20201126", "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"), now)
	if err != nil || len(items) != ExpandedYears+1 || items[0] != "2026-11-26/2026-11-26" || items[10] != "2036-11-27/2036-11-27" {
		t.Errorf("%v, %v", items, err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "2036") {
		t.Errorf("warnings: %v", warnings)
	}
	if _, warnings, err := FromICS(t.Context(), event("DTSTART;VALUE=DATE:20201126", "RRULE:FREQ=MONTHLY;COUNT=90"), now); err != nil || len(warnings) != 0 {
		t.Errorf("a rule that ends: %v, %v", warnings, err)
	}
	_, warnings, err = FromICS(t.Context(), event("DTSTART:20261201T220000", "DTEND:20261201T220000"), now)
	if err != nil || len(warnings) != 2 {
		t.Errorf("an event without a length and a zone: %v, %v", warnings, err)
	}
}

// What recurs every year over the end of February has other dates in leap years.
func TestAnnualEventsOverALeapDay(t *testing.T) {
	items, _, err := FromICS(t.Context(), event("DTSTART;VALUE=DATE:20260227", "DURATION:P3D", "RRULE:FREQ=YEARLY"), now)
	if got := strings.Join(items[:3], " "); err != nil || got != "2026-02-27/2026-03-01 2027-02-27/2027-03-01 2028-02-27/2028-02-29" {
		t.Errorf("%s, %v", got, err)
	}
}

// The times of a file are bounded as a whole, too.
func TestAFileWithManyTimes(t *testing.T) {
	var file strings.Builder
	file.WriteString("BEGIN:VCALENDAR\r\n")
	for i := range 20 {
		fmt.Fprintf(&file, "BEGIN:VEVENT\r\nUID:%d\r\nDTSTART;VALUE=DATE:20200101\r\nRRULE:FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR,SA,SU\r\nEND:VEVENT\r\n", i)
	}
	file.WriteString("END:VCALENDAR\r\n")
	if items, _, err := FromICS(t.Context(), file.String(), now); err == nil || !strings.Contains(err.Error(), "50000") {
		t.Errorf("%d items, %v", len(items), err)
	}
}

// An event may replace one time of another that recurs.
func TestMovedEvents(t *testing.T) {
	file := strings.Replace(event("DTSTART;VALUE=DATE:20260105", "RRULE:FREQ=WEEKLY;COUNT=3"), "END:VCALENDAR",
		"BEGIN:VEVENT\r\nUID:1\r\nRECURRENCE-ID;VALUE=DATE:20260112\r\nDTSTART;VALUE=DATE:20260113\r\nEND:VEVENT\r\nEND:VCALENDAR", 1)
	items, _, err := FromICS(t.Context(), file, now)
	if got := strings.Join(items, " "); err != nil || got != "2026-01-05/2026-01-05 2026-01-19/2026-01-19 2026-01-13/2026-01-13" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestEventsThatAreRefused(t *testing.T) {
	for want, lines := range map[string][]string{
		"ends before it begins": {"DTSTART;VALUE=DATE:20261225", "DTEND;VALUE=DATE:20261224"},
		"RANGE":                 {"DTSTART;VALUE=DATE:20261225", "RECURRENCE-ID;RANGE=THISANDFUTURE;VALUE=DATE:20261225"},
		"EXRULE":                {"DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=DAILY;COUNT=9", "EXRULE:FREQ=WEEKLY"},
		"RDATE":                 {"DTSTART;VALUE=DATE:20261225", "RDATE:x"},
		"W. Europe":             {"DTSTART;TZID=W. Europe Standard Time:20261225T000000"},
		"DTSTART is missing":    {"DTEND;VALUE=DATE:20261225"},
		"no date or time":       {"DTSTART:2026-12-25"},
		"both be dates":         {"DTSTART;VALUE=DATE:20261225", "DTEND:20261226T000000Z"},
		"Nowhere/Land":          {"DTSTART;TZID=Nowhere/Land:20261225T000000"},
		"DURATION":              {"DTSTART;VALUE=DATE:20261225", "DURATION:1 day"},
		"RRULE":                 {"DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=NEVER"},
		"more often than":       {"DTSTART:20261225T000000Z", "DURATION:PT1S", "RRULE:FREQ=SECONDLY"},
		"before the year 1900":  {"DTSTART;VALUE=DATE:00011225", "RRULE:FREQ=DAILY"},
		"EXDATE":                {"DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=DAILY;COUNT=2", "EXDATE:x"},
		"more than 20000":       {"DTSTART;VALUE=DATE:19000101", "RRULE:FREQ=DAILY"},
	} {
		items, _, err := FromICS(t.Context(), event(lines...), now)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"Feast"`) {
			t.Errorf("%v: %v, %v; want %q", lines, items, err, want)
		}
	}
	for _, text := range []string{"", "hello", "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n", "\xff", strings.Repeat("x", MaxBytes+1)} {
		if items, _, err := FromICS(t.Context(), text, now); err == nil {
			t.Errorf("%.20q: %v", text, items)
		}
	}
}

// A caller that has given up isn't worked for.
func TestTheEndOfACall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := FromICS(ctx, event("DTSTART;VALUE=DATE:20261225"), now); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestTables(t *testing.T) {
	for text, want := range map[string]string{
		"2026-12-25\n2026-12-26\n": "2026-12-25 2026-12-26",
		"\ufeffdate,name\r\n2026-12-25,\"Christmas, first\"\r\n\r\nSAT\r\n": "2026-12-25 SAT",
		"from;to;why\n2026-12-24;2027-01-02;winter\n12-25;;again":           "2026-12-24/2027-01-02 12-25",
		"2026-12-24T18:00:00Z , 2026-12-25T06:00:00Z":                       "2026-12-24T18:00:00Z/2026-12-25T06:00:00Z",
		"2026-12-24/2026-12-26,2026-12-31":                                  "2026-12-24/2026-12-26",
		"# of 2026\n2026-12-24,Christmas Eve\n":                             "2026-12-24",
	} {
		items, warnings, err := FromCSV(text)
		if titles := strings.Contains(text, "from") || strings.Contains(text, "date"); titles != (len(warnings) == 1) {
			t.Errorf("%q: warnings %q", text, warnings)
		}
		if got := strings.Join(items, " "); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"2026-12-25\n\n2026-12-32": "line 3",
		"date\ndate\n":             "line 2",
		"2026-12-25,2026-12-01":    "line 1",
		"2026-12-24,2026-12-2x,a":  "line 1",
		"12-24,12-26,a":            "line 1",
		"a\n\"b":                   "line 2",
		"\xff":                     "UTF-8",
	} {
		if items, _, err := FromCSV(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", text, items, err, want)
		}
	}
}

func TestLines(t *testing.T) {
	items, err := FromLines("SAT, SUN # weekends\n\n# nothing\n2026-12-24\t12-25\r\n")
	if got := strings.Join(items, " "); err != nil || got != "SAT SUN 2026-12-24 12-25" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := FromLines("\xff"); err == nil {
		t.Error("what isn't UTF-8 was read")
	}
}

// Whatever a file holds, it is read as items that a calendar takes, or refused.
func FuzzFiles(f *testing.F) {
	f.Add(event("DTSTART;VALUE=DATE:20261225", "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"))
	f.Add(event("DTSTART;TZID=Europe/Berlin:20260701T220000", "DURATION:PT1H", "RRULE:FREQ=MONTHLY;BYDAY=-1FR;BYSETPOS=1"))
	f.Add("date,name\n2026-12-25,Christmas\n")
	f.Fuzz(func(t *testing.T, text string) {
		ics, _, err := FromICS(t.Context(), text, now)
		if err == nil {
			taken(t, ics)
		}
		csv, _, err := FromCSV(text)
		if err == nil {
			taken(t, csv)
		}
	})
}

func taken(t *testing.T, items []string) {
	for i, item := range items {
		if _, err := schedule.NewCalendar("c", 1, []string{item}); err != nil && !outside(item) {
			t.Fatalf("item %d: %v", i, err)
		}
	}
}

// outside reports whether an item lies in years that no schedule reaches.
func outside(item string) bool {
	var year int
	_, err := fmt.Sscanf(item, "%d-", &year)
	return err == nil && (year < 1 || year > 9998) || strings.Contains(item, "/-") || len(item) > 0 && item[0] == '-'
}
