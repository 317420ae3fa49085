package cockroach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// Now implements store.Clock. It is not tried again: what it tells must be fresh.
func (db *DB) Now(ctx context.Context) (at job.Instant, err error) {
	if err := db.owner.QueryRow(ctx, selectNow).Scan(&at); err != nil {
		return 0, unavailable("read the time", err)
	}
	return at, nil
}

// InitShards implements store.Shards. The watermark of a new shard is now: a
// cluster owes nothing from before it was made. Two callers at the same time make
// the same shards.
func (db *DB) InitShards(ctx context.Context, count int) (int, error) {
	if count < 1 || count > shard.MaxCount {
		return 0, fmt.Errorf("cockroach: the number of shards must be 1 to %d, is %d", shard.MaxCount, count)
	}
	have := 0
	err := db.inTx(ctx, "make shards", func(tx pgx.Tx) error {
		// The row of the count is the lock: whoever inserts it makes the shards.
		if _, err := tx.Exec(ctx, insertCount, count); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, selectCount).Scan(&have); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insertShards, numbers(have))
		return err
	})
	if err != nil {
		return 0, err
	}
	return have, db.dialect.splitRanges(ctx, db.owner, have)
}

func numbers(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// NextRevision implements store.Shards.
func (db *DB) NextRevision(ctx context.Context) (rev int64, err error) {
	err = db.inTx(ctx, "raise revision", func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, raiseRevision).Scan(&rev)
	})
	return rev, err
}

type shardRow struct {
	owner    string
	gen, rev int64
	owned    store.Owned
}

// lockShard reads the row of a shard and locks it: a take-over waits for the
// commit that holds it, and the next commit waits for the take-over.
func lockShard(ctx context.Context, tx pgx.Tx, id shard.ID) (shardRow, error) {
	var r shardRow
	r.owned.Proof.Shard = id
	err := tx.QueryRow(ctx, lockRow, int32(id)).
		Scan(&r.owner, &r.owned.Proof.Epoch, &r.gen, &r.rev, &r.owned.Watermark, &r.owned.OpenFrom, &r.owned.RetainedFrom)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, domainError{fmt.Errorf("cockroach: shard %d: %w", id, store.ErrNotFound)}
	}
	return r, err
}

// TakeOver implements store.Shards.
func (db *DB) TakeOver(ctx context.Context, c store.Claim) (owned store.Owned, err error) {
	err = db.inUrgentTx(ctx, "take over", func(tx pgx.Tx) error {
		row, err := lockShard(ctx, tx, c.Shard)
		if err != nil {
			return err
		}
		if row.owner == c.Node && row.gen == c.Gen && row.rev == c.Rev {
			owned = row.owned // its reply was lost
			return nil
		}
		if !c.Later(row.gen, row.rev) {
			return domainError{fmt.Errorf("cockroach: take over shard %d: %w", c.Shard, store.ErrSuperseded)}
		}
		owned, err = raiseEpoch(ctx, tx, row.owned, c.Node, c.Gen, c.Rev)
		return err
	})
	return owned, err
}

// Reload implements store.Shards.
func (db *DB) Reload(ctx context.Context, p shard.Proof) (owned store.Owned, err error) {
	err = db.inUrgentTx(ctx, "reload", func(tx pgx.Tx) error {
		row, err := lockShard(ctx, tx, p.Shard)
		if err != nil {
			return err
		}
		if row.owned.Proof != p {
			return fenced(p.Shard)
		}
		owned, err = raiseEpoch(ctx, tx, row.owned, row.owner, row.gen, row.rev)
		return err
	})
	return owned, err
}

// Renew implements store.Shards.
func (db *DB) Renew(ctx context.Context, p shard.Proof, c store.Claim) error {
	return db.inUrgentTx(ctx, "renew", func(tx pgx.Tx) error {
		row, err := lockShard(ctx, tx, p.Shard)
		if err != nil {
			return err
		}
		if row.owned.Proof != p || row.owner != c.Node {
			return fenced(p.Shard)
		}
		if c.Later(row.gen, row.rev) {
			_, err = tx.Exec(ctx, renewRow, c.Gen, c.Rev, int32(p.Shard), int64(p.Epoch))
			return err
		}
		if row.gen == c.Gen && row.rev == c.Rev {
			return nil // its reply was lost
		}
		return domainError{fmt.Errorf("cockroach: renew shard %d: %w", p.Shard, store.ErrSuperseded)}
	})
}

// Owners implements store.Shards.
func (db *DB) Owners(ctx context.Context) (owners []store.Owner, err error) {
	err = db.inTx(ctx, "read owners", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectOwners)
		owners, err = collect(rows, err, storekit.ScanOwner)
		return err
	})
	return owners, err
}

// ClusterID implements store.Shards.
func (db *DB) ClusterID(ctx context.Context) (string, error) {
	var id int64
	err := db.inTx(ctx, "identify the cluster", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertCluster, storekit.NewClusterID()); err != nil {
			return err
		}
		return tx.QueryRow(ctx, selectCluster).Scan(&id)
	})
	return storekit.ClusterID(id), err
}

func raiseEpoch(ctx context.Context, tx pgx.Tx, o store.Owned, owner string, gen, rev int64) (store.Owned, error) {
	old := o.Proof.Epoch
	o.Proof.Epoch++
	tag, err := tx.Exec(ctx, takeRow,
		owner, int64(o.Proof.Epoch), gen, rev, int32(o.Proof.Shard), int64(old))
	if err != nil {
		return o, err
	}
	if tag.RowsAffected() != 1 {
		return o, fmt.Errorf("shard %d changed under its lock", o.Proof.Shard)
	}
	_, err = tx.Exec(ctx, auditTake,
		int32(o.Proof.Shard), int64(o.Proof.Epoch), owner, gen, rev)
	return o, err
}

// inOwnedRead runs fn in one read transaction that has first seen the owner's
// epoch. All its statements read one snapshot.
func (db *DB) inOwnedRead(ctx context.Context, p shard.Proof, fn func(tx pgx.Tx) error) error {
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return inTx(ctx, db.owner, opts, "read", func(tx pgx.Tx) error {
		var epoch shard.Epoch
		err := tx.QueryRow(ctx, selectEpoch, int32(p.Shard)).Scan(&epoch)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if epoch != p.Epoch {
			return fenced(p.Shard)
		}
		return fn(tx)
	})
}

// Load implements store.Loader.
func (db *DB) Load(ctx context.Context, p shard.Proof, room []job.Job) (l store.Loaded, err error) {
	id := int32(p.Shard)
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) (err error) {
		if l.Gaps, err = gaps(ctx, tx, id); err != nil {
			return err
		}
		if l.Recurring, err = recurring(ctx, tx, id, l.Gaps, room); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, loadOpen, id)
		if l.Open, err = collect(rows, err, storekit.ScanSlotOf); err != nil {
			return err
		}
		rows, err = tx.Query(ctx, loadClaimed, id)
		if l.Claimed, err = collect(rows, err, storekit.ScanSlotOf); err != nil {
			return err
		}
		rows, err = tx.Query(ctx, loadBacklog, id)
		if l.Backlog, err = collect(rows, err, storekit.ScanBacklogCount); err != nil {
			return err
		}
		return tx.QueryRow(ctx, loadCheckAt, id).Scan(&l.CheckAt)
	})
	return l, err
}

// recurring reads the live recurring jobs, and those that ended after the watermark
// or the oldest open gap's cursor: they may still owe slots. Jobs with an inbox row
// are left to the inbox.
func recurring(ctx context.Context, tx pgx.Tx, id int32, open []store.Gap, room []job.Job) ([]job.Job, error) {
	scanner := &storekit.RecurringScanner{Shard: shard.ID(id), Borrow: func(b *[]byte) any { return (*pgtype.DriverBytes)(b) }}
	rows, err := tx.Query(ctx, loadRecurring, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	jobs, err := scanner.ScanAll(room[:0], rows)
	if err != nil {
		return nil, err
	}
	var oldest job.Instant
	if err := tx.QueryRow(ctx, loadWatermark, id).Scan(&oldest); err != nil {
		return nil, err
	}
	for _, g := range open {
		oldest = min(oldest, g.Cursor.FireTime)
	}
	rows, err = tx.Query(ctx, loadEnded, id, int64(oldest))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	return scanner.ScanAll(jobs, rows)
}

type querier interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

func gaps(ctx context.Context, q querier, id int32) ([]store.Gap, error) {
	rows, err := q.Query(ctx, selectGaps, id)
	return collect(rows, err, storekit.ScanGap)
}

// OnceJobs implements store.Loader.
func (db *DB) OnceJobs(ctx context.Context, p shard.Proof, after job.SlotKey, until job.Instant, limit int) (jobs []job.Job, err error) {
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectOnce, int32(p.Shard), int64(after.FireTime), after.UID[:], int64(until), limit)
		jobs, err = collect(rows, err, storekit.ScanJob)
		return err
	})
	return jobs, err
}

// Waiting implements store.Loader.
func (db *DB) Waiting(ctx context.Context, p shard.Proof, q store.BacklogQuery) (slots []store.BacklogSlot, err error) {
	query, args := waitingOf,
		[]any{int32(p.Shard), q.Handler, q.Priority, q.Fairness, int64(q.After.Rank), int64(q.After.Slot.FireTime), q.After.Slot.UID[:]}
	switch {
	case !q.UID.IsZero():
		query, args = waitingOfJob, []any{int32(p.Shard), q.UID[:]}
	case q.Checks:
		query, args = waitingToCheck, []any{int32(p.Shard)}
	}
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, append(args, q.Limit)...)
		slots, err = collect(rows, err, storekit.ScanWaiting)
		return err
	})
	return slots, err
}

// Drain implements store.Loader.
func (db *DB) Drain(ctx context.Context, p shard.Proof, limit int) (jobs []job.Job, err error) {
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectInbox, int32(p.Shard), limit)
		jobs, err = collect(rows, err, storekit.ScanJob)
		return err
	})
	return jobs, err
}

// InboxShards implements store.Loader.
func (db *DB) InboxShards(ctx context.Context) (ids []shard.ID, err error) {
	err = db.inTx(ctx, "look at inboxes", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, inboxShards)
		ids, err = collect(rows, err, scanTo[shard.ID])
		return err
	})
	return ids, err
}

// SlotOf implements store.Loader.
func (db *DB) SlotOf(ctx context.Context, p shard.Proof, key job.SlotKey) (s store.SlotOf, err error) {
	found := false
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) (err error) {
		s, err = storekit.ScanSlotOf(tx.QueryRow(ctx, selectSlotOf, int32(p.Shard), int64(key.FireTime), key.UID[:]))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		found = err == nil
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("cockroach: slot %s of job %s: %w", key.FireTime, key.UID, store.ErrNotFound)
	}
	return s, err
}

// OldSlots implements store.Loader.
func (db *DB) OldSlots(ctx context.Context, p shard.Proof, q store.PruneQuery) (slots []store.PruneSlot, err error) {
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectOldSlots, int32(p.Shard), int64(q.After.FireTime), q.After.UID[:], int64(q.Until), q.Limit)
		slots, err = collect(rows, err, storekit.ScanPruneSlot)
		return err
	})
	return slots, err
}

// EndedJobs implements store.Loader.
func (db *DB) EndedJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.EndedJob, error) {
	return endedJobs(ctx, db, p, storekit.ScanEndedJob, selectEndedJobs, q)
}

// DoneJobs implements store.Loader.
func (db *DB) DoneJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.DoneJob, error) {
	return endedJobs(ctx, db, p, storekit.ScanDoneJob, selectDoneJobs, q)
}

// SpentJob implements store.Loader.
func (db *DB) SpentJob(ctx context.Context, p shard.Proof, uid job.UID, last, before job.Instant) (done bool, err error) {
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) error {
		var kept int64
		err := tx.QueryRow(ctx, selectSpent, int32(p.Shard), uid[:], int64(last), int64(before)).Scan(&kept)
		done = kept == 0
		return err
	})
	return done, err
}

// Oldest implements store.Loader.
func (db *DB) Oldest(ctx context.Context, p shard.Proof, from store.Old) (old store.Old, err error) {
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, selectOldest, int32(p.Shard), int64(from.RequestsFrom), int64(from.EventsFrom), int64(from.SkipsFrom)).
			Scan(&old.RequestsFrom, &old.EventsFrom, &old.SkipsFrom)
	})
	return old, err
}

func endedJobs[T any](ctx context.Context, db *DB, p shard.Proof, scan func(storekit.Scanner) (T, error), query string, q store.EndedQuery) (jobs []T, err error) {
	err = db.inOwnedRead(ctx, p, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, int32(p.Shard), int64(q.AfterTime), q.AfterUID[:], int64(q.Before), q.Limit)
		jobs, err = collect(rows, err, scan)
		return err
	})
	return jobs, err
}

// Submit implements store.Inbox. The jobs are inserted in the order of their keys,
// so that two callers lock their rows in the same order.
func (db *DB) Submit(ctx context.Context, jobs []job.Job) (existing []*job.Job, stored bool, err error) {
	order := numbers(len(jobs))
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(jobs[a].Shard, jobs[b].Shard), cmp.Compare(jobs[a].Name, jobs[b].Name))
	})
	rows := gather(order, func(i *int32) jobIn { return jobIn{job: &jobs[*i]} })
	err = db.inTx(ctx, "submit jobs", func(tx pgx.Tx) error {
		existing, stored = make([]*job.Job, len(jobs)), true
		var at job.Instant
		if err := tx.QueryRow(ctx, selectNow).Scan(&at); err != nil {
			return err
		}
		for i := range jobs {
			jobs[i].CreatedAt, jobs[i].EffectiveFrom = at, at
		}
		written, err := submit(ctx, tx, rows)
		if err != nil {
			return err
		}
		rivals, err := rivalsOf(ctx, tx, rows, written)
		for k, i := range order {
			existing[i] = rivals[k]
			if r := rivals[k]; r != nil && (r.RequestID == "" || r.RequestID != jobs[i].RequestID || r.RequestHash != jobs[i].RequestHash) {
				stored = false
			}
		}
		if err == nil && !stored {
			return domainError{errNotStored}
		}
		return err
	})
	if errors.Is(err, errNotStored) {
		return existing, false, nil
	}
	return existing, stored, err
}

var errNotStored = errors.New("another job stands in the way")

// submit inserts jobs with their inbox rows, and returns which were written.
func submit(ctx context.Context, tx pgx.Tx, rows []jobIn) (map[jobKey]bool, error) {
	arrays, err := jobArrays(rows)
	if err != nil {
		return nil, err
	}
	found, err := tx.Query(ctx, insertJobs, arrays...)
	keys, err := collect(found, err, scanJobKey)
	if err != nil {
		return nil, err
	}
	written := map[jobKey]bool{}
	for _, k := range keys {
		written[k] = true
	}
	_, err = tx.Exec(ctx, insertInto, gather(keys, func(k *jobKey) int32 { return k.shard }), gather(keys, func(k *jobKey) []byte { return k.uid[:] }))
	return written, err
}

// rivalsOf reads, for each job that was not written, the one that stood in its way,
// unless that is itself, sent before.
func rivalsOf(ctx context.Context, tx pgx.Tx, rows []jobIn, written map[jobKey]bool) ([]*job.Job, error) {
	rivals := make([]*job.Job, len(rows))
	var batch pgx.Batch
	for i := range rows {
		j := rows[i].job
		if written[jobKey{int32(j.Shard), j.UID}] {
			continue
		}
		batch.Queue(selectRival, rivalKeys(j)...).QueryRow(func(row pgx.Row) error {
			existing, err := storekit.ScanJob(row)
			if err == nil && existing.UID != j.UID {
				rivals[i] = &existing
			}
			return err
		})
	}
	if batch.Len() == 0 {
		return rivals, nil
	}
	return rivals, tx.SendBatch(ctx, &batch).Close()
}
