package cockroach

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// Audit implements store.Auditor.
func (db *DB) Audit(ctx context.Context, id shard.ID) (a store.Audit, err error) {
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = inTx(ctx, db.reader, opts, "audit", func(tx pgx.Tx) error {
		a = store.Audit{Shard: id}
		err := tx.QueryRow(ctx, auditShard, int32(id)).Scan(&a.Owner, &a.Epoch, &a.Gen, &a.Rev, &a.Watermark, &a.OpenFrom, &a.RetainedFrom)
		if errors.Is(err, pgx.ErrNoRows) {
			return domainError{fmt.Errorf("cockroach: shard %d: %w", id, store.ErrNotFound)}
		}
		return errors.Join(err,
			into(ctx, tx, id, &a.TakeOvers, storekit.ScanTakeOver, auditEpochs),
			into(ctx, tx, id, &a.Jobs, storekit.ScanJob, auditJobs),
			into(ctx, tx, id, &a.Inbox, storekit.ScanUID, auditInbox),
			into(ctx, tx, id, &a.Slots, storekit.ScanSlot, auditSlots),
			into(ctx, tx, id, &a.Attempts, storekit.ScanSlotAttempt, auditAttempts),
			into(ctx, tx, id, &a.Backlog, storekit.ScanBacklogRow, auditBacklog),
			into(ctx, tx, id, &a.DeadLetters, storekit.ScanOneDeadLetter, auditDead),
			into(ctx, tx, id, &a.Gaps, storekit.ScanGap, selectGaps),
			into(ctx, tx, id, &a.Skips, storekit.ScanSkip, auditSkips),
			into(ctx, tx, id, &a.Events, storekit.ScanEvent, auditEvents))
	})
	return a, err
}

// into reads all rows of a shard's query into a list.
func into[T any](ctx context.Context, tx pgx.Tx, id shard.ID, list *[]T, scan func(storekit.Scanner) (T, error), query string) error {
	rows, err := tx.Query(ctx, query, int32(id))
	*list, err = collect(rows, err, scan)
	return err
}
