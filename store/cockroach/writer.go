package cockroach

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

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

// arrays queues a statement of arrays, unless they are empty.
func (w *writer) arrays(query string, rows int, args ...any) {
	if rows > 0 {
		w.exec(query, args...)
	}
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
	w.exec(lockFence, shards, epochs, len(shards), w.b.Try)
	if w.b.Repeat {
		w.exec(raiseTry, shards, w.b.Try)
	}
}

func (w *writer) jobs() {
	w.creates()
	ends := of(w.b, func(s *store.ShardBatch) []store.JobEnd { return s.Ends })
	ends = firstOf(ends, func(r row[store.JobEnd]) jobKey { return jobKey{r.shard, r.v.UID} })
	w.arrays(endJobs, len(ends), gather(ends, (*row[store.JobEnd]).id), gather(ends, func(r *row[store.JobEnd]) []byte { return r.v.UID[:] }),
		gather(ends, func(r *row[store.JobEnd]) int64 { return int64(r.v.EndedAt) }), gather(ends, func(r *row[store.JobEnd]) bool { return r.v.ByItself }))
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		for _, q := range s.Quarantines {
			w.exec(quarantineJob, q.Reason, int32(s.Proof.Shard), q.UID[:])
		}
	}
}

// creates queues the inserts of all jobs. Those that the statement doesn't return met
// another one.
func (w *writer) creates() {
	var rows []jobIn
	lost := map[jobKey]func(ctx context.Context, tx pgx.Tx) error{}
	for i := range w.b.Shards {
		for k := range w.b.Shards[i].Creates {
			c := &w.b.Shards[i].Creates[k]
			rows = append(rows, jobIn{job: &c.Job})
			lost[jobKey{int32(c.Job.Shard), c.Job.UID}] = func(ctx context.Context, tx pgx.Tx) error { return w.rivalOf(ctx, tx, i, c) }
		}
	}
	if len(rows) == 0 {
		return
	}
	arrays, err := jobArrays(rows)
	if err != nil {
		w.reads = append(w.reads, func(pgx.BatchResults) error { return err })
		return
	}
	w.batch.Queue(insertJobs, arrays...)
	w.reads = append(w.reads, func(r pgx.BatchResults) error {
		rows, err := r.Query()
		written, err := collect(rows, err, scanJobKey)
		for _, k := range written {
			delete(lost, k)
		}
		for _, read := range lost {
			w.rivals = append(w.rivals, read)
		}
		return err
	})
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
	return storekit.ScanJob(tx.QueryRow(ctx, selectRival, rivalKeys(j)...))
}

// rivalKeys are what may stand in the way of a job: arguments of selectRival.
func rivalKeys(j *job.Job) []any {
	return []any{int32(j.Shard), j.UID[:], j.Namespace, storekit.NullText(j.RequestID), j.Name}
}

// requestKey names a request of any shard.
type requestKey struct {
	shard         int32
	namespace, id string
}

// requests queues the inserts of all requests. Those that the statement doesn't
// return were made before.
func (w *writer) requests() {
	rows := of(w.b, func(s *store.ShardBatch) []store.Request { return s.Requests })
	if len(rows) == 0 {
		return
	}
	w.batch.Queue(insertRequests, gather(rows, (*row[store.Request]).id), gather(rows, func(r *row[store.Request]) string { return r.v.Namespace }),
		gather(rows, func(r *row[store.Request]) string { return r.v.RequestID }), gather(rows, func(r *row[store.Request]) string { return r.v.Hash }),
		gather(rows, func(r *row[store.Request]) int64 { return int64(r.v.Key.FireTime) }), gather(rows, func(r *row[store.Request]) []byte { return r.v.Key.UID[:] }))
	w.reads = append(w.reads, func(r pgx.BatchResults) error {
		found, err := r.Query()
		keys, err := collect(found, err, func(row storekit.Scanner) (k requestKey, err error) {
			return k, row.Scan(&k.shard, &k.namespace, &k.id)
		})
		written := map[requestKey]bool{}
		for _, k := range keys {
			written[k] = true
		}
		for i := range rows {
			r := &rows[i]
			k := requestKey{r.shard, r.v.Namespace, r.v.RequestID}
			if written[k] {
				written[k] = false // of two equal ones in this batch, the first was
				continue
			}
			w.rivals = append(w.rivals, func(ctx context.Context, tx pgx.Tx) error { return w.earlier(ctx, tx, w.place[r.shard], r.v) })
		}
		return err
	})
}

// earlier notes what the same request made before.
func (w *writer) earlier(ctx context.Context, tx pgx.Tx, place int, r *store.Request) error {
	id := int32(w.b.Shards[place].Proof.Shard)
	existing := store.Request{Namespace: r.Namespace, RequestID: r.RequestID}
	var uid []byte
	err := tx.QueryRow(ctx, selectRequest,
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
	for _, rows := range [][]slotIn{ofJobs, plain, ofRequests} {
		slices.SortFunc(rows, func(a, b slotIn) int { return compareRows(a.shard, b.shard, a.Key, b.Key) })
	}
	slices.SortFunc(updates, func(a, b updateIn) int { return compareRows(a.shard, b.shard, a.Slot.Key, b.Slot.Key) })
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

// compareRows orders slots of any shards as the database does.
func compareRows(shardA, shardB int32, a, b job.SlotKey) int {
	return cmp.Or(cmp.Compare(shardA, shardB), cmp.Compare(a.FireTime, b.FireTime), bytes.Compare(a.UID[:], b.UID[:]))
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
	w.arrays(insertAttempts, len(rows), attemptArrays(rows)...)
	w.lates()
}

// lates queues what workers reported too late; of one attempt the newest report counts.
func (w *writer) lates() {
	type late = row[store.LateResult]
	rows := of(w.b, func(s *store.ShardBatch) []store.LateResult { return s.Lates })
	slices.Reverse(rows)
	rows = firstOf(rows, func(r late) any {
		return [2]any{rowKey{r.shard, int64(r.v.Key.FireTime), r.v.Key.UID}, r.v.Attempt}
	})
	w.arrays(setLates, len(rows), gather(rows, (*late).id), gather(rows, func(r *late) int64 { return int64(r.v.Key.FireTime) }),
		gather(rows, func(r *late) []byte { return r.v.Key.UID[:] }), gather(rows, func(r *late) int32 { return r.v.Attempt }),
		gather(rows, func(r *late) string { return r.v.Text }))
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
			puts = append(puts, backlogIn{id, r.Key, &r})
		}
	}
	w.arrays(deleteBacklog, len(dels), backlogArrays(dels)...)
	w.arrays(insertBacklog, len(puts), append(backlogArrays(puts),
		gather(puts, func(r *backlogIn) int64 { return int64(r.row.WakeAt) }),
		gather(puts, func(r *backlogIn) *int64 { return orNull(r.row.CheckAt != 0, int64(r.row.CheckAt)) }),
		gather(puts, func(r *backlogIn) int64 { return int64(r.row.ReadyAt) }),
		gather(puts, func(r *backlogIn) int16 { return int16(r.row.Trigger) }))...)
}

// deadLetters queues those that come and those that go, and the rows of the inbox
// that are done with.
func (w *writer) deadLetters() {
	type letter = row[store.DeadLetter]
	puts := of(w.b, func(s *store.ShardBatch) []store.DeadLetter { return s.DeadPuts })
	w.arrays(insertDead, len(puts), gather(puts, (*letter).id), gather(puts, func(r *letter) int64 { return int64(r.v.Key.FireTime) }),
		gather(puts, func(r *letter) []byte { return r.v.Key.UID[:] }), gather(puts, func(r *letter) string { return r.v.Handler }),
		gather(puts, func(r *letter) int64 { return int64(r.v.At) }), gather(puts, func(r *letter) string { return r.v.Namespace }),
		gather(puts, func(r *letter) string { return r.v.ErrorCode }), gather(puts, func(r *letter) string { return r.v.Fingerprint }),
		gather(puts, func(r *letter) string { return r.v.Sample }))
	dels := of(w.b, func(s *store.ShardBatch) []job.SlotKey { return s.DeadDels })
	w.arrays(deleteDead, len(dels), gather(dels, (*row[job.SlotKey]).id), gather(dels, func(r *row[job.SlotKey]) int64 { return int64(r.v.FireTime) }),
		gather(dels, func(r *row[job.SlotKey]) []byte { return r.v.UID[:] }))
	// A statement for each shard: of all shards at once, the inbox would be joined with
	// what goes, and be read from end to end whenever it is thought to be empty.
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		w.arrays(deleteInbox, len(s.InboxDels), int32(s.Proof.Shard), gather(s.InboxDels, func(uid *job.UID) []byte { return uid[:] }))
	}
}

// text passes on a text that could be written, or fails the commit.
func (w *writer) text(text string, err error) (string, bool) {
	if err != nil {
		w.reads = append(w.reads, func(pgx.BatchResults) error { return err })
	}
	return text, err == nil
}

func (w *writer) gaps() {
	type skip = row[store.Skip]
	skips := of(w.b, func(s *store.ShardBatch) []store.Skip { return s.Skips })
	w.arrays(insertSkips, len(skips), gather(skips, (*skip).id), gather(skips, func(r *skip) []byte { return r.v.UID[:] }),
		gather(skips, func(r *skip) int64 { return int64(r.v.To) }), gather(skips, func(r *skip) int64 { return int64(r.v.From) }),
		gather(skips, func(r *skip) int64 { return r.v.Count }), gather(skips, func(r *skip) string { return r.v.Code }),
		gather(skips, func(r *skip) int64 { return int64(r.v.MadeAt) }))
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		id := int32(s.Proof.Shard)
		for _, g := range s.GapPuts {
			if options, ok := w.text(storekit.EncodeGapOptions(g.Options)); ok {
				w.exec(insertGap, id, int64(g.Key.To), g.Key.UID[:], int64(g.From), int64(g.Cursor.FireTime), g.Cursor.UID[:], int64(g.MadeAt), options)
			}
		}
		for _, c := range s.GapChanges {
			if options, ok := w.text(storekit.EncodeGapOptions(c.Options)); ok {
				w.exec(changeGap, id, int64(c.Key.To), c.Key.UID[:], options)
			}
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
	err := tx.QueryRow(ctx, selectCursor,
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
	var watermarks, openFroms, retained []int64
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		if s.Watermark != 0 || s.OpenFrom != 0 || s.RetainedFrom != 0 {
			shards = append(shards, int32(s.Proof.Shard))
			watermarks, openFroms = append(watermarks, int64(s.Watermark)), append(openFroms, int64(s.OpenFrom))
			retained = append(retained, int64(s.RetainedFrom))
		}
	}
	w.arrays(moveWatermarks, len(shards), shards, watermarks, openFroms, retained)
}

// giveUps ends the ownership of shards. It comes last: everything else is written under the
// epoch that this ends.
func (w *writer) giveUps() {
	var shards []int32
	var epochs []int64
	for i := range w.b.Shards {
		if s := &w.b.Shards[i]; s.GiveUp {
			shards, epochs = append(shards, int32(s.Proof.Shard)), append(epochs, int64(s.Proof.Epoch))
		}
	}
	w.arrays(giveUpRows, len(shards), shards, epochs)
	w.arrays(auditGivenUp, len(shards), shards)
}

func (w *writer) events() {
	type event = row[store.Event]
	rows := of(w.b, func(s *store.ShardBatch) []store.Event { return s.Events })
	w.arrays(insertEvents, len(rows), gather(rows, (*event).id), gather(rows, func(r *event) int64 { return int64(w.b.Shards[w.place[r.shard]].Proof.Epoch) }),
		gather(rows, func(r *event) int64 { return r.v.Seq }), gather(rows, func(r *event) int64 { return int64(r.v.At) }),
		gather(rows, func(r *event) string { return string(r.v.Kind) }), gather(rows, func(r *event) []byte { return uidOrNull(r.v.Job) }),
		gather(rows, func(r *event) int64 { return int64(r.v.Fire) }), gather(rows, func(r *event) string { return r.v.Detail }))
}

// readBack reads what stood in the way of rows that were not written. In the same
// transaction, under the same locks, it is what stands.
func (w *writer) readBack(ctx context.Context, tx pgx.Tx) error {
	for _, read := range w.rivals {
		w.out.Statements++
		if err := read(ctx, tx); err != nil {
			return fmt.Errorf("read back: %w", err)
		}
	}
	for k, mine := range w.unknown {
		if w.excluded[k] {
			continue
		}
		w.out.Statements++
		stands, err := storekit.ScanSlot(tx.QueryRow(ctx, selectSlot, k.shard, k.fire, k.uid[:]))
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

// prunes deletes what is older than it must be kept.
func (w *writer) prunes() {
	var slots []pruneIn
	var jobs []jobKey
	for i := range w.b.Shards {
		s := &w.b.Shards[i]
		id := int32(s.Proof.Shard)
		for k := range s.SlotPrunes {
			slots = append(slots, pruneIn{id, &s.SlotPrunes[k]})
		}
		for _, uid := range s.JobPrunes {
			jobs = append(jobs, jobKey{id, uid})
		}
		if o := s.Old; o.RequestsBefore != 0 {
			w.exec(pruneRequests, id, int64(o.RequestsFrom), int64(o.RequestsBefore), store.MaxOldRows)
		}
		if o := s.Old; o.EventsBefore != 0 {
			w.exec(pruneEvents, id, int64(o.EventsFrom), int64(o.EventsBefore), store.MaxOldRows)
		}
		if o := s.Old; o.SkipsBefore != 0 {
			w.exec(pruneSkips, id, int64(o.SkipsFrom), int64(o.SkipsBefore), store.MaxOldRows)
		}
	}
	for _, query := range []string{pruneAttempts, pruneDead, pruneSlots} {
		w.arrays(query, len(slots), pruneArrays(slots)...)
	}
	w.arrays(pruneJobs, len(jobs), gather(jobs, func(k *jobKey) int32 { return k.shard }), gather(jobs, func(k *jobKey) []byte { return k.uid[:] }))
}
