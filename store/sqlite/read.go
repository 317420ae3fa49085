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
	uids, err := collect(rows, err, storekit.ScanUID)
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
func (db *DB) Jobs(ctx context.Context, p store.JobsPage) ([]job.Job, store.JobCursor, error) {
	jobs, next, err := storekit.JobsPage(p, func(after store.JobCursor, limit int) ([]job.Job, error) {
		rows, err := db.read.QueryContext(ctx, `SELECT `+storekit.JobColumns+` FROM jobs j INDEXED BY jobs_by_name
			WHERE j.namespace = ? AND (j.name, j.uid) > (?, ?) AND (? OR j.ended_at IS NULL) ORDER BY j.name, j.uid LIMIT ?`,
			p.Namespace, after.Name, after.UID[:], p.ShowEnded, limit)
		return collect(rows, err, storekit.ScanJob)
	})
	if err != nil {
		return nil, next, unavailable("list jobs", err)
	}
	return jobs, next, nil
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

// KeysBefore implements store.Reader.
func (db *DB) KeysBefore(ctx context.Context, id shard.ID, before job.SlotKey, limit int) ([]job.SlotKey, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT s.fire_time, s.uid FROM slots s
		WHERE s.shard = ? AND (s.fire_time, s.uid) < (?, ?) ORDER BY s.fire_time DESC, s.uid DESC LIMIT ?`, int64(id), int64(before.FireTime), before.UID[:], limit)
	keys, err := collect(rows, err, storekit.ScanSlotKey)
	if err != nil {
		return nil, unavailable("read keys", err)
	}
	return keys, nil
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
	shards, err := db.shards(ctx)
	if err != nil {
		return nil, store.SlotCursor{}, unavailable("count shards", err)
	}
	slots, next, err := storekit.SlotsPage(ctx, p, shards, db.newest)
	if err != nil {
		return nil, next, unavailable("list slots", err)
	}
	return slots, next, nil
}

func (db *DB) shards(ctx context.Context) (n int, err error) {
	return n, db.read.QueryRowContext(ctx, `SELECT count(*) FROM shards`).Scan(&n)
}

func (db *DB) newest(ctx context.Context, ranges []storekit.Range) ([][]store.SlotOf, error) {
	answers := make([][]store.SlotOf, len(ranges))
	for i, r := range ranges {
		rows, err := db.read.QueryContext(ctx, `SELECT `+storekit.SlotColumns+`, `+storekit.JobColumns+slotJoin+`
			WHERE s.shard = ? AND (s.fire_time, s.uid) < (?, ?) AND s.fire_time >= ? ORDER BY s.fire_time DESC, s.uid DESC LIMIT ?`,
			int64(r.Shard), int64(r.Before.FireTime), r.Before.UID[:], int64(r.From), r.Limit)
		if answers[i], err = collect(rows, err, storekit.ScanSlotOf); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

const (
	countSlots = `SELECT x.state, x.fire_time - x.fire_time % ?5, count(*), sum(j.namespace = ?4)
		FROM (SELECT s.shard, s.state, s.fire_time, s.uid FROM slots s WHERE s.shard = ?1 AND s.fire_time >= ?2 ORDER BY s.fire_time DESC, s.uid DESC LIMIT ?3) x
		CROSS JOIN jobs j ON j.shard = x.shard AND j.uid = x.uid GROUP BY 1, 2`
	countOlder = `SELECT 4, count(*) FROM dead_letters WHERE namespace = ?1 AND fire_time < ?2
		UNION ALL SELECT CASE WHEN b.waiting THEN 1 ELSE 2 END, count(*) FROM backlog b
		CROSS JOIN jobs j ON j.shard = b.shard AND j.uid = b.uid WHERE j.namespace = ?1 AND b.fire_time < ?2 GROUP BY 1`
)

// CountSlots implements store.Reader.
func (db *DB) CountSlots(ctx context.Context, namespace string, since job.Instant) (store.SlotCounts, error) {
	shards, err := db.shards(ctx)
	if err != nil {
		return store.SlotCounts{}, unavailable("count shards", err)
	}
	tally := storekit.NewTally(since)
	for id := range shards {
		rows, err := db.read.QueryContext(ctx, countSlots, id, int64(tally.Since()), storekit.CountBudget, namespace, int64(storekit.Bucket))
		counts, err := collect(rows, err, storekit.ScanCount)
		if err != nil {
			return store.SlotCounts{}, unavailable("count slots", err)
		}
		tally.Shard(counts)
	}
	out := tally.Finish()
	rows, err := db.read.QueryContext(ctx, countOlder, namespace, int64(out.Since))
	older, err := collect(rows, err, storekit.ScanOlder)
	if err != nil {
		return store.SlotCounts{}, unavailable("count slots", err)
	}
	for _, c := range older {
		out.ByState[c.State] += c.Slots
	}
	return out, nil
}

// Attempts implements store.Reader.
func (db *DB) Attempts(ctx context.Context, id shard.ID, key job.SlotKey) ([]job.Attempt, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT `+storekit.AttemptColumns+` FROM attempts a
		WHERE a.shard = ? AND a.fire_time = ? AND a.uid = ? ORDER BY a.attempt`, int64(id), int64(key.FireTime), key.UID[:])
	attempts, err := collect(rows, err, storekit.ScanAttempt)
	if err != nil {
		return nil, unavailable("read attempts", err)
	}
	return attempts, nil
}

// RetainedFrom implements store.Reader.
func (db *DB) RetainedFrom(ctx context.Context, id shard.ID) (at job.Instant, err error) {
	err = db.read.QueryRowContext(ctx, `SELECT retained_from FROM shards WHERE shard = ?`, int64(id)).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("sqlite: shard %d: %w", id, store.ErrNotFound)
	}
	if err != nil {
		return 0, unavailable("read shard", err)
	}
	return at, nil
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
func (db *DB) DeadLetters(ctx context.Context, p store.DeadLettersPage) ([]store.DeadLetterOf, store.DeadCursor, error) {
	letters, next, err := storekit.DeadPage(p, func(after store.DeadCursor, limit int) ([]store.DeadLetterOf, error) {
		rows, err := db.read.QueryContext(ctx, `SELECT `+storekit.DeadLetterColumns+` FROM dead_letters d
			WHERE (d.shard, d.fire_time, d.uid) > (?, ?, ?) ORDER BY d.shard, d.fire_time, d.uid LIMIT ?`,
			int64(after.Shard), int64(after.Key.FireTime), after.Key.UID[:], limit)
		return collect(rows, err, storekit.ScanDeadLetter)
	})
	if err != nil {
		return nil, next, unavailable("list dead letters", err)
	}
	return letters, next, nil
}

// DeadLetterGroups implements store.Reader.
func (db *DB) DeadLetterGroups(ctx context.Context, namespace string, limit int) ([]store.DeadLetterGroup, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT d.handler, d.fingerprint, d.error_code, max(d.sample), count(*), min(d.dead_at), max(d.dead_at)
		FROM dead_letters d WHERE d.namespace = ? GROUP BY d.handler, d.fingerprint, d.error_code
		ORDER BY count(*) DESC, d.handler, d.fingerprint, d.error_code LIMIT ?`, namespace, limit)
	groups, err := collect(rows, err, storekit.ScanDeadGroup)
	if err != nil {
		return nil, unavailable("group dead letters", err)
	}
	return groups, nil
}

const selectEvents = `SELECT seq, at, kind, uid, fire_time, detail FROM events WHERE shard = ? ORDER BY `

// Events implements store.Reader.
func (db *DB) Events(ctx context.Context, id shard.ID, limit int) ([]store.Event, error) {
	rows, err := db.read.QueryContext(ctx, selectEvents+`epoch DESC, seq DESC LIMIT ?`, int64(id), limit)
	events, err := collect(rows, err, storekit.ScanEvent)
	if err != nil {
		return nil, unavailable("read events", err)
	}
	return events, nil
}

// Skips implements store.Reader.
func (db *DB) Skips(ctx context.Context, id shard.ID, uid job.UID, from job.Instant, limit int) ([]store.Skip, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT `+storekit.SkipColumns+` FROM skips k WHERE k.shard = ? AND k.uid = ? AND k.to_time >= ? ORDER BY k.to_time LIMIT ?`,
		int64(id), uid[:], int64(from), limit)
	skips, err := collect(rows, err, storekit.ScanSkip)
	if err != nil {
		return nil, unavailable("read skips", err)
	}
	return skips, nil
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

// Handler implements store.Catalog.
func (db *DB) Handler(ctx context.Context, name string) (store.Handler, error) {
	h, err := storekit.ScanHandler(db.read.QueryRowContext(ctx, handlerColumns+`WHERE name = ?`, name))
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
	handlers, err := collect(rows, err, storekit.ScanHandler)
	if err != nil {
		return nil, unavailable("list handlers", err)
	}
	return handlers, nil
}
