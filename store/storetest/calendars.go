package storetest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-scheduler/carillon/store"
)

var calendarTests = map[string]func(*testing.T, *world){
	"VersionsNeverChange":     versionsNeverChange,
	"DeletedCalendarsGo":      deletedCalendarsGo,
	"CalendarsAreListed":      calendarsAreListed,
	"NamespacesDoNotSeeOther": namespacesDoNotSeeOther,
}

func (w *world) calendar(name string, version int64, items ...string) store.Calendar {
	return store.Calendar{Namespace: "default", Name: name, Version: version, Description: "of " + name, Items: items, CreatedAt: w.at}
}

// add stores a version that isn't there.
func (w *world) add(c store.Calendar) {
	w.t.Helper()
	added, err := w.AddCalendar(w.ctx, c)
	w.ok(err)
	if !added {
		w.t.Fatalf("version %d of %s was not added", c.Version, c.Name)
	}
}

func (w *world) wantCalendar(name string, version int64, want store.Calendar) {
	w.t.Helper()
	got, err := w.Calendar(w.ctx, "default", name, version)
	w.ok(err)
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("version %d of %s: (-want +got)\n%s", version, name, diff)
	}
}

func (w *world) wantNoCalendar(namespace, name string, version int64) {
	w.t.Helper()
	if c, err := w.Calendar(w.ctx, namespace, name, version); !errors.Is(err, store.ErrNotFound) {
		w.t.Errorf("version %d of %s/%s: %+v, %v; want ErrNotFound", version, namespace, name, c, err)
	}
}

func versionsNeverChange(t *testing.T, w *world) {
	w.wantNoCalendar("default", "closed", 0)
	first, second := w.calendar("closed", 1, "SAT", "SUN"), w.calendar("closed", 2, "SUN", "12-25", "2026-12-31/2027-01-02")
	w.add(first)
	w.wantCalendar("closed", 0, first)
	w.add(second)
	rival := w.calendar("closed", 2, "MON")
	if added, err := w.AddCalendar(w.ctx, rival); added || err != nil {
		t.Errorf("a version was added twice: %v, %v", added, err)
	}
	w.wantCalendar("closed", 0, second)
	w.wantCalendar("closed", 1, first)
	w.wantCalendar("closed", 2, second)
	w.wantNoCalendar("default", "closed", 3)
}

// The tombstone of a calendar is a version, too, so that numbers are never used again.
func deletedCalendarsGo(t *testing.T, w *world) {
	gone := w.calendar("closed", 2)
	gone.Deleted = true
	w.add(w.calendar("closed", 1, "SAT"))
	w.add(gone)
	w.wantCalendar("closed", 0, gone)
	if all, err := w.Calendars(w.ctx, "default", "", 10); err != nil || len(all) != 0 {
		t.Errorf("a deleted calendar is listed: %+v, %v", all, err)
	}
	again := w.calendar("closed", 3, "SUN")
	w.add(again)
	w.wantCalendar("closed", 0, again)
}

func calendarsAreListed(t *testing.T, w *world) {
	newest := []store.Calendar{w.calendar("a", 3, "SAT"), w.calendar("b", 1, "SUN"), w.calendar("c", 2, "MON")}
	for _, c := range newest {
		for version := int64(1); version < c.Version; version++ {
			w.add(w.calendar(c.Name, version, "FRI"))
		}
		w.add(c)
	}
	for after, want := range map[string][]store.Calendar{"": newest[:2], "a": newest[1:], "b": newest[2:], "c": nil} {
		got, err := w.Calendars(w.ctx, "default", after, 2)
		w.ok(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %q: (-want +got)\n%s", after, diff)
		}
	}
}

func namespacesDoNotSeeOther(t *testing.T, w *world) {
	w.add(w.calendar("closed", 1, "SAT"))
	w.wantNoCalendar("other", "closed", 0)
	if all, err := w.Calendars(w.ctx, "other", "", 10); err != nil || len(all) != 0 {
		t.Errorf("another namespace lists %+v, %v", all, err)
	}
}
