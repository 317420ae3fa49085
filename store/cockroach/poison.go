package cockroach

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// errTrial ends a trial without an effect.
var errTrial = errors.New("trial")

// findPoison finds the job whose rows the database can't store, by trying halves of
// the batch without committing them.
func (db *DB) findPoison(ctx context.Context, b store.Batch, cause error) error {
	suspects := jobsOf(b)
	for len(suspects) > 1 {
		half := suspects[:len(suspects)/2]
		refused, err := db.refuses(ctx, only(b, half))
		if err != nil {
			return err
		}
		if refused {
			suspects = half
		} else {
			suspects = suspects[len(half):]
		}
	}
	if len(suspects) == 1 {
		refused, err := db.refuses(ctx, only(b, suspects))
		if err != nil {
			return err
		}
		if refused {
			return &store.RefusedError{Shard: suspects[0].shard, UID: suspects[0].uid, Err: cause}
		}
	}
	// No job's rows are it, so it is an event, which the writer can do without.
	for i := range b.Shards {
		if len(b.Shards[i].Events) > 0 {
			return &store.RefusedError{Shard: b.Shards[i].Proof.Shard, Err: cause}
		}
	}
	return unavailable("commit", cause)
}

// refuses reports whether the database refuses a batch. Nothing is written.
func (db *DB) refuses(ctx context.Context, b store.Batch) (bool, error) {
	err := db.inTx(ctx, "try a part of a batch", func(tx pgx.Tx) error {
		if _, err := commitTx(ctx, tx, &b); err != nil {
			return err
		}
		return domainError{errTrial}
	})
	switch {
	case errors.Is(err, errTrial):
		return false, nil
	case refusedByDatabase(err):
		return true, nil
	}
	return false, err
}

// suspect is a job of a batch.
type suspect struct {
	shard shard.ID
	uid   job.UID
}

// jobsOf lists the jobs of a batch, in order.
func jobsOf(b store.Batch) []suspect {
	seen := map[suspect]bool{}
	for i := range b.Shards {
		for _, uid := range b.Shards[i].Jobs() {
			seen[suspect{b.Shards[i].Proof.Shard, uid}] = true
		}
	}
	list := make([]suspect, 0, len(seen))
	for s := range seen {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b suspect) int {
		if a.shard != b.shard {
			return int(a.shard) - int(b.shard)
		}
		return slices.Compare(a.uid[:], b.uid[:])
	})
	return list
}

// only returns a batch with the rows of some jobs, without events.
func only(b store.Batch, keep []suspect) store.Batch {
	out := store.Batch{Now: b.Now}
	for i := range b.Shards {
		rows := b.Shards[i]
		rows.Events = nil
		for _, uid := range rows.Jobs() {
			if !slices.Contains(keep, suspect{rows.Proof.Shard, uid}) {
				rows = rows.Without(uid)
			}
		}
		out.Shards = append(out.Shards, rows)
	}
	return out
}
