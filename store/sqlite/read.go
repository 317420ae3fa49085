package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// oneJob runs a query for at most one job.
func (db *DB) oneJob(ctx context.Context, what, query string, args ...any) (job.Job, error) {
	j, err := storekit.ScanJob(db.read.QueryRowContext(ctx, query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return j, fmt.Errorf("sqlite: %s: %w", what, store.ErrNotFound)
	}
	if err != nil {
		return j, unavailable("read job", err)
	}
	return j, nil
}

// Job implements store.Reader.
func (db *DB) Job(ctx context.Context, id shard.ID, namespace, name string) (job.Job, error) {
	return db.oneJob(ctx, "job "+namespace+"/"+name, `SELECT `+storekit.JobColumns+` FROM jobs j INDEXED BY jobs_by_name
		WHERE j.namespace = ? AND j.name = ? AND j.shard = ? ORDER BY j.ended_at IS NULL DESC, j.ended_at DESC LIMIT 1`, namespace, name, int64(id))
}

// JobByUID implements store.Reader.
func (db *DB) JobByUID(ctx context.Context, namespace string, uid job.UID) (job.Job, error) {
	return db.oneJob(ctx, "job "+uid.String(), `SELECT `+storekit.JobColumns+` FROM shards h CROSS JOIN jobs j ON j.shard = h.shard
		WHERE j.uid = ? AND j.namespace = ? LIMIT 1`, uid[:], namespace)
}

// JobUIDs implements store.Reader.
func (db *DB) JobUIDs(ctx context.Context, id shard.ID, namespace, name string) ([]job.UID, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT j.uid FROM jobs j INDEXED BY jobs_by_name WHERE j.namespace = ? AND j.name = ? AND j.shard = ?
		ORDER BY j.ended_at IS NULL DESC, j.ended_at DESC`, namespace, name, int64(id))
	uids, err := collect(rows, err, func(row storekit.Scanner) (uid job.UID, err error) {
		var b []byte
		err = row.Scan(&b)
		copy(uid[:], b)
		return uid, err
	})
	if err != nil {
		return nil, unavailable("read uids", err)
	}
	return uids, nil
}

// JobByRequest implements store.Reader.
func (db *DB) JobByRequest(ctx context.Context, id shard.ID, namespace, requestID string) (job.Job, error) {
	return db.oneJob(ctx, "request "+requestID, `SELECT `+storekit.JobColumns+` FROM jobs j WHERE j.shard = ? AND j.namespace = ? AND j.request_id = ?`,
		int64(id), namespace, requestID)
}

// Jobs implements store.Reader.
func (db *DB) Jobs(ctx context.Context, p store.JobsPage) ([]job.Job, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT `+storekit.JobColumns+` FROM jobs j INDEXED BY jobs_by_name
		WHERE j.namespace = ? AND (j.name, j.uid) > (?, ?) AND (? OR j.ended_at IS NULL) ORDER BY j.name, j.uid LIMIT ?`,
		p.Namespace, p.AfterName, p.AfterUID[:], p.ShowEnded, p.Limit)
	jobs, err := collect(rows, err, storekit.ScanJob)
	if err != nil {
		return nil, unavailable("list jobs", err)
	}
	return jobs, nil
}

// SlotsByKey implements store.Reader.
func (db *DB) SlotsByKey(ctx context.Context, id shard.ID, keys []job.SlotKey) ([]job.Slot, error) {
	var found []job.Slot
	for chunk := range slices.Chunk(keys, 500) {
		var args []any
		for _, k := range chunk {
			args = append(args, int64(k.FireTime), k.UID[:])
		}
		args = append(args, int64(id))
		rows, err := db.read.QueryContext(ctx, `WITH k (fire_time, uid) AS (VALUES `+strings.Repeat("(?, ?), ", len(chunk)-1)+`(?, ?))
			SELECT `+storekit.SlotColumns+` FROM k CROSS JOIN slots s ON s.shard = ? AND s.fire_time = k.fire_time AND s.uid = k.uid`, args...)
		slots, err := collect(rows, err, storekit.ScanSlot)
		if err != nil {
			return nil, unavailable("read slots", err)
		}
		found = append(found, slots...)
	}
	return found, nil
}

// UnscheduledSlots implements store.Reader.
func (db *DB) UnscheduledSlots(ctx context.Context, id shard.ID, uid job.UID, before job.Instant, limit int) ([]job.Slot, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT `+storekit.SlotColumns+` FROM slots s INDEXED BY slots_unscheduled
		WHERE s.shard = ? AND s.uid = ? AND s.trigger IN (2, 3) AND s.fire_time < ? ORDER BY s.fire_time DESC LIMIT ?`, int64(id), uid[:], int64(before), limit)
	slots, err := collect(rows, err, storekit.ScanSlot)
	if err != nil {
		return nil, unavailable("read slots", err)
	}
	return slots, nil
}

// Slots implements store.Reader.
func (db *DB) Slots(ctx context.Context, p store.SlotsPage) ([]store.SlotOf, store.SlotCursor, error) {
	var shards int
	if err := db.read.QueryRowContext(ctx, `SELECT count(*) FROM shards`).Scan(&shards); err != nil {
		return nil, store.SlotCursor{}, unavailable("count shards", err)
	}
	pager := storekit.Pager{Page: p}
	for id := range shard.ID(shards) {
		if err := db.newestOfShard(ctx, id, &pager); err != nil {
			return nil, store.SlotCursor{}, unavailable("list slots", err)
		}
	}
	slots, next := pager.Finish()
	return slots, next, nil
}

// newestOfShard gives a shard's newest slots before the page's cursor.
func (db *DB) newestOfShard(ctx context.Context, id shard.ID, pager *storekit.Pager) error {
	before, uid := storekit.Bound(id, pager.Page.Before)
	rows, err := db.read.QueryContext(ctx, `SELECT `+storekit.SlotColumns+`, `+storekit.JobColumns+slotJoin+`
		WHERE s.shard = ? AND (s.fire_time, s.uid) < (?, ?) ORDER BY s.fire_time DESC, s.uid DESC LIMIT ?`,
		int64(id), int64(before), uid, storekit.ScanBudget)
	if err != nil {
		return err
	}
	defer rows.Close()
	for c := pager.Shard(); rows.Next(); {
		s, err := storekit.ScanSlotOf(rows)
		if err != nil {
			return err
		}
		if !c.Add(s) {
			return nil
		}
	}
	return rows.Err()
}

// Attempts implements store.Reader.
func (db *DB) Attempts(ctx context.Context, id shard.ID, key job.SlotKey) ([]job.Attempt, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT attempt, worker, epoch, claimed_at, started_at, ended_at, outcome, error_code, error_text, late
		FROM attempts WHERE shard = ? AND fire_time = ? AND uid = ? ORDER BY attempt`, int64(id), int64(key.FireTime), key.UID[:])
	attempts, err := collect(rows, err, func(row storekit.Scanner) (a job.Attempt, err error) {
		return a, row.Scan(&a.Number, &a.Worker, &a.Epoch, &a.ClaimedAt, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.ErrorCode, &a.ErrorText, &a.Late)
	})
	if err != nil {
		return nil, unavailable("read attempts", err)
	}
	return attempts, nil
}

// GapsOf implements store.Reader.
func (db *DB) GapsOf(ctx context.Context, id shard.ID) ([]store.Gap, error) {
	g, err := gaps(ctx, db.read, int64(id))
	if err != nil {
		return nil, unavailable("read gaps", err)
	}
	return g, nil
}

// DeadLetters implements store.Reader.
func (db *DB) DeadLetters(ctx context.Context, id shard.ID, limit int) ([]store.DeadLetter, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT fire_time, uid, handler, dead_at FROM dead_letters WHERE shard = ? ORDER BY fire_time, uid LIMIT ?`, int64(id), limit)
	letters, err := collect(rows, err, func(row storekit.Scanner) (d store.DeadLetter, err error) {
		var uid []byte
		err = row.Scan(&d.Key.FireTime, &uid, &d.Handler, &d.At)
		copy(d.Key.UID[:], uid)
		return d, err
	})
	if err != nil {
		return nil, unavailable("read dead letters", err)
	}
	return letters, nil
}

// Events implements store.Reader.
func (db *DB) Events(ctx context.Context, id shard.ID, limit int) ([]store.Event, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT seq, at, kind, uid, fire_time, detail FROM events WHERE shard = ? ORDER BY epoch DESC, seq DESC LIMIT ?`, int64(id), limit)
	events, err := collect(rows, err, func(row storekit.Scanner) (e store.Event, err error) {
		var uid []byte
		err = row.Scan(&e.Seq, &e.At, &e.Kind, &uid, &e.Fire, &e.Detail)
		copy(e.Job[:], uid)
		return e, err
	})
	if err != nil {
		return nil, unavailable("read events", err)
	}
	return events, nil
}

// RegisterHandlers implements store.Catalog.
func (db *DB) RegisterHandlers(ctx context.Context, names []string, at job.Instant) error {
	return db.inTx(ctx, func(tx *writeTx) error {
		for _, name := range names {
			if _, err := tx.exec(`INSERT INTO handlers (name, created_at, last_seen_at) VALUES (?1, ?2, ?2)
				ON CONFLICT (name) DO UPDATE SET last_seen_at = max(last_seen_at, excluded.last_seen_at)`, name, int64(at)); err != nil {
				return err
			}
		}
		return nil
	})
}

const handlerColumns = `SELECT name, created_at, last_seen_at FROM handlers `

func scanHandler(row storekit.Scanner) (h store.Handler, err error) {
	return h, row.Scan(&h.Name, &h.CreatedAt, &h.LastSeenAt)
}

// Handler implements store.Catalog.
func (db *DB) Handler(ctx context.Context, name string) (store.Handler, error) {
	h, err := scanHandler(db.read.QueryRowContext(ctx, handlerColumns+`WHERE name = ?`, name))
	if errors.Is(err, sql.ErrNoRows) {
		return h, fmt.Errorf("sqlite: handler %s: %w", name, store.ErrNotFound)
	}
	if err != nil {
		return h, unavailable("read handler", err)
	}
	return h, nil
}

// Handlers implements store.Catalog.
func (db *DB) Handlers(ctx context.Context, after string, limit int) ([]store.Handler, error) {
	rows, err := db.read.QueryContext(ctx, handlerColumns+`WHERE name > ? ORDER BY name LIMIT ?`, after, limit)
	handlers, err := collect(rows, err, scanHandler)
	if err != nil {
		return nil, unavailable("list handlers", err)
	}
	return handlers, nil
}
