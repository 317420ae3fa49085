package cockroach

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// AddCalendar implements store.Calendars.
func (db *DB) AddCalendar(ctx context.Context, c store.Calendar) (added bool, err error) {
	err = db.inTx(ctx, "add calendar", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, insertCalendar, c.Namespace, c.Name, c.Version, c.Description, strings.Join(c.Items, ","), c.Deleted, int64(c.CreatedAt))
		added = tag.RowsAffected() == 1
		return err
	})
	return added, err
}

// Calendar implements store.Calendars.
func (db *DB) Calendar(ctx context.Context, namespace, name string, version int64) (store.Calendar, error) {
	what := "calendar " + namespace + "/" + name
	if version == 0 {
		return one(ctx, db, what, storekit.ScanCalendar, newestCalendar, namespace, name)
	}
	return one(ctx, db, what, storekit.ScanCalendar, selectCalendar, namespace, name, version)
}

// Calendars implements store.Calendars.
func (db *DB) Calendars(ctx context.Context, namespace, after string, limit int) ([]store.Calendar, error) {
	return list(ctx, db, "list calendars", storekit.ScanCalendar, listCalendars, namespace, after, limit)
}
