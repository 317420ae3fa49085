package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

const (
	selectEpoch   = `SELECT epoch FROM shards WHERE shard = ?`
	selectFence   = `SELECT epoch, try FROM shards WHERE shard = ?`
	raiseTry      = `UPDATE shards SET try = ? WHERE shard = ?`
	moveWatermark = `UPDATE shards SET watermark = max(watermark, ?), open_from = max(open_from, ?), retained_from = max(retained_from, ?) WHERE shard = ?`

	insertJob = `INSERT INTO jobs (shard, uid, namespace, name, handler, params, kind, fire_at, schedule, retry, timeout_us,
		created_at, effective_from, ended_at, request_id, request_hash, quarantine, labels, policies)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	endJob        = `UPDATE jobs SET ended_at = ?, ended_by_itself = ? WHERE shard = ? AND uid = ? AND ended_at IS NULL`
	quarantineJob = `UPDATE jobs SET quarantine = ? WHERE shard = ? AND uid = ?`
	insertRequest = `INSERT INTO requests (shard, namespace, request_id, hash, fire_time, uid) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`

	insertSlot = `INSERT INTO slots (shard, fire_time, uid, trigger, state, attempt, failures, epoch, worker, incarnation,
		created_at, claimed_at, started_at, finished_at, not_before, deadline, outcome, error_code, error_text, result, requested_at, breaches, params, notes)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	updateSlot = `UPDATE slots SET trigger = ?, state = ?, attempt = ?, failures = ?, epoch = ?, worker = ?, incarnation = ?,
		created_at = ?, claimed_at = ?, started_at = ?, finished_at = ?, not_before = ?, deadline = ?, outcome = ?, error_code = ?, error_text = ?, result = ?,
		requested_at = ?, breaches = ?, params = ?, notes = ?
		WHERE shard = ? AND fire_time = ? AND uid = ? AND state = ? AND attempt = ?`

	insertAttempt = `INSERT INTO attempts (shard, fire_time, uid, attempt, worker, epoch, claimed_at, started_at, ended_at, outcome, error_code, error_text, late, log)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14 FROM slots WHERE shard = ?1 AND fire_time = ?2 AND uid = ?3 ON CONFLICT DO NOTHING`
	setLate = `UPDATE attempts SET late = ? WHERE shard = ? AND fire_time = ? AND uid = ? AND attempt = ?`

	insertBacklog = `INSERT INTO backlog (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at, check_at)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, nullif(?10, 0) FROM slots
		WHERE shard = ?1 AND fire_time = ?7 AND uid = ?8 AND state = CASE WHEN ?2 THEN 1 ELSE 2 END
			AND CASE WHEN not_before <> 0 THEN not_before ELSE created_at END = ?11 AND trigger = ?12 ON CONFLICT DO NOTHING`
	deleteBacklog = `DELETE FROM backlog WHERE shard = ? AND waiting = ? AND handler = ? AND priority = ? AND fairness = ? AND ready_at = ? AND fire_time = ? AND uid = ?`

	insertDead = `INSERT INTO dead_letters (shard, fire_time, uid, handler, dead_at, namespace, error_code, fingerprint, sample)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM slots WHERE shard = ?1 AND fire_time = ?2 AND uid = ?3 AND state = 4 ON CONFLICT DO NOTHING`
	deleteDead = `DELETE FROM dead_letters WHERE shard = ? AND fire_time = ? AND uid = ?`

	insertGap = `INSERT INTO gaps (shard, to_time, uid, from_time, cursor_time, cursor_uid, made_at, options) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	changeGap = `UPDATE gaps SET options = ? WHERE shard = ? AND to_time = ? AND uid = ?`
	moveGap   = `UPDATE gaps SET cursor_time = ?, cursor_uid = ? WHERE shard = ? AND to_time = ? AND uid = ? AND cursor_time = ? AND cursor_uid = ?`
	closeGap  = `DELETE FROM gaps WHERE shard = ? AND to_time = ? AND uid = ? AND cursor_time = ? AND cursor_uid = ?`

	pruneSlot  = `DELETE FROM slots WHERE shard = ? AND fire_time = ? AND uid = ? AND state = ? AND attempt = ? AND state > 2`
	pruneTries = `DELETE FROM attempts WHERE shard = ? AND fire_time = ? AND uid = ?`
	pruneJob   = `DELETE FROM jobs WHERE shard = ?1 AND uid = ?2 AND ended_at IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.shard = ?1 AND i.uid = ?2)`
	pruneRequests = `DELETE FROM requests WHERE shard = ?1 AND (namespace, request_id) IN (
		SELECT r.namespace, r.request_id FROM requests r INDEXED BY requests_by_time WHERE r.shard = ?1 AND r.fire_time >= ?2 AND r.fire_time < ?3 ORDER BY r.fire_time LIMIT ?4)`
	pruneEvents = `DELETE FROM events WHERE shard = ?1 AND (epoch, seq) IN (
		SELECT e.epoch, e.seq FROM events e INDEXED BY events_by_time WHERE e.shard = ?1 AND e.at >= ?2 AND e.at < ?3 ORDER BY e.at LIMIT ?4)`

	insertSkip = `INSERT INTO skips (shard, uid, to_time, from_time, count, code, made_at) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	pruneSkips = `DELETE FROM skips WHERE shard = ?1 AND (uid, to_time) IN (
		SELECT k.uid, k.to_time FROM skips k INDEXED BY skips_by_time WHERE k.shard = ?1 AND k.made_at >= ?2 AND k.made_at < ?3 ORDER BY k.made_at LIMIT ?4)`

	deleteInbox = `DELETE FROM inbox WHERE shard = ? AND uid = ?`
	insertEvent = `INSERT INTO events (shard, epoch, seq, at, kind, uid, fire_time, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
)

// hotStatements are prepared when the file is opened.
var hotStatements = []string{
	selectFence, moveWatermark, insertJob, endJob, insertRequest, insertSlot, updateSlot, insertAttempt,
	insertBacklog, deleteBacklog, insertDead, insertGap, moveGap, closeGap, deleteInbox, insertEvent,
}

// Commit implements store.Committer.
func (db *DB) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	var out store.Outcome
	err := db.inTx(ctx, func(tx *writeTx) error {
		out = store.Outcome{Shards: make([]store.ShardOutcome, len(b.Shards))}
		if err := tx.checkFence(&b); err != nil {
			return err
		}
		for i := range b.Shards {
			if err := tx.applyShard(&b.Shards[i], &out.Shards[i]); err != nil {
				return err
			}
		}
		out.Statements = tx.statements
		return nil
	})
	return out, err
}

// checkFence aborts unless every shard of the batch stands under its writer's
// epoch, and none was repeated since the batch was sent. The transaction is the only
// writer, so what it reads here stays true until it ends.
func (t *writeTx) checkFence(b *store.Batch) error {
	var lost []shard.ID
	for i := range b.Shards {
		p := b.Shards[i].Proof
		var epoch shard.Epoch
		var try int64
		err := t.queryRow(selectFence, int64(p.Shard)).Scan(&epoch, &try)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if epoch != p.Epoch || try > b.Try {
			lost = append(lost, p.Shard)
		}
	}
	if len(lost) > 0 {
		return fenced(lost...)
	}
	for i := range b.Shards {
		if !b.Repeat {
			break
		}
		if _, err := t.exec(raiseTry, b.Try, int64(b.Shards[i].Proof.Shard)); err != nil {
			return err
		}
	}
	return nil
}

// shardTx applies the rows of one shard.
type shardTx struct {
	*writeTx
	id  int64
	out *store.ShardOutcome
}

func (t *writeTx) applyShard(b *store.ShardBatch, out *store.ShardOutcome) error {
	s := shardTx{writeTx: t, id: int64(b.Proof.Shard), out: out}
	for _, apply := range []func(*store.ShardBatch) error{s.applyJobs, s.applySlots, s.applyQueues, s.applyGaps, s.applyShardRow, s.applyPrunes, s.applyGiveUp} {
		// Nothing may run after a failure: a full disk ends the transaction by itself,
		// and what came after would stand alone, without its fence.
		if err := apply(b); err != nil {
			return err
		}
	}
	return nil
}

// row runs a statement for a row of one job. A row that can't be stored names
// its job, so that the writer can set it aside.
func (s *shardTx) row(uid job.UID, query string, args ...any) (bool, error) {
	n, err := s.exec(query, args...)
	if err != nil && refused(err) {
		return false, errAbort{&store.RefusedError{Shard: shard.ID(s.id), UID: uid, Err: err}}
	}
	return n > 0, err
}

func (s *shardTx) applyJobs(b *store.ShardBatch) error {
	for i := range b.Creates {
		if err := s.create(&b.Creates[i]); err != nil {
			return err
		}
	}
	for _, e := range b.Ends {
		if _, err := s.row(e.UID, endJob, int64(e.EndedAt), e.ByItself, s.id, e.UID[:]); err != nil {
			return err
		}
	}
	for _, q := range b.Quarantines {
		if _, err := s.row(q.UID, quarantineJob, q.Reason, s.id, q.UID[:]); err != nil {
			return err
		}
	}
	for i := range b.Requests {
		if err := s.request(&b.Requests[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *shardTx) create(c *store.Create) error {
	values, err := storekit.JobValues(&c.Job)
	if err != nil {
		return err
	}
	written, err := s.row(c.Job.UID, insertJob, values...)
	if err != nil {
		return err
	}
	if !written {
		existing, err := s.rival(&c.Job)
		if err != nil {
			return err
		}
		if existing.UID != c.Job.UID {
			if s.out.Creates == nil {
				s.out.Creates = map[job.UID]job.Job{}
			}
			s.out.Creates[c.Job.UID] = existing
			return nil
		}
	}
	for i := range c.Slots {
		if err := s.insertSlot(&c.Slots[i]); err != nil {
			return err
		}
	}
	return nil
}

// rival reads the job that stood in the way of an insert: itself, sent before,
// or the one with its request id or its name.
func (s *shardTx) rival(j *job.Job) (job.Job, error) {
	return storekit.ScanJob(s.queryRow(`SELECT `+storekit.JobColumns+` FROM jobs j WHERE j.shard = ?1
		AND (j.uid = ?2 OR (j.namespace = ?3 AND j.request_id = ?4) OR (j.namespace = ?3 AND j.name = ?5 AND j.ended_at IS NULL))
		ORDER BY j.uid = ?2 DESC, j.request_id IS ?4 DESC LIMIT 1`,
		s.id, j.UID[:], j.Namespace, storekit.NullText(j.RequestID), j.Name))
}

func (s *shardTx) request(r *store.Request) error {
	written, err := s.row(r.Key.UID, insertRequest, s.id, r.Namespace, r.RequestID, r.Hash, int64(r.Key.FireTime), r.Key.UID[:])
	if err != nil || written {
		return err
	}
	existing := store.Request{Namespace: r.Namespace, RequestID: r.RequestID}
	var uid []byte
	err = s.queryRow(`SELECT hash, fire_time, uid FROM requests WHERE shard = ? AND namespace = ? AND request_id = ?`,
		s.id, r.Namespace, r.RequestID).Scan(&existing.Hash, &existing.Key.FireTime, &uid)
	if err != nil {
		return err
	}
	copy(existing.Key.UID[:], uid)
	if existing.Key == r.Key {
		return nil
	}
	if s.out.Requests == nil {
		s.out.Requests = map[string]store.Request{}
	}
	s.out.Requests[r.Namespace+"/"+r.RequestID] = existing
	return nil
}

func (s *shardTx) applySlots(b *store.ShardBatch) error {
	for i := range b.Slots {
		// A slot of a request that lost to an earlier one isn't made.
		if s.requestLost(b, b.Slots[i].Key) {
			continue
		}
		if err := s.insertSlot(&b.Slots[i]); err != nil {
			return err
		}
	}
	for i := range b.Updates {
		if err := s.updateSlot(&b.Updates[i]); err != nil {
			return err
		}
	}
	for i := range b.Attempts {
		if err := s.insertAttempt(&b.Attempts[i]); err != nil {
			return err
		}
	}
	for _, l := range b.Lates {
		if _, err := s.row(l.Key.UID, setLate, l.Text, s.id, int64(l.Key.FireTime), l.Key.UID[:], l.Attempt); err != nil {
			return err
		}
	}
	return nil
}

func (s *shardTx) requestLost(b *store.ShardBatch, key job.SlotKey) bool {
	if len(s.out.Requests) == 0 {
		return false
	}
	for i := range b.Requests {
		r := &b.Requests[i]
		if earlier, lost := s.out.Requests[r.Namespace+"/"+r.RequestID]; lost && r.Key == key && earlier.Key != key {
			return true
		}
	}
	return false
}

func (s *shardTx) insertSlot(row *job.Slot) error {
	args := append([]any{s.id, int64(row.Key.FireTime), row.Key.UID[:]}, slotValues(row)...)
	written, err := s.row(row.Key.UID, insertSlot, args...)
	if err != nil || written {
		return err
	}
	return s.notWritten(row)
}

func (s *shardTx) updateSlot(u *store.SlotUpdate) error {
	row := &u.Slot
	args := append(slotValues(row), s.id, int64(row.Key.FireTime), row.Key.UID[:], int64(u.FromState), u.FromAttempt)
	written, err := s.row(row.Key.UID, updateSlot, args...)
	if err != nil || written {
		return err
	}
	return s.notWritten(row)
}

// notWritten reports the row that stands where another was to be written, unless
// it is the same: then an earlier send of this batch wrote it.
func (s *shardTx) notWritten(row *job.Slot) error {
	stands, err := storekit.ScanSlot(s.queryRow(`SELECT `+storekit.SlotColumns+` FROM slots s WHERE s.shard = ? AND s.fire_time = ? AND s.uid = ?`,
		s.id, int64(row.Key.FireTime), row.Key.UID[:]))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	stands.Key = row.Key
	if stands.Same(row) {
		return nil
	}
	if s.out.Slots == nil {
		s.out.Slots = map[job.SlotKey]job.Slot{}
	}
	s.out.Slots[row.Key] = stands
	return nil
}

func (s *shardTx) insertAttempt(r *store.SlotAttempt) error {
	a := &r.Attempt
	_, err := s.row(r.Key.UID, insertAttempt, s.id, int64(r.Key.FireTime), r.Key.UID[:], a.Number, a.Worker, int64(a.Epoch),
		int64(a.ClaimedAt), int64(a.StartedAt), int64(a.EndedAt), int64(a.Outcome), a.ErrorCode, a.ErrorText, a.Late, a.Log)
	return err
}

func (s *shardTx) applyQueues(b *store.ShardBatch) error {
	for _, k := range b.BacklogDels {
		if _, err := s.row(k.Slot.UID, deleteBacklog, backlogValues(s.id, k)...); err != nil {
			return err
		}
	}
	for _, r := range b.BacklogPuts {
		if _, err := s.row(r.Key.Slot.UID, insertBacklog, append(backlogValues(s.id, r.Key), int64(r.WakeAt), int64(r.CheckAt), int64(r.ReadyAt), int64(r.Trigger))...); err != nil {
			return err
		}
	}
	for _, d := range b.DeadPuts {
		if _, err := s.row(d.Key.UID, insertDead, s.id, int64(d.Key.FireTime), d.Key.UID[:], d.Handler, int64(d.At), d.Namespace, d.ErrorCode, d.Fingerprint, d.Sample); err != nil {
			return err
		}
	}
	for _, k := range b.DeadDels {
		if _, err := s.row(k.UID, deleteDead, s.id, int64(k.FireTime), k.UID[:]); err != nil {
			return err
		}
	}
	for _, uid := range b.InboxDels {
		if _, err := s.row(uid, deleteInbox, s.id, uid[:]); err != nil {
			return err
		}
	}
	return nil
}

func backlogValues(id int64, k store.BacklogKey) []any {
	return []any{id, k.Waiting, k.Handler, k.Priority, k.Fairness, int64(k.Rank), int64(k.Slot.FireTime), k.Slot.UID[:]}
}

func (s *shardTx) applyGaps(b *store.ShardBatch) error {
	for _, g := range b.GapPuts {
		options, err := storekit.EncodeGapOptions(g.Options)
		if err != nil {
			return err
		}
		if _, err := s.row(g.Key.UID, insertGap, s.id, int64(g.Key.To), g.Key.UID[:], int64(g.From),
			int64(g.Cursor.FireTime), g.Cursor.UID[:], int64(g.MadeAt), options); err != nil {
			return err
		}
	}
	for _, c := range b.GapChanges {
		options, err := storekit.EncodeGapOptions(c.Options)
		if err != nil {
			return err
		}
		if _, err := s.row(c.Key.UID, changeGap, options, s.id, int64(c.Key.To), c.Key.UID[:]); err != nil {
			return err
		}
	}
	for _, m := range b.GapMoves {
		if err := s.moveGap(m); err != nil {
			return err
		}
	}
	for _, k := range b.Skips {
		if _, err := s.row(k.UID, insertSkip, s.id, k.UID[:], int64(k.To), int64(k.From), k.Count, k.Code, int64(k.MadeAt)); err != nil {
			return err
		}
	}
	return nil
}

func (s *shardTx) moveGap(m store.GapMove) error {
	at := []any{s.id, int64(m.Key.To), m.Key.UID[:], int64(m.From.FireTime), m.From.UID[:]}
	query, args := closeGap, at
	if !m.Closed {
		query, args = moveGap, append([]any{int64(m.To.FireTime), m.To.UID[:]}, at...)
	}
	written, err := s.row(m.Key.UID, query, args...)
	if err != nil || written {
		return err
	}
	moved, err := s.alreadyMoved(m)
	if err != nil {
		return err
	}
	if !moved {
		s.out.Gaps = append(s.out.Gaps, m.Key)
	}
	return nil
}

// alreadyMoved reports whether an earlier send of a batch made this move.
func (s *shardTx) alreadyMoved(m store.GapMove) (bool, error) {
	var at job.SlotKey
	var uid []byte
	err := s.queryRow(`SELECT cursor_time, cursor_uid FROM gaps WHERE shard = ? AND to_time = ? AND uid = ?`,
		s.id, int64(m.Key.To), m.Key.UID[:]).Scan(&at.FireTime, &uid)
	if errors.Is(err, sql.ErrNoRows) {
		return m.Closed, nil
	}
	copy(at.UID[:], uid)
	return !m.Closed && at == m.To, err
}

func (s *shardTx) applyShardRow(b *store.ShardBatch) error {
	if b.Watermark != 0 || b.OpenFrom != 0 || b.RetainedFrom != 0 {
		if _, err := s.exec(moveWatermark, int64(b.Watermark), int64(b.OpenFrom), int64(b.RetainedFrom), s.id); err != nil {
			return err
		}
	}
	for _, e := range b.Events {
		var uid any
		if !e.Job.IsZero() {
			uid = e.Job[:]
		}
		if _, err := s.row(e.Job, insertEvent, s.id, int64(b.Proof.Epoch), e.Seq, int64(e.At), string(e.Kind), uid, int64(e.Fire), e.Detail); err != nil {
			return fmt.Errorf("append event: %w", err)
		}
	}
	return nil
}

// applyGiveUp ends the ownership. It comes last: everything else is written under the epoch
// that this ends.
func (s *shardTx) applyGiveUp(b *store.ShardBatch) error {
	if !b.GiveUp {
		return nil
	}
	row, err := s.shardRow(b.Proof.Shard)
	if err != nil {
		return err
	}
	_, err = s.raiseEpoch(row.owned, "", row.gen, row.rev)
	return err
}

// applyPrunes deletes what is older than it must be kept.
func (s *shardTx) applyPrunes(b *store.ShardBatch) error {
	for _, p := range b.SlotPrunes {
		key := []any{s.id, int64(p.Key.FireTime), p.Key.UID[:]}
		n, err := s.exec(pruneSlot, append(key, int64(p.State), p.Attempt)...)
		if err != nil {
			return err
		}
		if n == 0 {
			continue // it has changed since it was read
		}
		for _, query := range []string{pruneTries, deleteDead} {
			if _, err := s.exec(query, key...); err != nil {
				return err
			}
		}
	}
	for _, uid := range b.JobPrunes {
		if _, err := s.exec(pruneJob, s.id, uid[:]); err != nil {
			return err
		}
	}
	if o := b.Old; o.RequestsBefore != 0 {
		if _, err := s.exec(pruneRequests, s.id, int64(o.RequestsFrom), int64(o.RequestsBefore), store.MaxOldRows); err != nil {
			return err
		}
	}
	if o := b.Old; o.EventsBefore != 0 {
		if _, err := s.exec(pruneEvents, s.id, int64(o.EventsFrom), int64(o.EventsBefore), store.MaxOldRows); err != nil {
			return err
		}
	}
	if o := b.Old; o.SkipsBefore != 0 {
		if _, err := s.exec(pruneSkips, s.id, int64(o.SkipsFrom), int64(o.SkipsBefore), store.MaxOldRows); err != nil {
			return err
		}
	}
	return nil
}
