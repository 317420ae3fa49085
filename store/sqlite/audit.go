package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// Audit implements store.Auditor.
func (db *DB) Audit(ctx context.Context, id shard.ID) (store.Audit, error) {
	a := store.Audit{Shard: id}
	tx, err := db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return a, unavailable("begin audit", err)
	}
	defer tx.Rollback() // a read has nothing to commit
	err = tx.QueryRowContext(ctx, `SELECT owner, epoch, owner_gen, owner_rev, watermark, open_from, retained_from FROM shards WHERE shard = ?`, int64(id)).
		Scan(&a.Owner, &a.Epoch, &a.Gen, &a.Rev, &a.Watermark, &a.OpenFrom, &a.RetainedFrom)
	if errors.Is(err, sql.ErrNoRows) {
		return a, fmt.Errorf("sqlite: shard %d: %w", id, store.ErrNotFound)
	}
	if err != nil {
		return a, unavailable("audit", err)
	}
	for _, read := range []func() error{
		into(ctx, tx, id, &a.TakeOvers, storekit.ScanTakeOver, `SELECT epoch, owner, owner_gen, owner_rev, taken_at FROM epochs WHERE shard = ? ORDER BY epoch`),
		into(ctx, tx, id, &a.Jobs, storekit.ScanJob, `SELECT `+storekit.JobColumns+` FROM jobs j WHERE j.shard = ? ORDER BY j.uid`),
		into(ctx, tx, id, &a.Inbox, storekit.ScanUID, `SELECT uid FROM inbox WHERE shard = ? ORDER BY uid`),
		into(ctx, tx, id, &a.Slots, storekit.ScanSlot, `SELECT `+storekit.SlotColumns+` FROM slots s WHERE s.shard = ? ORDER BY s.fire_time, s.uid`),
		into(ctx, tx, id, &a.Attempts, storekit.ScanSlotAttempt, `SELECT a.fire_time, a.uid, `+storekit.AttemptColumns+` FROM attempts a WHERE a.shard = ? ORDER BY a.fire_time, a.uid, a.attempt`),
		into(ctx, tx, id, &a.Backlog, storekit.ScanBacklogRow, `SELECT waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at, coalesce(check_at, 0) FROM backlog
			WHERE shard = ? ORDER BY waiting, handler, priority, fairness, ready_at, fire_time, uid`),
		into(ctx, tx, id, &a.DeadLetters, storekit.ScanOneDeadLetter, `SELECT `+storekit.DeadLetterColumns+` FROM dead_letters d WHERE d.shard = ? ORDER BY d.fire_time, d.uid`),
		into(ctx, tx, id, &a.Skips, storekit.ScanSkip, `SELECT `+storekit.SkipColumns+` FROM skips k WHERE k.shard = ? ORDER BY k.uid, k.to_time`),
		into(ctx, tx, id, &a.Events, storekit.ScanEvent, selectEvents+`epoch, seq`),
	} {
		if err := read(); err != nil {
			return a, unavailable("audit", err)
		}
	}
	if a.Gaps, err = gaps(ctx, tx, int64(id)); err != nil {
		return a, unavailable("audit", err)
	}
	return a, nil
}

// into reads all rows of a shard's query into a list.
func into[T any](ctx context.Context, tx *sql.Tx, id shard.ID, list *[]T, scan func(storekit.Scanner) (T, error), query string) func() error {
	return func() error {
		rows, err := tx.QueryContext(ctx, query, int64(id))
		*list, err = collect(rows, err, scan)
		return err
	}
}
