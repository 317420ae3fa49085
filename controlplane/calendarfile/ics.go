// Package calendarfile reads the files in which people keep days off, iCalendar and
// CSV, as the items of an exclusion calendar.
package calendarfile

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the machine may have none
	"unicode/utf8"

	ics "github.com/arran4/golang-ical"
	"github.com/teambition/rrule-go"
)

const (
	// MaxBytes is how long a file may be.
	MaxBytes = 1 << 20
	// ExpandedYears is for how many years from now events that recur are expanded.
	ExpandedYears = 10
	// maxInstances bounds the times of one event that recurs, and maxItems those of a
	// whole file.
	maxInstances = 20_000
	maxItems     = 50_000
	// firstYear is the earliest in which an event that recurs may begin: each of its
	// times since must be walked over.
	firstYear = 1900
)

func checkText(text string) error {
	switch {
	case len(text) > MaxBytes:
		return fmt.Errorf("must be at most %d bytes, has %d", MaxBytes, len(text))
	case !utf8.ValidString(text):
		return errors.New("must be valid UTF-8")
	}
	return nil
}

// FromICS reads the times of the events of an iCalendar file (RFC 5545) as items. An
// event of whole days that recurs every year on its date becomes days of every year;
// other events that recur are expanded until ExpandedYears from now, and warnings say
// so. Times without a time zone are taken as UTC. An error names the event. The end of
// ctx is looked for between two events: a rule without any time takes a while.
func FromICS(ctx context.Context, text string, now time.Time) (items, warnings []string, err error) {
	if err := checkText(text); err != nil {
		return nil, nil, err
	}
	file, err := ics.ParseCalendar(strings.NewReader(text))
	if err != nil {
		return nil, nil, fmt.Errorf("is not an iCalendar file: %w", err)
	}
	r := reader{now: now.UTC(), moved: map[string][]time.Time{}}
	events := file.Events()
	for _, e := range events {
		if err := r.noteMoved(e); err != nil {
			return nil, nil, fmt.Errorf("event %s: %w", nameOf(e), err)
		}
	}
	for _, e := range events {
		err := ctx.Err()
		if err == nil {
			err = r.event(e)
		}
		if err == nil && len(r.items) > maxItems {
			err = fmt.Errorf("with it, the file has more than %d times", maxItems)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("event %s: %w", nameOf(e), err)
		}
	}
	if len(events) == 0 {
		return nil, nil, errors.New("has no event")
	}
	return r.items, r.warnings(), nil
}

// reader collects what events say.
type reader struct {
	now      time.Time
	items    []string
	moved    map[string][]time.Time // by the UID of an event that recurs: its times that another event replaces
	floating int                    // times without a zone
	pointed  []string               // the names of events without a length
	expanded int                    // events that recur without an end
}

func (r *reader) warnings() (w []string) {
	if r.expanded > 0 {
		w = append(w, fmt.Sprintf("events that recur for ever (%d) were expanded until the end of %d: import the file again before", r.expanded, r.lastYear()))
	}
	if r.floating > 0 {
		w = append(w, fmt.Sprintf("times that name no time zone (%d) were taken as UTC", r.floating))
	}
	if n := len(r.pointed); n > 0 {
		const most = 5
		w = append(w, fmt.Sprintf("events without a length (%d) were left out: %s", n, strings.Join(r.pointed[:min(n, most)], ", ")))
	}
	return w
}

func (r *reader) lastYear() int { return r.now.Year() + ExpandedYears }

// moment is a time of an event: a whole day, or an instant.
type moment struct {
	time.Time
	day bool
}

// noteMoved notes which time of an event that recurs another event replaces.
func (r *reader) noteMoved(e *ics.VEvent) error {
	p := e.GetProperty(ics.ComponentPropertyRecurrenceId)
	if p == nil {
		return nil
	}
	if len(p.ICalParameters["RANGE"]) > 0 {
		return errors.New("RECURRENCE-ID: a RANGE isn't supported")
	}
	at, err := r.moment(p)
	if err == nil {
		r.moved[e.Id()] = append(r.moved[e.Id()], at.Time)
	}
	return err
}

func (r *reader) event(e *ics.VEvent) error {
	if p := e.GetProperty(ics.ComponentPropertyStatus); p != nil && strings.EqualFold(p.Value, "CANCELLED") {
		return nil
	}
	start, length, err := r.extent(e)
	if err != nil {
		return err
	}
	if length == 0 {
		r.pointed = append(r.pointed, nameOf(e))
		return nil
	}
	return r.times(e, start, length)
}

// times adds the times of an event: its own, those of its rules and RDATEs, without
// those that another event replaces or an EXDATE takes away.
func (r *reader) times(e *ics.VEvent, start moment, length time.Duration) error {
	also, err1 := r.list(e, ics.ComponentPropertyRdate)
	except, err2 := r.list(e, ics.ComponentPropertyExdate)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if e.HasProperty(ics.ComponentPropertyExrule) {
		return errors.New("EXRULE isn't supported")
	}
	skip := slices.Clone(r.moved[e.Id()])
	if e.HasProperty(ics.ComponentPropertyRecurrenceId) {
		skip = nil // it is the one that replaces
	}
	for _, m := range except {
		skip = append(skip, m.Time)
	}
	rules := e.GetProperties(ics.ComponentPropertyRrule)
	if len(rules) == 0 {
		also = append([]moment{start}, also...)
	}
	alone := len(rules) == 1 && len(also)+len(skip) == 0
	for _, rule := range rules {
		if err := r.recurring(rule.Value, start, length, skip, alone); err != nil {
			return fmt.Errorf("RRULE: %w", err)
		}
	}
	for _, m := range also {
		if !slices.ContainsFunc(skip, m.Equal) {
			r.add(moment{m.Time, start.day}, length)
		}
	}
	return nil
}

// list reads the times of all properties of a name.
func (r *reader) list(e *ics.VEvent, name ics.ComponentProperty) (all []moment, err error) {
	for _, p := range e.GetProperties(name) {
		for value := range strings.SplitSeq(p.Value, ",") {
			one := *p
			one.Value = value
			m, err := r.moment(&one)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// extent returns when an event begins, and its length.
func (r *reader) extent(e *ics.VEvent) (start moment, length time.Duration, err error) {
	p := e.GetProperty(ics.ComponentPropertyDtStart)
	if p == nil {
		return start, 0, errors.New("DTSTART is missing")
	}
	if start, err = r.moment(p); err != nil {
		return start, 0, fmt.Errorf("DTSTART: %w", err)
	}
	if p := e.GetProperty(ics.ComponentPropertyDtEnd); p != nil {
		end, err := r.moment(p)
		if err != nil {
			return start, 0, fmt.Errorf("DTEND: %w", err)
		}
		if end.day != start.day {
			return start, 0, errors.New("DTSTART and DTEND must both be dates, or both be times")
		}
		length := end.Sub(start.Time)
		if length < 0 {
			return start, 0, errors.New("it ends before it begins")
		}
		if length == 0 && start.day {
			length = 24 * time.Hour // what many programs write for one day
		}
		return start, length, nil
	}
	if p := e.GetProperty(ics.ComponentPropertyDuration); p != nil {
		length, err := parseDuration(p.Value)
		if err == nil && start.day && length%(24*time.Hour) != 0 {
			err = fmt.Errorf("DURATION: %q isn't whole days, as DTSTART is", p.Value)
		}
		return start, length, err
	}
	if start.day {
		length = 24 * time.Hour
	}
	return start, length, nil
}

var durationForm = regexp.MustCompile(`^\+?P(?:(\d{1,4})W)?(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})S)?)?$`)

// parseDuration reads the value of a DURATION, such as P1DT12H.
func parseDuration(text string) (d time.Duration, err error) {
	parts := durationForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, fmt.Errorf("DURATION: %q is none", text)
	}
	for i, unit := range []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.Atoi(parts[i+1]) // digits, or none
		d += time.Duration(n) * unit
	}
	return d, nil
}

// moment reads a DATE or a DATE-TIME.
func (r *reader) moment(p *ics.IANAProperty) (moment, error) {
	if t, err := time.Parse("20060102", p.Value); err == nil {
		return moment{t, true}, nil
	}
	if t, err := time.Parse("20060102T150405Z", p.Value); err == nil {
		return moment{t, false}, nil
	}
	zone := time.UTC
	if ids := p.ICalParameters["TZID"]; len(ids) > 0 && ids[0] != "UTC" {
		var known bool
		if zone, known = zoneOf(ids[0]); !known {
			return moment{}, fmt.Errorf("the time zone %q is not known; names such as Europe/Berlin are", ids[0])
		}
	} else if len(ids) == 0 {
		r.floating++
	}
	t, err := time.ParseInLocation("20060102T150405", p.Value, zone)
	if err != nil {
		return moment{}, fmt.Errorf("%q is no date or time", p.Value)
	}
	return moment{t, false}, nil
}

// zoneOf returns a time zone by its name in the tz database, which may stand behind a
// prefix, as in /mozilla.org/20050126_1/Europe/Berlin.
func zoneOf(id string) (*time.Location, bool) {
	for id != "" && id != "Local" {
		if zone, err := time.LoadLocation(id); err == nil {
			return zone, true
		}
		_, rest, _ := strings.Cut(strings.TrimPrefix(id, "/"), "/")
		if !strings.Contains(rest, "/") {
			break
		}
		id = rest
	}
	return nil, false
}

// recurring adds the times of a rule. If it is alone, simple ones become days of every
// year, or weekdays, which need no end.
func (r *reader) recurring(rule string, start moment, length time.Duration, skip []time.Time, alone bool) error {
	opt, err := rrule.StrToROption(rule)
	if err != nil {
		return err
	}
	days := int(length / (24 * time.Hour))
	switch {
	case alone && isAnnual(opt, start) && days <= 31 && !meetsLeapDay(start, days):
		for d := range days {
			r.items = append(r.items, start.AddDate(0, 0, d).Format("01-02"))
		}
		return nil
	case alone && days == 1 && isWeekly(opt, start):
		for _, day := range append(opt.Byweekday, weekdaysOf(opt, start)...) {
			r.items = append(r.items, strings.ToUpper(time.Weekday((day.Day() + 1) % 7).String()[:3]))
		}
		return nil
	}
	return r.expand(opt, start, length, skip)
}

// meetsLeapDay reports whether days from a start on, of whatever year, may lie on both
// sides of where a leap day is: which dates they are differs from year to year.
func meetsLeapDay(start moment, days int) bool {
	first := time.Date(2000, start.Month(), start.Day(), 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, 0, days-1)
	leap := time.Date(2000, time.February, 29, 0, 0, 0, 0, time.UTC)
	return days > 1 && !first.After(leap) && !last.Before(leap)
}

// isWeekly reports whether a rule means weekdays, for ever.
func isWeekly(o *rrule.ROption, start moment) bool {
	plain := len(o.Bysetpos)+len(o.Bymonth)+len(o.Bymonthday)+len(o.Byyearday)+len(o.Byweekno)+len(o.Byhour)+len(o.Byminute)+len(o.Bysecond)+len(o.Byeaster) == 0
	return start.day && o.Freq == rrule.WEEKLY && o.Interval <= 1 && o.Count == 0 && o.Until.IsZero() && plain
}

// weekdaysOf is the weekday of a start whose rule names none.
func weekdaysOf(o *rrule.ROption, start moment) []rrule.Weekday {
	if len(o.Byweekday) > 0 {
		return nil
	}
	return []rrule.Weekday{[]rrule.Weekday{rrule.SU, rrule.MO, rrule.TU, rrule.WE, rrule.TH, rrule.FR, rrule.SA}[start.Weekday()]}
}

// isAnnual reports whether a rule means the date of its start in every year. 29
// February isn't such a date for a rule, which leaves other years out; nor is it for a
// calendar.
func isAnnual(o *rrule.ROption, start moment) bool {
	same := func(values []int, want int) bool { return len(values) == 0 || len(values) == 1 && values[0] == want }
	plain := len(o.Bysetpos)+len(o.Byyearday)+len(o.Byweekno)+len(o.Byweekday)+len(o.Byhour)+len(o.Byminute)+len(o.Bysecond)+len(o.Byeaster) == 0
	return start.day && o.Freq == rrule.YEARLY && o.Interval <= 1 && o.Count == 0 && o.Until.IsZero() && plain &&
		same(o.Bymonth, int(start.Month())) && same(o.Bymonthday, start.Day())
}

// expand adds the times of an event until the last year that is looked at, from this
// one on.
func (r *reader) expand(o *rrule.ROption, start moment, length time.Duration, skip []time.Time) error {
	horizon := time.Date(r.lastYear()+1, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)
	switch {
	case o.Freq > rrule.DAILY:
		return errors.New("it recurs more often than daily")
	case start.Year() < firstYear:
		return fmt.Errorf("it begins before the year %d", firstYear)
	case o.Count == 0 && (o.Until.IsZero() || o.Until.After(horizon)):
		o.Until = horizon
		r.expanded++
	}
	o.Dtstart = start.Time
	rule, err := rrule.NewRRule(*o)
	if err != nil {
		return err
	}
	from := time.Date(r.now.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
	next := rule.Iterator()
	for n := 0; ; n++ {
		at, ok := next()
		switch {
		case !ok:
			return nil
		case n == maxInstances:
			return fmt.Errorf("it has more than %d times", maxInstances)
		case at.Add(length).After(from) && !slices.ContainsFunc(skip, at.Equal):
			r.add(moment{at, start.day}, length)
		}
	}
}

// add makes an item of a time.
func (r *reader) add(start moment, length time.Duration) {
	end := start.Add(length)
	if start.day {
		r.items = append(r.items, start.Format(time.DateOnly)+"/"+end.Add(-time.Second).Format(time.DateOnly))
		return
	}
	r.items = append(r.items, start.UTC().Format(time.RFC3339)+"/"+end.UTC().Format(time.RFC3339))
}

// nameOf returns what people know an event by.
func nameOf(e *ics.VEvent) string {
	for _, property := range []ics.ComponentProperty{ics.ComponentPropertySummary, ics.ComponentPropertyUniqueId} {
		if p := e.GetProperty(property); p != nil && p.Value != "" {
			return fmt.Sprintf("%q", p.Value[:min(len(p.Value), 80)])
		}
	}
	return "without a name"
}
