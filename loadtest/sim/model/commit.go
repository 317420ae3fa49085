package model

import (
	"context"
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// maxBytes bounds the parameters of a job and the result of a slot, as the checks of the
// SQL adapters do: far beyond what the API lets in.
const maxBytes = 1 << 20

// Commit implements store.Committer. Whatever can make it fail is looked at before anything
// is written.
func (m *Store) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	if err := m.enter(ctx); err != nil {
		return store.Outcome{}, err
	}
	defer m.leave()
	if err := m.checkFence(&b); err != nil {
		return store.Outcome{}, err
	}
	for i := range b.Shards {
		if err := checkSizes(&b.Shards[i]); err != nil {
			return store.Outcome{}, err
		}
	}
	for i := range b.Shards {
		if b.Repeat {
			m.shard(b.Shards[i].Proof.Shard).try = b.Try
		}
	}
	out := store.Outcome{Shards: make([]store.ShardOutcome, len(b.Shards)), Statements: len(b.Shards)}
	for i := range b.Shards {
		w := writer{db: m, rows: m.shard(b.Shards[i].Proof.Shard), out: &out.Shards[i]}
		w.apply(&b.Shards[i])
		out.Statements += w.statements
	}
	return out, nil
}

// checkFence fails unless every shard of the batch stands under its writer's epoch, and none was
// repeated since the batch was sent.
func (m *Store) checkFence(b *store.Batch) error {
	var lost []shard.ID
	for i := range b.Shards {
		p := b.Shards[i].Proof
		s := m.shard(p.Shard)
		stale := s == nil || s.epoch != p.Epoch
		overtaken := s != nil && s.try > b.Try
		if stale || overtaken {
			lost = append(lost, p.Shard)
		}
	}
	if len(lost) > 0 {
		return fenced(lost...)
	}
	return nil
}

// checkSizes refuses a batch with a row that can't be stored.
func checkSizes(b *store.ShardBatch) error {
	for i := range b.Creates {
		c := &b.Creates[i]
		if err := checkSize(b.Proof.Shard, c.Job.UID, c.Job.Params); err != nil {
			return err
		}
		for j := range c.Slots {
			if err := checkSize(b.Proof.Shard, c.Slots[j].Key.UID, c.Slots[j].Result); err != nil {
				return err
			}
		}
	}
	for i := range b.Slots {
		if err := checkSize(b.Proof.Shard, b.Slots[i].Key.UID, b.Slots[i].Result); err != nil {
			return err
		}
	}
	for i := range b.Updates {
		if err := checkSize(b.Proof.Shard, b.Updates[i].Slot.Key.UID, b.Updates[i].Slot.Result); err != nil {
			return err
		}
	}
	return nil
}

func checkSize(id shard.ID, uid job.UID, bytes []byte) error {
	if len(bytes) <= maxBytes {
		return nil
	}
	return &store.RefusedError{Shard: id, UID: uid, Err: fmt.Errorf("%d bytes are more than %d", len(bytes), maxBytes)}
}

// writer applies the rows of one shard. It counts the statements that a database with one
// for each row would have been sent.
type writer struct {
	*rows
	db         *Store
	out        *store.ShardOutcome
	statements int
}

func (w *writer) apply(b *store.ShardBatch) {
	w.applyJobs(b)
	w.applySlots(b)
	w.applyQueues(b)
	w.applyGaps(b)
	w.applyShardRow(b)
	w.applyPrunes(b)
	w.applyGiveUp(b)
}

func (w *writer) applyJobs(b *store.ShardBatch) {
	for i := range b.Creates {
		w.create(&b.Creates[i])
	}
	for _, e := range b.Ends {
		w.statements++
		if row, found := w.jobs.get(e.UID); found && row.EndedAt == 0 && e.EndedAt != 0 {
			w.endJob(row, e.EndedAt, e.ByItself)
		}
	}
	for _, q := range b.Quarantines {
		w.statements++
		if row, found := w.jobs.get(q.UID); found {
			row.Quarantine = q.Reason
		}
	}
	for i := range b.Requests {
		w.request(&b.Requests[i])
	}
}

// create adds a job and its slots, or reports the job that stands in its way.
func (w *writer) create(c *store.Create) {
	w.statements++
	if !w.db.putJob(w.rows, &c.Job) {
		w.statements++
		if existing := w.rival(&c.Job); existing.UID != c.Job.UID {
			if w.out.Creates == nil {
				w.out.Creates = map[job.UID]job.Job{}
			}
			w.out.Creates[c.Job.UID] = copyJob(existing)
			return
		}
	}
	for i := range c.Slots {
		w.insertSlot(&c.Slots[i])
	}
}

// request remembers what a request made, or reports what it made before.
func (w *writer) request(r *store.Request) {
	w.statements++
	key := requestKey{r.Namespace, r.RequestID}
	existing, found := w.requests[key]
	if !found {
		w.requests[key] = *r
		w.requestAges.insert(requestAge{r.Key.FireTime, key}, struct{}{})
		return
	}
	w.statements++
	if existing.Key == r.Key {
		return
	}
	if w.out.Requests == nil {
		w.out.Requests = map[string]store.Request{}
	}
	w.out.Requests[r.Namespace+"/"+r.RequestID] = existing
}

func (w *writer) applySlots(b *store.ShardBatch) {
	for i := range b.Slots {
		// A slot of a request that lost to an earlier one isn't made.
		if w.requestLost(b, b.Slots[i].Key) {
			continue
		}
		w.insertSlot(&b.Slots[i])
	}
	for i := range b.Updates {
		w.updateSlot(&b.Updates[i])
	}
	for i := range b.Attempts {
		w.insertAttempt(&b.Attempts[i])
	}
	for _, l := range b.Lates {
		w.statements++
		if a, found := w.attempts.get(attemptKey{l.Key, l.Attempt}); found {
			a.Late = l.Text
		}
	}
}

func (w *writer) requestLost(b *store.ShardBatch, key job.SlotKey) bool {
	if len(w.out.Requests) == 0 {
		return false
	}
	for i := range b.Requests {
		r := &b.Requests[i]
		if earlier, lost := w.out.Requests[r.Namespace+"/"+r.RequestID]; lost && r.Key == key && earlier.Key != key {
			return true
		}
	}
	return false
}

// insertSlot adds a slot. One that exists isn't changed, and is reported.
func (w *writer) insertSlot(slot *job.Slot) {
	w.statements++
	if !w.putSlot(slot) {
		w.notWritten(slot)
	}
}

// updateSlot changes a slot that stands in the state and attempt that the writer names.
func (w *writer) updateSlot(u *store.SlotUpdate) {
	w.statements++
	row, found := w.slots.get(u.Slot.Key)
	if !found || row.State != u.FromState || row.Attempt != u.FromAttempt {
		w.notWritten(&u.Slot)
		return
	}
	w.replaceSlot(row, &u.Slot)
}

// notWritten reports the row that stands where another was to be written, unless it is the
// same: then an earlier send of this batch wrote it.
func (w *writer) notWritten(slot *job.Slot) {
	w.statements++
	stands := job.Slot{Key: slot.Key}
	if row, found := w.slots.get(slot.Key); found {
		stands = *row
	}
	if stands.Same(slot) {
		return
	}
	if w.out.Slots == nil {
		w.out.Slots = map[job.SlotKey]job.Slot{}
	}
	w.out.Slots[slot.Key] = stands
}

func (w *writer) insertAttempt(r *store.SlotAttempt) {
	w.statements++
	if _, there := w.slots.get(r.Key); !there {
		return
	}
	a := r.Attempt
	w.attempts.insert(attemptKey{r.Key, a.Number}, &a)
}

func (w *writer) applyQueues(b *store.ShardBatch) {
	for _, k := range b.BacklogDels {
		w.statements++
		w.dropBacklog(k)
	}
	for i := range b.BacklogPuts {
		w.statements++
		if r := &b.BacklogPuts[i]; w.standsAs(r) {
			w.putBacklog(*r)
		}
	}
	for i := range b.DeadPuts {
		w.putDead(&b.DeadPuts[i])
	}
	for _, k := range b.DeadDels {
		w.statements++
		w.dropDead(k)
	}
	for _, uid := range b.InboxDels {
		w.statements++
		w.inbox.delete(uid)
	}
}

// standsAs reports whether the slot of a row of the backlog stands as the row says.
func (w *writer) standsAs(r *store.BacklogRow) bool {
	slot, found := w.slots.get(r.Key.Slot)
	if !found {
		return false
	}
	state, readyAt := job.Running, slot.CreatedAt
	if r.Key.Waiting {
		state = job.Ready
	}
	if slot.NotBefore != 0 {
		readyAt = slot.NotBefore
	}
	return slot.State == state && readyAt == r.ReadyAt && slot.Trigger == r.Trigger
}

// putDead adds a dead letter, if its slot is dead and has none.
func (w *writer) putDead(d *store.DeadLetter) {
	w.statements++
	if slot, found := w.slots.get(d.Key); !found || slot.State != job.Dead {
		return
	}
	if w.dead.insert(d.Key, *d) {
		w.deadOf[d.Key.UID]++
	}
}

func (w *writer) applyGaps(b *store.ShardBatch) {
	for _, g := range b.GapPuts {
		w.statements++
		g.Options = copyOptions(g.Options)
		w.gaps.insert(g.Key, &g)
	}
	for _, c := range b.GapChanges {
		w.statements++
		if g, found := w.gaps.get(c.Key); found {
			g.Options = copyOptions(c.Options)
		}
	}
	for _, move := range b.GapMoves {
		w.moveGap(move)
	}
	for _, k := range b.Skips {
		w.statements++
		if key := (skipKey{k.UID, k.To}); w.skips.insert(key, k) {
			w.skipAges.insert(skipAge{k.MadeAt, key}, struct{}{})
		}
	}
}

// moveGap moves or closes a gap whose cursor stands where the writer says, or reports it.
func (w *writer) moveGap(move store.GapMove) {
	w.statements++
	g, found := w.gaps.get(move.Key)
	if !found || g.Cursor != move.From {
		w.notMoved(g, move)
		return
	}
	if g.Cursor = move.To; move.Closed {
		w.gaps.delete(move.Key)
	}
}

// notMoved reports a gap that stands elsewhere, unless an earlier send of this batch moved it.
func (w *writer) notMoved(g *store.Gap, move store.GapMove) {
	w.statements++
	if !alreadyMoved(g, move) {
		w.out.Gaps = append(w.out.Gaps, move.Key)
	}
}

// alreadyMoved reports whether an earlier send of a batch made this move. g is nil if the gap
// isn't there.
func alreadyMoved(g *store.Gap, move store.GapMove) bool {
	if g == nil {
		return move.Closed
	}
	return !move.Closed && g.Cursor == move.To
}

func (w *writer) applyShardRow(b *store.ShardBatch) {
	if b.Watermark != 0 || b.OpenFrom != 0 || b.RetainedFrom != 0 {
		w.statements++
		w.raise(b.Watermark, b.OpenFrom, b.RetainedFrom)
	}
	for _, e := range b.Events {
		w.statements++
		if key := (eventKey{b.Proof.Epoch, e.Seq}); w.events.insert(key, e) {
			w.eventAges.insert(eventAge{e.At, key}, struct{}{})
		}
	}
}

// raise moves the instants of the shard. None of them falls.
func (w *writer) raise(watermark, openFrom, retainedFrom job.Instant) {
	w.watermark = max(w.watermark, watermark)
	w.openFrom = max(w.openFrom, openFrom)
	w.retainedFrom = max(w.retainedFrom, retainedFrom)
}

// applyGiveUp ends the ownership. It comes last: everything else is written under the epoch
// that this ends.
func (w *writer) applyGiveUp(b *store.ShardBatch) {
	if b.GiveUp {
		w.statements += 3
		w.db.raiseEpoch(w.rows, "", w.gen, w.rev)
	}
}

// applyPrunes deletes what is older than it must be kept.
func (w *writer) applyPrunes(b *store.ShardBatch) {
	for _, p := range b.SlotPrunes {
		w.pruneSlot(p)
	}
	for _, uid := range b.JobPrunes {
		w.statements++
		if row, found := w.jobs.get(uid); found && row.EndedAt != 0 && !w.inbox.has(uid) {
			w.db.dropJob(w.rows, row)
		}
	}
	w.pruneOld(b.Old)
}

// pruneSlot deletes a slot that has ended, if it hasn't changed since it was read.
func (w *writer) pruneSlot(p store.SlotPrune) {
	w.statements++
	row, found := w.slots.get(p.Key)
	if !found || row.State != p.State || row.Attempt != p.Attempt || row.State <= job.Running {
		return
	}
	w.statements += 2
	w.dropSlot(row)
}

func (w *writer) pruneOld(o store.Old) {
	if o.RequestsBefore != 0 {
		w.statements++
		for _, k := range oldest(&w.requestAges, requestAge{at: o.RequestsFrom}, func(k requestAge) bool { return k.at < o.RequestsBefore }) {
			w.requestAges.delete(k)
			delete(w.requests, k.requestKey)
		}
	}
	if o.EventsBefore != 0 {
		w.statements++
		for _, k := range oldest(&w.eventAges, eventAge{o.EventsFrom, firstEvent}, func(k eventAge) bool { return k.at < o.EventsBefore }) {
			w.eventAges.delete(k)
			w.events.delete(k.eventKey)
		}
	}
	if o.SkipsBefore != 0 {
		w.statements++
		for _, k := range oldest(&w.skipAges, skipAge{o.SkipsFrom, firstSkip}, func(k skipAge) bool { return k.at < o.SkipsBefore }) {
			w.skipAges.delete(k)
			w.skips.delete(k.skipKey)
		}
	}
}

// oldest returns the first keys of an order from a place on, as many as one batch deletes.
func oldest[K any](ages *set[K], from K, old func(K) bool) []K {
	var keys []K
	for k := range ages.from(from) {
		if len(keys) == store.MaxOldRows || !old(k) {
			break
		}
		keys = append(keys, k)
	}
	return keys
}
