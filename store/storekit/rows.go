package storekit

import (
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// JobColumns are the columns of a job, of the table j, in the order of ScanJob.
const JobColumns = `j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.timeout_us,
	j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine`

// SlotColumns are the columns of a slot, of the table s, in the order of ScanSlot.
const SlotColumns = `s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation,
	s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result`

// Scanner is a row that can be scanned, alone or of many.
type Scanner interface{ Scan(dest ...any) error }

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
	DecodeJob(&j, r.schedule, r.retry)
	return j
}

// ScanJob reads JobColumns.
func ScanJob(row Scanner) (job.Job, error) {
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

// ScanSlot reads SlotColumns.
func ScanSlot(row Scanner) (job.Slot, error) {
	var r slotRow
	if err := row.Scan(r.targets()...); err != nil {
		return job.Slot{}, err
	}
	return r.value(), nil
}

// ScanSlotOf reads SlotColumns and then JobColumns.
func ScanSlotOf(row Scanner) (store.SlotOf, error) {
	var s slotRow
	var j jobRow
	if err := row.Scan(append(s.targets(), j.targets()...)...); err != nil {
		return store.SlotOf{}, err
	}
	return store.SlotOf{Slot: s.value(), Job: j.value()}, nil
}

// WaitingColumns are the columns of a row of the backlog, of the table b, with its
// slot and job.
const WaitingColumns = `b.waiting, b.handler, b.priority, b.fairness, b.ready_at, b.wake_at, ` + SlotColumns + `, ` + JobColumns

// ScanWaiting reads WaitingColumns.
func ScanWaiting(row Scanner) (b store.BacklogSlot, err error) {
	var s slotRow
	var j jobRow
	k := &b.Row.Key
	targets := []any{&k.Waiting, &k.Handler, &k.Priority, &k.Fairness, &k.ReadyAt, &b.Row.WakeAt}
	if err := row.Scan(append(append(targets, s.targets()...), j.targets()...)...); err != nil {
		return b, err
	}
	b.Slot, b.Job = s.value(), j.value()
	k.Slot = b.Slot.Key
	return b, nil
}

// JobValues returns the values of a job's row: shard, uid, namespace, name, handler,
// params, kind, fire_at, schedule, retry, timeout_us, created_at, effective_from,
// ended_at, request_id, request_hash, quarantine.
func JobValues(j *job.Job) ([]any, error) {
	schedule, retry, err := EncodeJob(j)
	if err != nil {
		return nil, err
	}
	var fireAt any
	if j.Schedule.Kind == job.KindOnce {
		fireAt = int64(j.Schedule.At)
	}
	return []any{int64(j.Shard), j.UID[:], j.Namespace, j.Name, j.Handler, NonNil(j.Params), int64(j.Schedule.Kind), fireAt,
		schedule, retry, j.Timeout.Microseconds(), int64(j.CreatedAt), int64(j.EffectiveFrom),
		nullTime(j.EndedAt), NullText(j.RequestID), j.RequestHash, NullText(j.Quarantine)}, nil
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

// NullText returns NULL for an empty text.
func NullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// NonNil returns b, or an empty slice for nil: the column holds no NULL.
func NonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
