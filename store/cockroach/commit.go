package cockroach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// fenceText is what the fence's failing cast holds.
const fenceText = "another epoch owns a shard of this batch"

// lockFence locks the rows of the batch's shards, and fails in the database unless
// it locked as many as it named: a COMMIT that is already on its way can't get past
// it.
const lockFence = `SELECT (CASE WHEN count(*) = $3 THEN '1' ELSE '` + fenceText + `' END)::INT8 FROM (
	SELECT h.shard FROM shards h WHERE (h.shard, h.epoch) IN (SELECT * FROM unnest($1::INT4[], $2::INT8[])) ORDER BY h.shard FOR UPDATE) held`

func isFence(e *pgconn.PgError) bool {
	return e.Code == "22P02" && strings.Contains(e.Message, fenceText)
}

const (
	moveWatermarks = `UPDATE shards h SET watermark = greatest(h.watermark, u.watermark), open_from = greatest(h.open_from, u.open_from)
		FROM unnest($1::INT4[], $2::INT8[], $3::INT8[]) AS u (shard, watermark, open_from) WHERE h.shard = u.shard`

	insertJob = `INSERT INTO jobs (shard, uid, namespace, name, handler, params, kind, fire_at, schedule, retry, timeout_us,
		created_at, effective_from, ended_at, request_id, request_hash, quarantine)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT DO NOTHING`
	endJob        = `UPDATE jobs SET ended_at = $1 WHERE shard = $2 AND uid = $3 AND ended_at IS NULL`
	quarantineJob = `UPDATE jobs SET quarantine = $1 WHERE shard = $2 AND uid = $3`
	insertRequest = `INSERT INTO requests (shard, namespace, request_id, hash, fire_time, uid) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`

	insertSlots = `INSERT INTO slots (` + slotColumnsIn + `) SELECT * FROM ` + slotUnnest + ` ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid`
	// The slots of a create are written if the job is there, those of a request if it
	// is the request's own.
	insertSlotsOfJobs = `INSERT INTO slots (` + slotColumnsIn + `) SELECT u.* FROM ` + slotUnnest + ` AS u (` + slotColumnsIn + `)
		WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.shard = u.shard AND j.uid = u.uid) ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid`
	insertSlotsOfRequests = `INSERT INTO slots (` + slotColumnsIn + `) SELECT u.* FROM ` + slotUnnest + ` AS u (` + slotColumnsIn + `)
		WHERE EXISTS (SELECT 1 FROM unnest($21::INT4[], $22::INT8[], $23::BYTEA[], $24::TEXT[], $25::TEXT[]) AS q (shard, fire_time, uid, namespace, request_id)
			JOIN requests r ON r.shard = q.shard AND r.namespace = q.namespace AND r.request_id = q.request_id AND r.fire_time = q.fire_time AND r.uid = q.uid
			WHERE q.shard = u.shard AND q.fire_time = u.fire_time AND q.uid = u.uid)
		ON CONFLICT DO NOTHING RETURNING shard, fire_time, uid`
	updateSlots = `UPDATE slots s SET trigger = u.trigger, created_at = u.created_at, state = u.state, attempt = u.attempt, failures = u.failures, epoch = u.epoch, worker = u.worker, incarnation = u.incarnation,
		claimed_at = u.claimed_at, started_at = u.started_at, finished_at = u.finished_at, not_before = u.not_before, deadline = u.deadline,
		outcome = u.outcome, error_code = u.error_code, error_text = u.error_text, result = u.result
		FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT2[], $5::INT2[], $6::INT4[], $7::INT4[], $8::INT8[], $9::TEXT[], $10::TEXT[],
			$11::INT8[], $12::INT8[], $13::INT8[], $14::INT8[], $15::INT8[], $16::INT8[], $17::INT2[], $18::TEXT[], $19::TEXT[], $20::BYTEA[],
			$21::INT2[], $22::INT4[]) AS u (` + slotColumnsIn + `, from_state, from_attempt)
		WHERE s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid AND s.state = u.from_state AND s.attempt = u.from_attempt
		RETURNING s.shard, s.fire_time, s.uid`

	insertAttempts = `INSERT INTO attempts (shard, fire_time, uid, attempt, worker, epoch, claimed_at, started_at, ended_at, outcome, error_code, error_text, late)
		SELECT * FROM unnest($1::INT4[], $2::INT8[], $3::BYTEA[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::INT8[], $9::INT8[], $10::INT2[],
			$11::TEXT[], $12::TEXT[], $13::TEXT[]) ON CONFLICT DO NOTHING`
	setLate = `UPDATE attempts SET late = $1 WHERE shard = $2 AND fire_time = $3 AND uid = $4 AND attempt = $5`

	deleteBacklog = `DELETE FROM backlog b USING unnest($1::INT4[], $2::BOOL[], $3::TEXT[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::BYTEA[])
		AS u (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid)
		WHERE b.shard = u.shard AND b.waiting = u.waiting AND b.handler = u.handler AND b.priority = u.priority AND b.fairness = u.fairness
			AND b.ready_at = u.ready_at AND b.fire_time = u.fire_time AND b.uid = u.uid`
	insertBacklog = `INSERT INTO backlog (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at)
		SELECT u.shard, u.waiting, u.handler, u.priority, u.fairness, u.ready_at, u.fire_time, u.uid, u.wake_at
		FROM unnest($1::INT4[], $2::BOOL[], $3::TEXT[], $4::INT4[], $5::TEXT[], $6::INT8[], $7::INT8[], $8::BYTEA[], $9::INT8[], $10::INT2[])
			AS u (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid, wake_at, trigger)
		JOIN slots s ON s.shard = u.shard AND s.fire_time = u.fire_time AND s.uid = u.uid
		WHERE s.state = CASE WHEN u.waiting THEN 1 ELSE 2 END AND s.trigger = u.trigger
			AND CASE WHEN s.not_before <> 0 THEN s.not_before ELSE s.created_at END = u.ready_at
		ON CONFLICT DO NOTHING`

	insertDead = `INSERT INTO dead_letters (shard, fire_time, uid, handler, dead_at)
		SELECT s.shard, s.fire_time, s.uid, $4, $5 FROM slots s WHERE s.shard = $1 AND s.fire_time = $2 AND s.uid = $3 AND s.state = 4 ON CONFLICT DO NOTHING`
	deleteDead = `DELETE FROM dead_letters WHERE shard = $1 AND fire_time = $2 AND uid = $3`

	insertGap = `INSERT INTO gaps (shard, to_time, uid, from_time, cursor_time, cursor_uid, made_at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`
	moveGap   = `UPDATE gaps SET cursor_time = $6, cursor_uid = $7 WHERE shard = $1 AND to_time = $2 AND uid = $3 AND cursor_time = $4 AND cursor_uid = $5`
	closeGap  = `DELETE FROM gaps WHERE shard = $1 AND to_time = $2 AND uid = $3 AND cursor_time = $4 AND cursor_uid = $5`

	deleteInbox = `DELETE FROM inbox WHERE shard = $1 AND uid = $2`
	insertEvent = `INSERT INTO events (shard, epoch, seq, at, kind, uid, fire_time, detail) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
)

// Commit implements store.Committer.
func (db *DB) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	var out store.Outcome
	err := db.inTx(ctx, "commit", func(tx pgx.Tx) (err error) {
		out, err = commitTx(ctx, tx, &b)
		return err
	})
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
			err := tx.QueryRow(ctx, `SELECT epoch FROM shards WHERE shard = $1`, int32(p.Shard)).Scan(&epoch)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			if epoch != p.Epoch {
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
	w.gaps()
	w.shardRows()
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
	return w.out, nil
}

// rowKey names a slot of any shard.
type rowKey struct {
	shard int32
	fire  int64
	uid   job.UID
}

// writer gathers the statements of a batch, and what came of them.
type writer struct {
	b     *store.Batch
	batch pgx.Batch
	reads []func(pgx.BatchResults) error
	out   store.Outcome

	rivals   []func(ctx context.Context, tx pgx.Tx) error // what stood in the way of a job, a request or a gap
	unknown  map[rowKey]*job.Slot                         // slots whose write was not reported
	place    map[int32]int                                // of a shard in the batch
	excluded map[rowKey]bool                              // slots of a create that lost
}

func newWriter(b *store.Batch) *writer {
	w := &writer{b: b, out: store.Outcome{Shards: make([]store.ShardOutcome, len(b.Shards))},
		unknown: map[rowKey]*job.Slot{}, place: map[int32]int{}, excluded: map[rowKey]bool{}}
	for i := range b.Shards {
		w.place[int32(b.Shards[i].Proof.Shard)] = i
	}
	return w
}

// exec queues a statement whose count of rows does not matter.
func (w *writer) exec(query string, args ...any) {
	w.counted(func(int64) {}, query, args...)
}

// counted queues a statement and tells how many rows it changed.
func (w *writer) counted(done func(n int64), query string, args ...any) {
	w.batch.Queue(query, args...)
	w.reads = append(w.reads, func(r pgx.BatchResults) error {
		tag, err := r.Exec()
		if err == nil {
			done(tag.RowsAffected())
		}
		return err
	})
}

// returning queues a statement that returns the keys of the slots that it wrote.
func (w *writer) returning(query string, args ...any) {
	w.batch.Queue(query, args...)
	w.reads = append(w.reads, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var k rowKey
			var uid []byte
			if err := rows.Scan(&k.shard, &k.fire, &uid); err != nil {
				return err
			}
			copy(k.uid[:], uid)
			delete(w.unknown, k)
		}
		return rows.Err()
	})
}

func (w *writer) fence() {
	shards := gather(w.b.Shards, func(s *store.ShardBatch) int32 { return int32(s.Proof.Shard) })
	epochs := gather(w.b.Shards, func(s *store.ShardBatch) int64 { return int64(s.Proof.Epoch) })
	w.exec(lockFence, shards, epochs, len(shards))
}

func (w *writer) jobs() {
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		id := int32(s.Proof.Shard)
		for k := range s.Creates {
			w.create(i, &s.Creates[k])
		}
		for _, e := range s.Ends {
			w.exec(endJob, int64(e.EndedAt), id, e.UID[:])
		}
		for _, q := range s.Quarantines {
			w.exec(quarantineJob, q.Reason, id, q.UID[:])
		}
	}
}

func (w *writer) create(place int, c *store.Create) {
	values, err := storekit.JobValues(&c.Job)
	if err != nil {
		w.reads = append(w.reads, func(pgx.BatchResults) error { return err })
		return
	}
	w.counted(func(n int64) {
		if n == 0 {
			w.rivals = append(w.rivals, func(ctx context.Context, tx pgx.Tx) error { return w.rivalOf(ctx, tx, place, c) })
		}
	}, insertJob, values...)
}

// rivalOf notes the job that stood in the way of a create, unless it is the same,
// sent before.
func (w *writer) rivalOf(ctx context.Context, tx pgx.Tx, place int, c *store.Create) error {
	existing, err := rival(ctx, tx, &c.Job)
	if err != nil || existing.UID == c.Job.UID {
		return err
	}
	out := &w.out.Shards[place]
	if out.Creates == nil {
		out.Creates = map[job.UID]job.Job{}
	}
	out.Creates[c.Job.UID] = existing
	for i := range c.Slots {
		w.excluded[keyOf(int32(c.Job.Shard), &c.Slots[i])] = true
	}
	return nil
}

func keyOf(id int32, s *job.Slot) rowKey { return rowKey{id, int64(s.Key.FireTime), s.Key.UID} }

// rival reads the job that stood in the way of an insert: itself, sent before, or
// the one with its request id or its name.
func rival(ctx context.Context, tx pgx.Tx, j *job.Job) (job.Job, error) {
	return storekit.ScanJob(tx.QueryRow(ctx, `SELECT `+storekit.JobColumns+` FROM jobs j WHERE j.shard = $1
		AND (j.uid = $2 OR (j.namespace = $3 AND j.request_id = $4) OR (j.namespace = $3 AND j.name = $5 AND j.ended_at IS NULL))
		ORDER BY j.uid = $2 DESC, coalesce(j.request_id = $4, false) DESC LIMIT 1`,
		int32(j.Shard), j.UID[:], j.Namespace, storekit.NullText(j.RequestID), j.Name))
}

func (w *writer) requests() {
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		for k := range s.Requests {
			r := &s.Requests[k]
			w.counted(func(n int64) {
				if n == 0 {
					w.rivals = append(w.rivals, func(ctx context.Context, tx pgx.Tx) error { return w.earlier(ctx, tx, i, r) })
				}
			}, insertRequest, int32(s.Proof.Shard), r.Namespace, r.RequestID, r.Hash, int64(r.Key.FireTime), r.Key.UID[:])
		}
	}
}

// earlier notes what the same request made before.
func (w *writer) earlier(ctx context.Context, tx pgx.Tx, place int, r *store.Request) error {
	id := int32(w.b.Shards[place].Proof.Shard)
	existing := store.Request{Namespace: r.Namespace, RequestID: r.RequestID}
	var uid []byte
	err := tx.QueryRow(ctx, `SELECT hash, fire_time, uid FROM requests WHERE shard = $1 AND namespace = $2 AND request_id = $3`,
		id, r.Namespace, r.RequestID).Scan(&existing.Hash, &existing.Key.FireTime, &uid)
	if err != nil {
		return err
	}
	copy(existing.Key.UID[:], uid)
	if existing.Key == r.Key {
		return nil
	}
	out := &w.out.Shards[place]
	if out.Requests == nil {
		out.Requests = map[string]store.Request{}
	}
	out.Requests[r.Namespace+"/"+r.RequestID] = existing
	w.excluded[rowKey{id, int64(r.Key.FireTime), r.Key.UID}] = true
	return nil
}

// slots queues all inserts and updates of slots, sorted by key so that two batches
// lock their rows in the same order.
func (w *writer) slots() {
	var plain, ofJobs, ofRequests []slotIn
	var updates []updateIn
	requests := map[rowKey]*store.Request{}
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		id := int32(s.Proof.Shard)
		for k := range s.Requests {
			requests[rowKey{id, int64(s.Requests[k].Key.FireTime), s.Requests[k].Key.UID}] = &s.Requests[k]
		}
		for k := range s.Creates {
			for n := range s.Creates[k].Slots {
				ofJobs = append(ofJobs, slotIn{id, &s.Creates[k].Slots[n]})
			}
		}
		for k := range s.Slots {
			if requests[keyOf(id, &s.Slots[k])] != nil {
				ofRequests = append(ofRequests, slotIn{id, &s.Slots[k]})
			} else {
				plain = append(plain, slotIn{id, &s.Slots[k]})
			}
		}
		for k := range s.Updates {
			updates = append(updates, updateIn{id, &s.Updates[k]})
		}
	}
	w.insert(insertSlotsOfJobs, ofJobs)
	w.insert(insertSlots, plain)
	w.insertRequested(ofRequests, requests)
	if len(updates) > 0 {
		for _, u := range updates {
			w.unknown[keyOf(u.shard, &u.Slot)] = &u.Slot
		}
		w.returning(updateSlots, updateArrays(updates)...)
	}
}

func (w *writer) insert(query string, rows []slotIn) {
	if len(rows) == 0 {
		return
	}
	for _, r := range rows {
		w.unknown[keyOf(r.shard, r.Slot)] = r.Slot
	}
	w.returning(query, slotArrays(rows)...)
}

func (w *writer) insertRequested(rows []slotIn, requests map[rowKey]*store.Request) {
	if len(rows) == 0 {
		return
	}
	for _, r := range rows {
		w.unknown[keyOf(r.shard, r.Slot)] = r.Slot
	}
	args := slotArrays(rows)
	args = append(args, args[0], args[1], args[2],
		gather(rows, func(r *slotIn) string { return requests[keyOf(r.shard, r.Slot)].Namespace }),
		gather(rows, func(r *slotIn) string { return requests[keyOf(r.shard, r.Slot)].RequestID }))
	w.returning(insertSlotsOfRequests, args...)
}

func (w *writer) attempts() {
	var rows []attemptIn
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		for k := range s.Attempts {
			rows = append(rows, attemptIn{int32(s.Proof.Shard), &s.Attempts[k]})
		}
	}
	if len(rows) > 0 {
		w.exec(insertAttempts, attemptArrays(rows)...)
	}
	for i := range w.b.Shards {
		for _, l := range w.b.Shards[i].Lates {
			w.exec(setLate, l.Text, int32(w.b.Shards[i].Proof.Shard), int64(l.Key.FireTime), l.Key.UID[:], l.Attempt)
		}
	}
}

func (w *writer) queues() {
	var dels, puts []backlogIn
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		id := int32(s.Proof.Shard)
		for _, k := range s.BacklogDels {
			dels = append(dels, backlogIn{shard: id, key: k})
		}
		for _, r := range s.BacklogPuts {
			puts = append(puts, backlogIn{id, r.Key, r.WakeAt, r.Trigger})
		}
		for _, d := range s.DeadPuts {
			w.exec(insertDead, id, int64(d.Key.FireTime), d.Key.UID[:], d.Handler, int64(d.At))
		}
		for _, k := range s.DeadDels {
			w.exec(deleteDead, id, int64(k.FireTime), k.UID[:])
		}
		for _, uid := range s.InboxDels {
			w.exec(deleteInbox, id, uid[:])
		}
	}
	if len(dels) > 0 {
		w.exec(deleteBacklog, backlogArrays(dels)...)
	}
	if len(puts) > 0 {
		w.exec(insertBacklog, append(backlogArrays(puts),
			gather(puts, func(r *backlogIn) int64 { return int64(r.wakeAt) }), gather(puts, func(r *backlogIn) int16 { return int16(r.trigger) }))...)
	}
}

func (w *writer) gaps() {
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		id := int32(s.Proof.Shard)
		for _, g := range s.GapPuts {
			w.exec(insertGap, id, int64(g.Key.To), g.Key.UID[:], int64(g.From), int64(g.Cursor.FireTime), g.Cursor.UID[:], int64(g.MadeAt))
		}
		for _, m := range s.GapMoves {
			query, args := closeGap, []any{id, int64(m.Key.To), m.Key.UID[:], int64(m.From.FireTime), m.From.UID[:]}
			if !m.Closed {
				query, args = moveGap, append(args, int64(m.To.FireTime), m.To.UID[:])
			}
			w.counted(func(n int64) {
				if n == 0 {
					w.rivals = append(w.rivals, func(ctx context.Context, tx pgx.Tx) error { return w.gapMoved(ctx, tx, i, m) })
				}
			}, query, args...)
		}
	}
}

// gapMoved notes a gap that somebody else moved, unless an earlier send of this
// batch did.
func (w *writer) gapMoved(ctx context.Context, tx pgx.Tx, place int, m store.GapMove) error {
	var at job.SlotKey
	var uid []byte
	err := tx.QueryRow(ctx, `SELECT cursor_time, cursor_uid FROM gaps WHERE shard = $1 AND to_time = $2 AND uid = $3`,
		int32(w.b.Shards[place].Proof.Shard), int64(m.Key.To), m.Key.UID[:]).Scan(&at.FireTime, &uid)
	gone := errors.Is(err, pgx.ErrNoRows)
	if err != nil && !gone {
		return err
	}
	copy(at.UID[:], uid)
	if gone && m.Closed || !gone && !m.Closed && at == m.To {
		return nil
	}
	w.out.Shards[place].Gaps = append(w.out.Shards[place].Gaps, m.Key)
	return nil
}

func (w *writer) shardRows() {
	var shards []int32
	var watermarks, openFroms []int64
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		if s.Watermark != 0 || s.OpenFrom != 0 {
			shards = append(shards, int32(s.Proof.Shard))
			watermarks, openFroms = append(watermarks, int64(s.Watermark)), append(openFroms, int64(s.OpenFrom))
		}
		for _, e := range s.Events {
			var uid any
			if !e.Job.IsZero() {
				uid = e.Job[:]
			}
			w.exec(insertEvent, int32(s.Proof.Shard), int64(s.Proof.Epoch), e.Seq, int64(e.At), string(e.Kind), uid, int64(e.Fire), e.Detail)
		}
	}
	if len(shards) > 0 {
		w.exec(moveWatermarks, shards, watermarks, openFroms)
	}
}

// readBack reads what stood in the way of rows that were not written. In the same
// transaction, under the same locks, it is what stands.
func (w *writer) readBack(ctx context.Context, tx pgx.Tx) error {
	for _, read := range w.rivals {
		if err := read(ctx, tx); err != nil {
			return fmt.Errorf("read back: %w", err)
		}
	}
	for k, mine := range w.unknown {
		if w.excluded[k] {
			continue
		}
		stands, err := storekit.ScanSlot(tx.QueryRow(ctx, `SELECT `+storekit.SlotColumns+` FROM slots s WHERE s.shard = $1 AND s.fire_time = $2 AND s.uid = $3`, k.shard, k.fire, k.uid[:]))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read back: %w", err)
		}
		stands.Key = mine.Key
		if stands.Same(mine) {
			continue
		}
		out := &w.out.Shards[w.place[k.shard]]
		if out.Slots == nil {
			out.Slots = map[job.SlotKey]job.Slot{}
		}
		out.Slots[mine.Key] = stands
	}
	return nil
}
