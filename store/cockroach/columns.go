package cockroach

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// gather builds one array of a statement: a value of each row.
func gather[R, V any](rows []R, value func(*R) V) []V {
	out := make([]V, len(rows))
	for i := range rows {
		out[i] = value(&rows[i])
	}
	return out
}

// row is a value of a batch, with its shard.
type row[T any] struct {
	shard int32
	v     *T
}

func (r *row[T]) id() int32 { return r.shard }

// of lists the values of one kind of all shards of a batch.
func of[T any](b *store.Batch, field func(*store.ShardBatch) []T) (rows []row[T]) {
	for i := range b.Shards {
		values := field(&b.Shards[i])
		for k := range values {
			rows = append(rows, row[T]{int32(b.Shards[i].Proof.Shard), &values[k]})
		}
	}
	return rows
}

// firstOf keeps the first of the rows that have one key: a statement must not change
// a row twice.
func firstOf[T any, K comparable](rows []row[T], key func(row[T]) K) []row[T] {
	seen := map[K]bool{}
	return slices.DeleteFunc(rows, func(r row[T]) bool {
		k := key(r)
		again := seen[k]
		seen[k] = true
		return again
	})
}

// uidOrNull returns the bytes of a uid, or NULL for none.
func uidOrNull(uid job.UID) []byte {
	if uid.IsZero() {
		return nil
	}
	return uid[:]
}

// jobKey names a job of any shard.
type jobKey struct {
	shard int32
	uid   job.UID
}

func scanJobKey(row storekit.Scanner) (k jobKey, err error) {
	var uid []byte
	err = row.Scan(&k.shard, &uid)
	copy(k.uid[:], uid)
	return k, err
}

// jobIn is a job to be written, with its structured parts as text.
type jobIn struct {
	job   *job.Job
	texts storekit.JobTexts
}

// jobArrays are the columns of jobs in the order of jobColumnsIn.
func jobArrays(rows []jobIn) (arrays []any, err error) {
	for i := range rows {
		r := &rows[i]
		if r.texts, err = storekit.EncodeJob(r.job); err != nil {
			return nil, err
		}
	}
	return []any{
		gather(rows, func(r *jobIn) int32 { return int32(r.job.Shard) }),
		gather(rows, func(r *jobIn) []byte { return r.job.UID[:] }),
		gather(rows, func(r *jobIn) string { return r.job.Namespace }),
		gather(rows, func(r *jobIn) string { return r.job.Name }),
		gather(rows, func(r *jobIn) string { return r.job.Handler }),
		gather(rows, func(r *jobIn) []byte { return storekit.NonNil(r.job.Params) }),
		gather(rows, func(r *jobIn) int16 { return int16(r.job.Schedule.Kind) }),
		gather(rows, func(r *jobIn) *int64 { return orNull(r.job.Schedule.Kind == job.KindOnce, int64(r.job.Schedule.At)) }),
		gather(rows, func(r *jobIn) string { return r.texts.Schedule }),
		gather(rows, func(r *jobIn) string { return r.texts.Retry }),
		gather(rows, func(r *jobIn) int64 { return r.job.Timeout.Microseconds() }),
		gather(rows, func(r *jobIn) int64 { return int64(r.job.CreatedAt) }),
		gather(rows, func(r *jobIn) int64 { return int64(r.job.EffectiveFrom) }),
		gather(rows, func(r *jobIn) *int64 { return orNull(r.job.EndedAt != 0, int64(r.job.EndedAt)) }),
		gather(rows, func(r *jobIn) *string { return orNull(r.job.RequestID != "", r.job.RequestID) }),
		gather(rows, func(r *jobIn) string { return r.job.RequestHash }),
		gather(rows, func(r *jobIn) *string { return orNull(r.job.Quarantine != "", r.job.Quarantine) }),
		gather(rows, func(r *jobIn) string { return r.texts.Labels }),
		gather(rows, func(r *jobIn) string { return r.texts.Policies }),
	}, nil
}

// orNull returns v if it is set, else NULL.
func orNull[T any](set bool, v T) *T {
	if !set {
		return nil
	}
	return &v
}

// pruneIn is a slot to be deleted, with its shard.
type pruneIn struct {
	shard int32
	*store.SlotPrune
}

func pruneArrays(rows []pruneIn) []any {
	return []any{
		gather(rows, func(r *pruneIn) int32 { return r.shard }),
		gather(rows, func(r *pruneIn) int64 { return int64(r.Key.FireTime) }),
		gather(rows, func(r *pruneIn) []byte { return r.Key.UID[:] }),
		gather(rows, func(r *pruneIn) int16 { return int16(r.State) }),
		gather(rows, func(r *pruneIn) int32 { return r.Attempt }),
	}
}

// slotIn is a slot to be written, with its shard.
type slotIn struct {
	shard int32
	*job.Slot
}

// slotArrays are the columns of slots in the order of slotColumnsIn.
func slotArrays(rows []slotIn) []any {
	return []any{
		gather(rows, func(r *slotIn) int32 { return r.shard }),
		gather(rows, func(r *slotIn) int64 { return int64(r.Key.FireTime) }),
		gather(rows, func(r *slotIn) []byte { return r.Key.UID[:] }),
		gather(rows, func(r *slotIn) int16 { return int16(r.Trigger) }),
		gather(rows, func(r *slotIn) int16 { return int16(r.State) }),
		gather(rows, func(r *slotIn) int32 { return r.Attempt }),
		gather(rows, func(r *slotIn) int32 { return r.Failures }),
		gather(rows, func(r *slotIn) int64 { return int64(r.Epoch) }),
		gather(rows, func(r *slotIn) string { return r.Worker }),
		gather(rows, func(r *slotIn) string { return r.Incarnation }),
		gather(rows, func(r *slotIn) int64 { return int64(r.CreatedAt) }),
		gather(rows, func(r *slotIn) int64 { return int64(r.ClaimedAt) }),
		gather(rows, func(r *slotIn) int64 { return int64(r.StartedAt) }),
		gather(rows, func(r *slotIn) int64 { return int64(r.FinishedAt) }),
		gather(rows, func(r *slotIn) int64 { return int64(r.NotBefore) }),
		gather(rows, func(r *slotIn) int64 { return int64(r.Deadline) }),
		gather(rows, func(r *slotIn) int16 { return int16(r.Outcome) }),
		gather(rows, func(r *slotIn) string { return r.ErrorCode }),
		gather(rows, func(r *slotIn) string { return r.ErrorText }),
		gather(rows, func(r *slotIn) []byte { return storekit.NonNil(r.Result) }),
		gather(rows, func(r *slotIn) int64 { return int64(r.RequestedAt) }),
		gather(rows, func(r *slotIn) int16 { return int16(r.Breaches) }),
		gather(rows, func(r *slotIn) []byte { return storekit.NonNil(r.Params) }),
		gather(rows, func(r *slotIn) []byte { return storekit.NonNil(r.Notes) }),
	}
}

// updateIn is a change of a slot, with its shard.
type updateIn struct {
	shard int32
	*store.SlotUpdate
}

func updateArrays(rows []updateIn) []any {
	slots := make([]slotIn, len(rows))
	for i := range rows {
		slots[i] = slotIn{rows[i].shard, &rows[i].Slot}
	}
	return append(slotArrays(slots),
		gather(rows, func(r *updateIn) int16 { return int16(r.FromState) }),
		gather(rows, func(r *updateIn) int32 { return r.FromAttempt }))
}

// attemptIn is an attempt to be recorded, with its shard.
type attemptIn struct {
	shard int32
	*store.SlotAttempt
}

func attemptArrays(rows []attemptIn) []any {
	return []any{
		gather(rows, func(r *attemptIn) int32 { return r.shard }),
		gather(rows, func(r *attemptIn) int64 { return int64(r.Key.FireTime) }),
		gather(rows, func(r *attemptIn) []byte { return r.Key.UID[:] }),
		gather(rows, func(r *attemptIn) int32 { return r.Attempt.Number }),
		gather(rows, func(r *attemptIn) string { return r.Attempt.Worker }),
		gather(rows, func(r *attemptIn) int64 { return int64(r.Attempt.Epoch) }),
		gather(rows, func(r *attemptIn) int64 { return int64(r.Attempt.ClaimedAt) }),
		gather(rows, func(r *attemptIn) int64 { return int64(r.Attempt.StartedAt) }),
		gather(rows, func(r *attemptIn) int64 { return int64(r.Attempt.EndedAt) }),
		gather(rows, func(r *attemptIn) int16 { return int16(r.Attempt.Outcome) }),
		gather(rows, func(r *attemptIn) string { return r.Attempt.ErrorCode }),
		gather(rows, func(r *attemptIn) string { return r.Attempt.ErrorText }),
		gather(rows, func(r *attemptIn) string { return r.Attempt.Late }),
		gather(rows, func(r *attemptIn) string { return r.Attempt.Log }),
	}
}

// backlogIn is a place in the backlog, with its shard.
type backlogIn struct {
	shard int32
	key   store.BacklogKey
	row   *store.BacklogRow // nil for one that goes
}

func backlogArrays(rows []backlogIn) []any {
	return []any{
		gather(rows, func(r *backlogIn) int32 { return r.shard }),
		gather(rows, func(r *backlogIn) bool { return r.key.Waiting }),
		gather(rows, func(r *backlogIn) string { return r.key.Handler }),
		gather(rows, func(r *backlogIn) int32 { return r.key.Priority }),
		gather(rows, func(r *backlogIn) string { return r.key.Fairness }),
		gather(rows, func(r *backlogIn) int64 { return int64(r.key.Rank) }),
		gather(rows, func(r *backlogIn) int64 { return int64(r.key.Slot.FireTime) }),
		gather(rows, func(r *backlogIn) []byte { return r.key.Slot.UID[:] }),
	}
}
