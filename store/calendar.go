package store

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
)

// Calendar is one version of a calendar: days on which jobs that name it don't fire. It
// never changes. A job keeps the versions that it uses by value, so this is only where
// new jobs take them from.
type Calendar struct {
	Namespace   string
	Name        string
	Version     int64 // from 1 on
	Description string
	Items       []string // as schedule.Calendar lists them; none if it was deleted
	Deleted     bool     // the calendar ends with this version, unless another one follows
	CreatedAt   job.Instant
}

// Calendars keeps calendars, all versions of each.
type Calendars interface {
	// AddCalendar stores a version, unless there is one with its number: then added is
	// false, and somebody else was first.
	AddCalendar(ctx context.Context, c Calendar) (added bool, err error)
	// Calendar reads a version, or the newest one if version is 0, deleted or not. It
	// returns ErrNotFound if there is none.
	Calendar(ctx context.Context, namespace, name string, version int64) (Calendar, error)
	// Calendars lists the newest versions of a namespace's calendars by name, those
	// that were deleted left out.
	Calendars(ctx context.Context, namespace, after string, limit int) ([]Calendar, error)
}
