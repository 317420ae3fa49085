package cockroach

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// Job implements store.Reader.
func (db *DB) Job(ctx context.Context, id shard.ID, namespace, name string) (job.Job, error) {
	return one(ctx, db, "job "+namespace+"/"+name, storekit.ScanJob, jobByName, namespace, name, int32(id))
}

// JobByUID implements store.Reader.
func (db *DB) JobByUID(ctx context.Context, namespace string, uid job.UID) (job.Job, error) {
	j, err := one(ctx, db, "job "+uid.String(), storekit.ScanJob, jobByUID, uid[:])
	if err == nil && j.Namespace != namespace {
		return job.Job{}, fmt.Errorf("cockroach: job %s: %w", uid, store.ErrNotFound)
	}
	return j, err
}

// JobUIDs implements store.Reader.
func (db *DB) JobUIDs(ctx context.Context, id shard.ID, namespace, name string) ([]job.UID, error) {
	return list(ctx, db, "read uids", storekit.ScanUID, jobUIDs, namespace, name, int32(id))
}

// JobByRequest implements store.Reader.
func (db *DB) JobByRequest(ctx context.Context, id shard.ID, namespace, requestID string) (job.Job, error) {
	return one(ctx, db, "request "+requestID, storekit.ScanJob, jobByReq, int32(id), namespace, requestID)
}

// Jobs implements store.Reader.
func (db *DB) Jobs(ctx context.Context, p store.JobsPage) ([]job.Job, store.JobCursor, error) {
	return storekit.JobsPage(p, func(after store.JobCursor, limit int) ([]job.Job, error) {
		return list(ctx, db, "list jobs", storekit.ScanJob, listJobs, p.Namespace, after.Name, after.UID[:], p.ShowEnded, limit)
	})
}

// SlotsByKey implements store.Reader.
func (db *DB) SlotsByKey(ctx context.Context, id shard.ID, keys []job.SlotKey) ([]job.Slot, error) {
	fires := gather(keys, func(k *job.SlotKey) int64 { return int64(k.FireTime) })
	uids := gather(keys, func(k *job.SlotKey) []byte { return k.UID[:] })
	return list(ctx, db, "read slots", storekit.ScanSlot, slotsByKey, int32(id), fires, uids)
}

// KeysBefore implements store.Reader.
func (db *DB) KeysBefore(ctx context.Context, id shard.ID, before job.SlotKey, limit int) ([]job.SlotKey, error) {
	return list(ctx, db, "read keys", storekit.ScanSlotKey, keysBefore, int32(id), int64(before.FireTime), before.UID[:], limit)
}

// UnscheduledSlots implements store.Reader.
func (db *DB) UnscheduledSlots(ctx context.Context, id shard.ID, uid job.UID, before job.Instant, limit int) ([]job.Slot, error) {
	return list(ctx, db, "read slots", storekit.ScanSlot, unscheduled, int32(id), uid[:], int64(before), limit)
}

// Slots implements store.Reader.
func (db *DB) Slots(ctx context.Context, p store.SlotsPage) ([]store.SlotOf, store.SlotCursor, error) {
	shards, err := db.shards(ctx)
	if err != nil {
		return nil, store.SlotCursor{}, err
	}
	return storekit.SlotsPage(ctx, p, shards, db.newest)
}

func (db *DB) shards(ctx context.Context) (int, error) {
	return one(ctx, db, "number of shards", scanTo[int], countShards)
}

// scanTo reads a row of one value.
func scanTo[T any](row storekit.Scanner) (v T, err error) { return v, row.Scan(&v) }

// newest reads the ranges of all shards in one round trip.
func (db *DB) newest(ctx context.Context, ranges []storekit.Range) ([][]store.SlotOf, error) {
	var answers [][]store.SlotOf
	err := again(ctx, "list slots", func(ctx context.Context) (err error) {
		var batch pgx.Batch // a batch belongs to the connection that it was sent on
		for _, r := range ranges {
			batch.Queue(newestSlots, int32(r.Shard), int64(r.Before.FireTime), r.Before.UID[:], int64(r.From), r.Limit)
		}
		answers, err = lists(ctx, db.reader, storekit.ScanSlotOf, &batch)
		return err
	})
	return answers, err
}

// CountSlots implements store.Reader.
func (db *DB) CountSlots(ctx context.Context, namespace string, since job.Instant) (store.SlotCounts, error) {
	shards, err := db.shards(ctx)
	if err != nil {
		return store.SlotCounts{}, err
	}
	tally := storekit.NewTally(since)
	var out store.SlotCounts
	err = db.readStale(ctx, "count slots", func(tx pgx.Tx) error {
		var batch pgx.Batch
		for id := range shards {
			batch.Queue(countSlots, id, int64(tally.Since()), storekit.CountBudget, namespace, int64(storekit.Bucket))
		}
		counts, err := lists(ctx, tx, storekit.ScanCount, &batch)
		if err != nil {
			return err
		}
		total := tally
		for _, c := range counts {
			total.Shard(c)
		}
		out = total.Finish()
		for _, query := range []string{countDead, countBacklog} {
			rows, err := tx.Query(ctx, query, namespace, int64(out.Since))
			older, err := collect(rows, err, storekit.ScanOlder)
			if err != nil {
				return err
			}
			for _, c := range older {
				out.ByState[c.State] += c.Slots
			}
		}
		return nil
	})
	return out, err
}

// Attempts implements store.Reader.
func (db *DB) Attempts(ctx context.Context, id shard.ID, key job.SlotKey) ([]job.Attempt, error) {
	return list(ctx, db, "read attempts", storekit.ScanAttempt, listAttempts, int32(id), int64(key.FireTime), key.UID[:])
}

// RetainedFrom implements store.Reader.
func (db *DB) RetainedFrom(ctx context.Context, id shard.ID) (job.Instant, error) {
	return one(ctx, db, fmt.Sprint("shard ", id), scanTo[job.Instant], selectRetained, int32(id))
}

// GapsOf implements store.Reader.
func (db *DB) GapsOf(ctx context.Context, id shard.ID) ([]store.Gap, error) {
	return list(ctx, db, "read gaps", storekit.ScanGap, selectGaps, int32(id))
}

// DeadLetters implements store.Reader.
func (db *DB) DeadLetters(ctx context.Context, p store.DeadLettersPage) ([]store.DeadLetterOf, store.DeadCursor, error) {
	return storekit.DeadPage(p, func(after store.DeadCursor, limit int) ([]store.DeadLetterOf, error) {
		return list(ctx, db, "list dead letters", storekit.ScanDeadLetter, listDead, int32(after.Shard), int64(after.Key.FireTime), after.Key.UID[:], limit)
	})
}

// DeadLetterGroups implements store.Reader.
func (db *DB) DeadLetterGroups(ctx context.Context, namespace string, limit int) ([]store.DeadLetterGroup, error) {
	var groups []store.DeadLetterGroup
	err := db.readStale(ctx, "group dead letters", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, groupDead, namespace, limit)
		groups, err = collect(rows, err, storekit.ScanDeadGroup)
		return err
	})
	return groups, err
}

// Events implements store.Reader.
func (db *DB) Events(ctx context.Context, id shard.ID, limit int) ([]store.Event, error) {
	return list(ctx, db, "read events", storekit.ScanEvent, listEvents, int32(id), limit)
}

// Skips implements store.Reader.
func (db *DB) Skips(ctx context.Context, id shard.ID, uid job.UID, from job.Instant, limit int) ([]store.Skip, error) {
	return list(ctx, db, "read skips", storekit.ScanSkip, listSkips, int32(id), uid[:], int64(from), limit)
}

// RegisterHandlers implements store.Catalog.
func (db *DB) RegisterHandlers(ctx context.Context, names []string, at job.Instant) error {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	return db.inTx(ctx, "register handlers", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, touchHandlers, sorted, int64(at))
		return err
	})
}

// Handler implements store.Catalog.
func (db *DB) Handler(ctx context.Context, name string) (store.Handler, error) {
	return one(ctx, db, "handler "+name, storekit.ScanHandler, handlerByName, name)
}

// Handlers implements store.Catalog.
func (db *DB) Handlers(ctx context.Context, after string, limit int) ([]store.Handler, error) {
	return list(ctx, db, "list handlers", storekit.ScanHandler, listHandlers, after, limit)
}
