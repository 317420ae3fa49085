package jobspec

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
)

// Calendars finds a version of a calendar, the newest one if version is 0. It fails with
// ErrNoCalendar if there is none.
type Calendars func(ctx context.Context, namespace, name string, version int64) (*schedule.Calendar, error)

// ErrNoCalendar says that there is no such calendar.
var ErrNoCalendar = errors.New("there is no such calendar")

const (
	// calendarRefSeparator parts the calendars that a schedule names, before they are
	// looked up.
	calendarRefSeparator = ";"
	// maxCalendarBytes bounds what the calendars of a job hold together: each job keeps
	// them by value.
	maxCalendarBytes = 64 << 10
)

// calendarNames checks the calendars that a request names, and joins them.
func calendarNames(v *Violations, field string, names []string) string {
	if len(names) > schedule.MaxCalendars {
		v.Add(field, ReasonInvalidSchedule, fmt.Sprintf("must be at most %d, are %d", schedule.MaxCalendars, len(names)))
		return ""
	}
	seen := map[string]bool{}
	for i, ref := range names {
		name, _, err := parseCalendarRef(ref)
		if err == nil && seen[name] {
			err = errors.New("is named twice")
		}
		seen[name] = true
		if err != nil {
			v.Add(fmt.Sprintf("%s[%d]", field, i), ReasonInvalidSchedule, err.Error())
		}
	}
	return strings.Join(names, calendarRefSeparator)
}

// parseCalendarRef reads {calendar} or {calendar}@{version}; version 0 is the newest.
func parseCalendarRef(ref string) (name string, version int64, err error) {
	name, number, pinned := strings.Cut(ref, "@")
	if err := job.CheckName(name); err != nil {
		return "", 0, errors.New("the calendar's name " + err.Error())
	}
	if !pinned {
		return name, 0, nil
	}
	if version, err = strconv.ParseInt(number, 10, 64); err != nil || version < 1 {
		return "", 0, fmt.Errorf("the version must be a number from 1 on, is %q", number)
	}
	return name, version, nil
}

// resolve replaces the names of a schedule's calendars by what they hold.
func resolve(ctx context.Context, v *Violations, field string, j *job.Job, find Calendars) error {
	if j.Schedule.Calendars == "" {
		return nil
	}
	var calendars []*schedule.Calendar
	for i, ref := range strings.Split(j.Schedule.Calendars, calendarRefSeparator) {
		name, version, _ := parseCalendarRef(ref) // calendarNames checked it
		c, err := find(ctx, j.Namespace, name, version)
		if errors.Is(err, ErrNoCalendar) {
			v.Add(fmt.Sprintf("%s[%d]", field, i), ReasonCalendarUnknown, fmt.Sprintf("there is no calendar %q in namespaces/%s", ref, j.Namespace))
			continue
		}
		if err != nil {
			return err
		}
		calendars = append(calendars, c)
	}
	j.Schedule.Calendars = schedule.Exclude(calendars).String()
	if n := len(j.Schedule.Calendars); n > maxCalendarBytes {
		v.Add(field, ReasonInvalidSchedule, fmt.Sprintf("hold %d bytes together, at most %d are allowed", n, maxCalendarBytes))
	}
	return nil
}
