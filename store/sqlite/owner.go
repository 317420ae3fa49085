package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// InitShards implements store.Shards. The watermark of a new shard is now: a
// cluster owes nothing from before it was made.
func (db *DB) InitShards(ctx context.Context, count int) (int, error) {
	if count < 1 || count > shard.MaxCount {
		return 0, fmt.Errorf("sqlite: the number of shards must be 1 to %d, is %d", shard.MaxCount, count)
	}
	have := 0
	err := db.inTx(ctx, func(tx *writeTx) error {
		if err := tx.queryRow(`SELECT count(*) FROM shards`).Scan(&have); err != nil || have > 0 {
			return err
		}
		have = count
		for id := range count {
			if _, err := tx.exec(`INSERT INTO shards (shard, owner, epoch, owner_gen, owner_rev, watermark, open_from) VALUES (?, '', 0, 0, 0, ?, ?)`,
				id, db.now(), db.now()); err != nil {
				return err
			}
		}
		return nil
	})
	return have, err
}

// NextRevision implements store.Shards.
func (db *DB) NextRevision(ctx context.Context) (rev int64, err error) {
	err = db.inTx(ctx, func(tx *writeTx) error {
		return tx.queryRow(`INSERT INTO meta (key, value) VALUES ('revision', 1)
			ON CONFLICT (key) DO UPDATE SET value = value + 1 RETURNING value`).Scan(&rev)
	})
	return rev, err
}

type shardRow struct {
	owner    string
	gen, rev int64
	owned    store.Owned
}

func (t *writeTx) shardRow(id shard.ID) (shardRow, error) {
	var r shardRow
	r.owned.Proof.Shard = id
	err := t.queryRow(`SELECT owner, epoch, owner_gen, owner_rev, watermark, open_from, retained_from FROM shards WHERE shard = ?`, int64(id)).
		Scan(&r.owner, &r.owned.Proof.Epoch, &r.gen, &r.rev, &r.owned.Watermark, &r.owned.OpenFrom, &r.owned.RetainedFrom)
	if errors.Is(err, sql.ErrNoRows) {
		return r, errAbort{fmt.Errorf("sqlite: shard %d: %w", id, store.ErrNotFound)}
	}
	return r, err
}

// TakeOver implements store.Shards.
func (db *DB) TakeOver(ctx context.Context, c store.Claim) (owned store.Owned, err error) {
	err = db.inTx(ctx, func(tx *writeTx) error {
		row, err := tx.shardRow(c.Shard)
		if err != nil {
			return err
		}
		if row.owner == c.Node && row.gen == c.Gen && row.rev == c.Rev {
			owned = row.owned // its reply was lost
			return nil
		}
		if !c.Later(row.gen, row.rev) {
			return errAbort{fmt.Errorf("sqlite: take over shard %d: %w", c.Shard, store.ErrSuperseded)}
		}
		owned, err = tx.raiseEpoch(row.owned, c.Node, c.Gen, c.Rev)
		return err
	})
	return owned, err
}

// Reload implements store.Shards.
func (db *DB) Reload(ctx context.Context, p shard.Proof) (owned store.Owned, err error) {
	err = db.inTx(ctx, func(tx *writeTx) error {
		row, err := tx.shardRow(p.Shard)
		if err != nil {
			return err
		}
		if row.owned.Proof != p {
			return fenced(p.Shard)
		}
		owned, err = tx.raiseEpoch(row.owned, row.owner, row.gen, row.rev)
		return err
	})
	return owned, err
}

// Renew implements store.Shards.
func (db *DB) Renew(ctx context.Context, p shard.Proof, c store.Claim) error {
	return db.inTx(ctx, func(tx *writeTx) error {
		row, err := tx.shardRow(p.Shard)
		if err != nil {
			return err
		}
		if row.owned.Proof != p || row.owner != c.Node {
			return fenced(p.Shard)
		}
		if c.Later(row.gen, row.rev) {
			_, err = tx.exec(`UPDATE shards SET owner_gen = ?, owner_rev = ? WHERE shard = ?`, c.Gen, c.Rev, int64(p.Shard))
			return err
		}
		if row.gen == c.Gen && row.rev == c.Rev {
			return nil // its reply was lost
		}
		return errAbort{fmt.Errorf("sqlite: renew shard %d: %w", p.Shard, store.ErrSuperseded)}
	})
}

// Owners implements store.Shards.
func (db *DB) Owners(ctx context.Context) ([]store.Owner, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT shard, owner, epoch, owner_gen, owner_rev, watermark FROM shards ORDER BY shard`)
	owners, err := collect(rows, err, storekit.ScanOwner)
	if err != nil {
		return nil, unavailable("read owners", err)
	}
	return owners, nil
}

// ClusterID implements store.Shards.
func (db *DB) ClusterID(ctx context.Context) (string, error) {
	var id int64
	err := db.inTx(ctx, func(tx *writeTx) error {
		if _, err := tx.exec(`INSERT INTO meta (key, value) VALUES ('cluster', ?) ON CONFLICT (key) DO NOTHING`, storekit.NewClusterID()); err != nil {
			return err
		}
		return tx.queryRow(`SELECT value FROM meta WHERE key = 'cluster'`).Scan(&id)
	})
	return storekit.ClusterID(id), err
}

func (t *writeTx) raiseEpoch(o store.Owned, owner string, gen, rev int64) (store.Owned, error) {
	o.Proof.Epoch++
	if _, err := t.exec(`UPDATE shards SET owner = ?, epoch = ?, owner_gen = ?, owner_rev = ?, try = 0 WHERE shard = ?`,
		owner, int64(o.Proof.Epoch), gen, rev, int64(o.Proof.Shard)); err != nil {
		return o, err
	}
	_, err := t.exec(`INSERT INTO epochs (shard, epoch, owner, owner_gen, owner_rev, taken_at) VALUES (?, ?, ?, ?, ?, ?)`,
		int64(o.Proof.Shard), int64(o.Proof.Epoch), owner, gen, rev, t.db.now())
	return o, err
}

// inOwnedRead runs fn in one read transaction that has seen the owner's epoch.
func (db *DB) inOwnedRead(ctx context.Context, p shard.Proof, fn func(tx *sql.Tx) error) error {
	tx, err := db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return unavailable("begin read", err)
	}
	defer tx.Rollback() // a read has nothing to commit
	var epoch shard.Epoch
	if err := tx.QueryRowContext(ctx, selectEpoch, int64(p.Shard)).Scan(&epoch); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return unavailable("read epoch", err)
	}
	if epoch != p.Epoch {
		return &store.FencedError{Shards: []shard.ID{p.Shard}}
	}
	if err := fn(tx); err != nil {
		return unavailable("read", err)
	}
	return nil
}

const slotJoin = ` FROM slots s JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid `

// Load implements store.Loader.
func (db *DB) Load(ctx context.Context, p shard.Proof, room []job.Job) (l store.Loaded, err error) {
	id := int64(p.Shard)
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) (err error) {
		if l.Gaps, err = gaps(ctx, tx, id); err != nil {
			return err
		}
		if l.Recurring, err = recurring(ctx, tx, id, l.Gaps, room); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT `+storekit.SlotColumns+`, `+storekit.JobColumns+slotJoin+`
			WHERE s.shard = ?1 AND s.fire_time >= (SELECT open_from FROM shards WHERE shard = ?1) AND s.state IN (1, 2)
			AND NOT EXISTS (SELECT 1 FROM backlog b INDEXED BY backlog_slot WHERE b.shard = s.shard AND b.fire_time = s.fire_time AND b.uid = s.uid AND b.waiting = 1)`, id)
		if l.Open, err = collect(rows, err, storekit.ScanSlotOf); err != nil {
			return err
		}
		rows, err = tx.QueryContext(ctx, `SELECT `+storekit.SlotColumns+`, `+storekit.JobColumns+` FROM backlog b
			JOIN slots s ON s.shard = b.shard AND s.fire_time = b.fire_time AND s.uid = b.uid
			JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid WHERE b.shard = ? AND b.waiting = 0`, id)
		if l.Claimed, err = collect(rows, err, storekit.ScanSlotOf); err != nil {
			return err
		}
		rows, err = tx.QueryContext(ctx, `SELECT handler, priority, fairness, count(*), min(wake_at) FROM backlog WHERE shard = ? AND waiting = 1 GROUP BY handler, priority, fairness`, id)
		if l.Backlog, err = collect(rows, err, storekit.ScanBacklogCount); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT coalesce(min(check_at), 0) FROM backlog INDEXED BY backlog_by_check WHERE shard = ? AND check_at IS NOT NULL AND waiting = 1`, id).Scan(&l.CheckAt)
	})
	return l, err
}

// recurring reads the live recurring jobs, and those that ended after the watermark
// or the oldest open gap's cursor: they may still owe slots. Jobs with an inbox row
// are left to the inbox.
func recurring(ctx context.Context, tx *sql.Tx, id int64, open []store.Gap, room []job.Job) ([]job.Job, error) {
	rows, err := tx.QueryContext(ctx, `SELECT uid FROM inbox WHERE shard = ?`, id)
	waiting, err := collect(rows, err, storekit.ScanUID)
	if err != nil {
		return nil, err
	}
	access, err := recurringAccess(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	scanner := &storekit.RecurringScanner{Shard: shard.ID(id), Borrow: func(b *[]byte) any { return (*sql.RawBytes)(b) }}
	rows, err = tx.QueryContext(ctx, `SELECT `+storekit.RecurringColumns+` FROM jobs j `+access+` WHERE j.shard = ? AND j.kind >= 3 AND j.ended_at IS NULL`, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	jobs, err := scanner.ScanAll(room[:0], rows)
	if err != nil {
		return nil, err
	}
	var oldest job.Instant
	if err := tx.QueryRowContext(ctx, `SELECT watermark FROM shards WHERE shard = ?`, id).Scan(&oldest); err != nil {
		return nil, err
	}
	for _, g := range open {
		oldest = min(oldest, g.Cursor.FireTime)
	}
	rows, err = tx.QueryContext(ctx, `SELECT `+storekit.RecurringColumns+` FROM jobs j WHERE j.shard = ? AND j.ended_at >= ? AND j.kind >= 2`, id, int64(oldest))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	jobs, err = scanner.ScanAll(jobs, rows)
	if len(waiting) > 0 {
		jobs = slices.DeleteFunc(jobs, func(j job.Job) bool { return slices.Contains(waiting, j.UID) })
	}
	return jobs, err
}

// sampled is how many jobs are looked at to see what a shard holds.
const sampled = 256

// recurringAccess says how the recurring jobs of a shard are found: by the table itself, in
// its order, if they seem to be a good part of the shard's jobs, since every row of the index
// takes a search in the table; else by their index.
func recurringAccess(ctx context.Context, tx *sql.Tx, id int64) (string, error) {
	var recurs, all int64
	err := tx.QueryRowContext(ctx, `SELECT coalesce(sum(kind >= 3 AND ended_at IS NULL), 0), count(*)
		FROM (SELECT kind, ended_at FROM jobs NOT INDEXED WHERE shard = ? LIMIT ?)`, id, sampled).Scan(&recurs, &all)
	if 4*recurs > all {
		return "NOT INDEXED", err
	}
	return "INDEXED BY jobs_recurring", err
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func gaps(ctx context.Context, q querier, id int64) ([]store.Gap, error) {
	rows, err := q.QueryContext(ctx, `SELECT to_time, uid, from_time, cursor_time, cursor_uid, made_at, options FROM gaps WHERE shard = ? ORDER BY to_time, uid`, id)
	return collect(rows, err, storekit.ScanGap)
}

// OnceJobs implements store.Loader.
func (db *DB) OnceJobs(ctx context.Context, p shard.Proof, after job.SlotKey, until job.Instant, limit int) (jobs []job.Job, err error) {
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT `+storekit.JobColumns+` FROM jobs j
			WHERE j.shard = ? AND j.fire_at IS NOT NULL AND (j.ended_at IS NULL OR j.ended_at >= j.fire_at) AND (j.fire_at, j.uid) > (?, ?) AND j.fire_at <= ?
			AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.shard = j.shard AND i.uid = j.uid)
			ORDER BY j.fire_at, j.uid LIMIT ?`, int64(p.Shard), int64(after.FireTime), after.UID[:], int64(until), limit)
		jobs, err = collect(rows, err, storekit.ScanJob)
		return err
	})
	return jobs, err
}

// Waiting implements store.Loader.
func (db *DB) Waiting(ctx context.Context, p shard.Proof, q store.BacklogQuery) (slots []store.BacklogSlot, err error) {
	const order = ` ORDER BY b.handler, b.priority, b.fairness, b.ready_at, b.fire_time, b.uid LIMIT ?`
	const columns = `SELECT ` + storekit.WaitingColumns + ` FROM backlog b
		JOIN slots s ON s.shard = b.shard AND s.fire_time = b.fire_time AND s.uid = b.uid
		JOIN jobs j ON j.shard = s.shard AND j.uid = s.uid
		WHERE b.shard = ? AND b.waiting = 1 AND `
	query, args := columns+`b.handler = ? AND b.priority = ? AND b.fairness = ? AND (b.ready_at, b.fire_time, b.uid) > (?, ?, ?)`+order,
		[]any{int64(p.Shard), q.Handler, q.Priority, q.Fairness, int64(q.After.Rank), int64(q.After.Slot.FireTime), q.After.Slot.UID[:]}
	switch {
	case !q.UID.IsZero():
		query, args = columns+`b.uid = ?`+order, []any{int64(p.Shard), q.UID[:]}
	case q.Checks:
		query, args = columns+`b.check_at IS NOT NULL ORDER BY b.check_at LIMIT ?`, []any{int64(p.Shard)}
	}
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query, append(args, q.Limit)...)
		slots, err = collect(rows, err, storekit.ScanWaiting)
		return err
	})
	return slots, err
}

// Drain implements store.Loader.
func (db *DB) Drain(ctx context.Context, p shard.Proof, limit int) (jobs []job.Job, err error) {
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT `+storekit.JobColumns+` FROM inbox i JOIN jobs j ON j.shard = i.shard AND j.uid = i.uid
			WHERE i.shard = ? LIMIT ?`, int64(p.Shard), limit)
		jobs, err = collect(rows, err, storekit.ScanJob)
		return err
	})
	return jobs, err
}

// OldSlots implements store.Loader.
func (db *DB) OldSlots(ctx context.Context, p shard.Proof, q store.PruneQuery) (slots []store.PruneSlot, err error) {
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT s.fire_time, s.uid, s.state, s.attempt, s.finished_at,
				coalesce((SELECT j.policies FROM jobs j WHERE j.shard = s.shard AND j.uid = s.uid), '{}') FROM slots s
			WHERE s.shard = ? AND (s.fire_time, s.uid) > (?, ?) AND s.fire_time < ? ORDER BY s.fire_time, s.uid LIMIT ?`,
			int64(p.Shard), int64(q.After.FireTime), q.After.UID[:], int64(q.Until), q.Limit)
		slots, err = collect(rows, err, storekit.ScanPruneSlot)
		return err
	})
	return slots, err
}

// EndedJobs implements store.Loader.
func (db *DB) EndedJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.EndedJob, error) {
	return db.endedJobs(ctx, p, `SELECT j.uid, j.ended_at FROM jobs j INDEXED BY jobs_ended
		WHERE j.shard = ? AND j.ended_at IS NOT NULL AND (j.ended_at, j.uid) > (?, ?) AND j.ended_at < ?
		ORDER BY j.ended_at, j.uid LIMIT ?`, q)
}

// DoneJobs implements store.Loader.
func (db *DB) DoneJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) (jobs []store.DoneJob, err error) {
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT x.uid, x.at,
				(SELECT count(*) FROM slots s WHERE s.shard = x.shard AND s.fire_time = x.fire_at AND s.uid = x.uid AND (s.state IN (1, 2, 4) OR s.finished_at >= ?4))
				+ (SELECT count(*) FROM slots s INDEXED BY slots_unscheduled WHERE s.shard = x.shard AND s.uid = x.uid AND s.trigger IN (2, 3) AND (s.state IN (1, 2, 4) OR s.finished_at >= ?4))
				+ (SELECT count(*) FROM inbox i WHERE i.shard = x.shard AND i.uid = x.uid) + (x.quarantine IS NOT NULL)
			FROM (SELECT j.shard, j.uid, j.fire_at, j.quarantine, coalesce(j.fire_at, j.created_at) AS at FROM jobs j INDEXED BY jobs_single
				WHERE j.shard = ?1 AND j.kind < 3 AND j.ended_at IS NULL AND (coalesce(j.fire_at, j.created_at), j.uid) > (?2, ?3) AND coalesce(j.fire_at, j.created_at) < ?4
				ORDER BY coalesce(j.fire_at, j.created_at), j.uid LIMIT ?5) x ORDER BY x.at, x.uid`,
			int64(p.Shard), int64(q.AfterTime), q.AfterUID[:], int64(q.Before), q.Limit)
		jobs, err = collect(rows, err, storekit.ScanDoneJob)
		return err
	})
	return jobs, err
}

// SpentJob implements store.Loader.
func (db *DB) SpentJob(ctx context.Context, p shard.Proof, uid job.UID, last, before job.Instant) (done bool, err error) {
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM dead_letters INDEXED BY dead_letters_by_job WHERE shard = ?1 AND uid = ?2)
			AND NOT EXISTS (SELECT 1 FROM slots INDEXED BY slots_unscheduled WHERE shard = ?1 AND uid = ?2 AND trigger IN (2, 3) AND (state IN (1, 2, 4) OR finished_at >= ?4))
			AND NOT EXISTS (SELECT 1 FROM slots WHERE shard = ?1 AND fire_time = ?3 AND uid = ?2 AND (state IN (1, 2, 4) OR finished_at >= ?4))`,
			int64(p.Shard), uid[:], int64(last), int64(before)).Scan(&done)
	})
	return done, err
}

func (db *DB) endedJobs(ctx context.Context, p shard.Proof, query string, q store.EndedQuery) (jobs []store.EndedJob, err error) {
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query, int64(p.Shard), int64(q.AfterTime), q.AfterUID[:], int64(q.Before), q.Limit)
		jobs, err = collect(rows, err, storekit.ScanEndedJob)
		return err
	})
	return jobs, err
}

// Oldest implements store.Loader.
func (db *DB) Oldest(ctx context.Context, p shard.Proof, from store.Old) (old store.Old, err error) {
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT
			coalesce((SELECT min(fire_time) FROM requests INDEXED BY requests_by_time WHERE shard = ?1 AND fire_time >= ?2), 0),
			coalesce((SELECT min(at) FROM events INDEXED BY events_by_time WHERE shard = ?1 AND at >= ?3), 0),
			coalesce((SELECT min(made_at) FROM skips INDEXED BY skips_by_time WHERE shard = ?1 AND made_at >= ?4), 0)`,
			int64(p.Shard), int64(from.RequestsFrom), int64(from.EventsFrom), int64(from.SkipsFrom)).Scan(&old.RequestsFrom, &old.EventsFrom, &old.SkipsFrom)
	})
	return old, err
}

// InboxShards implements store.Loader.
func (db *DB) InboxShards(ctx context.Context) ([]shard.ID, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT DISTINCT shard FROM inbox ORDER BY shard`)
	ids, err := collect(rows, err, func(row storekit.Scanner) (id shard.ID, err error) { return id, row.Scan(&id) })
	if err != nil {
		return nil, unavailable("look at inboxes", err)
	}
	return ids, nil
}

// SlotOf implements store.Loader.
func (db *DB) SlotOf(ctx context.Context, p shard.Proof, key job.SlotKey) (s store.SlotOf, err error) {
	found := false
	err = db.inOwnedRead(ctx, p, func(tx *sql.Tx) (err error) {
		s, err = storekit.ScanSlotOf(tx.QueryRowContext(ctx, `SELECT `+storekit.SlotColumns+`, `+storekit.JobColumns+slotJoin+`
			WHERE s.shard = ? AND s.fire_time = ? AND s.uid = ?`, int64(p.Shard), int64(key.FireTime), key.UID[:]))
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		found = err == nil
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("sqlite: slot %s of job %s: %w", key.FireTime, key.UID, store.ErrNotFound)
	}
	return s, err
}

// Submit implements store.Inbox.
func (db *DB) Submit(ctx context.Context, jobs []job.Job) (existing []*job.Job, stored bool, err error) {
	err = db.inTx(ctx, func(tx *writeTx) error {
		existing, stored = make([]*job.Job, len(jobs)), true
		at := job.Instant(db.now())
		for i := range jobs {
			s := shardTx{writeTx: tx, id: int64(jobs[i].Shard)}
			rival, err := s.submit(&jobs[i], at)
			if err != nil {
				return err
			}
			existing[i] = rival
			if rival != nil && (rival.RequestID == "" || rival.RequestID != jobs[i].RequestID || rival.RequestHash != jobs[i].RequestHash) {
				stored = false
			}
		}
		if !stored {
			return errAbort{errNotStored}
		}
		return nil
	})
	if errors.Is(err, errNotStored) {
		return existing, false, nil
	}
	return existing, stored, err
}

var errNotStored = errors.New("another job stands in the way")

// submit inserts a job with its inbox row, or returns the job that stands in its
// way.
func (s *shardTx) submit(j *job.Job, at job.Instant) (*job.Job, error) {
	j.CreatedAt, j.EffectiveFrom = at, at
	values, err := storekit.JobValues(j)
	if err != nil {
		return nil, err
	}
	written, err := s.row(j.UID, insertJob, values...)
	if err != nil {
		return nil, err
	}
	if !written {
		rival, err := s.rival(j)
		if err != nil {
			return nil, err
		}
		if rival.UID == j.UID {
			return nil, nil // an earlier send of this request
		}
		return &rival, nil
	}
	_, err = s.row(j.UID, `INSERT INTO inbox (shard, uid) VALUES (?, ?) ON CONFLICT DO NOTHING`, s.id, j.UID[:])
	return nil, err
}
