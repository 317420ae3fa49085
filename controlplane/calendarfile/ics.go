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
	"unicode/utf8"

	ics "github.com/arran4/golang-ical"
	"github.com/teambition/rrule-go"
)

const (
	// MaxBytes is how long a file may be.
	MaxBytes = 1 << 20
	// ExpandedYears is for how many years from now events that recur are expanded.
	ExpandedYears = 10
	// maxInstances bounds the times of one event that recurs.
	maxInstances = 20_000
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
	pointed  int                    // events without a length
	expanded int                    // events that recur
}

func (r *reader) warnings() (w []string) {
	if r.expanded > 0 {
		w = append(w, fmt.Sprintf("%d recurring events were expanded until the end of %d: import the file again before", r.expanded, r.lastYear()))
	}
	if r.floating > 0 {
		w = append(w, fmt.Sprintf("%d times name no time zone: they were taken as UTC", r.floating))
	}
	if r.pointed > 0 {
		w = append(w, fmt.Sprintf("%d events have no length: they were left out", r.pointed))
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
	if length <= 0 {
		r.pointed++
		return nil
	}
	rule := e.GetProperty(ics.ComponentPropertyRrule)
	if rule == nil {
		r.add(start, length)
		return nil
	}
	return r.recurring(e, rule.Value, start, length)
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
		return start, end.Sub(start.Time), nil
	}
	if p := e.GetProperty(ics.ComponentPropertyDuration); p != nil {
		length, err := parseDuration(p.Value)
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
		var err error
		if zone, err = time.LoadLocation(ids[0]); err != nil || ids[0] == "Local" {
			return moment{}, fmt.Errorf("the time zone %q is not known", ids[0])
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

// recurring adds the times of an event that recurs.
func (r *reader) recurring(e *ics.VEvent, rule string, start moment, length time.Duration) error {
	opt, err := rrule.StrToROption(rule)
	if err != nil {
		return fmt.Errorf("RRULE: %w", err)
	}
	skip := r.moved[e.Id()]
	for _, p := range e.GetProperties(ics.ComponentPropertyExdate) {
		for value := range strings.SplitSeq(p.Value, ",") {
			one := *p
			one.Value = value
			at, err := r.moment(&one)
			if err != nil {
				return fmt.Errorf("EXDATE: %w", err)
			}
			skip = append(skip, at.Time)
		}
	}
	if days := int(length / (24 * time.Hour)); isAnnual(opt, start) && len(skip) == 0 && days <= 31 {
		for d := range days {
			r.items = append(r.items, start.AddDate(0, 0, d).Format("01-02"))
		}
		return nil
	}
	return r.expand(opt, start, length, skip)
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
		return errors.New("RRULE: it recurs more often than daily")
	case start.Year() < firstYear:
		return fmt.Errorf("RRULE: it begins before the year %d", firstYear)
	case o.Until.IsZero() || o.Until.After(horizon):
		o.Until = horizon
		r.expanded++
	}
	o.Dtstart = start.Time
	rule, err := rrule.NewRRule(*o)
	if err != nil {
		return fmt.Errorf("RRULE: %w", err)
	}
	from := time.Date(r.now.Year(), 1, 1, 0, 0, 0, 0, time.UTC)
	next := rule.Iterator()
	for n := 0; ; n++ {
		at, ok := next()
		switch {
		case !ok:
			return nil
		case n == maxInstances:
			return fmt.Errorf("RRULE: it has more than %d times", maxInstances)
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
