package storekit

import (
	"math"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// JobColumns are the columns of a job, of the table j, in the order of ScanJob.
const JobColumns = `j.shard, j.uid, j.namespace, j.name, j.handler, j.params, j.schedule, j.retry, j.labels, j.timeout_us,
	j.created_at, j.effective_from, j.ended_at, j.request_id, j.request_hash, j.quarantine, j.ended_by_itself, j.policies`

// SlotColumns are the columns of a slot, of the table s, in the order of ScanSlot.
const SlotColumns = `s.fire_time, s.uid, s.trigger, s.state, s.attempt, s.failures, s.epoch, s.worker, s.incarnation,
	s.created_at, s.claimed_at, s.started_at, s.finished_at, s.not_before, s.deadline, s.outcome, s.error_code, s.error_text, s.result, s.requested_at, s.breaches, s.params, s.notes`

// Scanner is a row that can be scanned, alone or of many.
type Scanner interface{ Scan(dest ...any) error }

// jobRow holds the columns of a job in the form that the driver gives them.
type jobRow struct {
	job                   job.Job
	uid                   []byte
	texts                 JobTexts
	timeoutMicros         int64
	ended                 *int64
	requestID, quarantine *string
}

func (r *jobRow) targets() []any {
	j := &r.job
	return []any{&j.Shard, &r.uid, &j.Namespace, &j.Name, &j.Handler, &j.Params, &r.texts.Schedule, &r.texts.Retry, &r.texts.Labels, &r.timeoutMicros,
		&j.CreatedAt, &j.EffectiveFrom, &r.ended, &r.requestID, &j.RequestHash, &r.quarantine, &j.EndedByItself, &r.texts.Policies}
}

func (r *jobRow) value() job.Job {
	j := r.job
	scanUID(&j.UID, r.uid)
	if len(j.Params) == 0 {
		j.Params = nil
	}
	j.Timeout = time.Duration(r.timeoutMicros) * time.Microsecond
	if r.ended != nil {
		j.EndedAt = job.Instant(*r.ended)
	}
	j.RequestID, j.Quarantine = text(r.requestID), text(r.quarantine)
	DecodeJob(&j, r.texts)
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
		&s.CreatedAt, &s.ClaimedAt, &s.StartedAt, &s.FinishedAt, &s.NotBefore, &s.Deadline, &s.Outcome, &s.ErrorCode, &s.ErrorText, &s.Result, &s.RequestedAt, &s.Breaches, &s.Params, &s.Notes}
}

func (r *slotRow) value() job.Slot {
	s := r.slot
	scanUID(&s.Key.UID, r.uid)
	if len(s.Result) == 0 {
		s.Result = nil
	}
	if len(s.Params) == 0 {
		s.Params = nil
	}
	if len(s.Notes) == 0 {
		s.Notes = nil
	}
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
const WaitingColumns = `b.waiting, b.handler, b.priority, b.fairness, b.ready_at, b.wake_at, coalesce(b.check_at, 0), ` + SlotColumns + `, ` + JobColumns

// ScanWaiting reads WaitingColumns.
func ScanWaiting(row Scanner) (b store.BacklogSlot, err error) {
	var s slotRow
	var j jobRow
	k := &b.Row.Key
	targets := []any{&k.Waiting, &k.Handler, &k.Priority, &k.Fairness, &k.Rank, &b.Row.WakeAt, &b.Row.CheckAt}
	if err := row.Scan(append(append(targets, s.targets()...), j.targets()...)...); err != nil {
		return b, err
	}
	b.Slot, b.Job = s.value(), j.value()
	k.Slot = b.Slot.Key
	return b, nil
}

// JobValues returns the values of a job's row: shard, uid, namespace, name, handler,
// params, kind, fire_at, schedule, retry, timeout_us, created_at, effective_from,
// ended_at, request_id, request_hash, quarantine, labels, policies.
func JobValues(j *job.Job) ([]any, error) {
	texts, err := EncodeJob(j)
	if err != nil {
		return nil, err
	}
	var fireAt any
	if j.Schedule.Kind == job.KindOnce {
		fireAt = int64(j.Schedule.At)
	}
	return []any{int64(j.Shard), j.UID[:], j.Namespace, j.Name, j.Handler, NonNil(j.Params), int64(j.Schedule.Kind), fireAt,
		texts.Schedule, texts.Retry, j.Timeout.Microseconds(), int64(j.CreatedAt), int64(j.EffectiveFrom),
		nullTime(j.EndedAt), NullText(j.RequestID), j.RequestHash, NullText(j.Quarantine), texts.Labels, texts.Policies}, nil
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

func scanUID(into *job.UID, b []byte) { copy(into[:], b) }

// ScanPruneSlot reads fire_time, uid, state, attempt and finished_at of a slot, and the
// policies of its job. A job whose policies can't be read keeps its slots: it was set aside.
func ScanPruneSlot(row Scanner) (p store.PruneSlot, err error) {
	var uid []byte
	var text string
	if err := row.Scan(&p.Key.FireTime, &uid, &p.State, &p.Attempt, &p.FinishedAt, &text); err != nil {
		return p, err
	}
	scanUID(&p.Key.UID, uid)
	own, err := policies.decode(text)
	if p.Retention = own.Retention; err != nil {
		p.Retention = math.MaxInt64
	}
	return p, nil
}

// ScanDoneJob reads the uid of a job, an instant, and how many of its slots keep it
// from being done.
func ScanDoneJob(row Scanner) (d store.DoneJob, err error) {
	var uid []byte
	var open int64
	err = row.Scan(&uid, &d.At, &open)
	scanUID(&d.UID, uid)
	d.Done = open == 0
	return d, err
}

// ScanEndedJob reads the uid of a job and an instant.
func ScanEndedJob(row Scanner) (e store.EndedJob, err error) {
	var uid []byte
	err = row.Scan(&uid, &e.At)
	scanUID(&e.UID, uid)
	return e, err
}

// ScanCount reads a state, a bucket, how many rows were looked at, and how many
// count.
func ScanCount(row Scanner) (c Count, err error) {
	return c, row.Scan(&c.State, &c.Bucket, &c.Looked, &c.Slots)
}

// DeadLetterColumns are the columns of a dead letter, of the table d.
const DeadLetterColumns = `d.shard, d.fire_time, d.uid, d.namespace, d.handler, d.dead_at, d.error_code, d.fingerprint, d.sample`

// ScanDeadLetter reads DeadLetterColumns.
func ScanDeadLetter(row Scanner) (d store.DeadLetterOf, err error) {
	var uid []byte
	err = row.Scan(&d.Shard, &d.Key.FireTime, &uid, &d.Namespace, &d.Handler, &d.At, &d.ErrorCode, &d.Fingerprint, &d.Sample)
	scanUID(&d.Key.UID, uid)
	return d, err
}

// ScanOneDeadLetter reads DeadLetterColumns of a shard that is known.
func ScanOneDeadLetter(row Scanner) (store.DeadLetter, error) {
	d, err := ScanDeadLetter(row)
	return d.DeadLetter, err
}

// ScanOlder reads a state and how many slots there are.
func ScanOlder(row Scanner) (c Count, err error) { return c, row.Scan(&c.State, &c.Slots) }

// ScanDeadGroup reads handler, fingerprint, error_code, a sample, the count and the
// first and the last instant.
func ScanDeadGroup(row Scanner) (g store.DeadLetterGroup, err error) {
	return g, row.Scan(&g.Handler, &g.Fingerprint, &g.ErrorCode, &g.Sample, &g.Count, &g.First, &g.Latest)
}

// ScanGap reads to_time, uid, from_time, cursor_time, cursor_uid, made_at and options.
func ScanGap(row Scanner) (g store.Gap, err error) {
	var uid, cursor []byte
	var options string
	if err = row.Scan(&g.Key.To, &uid, &g.From, &g.Cursor.FireTime, &cursor, &g.MadeAt, &options); err == nil {
		g.Options, err = decodeGapOptions(options)
	}
	scanUID(&g.Key.UID, uid)
	scanUID(&g.Cursor.UID, cursor)
	return g, err
}

// SkipColumns are the columns of a skip, of the table k.
const SkipColumns = `k.uid, k.from_time, k.to_time, k.count, k.code, k.made_at`

// ScanSkip reads SkipColumns.
func ScanSkip(row Scanner) (k store.Skip, err error) {
	var uid []byte
	err = row.Scan(&uid, &k.From, &k.To, &k.Count, &k.Code, &k.MadeAt)
	scanUID(&k.UID, uid)
	return k, err
}

// ScanBacklogCount reads handler, priority, fairness, how many rows there are, and the
// smallest wake_at.
func ScanBacklogCount(row Scanner) (c store.BacklogCount, err error) {
	return c, row.Scan(&c.Handler, &c.Priority, &c.Fairness, &c.Rows, &c.WakeAt)
}

// ScanEvent reads seq, at, kind, uid, fire_time and detail.
func ScanEvent(row Scanner) (e store.Event, err error) {
	var uid []byte
	err = row.Scan(&e.Seq, &e.At, &e.Kind, &uid, &e.Fire, &e.Detail)
	scanUID(&e.Job, uid)
	return e, err
}

// AttemptColumns are the columns of an attempt, of the table a.
const AttemptColumns = `a.attempt, a.worker, a.epoch, a.claimed_at, a.started_at, a.ended_at, a.outcome, a.error_code, a.error_text, a.late, a.log`

func attemptTargets(a *job.Attempt) []any {
	return []any{&a.Number, &a.Worker, &a.Epoch, &a.ClaimedAt, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.ErrorCode, &a.ErrorText, &a.Late, &a.Log}
}

// ScanAttempt reads AttemptColumns.
func ScanAttempt(row Scanner) (a job.Attempt, err error) { return a, row.Scan(attemptTargets(&a)...) }

// ScanSlotAttempt reads fire_time, uid and AttemptColumns.
func ScanSlotAttempt(row Scanner) (a store.SlotAttempt, err error) {
	var uid []byte
	err = row.Scan(append([]any{&a.Key.FireTime, &uid}, attemptTargets(&a.Attempt)...)...)
	scanUID(&a.Key.UID, uid)
	return a, err
}

// ScanBacklogRow reads waiting, handler, priority, fairness, ready_at, fire_time, uid,
// wake_at and check_at.
func ScanBacklogRow(row Scanner) (r store.BacklogRow, err error) {
	var uid []byte
	k := &r.Key
	err = row.Scan(&k.Waiting, &k.Handler, &k.Priority, &k.Fairness, &k.Rank, &k.Slot.FireTime, &uid, &r.WakeAt, &r.CheckAt)
	scanUID(&k.Slot.UID, uid)
	return r, err
}

// ScanTakeOver reads epoch, owner, owner_gen, owner_rev and taken_at.
func ScanTakeOver(row Scanner) (t store.TakeOver, err error) {
	return t, row.Scan(&t.Epoch, &t.Owner, &t.Gen, &t.Rev, &t.At)
}

// ScanOwner reads shard, owner, epoch, owner_gen, owner_rev and watermark.
func ScanOwner(row Scanner) (o store.Owner, err error) {
	return o, row.Scan(&o.Shard, &o.Node, &o.Epoch, &o.Gen, &o.Rev, &o.Watermark)
}

// ScanSlotKey reads fire_time and uid.
func ScanSlotKey(row Scanner) (k job.SlotKey, err error) {
	var uid []byte
	err = row.Scan(&k.FireTime, &uid)
	scanUID(&k.UID, uid)
	return k, err
}

// ScanUID reads a uid.
func ScanUID(row Scanner) (uid job.UID, err error) {
	var b []byte
	err = row.Scan(&b)
	scanUID(&uid, b)
	return uid, err
}

// ScanHandler reads name, created_at and last_seen_at.
func ScanHandler(row Scanner) (h store.Handler, err error) {
	return h, row.Scan(&h.Name, &h.CreatedAt, &h.LastSeenAt)
}

// CalendarColumns are the columns of a version of a calendar, of the table c.
const CalendarColumns = `c.namespace, c.name, c.version, c.description, c.items, c.deleted, c.created_at`

// ScanCalendar reads CalendarColumns.
func ScanCalendar(row Scanner) (c store.Calendar, err error) {
	var items string
	err = row.Scan(&c.Namespace, &c.Name, &c.Version, &c.Description, &items, &c.Deleted, &c.CreatedAt)
	if items != "" {
		c.Items = strings.Split(items, ",")
	}
	return c, err
}
