package cockroach

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

const jobColumns = `j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us,
	j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine`

const slotColumns = `s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation,
	s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result`

// scanner is a row that can be scanned, alone or of many.
type scanner interface{ Scan(dest ...any) error }

// jobRow holds the columns of a job in the form that the driver gives them.
type jobRow struct {
	job                   job.Job
	uid                   []byte
	schedule, retry       string
	timeoutMicros         int64
	ended                 *int64
	requestID, quarantine *string
}

func (r *jobRow) targets() []any {
	j := &r.job
	return []any{&j.Shard, &r.uid, &j.Namespace, &j.Name, &j.Handler, &j.Params, &r.schedule, &r.retry, &r.timeoutMicros,
		&j.CreatedAt, &j.EffectiveFrom, &r.ended, &r.requestID, &j.RequestHash, &r.quarantine}
}

func (r *jobRow) value() job.Job {
	j := r.job
	copy(j.UID[:], r.uid)
	j.Timeout = time.Duration(r.timeoutMicros) * time.Microsecond
	if r.ended != nil {
		j.EndedAt = job.Instant(*r.ended)
	}
	j.RequestID, j.Quarantine = text(r.requestID), text(r.quarantine)
	storekit.DecodeJob(&j, r.schedule, r.retry)
	return j
}

func scanJob(row scanner) (job.Job, error) {
	var r jobRow
	if err := row.Scan(r.targets()...); err != nil {
		return job.Job{}, err
	}
	return r.value(), nil
}

type slotRow struct {
	slot job.Slot
	uid  []byte
}

func (r *slotRow) targets() []any {
	s := &r.slot
	return []any{&s.Key.FireTime, &r.uid, &s.Trigger, &s.State, &s.Attempt, &s.Failures, &s.Epoch, &s.Worker, &s.Incarnation,
		&s.CreatedAt, &s.ClaimedAt, &s.StartedAt, &s.FinishedAt, &s.NotBefore, &s.Deadline, &s.Outcome, &s.ErrorCode, &s.ErrorText, &s.Result}
}

func (r *slotRow) value() job.Slot {
	s := r.slot
	copy(s.Key.UID[:], r.uid)
	return s
}

func scanSlot(row scanner) (job.Slot, error) {
	var r slotRow
	if err := row.Scan(r.targets()...); err != nil {
		return job.Slot{}, err
	}
	return r.value(), nil
}

func scanSlotOf(row scanner) (store.SlotOf, error) {
	var s slotRow
	var j jobRow
	if err := row.Scan(append(s.targets(), j.targets()...)...); err != nil {
		return store.SlotOf{}, err
	}
	return store.SlotOf{Slot: s.value(), Job: j.value()}, nil
}

// collect reads all rows of a query.
func collect[T any](rows pgx.Rows, err error, scan func(scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// jobValues returns the values of a job's row in the order of insertJob.
func jobValues(j *job.Job) ([]any, error) {
	schedule, retry, err := storekit.EncodeJob(j)
	if err != nil {
		return nil, err
	}
	var fireAt any
	if j.Schedule.Kind == job.KindOnce {
		fireAt = int64(j.Schedule.At)
	}
	return []any{int32(j.Shard), j.UID[:], j.Namespace, j.Name, j.Handler, nonNil(j.Params), int16(j.Schedule.Kind), fireAt,
		schedule, retry, j.Timeout.Microseconds(), int64(j.CreatedAt), int64(j.EffectiveFrom),
		nullTime(j.EndedAt), nullText(j.RequestID), j.RequestHash, nullText(j.Quarantine)}, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func nullTime(i job.Instant) any {
	if i == 0 {
		return nil
	}
	return int64(i)
}

func nullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}
