package cockroach

import (
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
	}
}

const (
	slotColumnsIn = `shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation,
		created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result`
	slotUnnest = `unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT2[], $6::INT4[], $7::INT4[], $8::INT8[], $9::TEXT[], $10::TEXT[],
		$11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[], $16::INT8[], $17::INT2[], $18::TEXT[], $19::TEXT[], $20::BYTEA[])`
)

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
	}
}

// backlogIn is a place in the backlog, with its shard.
type backlogIn struct {
	shard   int32
	key     store.BacklogKey
	wakeAt  job.Instant
	trigger job.Trigger
}

func backlogArrays(rows []backlogIn) []any {
	return []any{
		gather(rows, func(r *backlogIn) int32 { return r.shard }),
		gather(rows, func(r *backlogIn) bool { return r.key.Waiting }),
		gather(rows, func(r *backlogIn) string { return r.key.Handler }),
		gather(rows, func(r *backlogIn) int32 { return r.key.Priority }),
		gather(rows, func(r *backlogIn) string { return r.key.Fairness }),
		gather(rows, func(r *backlogIn) int64 { return int64(r.key.ReadyAt) }),
		gather(rows, func(r *backlogIn) int64 { return int64(r.key.Slot.FireTime) }),
		gather(rows, func(r *backlogIn) []byte { return r.key.Slot.UID[:] }),
	}
}
