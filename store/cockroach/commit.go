package cockroach

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

func isFence(e *pgconn.PgError) bool {
	return e.Code == "22P02" && strings.Contains(e.Message, fenceText)
}

// Commit implements store.Committer.
func (db *DB) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	var out store.Outcome
	err := db.inTx(ctx, "commit", func(tx pgx.Tx) (err error) {
		out, err = commitTx(ctx, tx, &b)
		return err
	})
	db.lookAfterStatistics(ctx, err)
	switch {
	case err == nil:
		return out, nil
	case isFenceError(err):
		return store.Outcome{}, db.lostShards(ctx, b)
	case refusedByDatabase(err):
		return store.Outcome{}, db.findPoison(ctx, b, err)
	}
	return store.Outcome{}, err
}

func isFenceError(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && isFence(pg)
}

// lostShards reads which shards of a batch stand under another epoch.
func (db *DB) lostShards(ctx context.Context, b store.Batch) error {
	var lost []shard.ID
	err := db.inTx(ctx, "read epochs", func(tx pgx.Tx) error {
		lost = nil
		for i := range b.Shards {
			p := b.Shards[i].Proof
			var epoch shard.Epoch
			var try int64
			err := tx.QueryRow(ctx, selectFence, int32(p.Shard)).Scan(&epoch, &try)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			if epoch != p.Epoch || try > b.Try {
				lost = append(lost, p.Shard)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(lost) == 0 {
		return unavailable("commit", errors.New("the fence failed, but every epoch is current"))
	}
	return &store.FencedError{Shards: lost}
}

// commitTx writes a batch, in one round trip, and a second one only if a row was
// not written.
func commitTx(ctx context.Context, tx pgx.Tx, b *store.Batch) (store.Outcome, error) {
	w := newWriter(b)
	w.fence()
	w.jobs()
	w.requests()
	w.slots()
	w.attempts()
	w.queues()
	w.deadLetters()
	w.gaps()
	w.shardRows()
	w.events()
	w.prunes()
	w.giveUps()
	results := tx.SendBatch(ctx, &w.batch)
	for _, read := range w.reads {
		if err := read(results); err != nil {
			return store.Outcome{}, errors.Join(err, results.Close())
		}
	}
	if err := results.Close(); err != nil {
		return store.Outcome{}, err
	}
	if err := w.readBack(ctx, tx); err != nil {
		return store.Outcome{}, err
	}
	w.out.Statements += w.batch.Len()
	return w.out, nil
}
