package cockroach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// oneJob runs a query for at most one job.
func (db *DB) oneJob(ctx context.Context, what, query string, args ...any) (job.Job, error) {
	j, err := storekit.ScanJob(db.reader.QueryRow(ctx, query, args...))
	if errors.Is(err, pgx.ErrNoRows) {
		return j, fmt.Errorf("cockroach: %s: %w", what, store.ErrNotFound)
	}
	if err != nil {
		return j, unavailable("read job", err)
	}
	return j, nil
}

// Job implements store.Reader.
func (db *DB) Job(ctx context.Context, id shard.ID, namespace, name string) (job.Job, error) {
	return db.oneJob(ctx, "job "+namespace+"/"+name, `SELECT `+storekit.JobColumns+` FROM jobs j
		WHERE j.namespace = $1 AND j.name = $2 AND j.shard = $3 ORDER BY j.ended_at IS NULL DESC, j.ended_at DESC LIMIT 1`, namespace, name, int32(id))
}

// JobByUID implements store.Reader.
func (db *DB) JobByUID(ctx context.Context, namespace string, uid job.UID) (job.Job, error) {
	return db.oneJob(ctx, "job "+uid.String(), `SELECT `+storekit.JobColumns+` FROM shards h JOIN jobs j ON j.shard = h.shard AND j.uid = $1
		WHERE j.namespace = $2 LIMIT 1`, uid[:], namespace)
}

// JobUIDs implements store.Reader.
func (db *DB) JobUIDs(ctx context.Context, id shard.ID, namespace, name string) ([]job.UID, error) {
	rows, err := db.reader.Query(ctx, `SELECT j.uid FROM jobs j WHERE j.namespace = $1 AND j.name = $2 AND j.shard = $3
		ORDER BY j.ended_at IS NULL DESC, j.ended_at DESC`, namespace, name, int32(id))
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
	return db.oneJob(ctx, "request "+requestID, `SELECT `+storekit.JobColumns+` FROM jobs j WHERE j.shard = $1 AND j.namespace = $2 AND j.request_id = $3`,
		int32(id), namespace, requestID)
}

// Jobs implements store.Reader.
func (db *DB) Jobs(ctx context.Context, p store.JobsPage) ([]job.Job, error) {
	rows, err := db.reader.Query(ctx, `SELECT `+storekit.JobColumns+` FROM jobs j
		WHERE j.namespace = $1 AND (j.name, j.uid) > ($2, $3) AND ($4 OR j.ended_at IS NULL) ORDER BY j.name, j.uid LIMIT $5`,
		p.Namespace, p.AfterName, p.AfterUID[:], p.ShowEnded, p.Limit)
	jobs, err := collect(rows, err, storekit.ScanJob)
	if err != nil {
		return nil, unavailable("list jobs", err)
	}
	return jobs, nil
}

// SlotsByKey implements store.Reader.
func (db *DB) SlotsByKey(ctx context.Context, id shard.ID, keys []job.SlotKey) ([]job.Slot, error) {
	fires := gather(keys, func(k *job.SlotKey) int64 { return int64(k.FireTime) })
	uids := gather(keys, func(k *job.SlotKey) []byte { return k.UID[:] })
	rows, err := db.reader.Query(ctx, `SELECT `+storekit.SlotColumns+` FROM unnest($2::INT8[], $3::BYTEA[]) AS k (fire_time, uid)
		JOIN slots s ON s.shard = $1 AND s.fire_time = k.fire_time AND s.uid = k.uid`, int32(id), fires, uids)
	slots, err := collect(rows, err, storekit.ScanSlot)
	if err != nil {
		return nil, unavailable("read slots", err)
	}
	return slots, nil
}

// UnscheduledSlots implements store.Reader.
func (db *DB) UnscheduledSlots(ctx context.Context, id shard.ID, uid job.UID, before job.Instant, limit int) ([]job.Slot, error) {
	rows, err := db.reader.Query(ctx, `SELECT `+storekit.SlotColumns+` FROM slots s
		WHERE s.shard = $1 AND s.uid = $2 AND s.trigger IN (2, 3) AND s.fire_time < $3 ORDER BY s.fire_time DESC LIMIT $4`, int32(id), uid[:], int64(before), limit)
	slots, err := collect(rows, err, storekit.ScanSlot)
	if err != nil {
		return nil, unavailable("read slots", err)
	}
	return slots, nil
}

// Slots implements store.Reader.
func (db *DB) Slots(ctx context.Context, p store.SlotsPage) ([]store.SlotOf, store.SlotCursor, error) {
	var shards int
	if err := db.reader.QueryRow(ctx, `SELECT count(*) FROM shards`).Scan(&shards); err != nil {
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
	rows, err := db.reader.Query(ctx, `SELECT `+storekit.SlotColumns+`, `+storekit.JobColumns+slotJoin+`
		WHERE s.shard = $1 AND (s.fire_time, s.uid) < ($2, $3) ORDER BY s.fire_time DESC, s.uid DESC LIMIT $4`,
		int32(id), int64(before), uid, storekit.ScanBudget)
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
	rows, err := db.reader.Query(ctx, `SELECT attempt, worker, epoch, claimed_at, started_at, ended_at, outcome, error_code, error_text, late
		FROM attempts WHERE shard = $1 AND fire_time = $2 AND uid = $3 ORDER BY attempt`, int32(id), int64(key.FireTime), key.UID[:])
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
	g, err := gaps(ctx, db.reader, int32(id))
	if err != nil {
		return nil, unavailable("read gaps", err)
	}
	return g, nil
}

// DeadLetters implements store.Reader.
func (db *DB) DeadLetters(ctx context.Context, id shard.ID, limit int) ([]store.DeadLetter, error) {
	rows, err := db.reader.Query(ctx, `SELECT fire_time, uid, handler, dead_at FROM dead_letters WHERE shard = $1 ORDER BY fire_time, uid LIMIT $2`, int32(id), limit)
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
	rows, err := db.reader.Query(ctx, `SELECT seq, at, kind, uid, fire_time, detail FROM events WHERE shard = $1 ORDER BY epoch DESC, seq DESC LIMIT $2`, int32(id), limit)
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
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	return db.inTx(ctx, "register handlers", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO handlers (name, created_at, last_seen_at) SELECT u.name, $2, $2 FROM unnest($1::TEXT[]) AS u (name)
			ON CONFLICT (name) DO UPDATE SET last_seen_at = greatest(handlers.last_seen_at, excluded.last_seen_at)`, sorted, int64(at))
		return err
	})
}

const handlerColumns = `SELECT name, created_at, last_seen_at FROM handlers `

func scanHandler(row storekit.Scanner) (h store.Handler, err error) {
	return h, row.Scan(&h.Name, &h.CreatedAt, &h.LastSeenAt)
}

// Handler implements store.Catalog.
func (db *DB) Handler(ctx context.Context, name string) (store.Handler, error) {
	h, err := scanHandler(db.reader.QueryRow(ctx, handlerColumns+`WHERE name = $1`, name))
	if errors.Is(err, pgx.ErrNoRows) {
		return h, fmt.Errorf("cockroach: handler %s: %w", name, store.ErrNotFound)
	}
	if err != nil {
		return h, unavailable("read handler", err)
	}
	return h, nil
}

// Handlers implements store.Catalog.
func (db *DB) Handlers(ctx context.Context, after string, limit int) ([]store.Handler, error) {
	rows, err := db.reader.Query(ctx, handlerColumns+`WHERE name > $1 ORDER BY name LIMIT $2`, after, limit)
	handlers, err := collect(rows, err, scanHandler)
	if err != nil {
		return nil, unavailable("list handlers", err)
	}
	return handlers, nil
}
