package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// AddCalendar implements store.Calendars.
func (db *DB) AddCalendar(ctx context.Context, c store.Calendar) (added bool, err error) {
	err = db.inTx(ctx, func(tx *writeTx) error {
		n, err := tx.exec(`INSERT INTO calendars (namespace, name, version, description, items, deleted, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			c.Namespace, c.Name, c.Version, c.Description, strings.Join(c.Items, ","), c.Deleted, int64(c.CreatedAt))
		added = n == 1
		return err
	})
	return added, err
}

const selectCalendars = `SELECT ` + storekit.CalendarColumns + ` FROM calendars c WHERE c.namespace = ?1 AND `

// Calendar implements store.Calendars.
func (db *DB) Calendar(ctx context.Context, namespace, name string, version int64) (store.Calendar, error) {
	c, err := storekit.ScanCalendar(db.read.QueryRowContext(ctx, selectCalendars+`c.name = ?2 AND (c.version = ?3 OR ?3 = 0)
		ORDER BY c.version DESC LIMIT 1`, namespace, name, version))
	if errors.Is(err, sql.ErrNoRows) {
		return c, fmt.Errorf("sqlite: calendar %s/%s: %w", namespace, name, store.ErrNotFound)
	}
	if err != nil {
		return c, unavailable("read calendar", err)
	}
	return c, nil
}

// Calendars implements store.Calendars.
func (db *DB) Calendars(ctx context.Context, namespace, after string, limit int) ([]store.Calendar, error) {
	rows, err := db.read.QueryContext(ctx, selectCalendars+`c.name > ?2 AND NOT c.deleted
		AND NOT EXISTS (SELECT 1 FROM calendars n WHERE n.namespace = c.namespace AND n.name = c.name AND n.version > c.version)
		ORDER BY c.name LIMIT ?3`, namespace, after, limit)
	calendars, err := collect(rows, err, storekit.ScanCalendar)
	if err != nil {
		return nil, unavailable("list calendars", err)
	}
	return calendars, nil
}
