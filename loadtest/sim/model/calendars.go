package model

import (
	"context"
	"math"
	"slices"

	"github.com/carillon-scheduler/carillon/store"
)

// AddCalendar implements store.Calendars.
func (m *Store) AddCalendar(ctx context.Context, c store.Calendar) (added bool, err error) {
	if err := m.enter(ctx); err != nil {
		return false, err
	}
	defer m.leave()
	return m.days.insert(calendarKey{nameKey{c.Namespace, c.Name}, c.Version}, copyCalendar(c)), nil
}

// Calendar implements store.Calendars.
func (m *Store) Calendar(ctx context.Context, namespace, name string, version int64) (store.Calendar, error) {
	if err := m.enter(ctx); err != nil {
		return store.Calendar{}, err
	}
	defer m.leave()
	key := nameKey{namespace, name}
	if version != 0 {
		if c, found := m.days.get(calendarKey{key, version}); found {
			return copyCalendar(c), nil
		}
		return store.Calendar{}, notFound("calendar %s/%s", namespace, name)
	}
	for k, newest := range m.days.before(calendarKey{key.following(), math.MinInt64}) {
		if k.nameKey == key {
			return copyCalendar(newest), nil
		}
		break
	}
	return store.Calendar{}, notFound("calendar %s/%s", namespace, name)
}

// Calendars implements store.Calendars.
func (m *Store) Calendars(ctx context.Context, namespace, after string, limit int) ([]store.Calendar, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.leave()
	var newest []store.Calendar
	for k, c := range m.days.from(calendarKey{nameKey{namespace, after}.following(), math.MinInt64}) {
		if k.namespace != namespace {
			break
		}
		if last := len(newest) - 1; last >= 0 && newest[last].Name == c.Name {
			newest = newest[:last]
		}
		newest = append(newest, c)
	}
	var page []store.Calendar
	for _, c := range newest {
		if len(page) == limit {
			break
		}
		if !c.Deleted {
			page = append(page, copyCalendar(c))
		}
	}
	return page, nil
}

// copyCalendar returns c with items of its own; nil if it has none.
func copyCalendar(c store.Calendar) store.Calendar {
	if c.Items = slices.Clone(c.Items); len(c.Items) == 0 {
		c.Items = nil
	}
	return c
}
