package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// pending is what waits for the next batch.
type pending struct {
	rows     store.ShardBatch // all rows but those of slots and creates
	adopted  []job.UID        // jobs of the inbox: their rows there go once all their slots are written
	creates  []*createState
	dirty    []*slotState // in the order of their first change
	triggers []*triggerState
	messages []Message // follow the batch, whatever rows it has
	replies  []Message // to requests whose effect is in rows
	opening  bool      // the shard's first batch
}

// Batch is a shard's part of a group commit.
type Batch struct {
	Rows     store.ShardBatch
	slots    []*slotState
	messages [][]Message // of slots, by their place
	creates  []*createState
	triggers []*triggerState
	after    []Message
	opening  bool
}

// Fault returns why the shard can't go on and must be loaded anew, or nil.
func (s *Shard) Fault() error { return s.fault }

// HasPending reports whether the shard has something to write that should not
// wait for the next watermark.
func (s *Shard) HasPending() bool {
	return s.unwritten() || s.leaving && !s.last || s.Live() && s.hasGapWork()
}

// unwritten reports whether something has happened that is in no batch yet.
func (s *Shard) unwritten() bool {
	p := &s.pending
	return p.opening || len(p.dirty) > 0 || len(p.creates) > 0 || len(p.triggers) > 0 || len(p.replies) > 0 ||
		len(p.messages) > 0 || len(p.adopted) > 0 || p.rows.Rows() > 0
}

// watermarkDue reports whether the shard should prove that it lives. A little
// early is fine, so that the shards of a node do it together.
func (s *Shard) watermarkDue() bool {
	return s.opened && s.now.Sub(s.markedAt) >= s.cfg.WatermarkEvery*9/10
}

// Ready returns the next batch of at most about room rows, or nil if there is
// nothing to write or a batch is under way.
func (s *Shard) Ready(now job.Instant, room int) *Batch {
	s.now = max(s.now, now)
	if s.inflight != nil || s.fault != nil || s.last || !s.HasPending() && !s.watermarkDue() {
		return nil
	}
	s.moveOpenFrom()
	p := &s.pending
	b := &Batch{Rows: p.rows, after: append(p.messages, p.replies...), opening: p.opening}
	p.rows, p.messages, p.replies, p.opening = store.ShardBatch{}, nil, nil, false
	p.rows.Events = b.Rows.Events[min(len(b.Rows.Events), room):] // the rest waits for its turn
	b.Rows.Events = b.Rows.Events[:min(len(b.Rows.Events), room)]
	b.Rows.Proof = s.proof
	s.writeTriggers(b)
	s.writeCreates(b, room)
	s.writeDirty(b, room)
	if s.Live() {
		s.fillGaps(b, room)
	}
	if len(s.pending.dirty) == 0 {
		b.Rows.InboxDels, s.pending.adopted = s.pending.adopted, nil
	}
	s.giveUp(b)
	s.writeWatermark(b)
	if len(s.pending.dirty) == 0 && s.openFromSent < s.openFrom {
		b.Rows.OpenFrom, s.openFromSent = s.openFrom, s.openFrom
	}
	if s.fault != nil {
		return nil // what led there must not reach the database
	}
	s.inflight = b
	return b
}

// writeDirty moves the slots that changed into the batch, oldest change first.
func (s *Shard) writeDirty(b *Batch, room int) {
	p := &s.pending
	n := 0
	for n < len(p.dirty) && b.Rows.Rows() < room {
		if slot := p.dirty[n]; slot.dirty { // it may have been written with others of its job
			if slot.limited() {
				s.writeLane(b, s.lanes[slot.row.Key.UID])
			}
			if slot.dirty {
				s.writeSlot(b, slot, false)
			}
		}
		n++
	}
	rest := copy(p.dirty, p.dirty[n:])
	clear(p.dirty[rest:])
	p.dirty = p.dirty[:rest]
}

// writeLane moves the slots of a job that have a place, or had one, into the batch: one
// that is written with them may have got its place from them.
func (s *Shard) writeLane(b *Batch, l *lane) {
	if l == nil {
		return
	}
	left := l.left
	l.left = nil
	for _, slot := range slices.Concat(left, inOrder(maps.Keys(l.placed))) {
		if slot.dirty {
			s.writeSlot(b, slot, false)
		}
	}
	s.dropLane(l)
}

// writeSlot writes a slot from what the database holds to what it should hold.
func (s *Shard) writeSlot(b *Batch, slot *slotState, viaCreate bool) {
	slot.dirty = false
	s.syncBacklog(b, slot)
	switch {
	case viaCreate: // its create carries it
	case !slot.stored:
		b.Rows.Slots = append(b.Rows.Slots, slot.row)
	case slot.row.State != slot.storedState || slot.row.Attempt != slot.storedAttempt || slot.touched:
		b.Rows.Updates = append(b.Rows.Updates, store.SlotUpdate{Slot: slot.row, FromState: slot.storedState, FromAttempt: slot.storedAttempt})
	}
	if dead := slot.row.State == job.Dead; dead != (slot.storedState == job.Dead) {
		if dead {
			b.Rows.DeadPuts = append(b.Rows.DeadPuts, deadLetter(slot))
			if slot.job.spec.policies.OnDeadLetter != "" {
				s.escalate(b, slot)
			}
		} else {
			b.Rows.DeadDels = append(b.Rows.DeadDels, slot.row.Key)
		}
	}
	for _, a := range slot.ended {
		b.Rows.Attempts = append(b.Rows.Attempts, store.SlotAttempt{Key: slot.row.Key, Attempt: a})
	}
	slot.ended = nil
	slot.inserting = !slot.stored
	slot.stored, slot.storedState, slot.storedAttempt, slot.touched = true, slot.row.State, slot.row.Attempt, false
	b.slots = append(b.slots, slot)
	b.messages = append(b.messages, slot.messages)
	slot.messages = nil
	if !s.armed(slot) { // a fault of this program, too: the slot would be stuck
		s.fault = fmt.Errorf("slot %s of job %s is %v, and nothing ends its wait", slot.row.Key.FireTime, slot.row.Key.UID, slot.row.State)
	}
}

// deadLetter describes a dead slot.
func deadLetter(slot *slotState) store.DeadLetter {
	row, j := &slot.row, slot.job
	return store.DeadLetter{Key: row.Key, Namespace: j.spec.namespace, Handler: j.spec.handler, At: row.FinishedAt,
		ErrorCode: row.ErrorCode, Fingerprint: job.Fingerprint(row.ErrorCode, row.ErrorText), Sample: job.CleanText([]byte(row.ErrorText), maxSampleBytes)}
}

// maxSampleBytes bounds the error's beginning that a dead letter shows.
const maxSampleBytes = 200

// writeWatermark lets the batch carry how far the shard has come, about once a
// second: only if every slot up to there is in this batch or an earlier one.
func (s *Shard) writeWatermark(b *Batch) {
	if b.opening {
		b.Rows.Watermark = s.firedTo
	} else if len(s.pending.dirty) > 0 || s.behind || !s.watermarkDue() && !s.last {
		return
	} else {
		b.Rows.Watermark = min(s.firedTo, s.onceLimit())
	}
	if b.Rows.Watermark <= s.watermark {
		b.Rows.Watermark = s.watermark // still a proof of life
	}
	s.watermark, s.markedAt = b.Rows.Watermark, s.now
}

// onceLimit is how far the jobs of one fire time are known.
func (s *Shard) onceLimit() job.Instant {
	if s.once.to.UID == lastKeyOf(0).UID {
		return s.once.to.FireTime
	}
	return s.once.to.FireTime - 1
}

// Committed says what became of the batch under way. Refused are the jobs whose
// rows the database can't store: the batch was written without them.
type Committed struct {
	Outcome store.ShardOutcome
	Refused map[job.UID]error
}

func (e Committed) apply(s *Shard) {
	b := s.inflight
	if b == nil {
		return
	}
	s.inflight = nil
	for _, c := range b.creates {
		s.created(c, e)
	}
	for _, t := range b.triggers {
		s.triggered(t, e)
	}
	for i, slot := range b.slots {
		s.written(slot, b.messages[i], e)
	}
	for uid, err := range e.Refused {
		s.quarantine(uid, "the database refused its rows: "+err.Error())
	}
	if len(e.Outcome.Gaps) > 0 {
		s.reloadGaps(e.Outcome.Gaps)
	}
	s.outbox = append(s.outbox, b.after...)
	s.reads.cancelsUnwritten = false
	s.checks.paused = false
	for _, q := range s.queues {
		for _, p := range q.tiers() {
			p.paused = false
		}
	}
	for _, l := range s.deep {
		l.lines[0].far.paused, l.lines[1].far.paused = false, false
	}
	if b.opening {
		s.opened = true
	}
}

// written releases what a slot's write allows, or adopts the row that stood in
// its way.
func (s *Shard) written(slot *slotState, messages []Message, e Committed) {
	if s.slots[slot.row.Key] != slot {
		s.unsend(messages) // what it was made with was not written
		return
	}
	_, refused := e.Refused[slot.row.Key.UID]
	stands, conflict := e.Outcome.Slots[slot.row.Key]
	if refused || conflict {
		stands.Key = slot.row.Key
		s.unsend(messages)
		s.answerBy(slices.Concat(messages, slot.messages), stands)
		s.replaced(slot, stands)
		return
	}
	slot.inserting = false
	s.listed(slot)
	for _, m := range messages {
		if _, ok := m.(Assign); ok {
			s.sent(slot)
		}
		s.outbox = append(s.outbox, m)
	}
	if !slot.dirty && (slot.displaced || !slot.row.State.Open()) {
		s.untrack(slot)
	}
}

// sent notes that a claim's worker hears of it now: its time begins.
func (s *Shard) sent(slot *slotState) {
	slot.unsent = false
	if slot.row.State == job.Running {
		slot.until = min(s.now.Add(slot.job.spec.timeout), slot.job.spec.policies.TotalEnd(&slot.row))
		s.wheel.Cancel(slot.timer)
		s.armTimeout(slot)
	}
}

// armTimeout sets the timer of a running slot's attempt.
func (s *Shard) armTimeout(slot *slotState) {
	until := max(slot.row.Deadline, slot.until)
	slot.timer = s.wheel.Add(until.Add(s.cfg.TimeoutGrace).Milliseconds(), timer{timerTimeout, slot.ref})
}

// answerBy answers the calls that waited for a write which was not made, by the
// row that stands.
func (s *Shard) answerBy(messages []Message, stands job.Slot) {
	for _, m := range messages {
		if r, ok := m.(Reply); ok {
			row := stands
			s.outbox = append(s.outbox, Reply{Tag: r.Tag, Slot: &row})
		}
	}
}

// replaced drops a slot whose row was not written and takes up the one that
// stands there.
func (s *Shard) replaced(slot *slotState, stands job.Slot) {
	j := slot.job
	held := j.held
	j.held = true // keep the job while its slot is exchanged
	s.forget(slot)
	if stands.State.Open() {
		if adopted := s.take(stands, j, true); adopted != nil {
			adopted.relist = true // whether it is listed isn't known
			s.markDirty(adopted)
		}
	}
	j.held = held
	s.dropJob(j)
}

// forget drops a slot that is not in the database, or not as it is here.
func (s *Shard) forget(slot *slotState) {
	s.unsend(slot.messages)
	s.listed(slot)
	s.forgetDirty(slot)
	s.untrack(slot)
}

// unsend gives back the credit of assignments that will never leave.
func (s *Shard) unsend(messages []Message) {
	for _, m := range messages {
		if a, ok := m.(Assign); ok {
			s.workers.Refund(a.Worker)
		}
	}
}

// forgetDirty takes a slot out of what is to be written.
func (s *Shard) forgetDirty(slot *slotState) {
	if !slot.dirty {
		return
	}
	slot.dirty = false
	dirty := s.pending.dirty
	for i := len(dirty) - 1; i >= 0; i-- { // it is mostly the newest
		if dirty[i] == slot {
			s.pending.dirty = slices.Delete(dirty, i, i+1)
			return
		}
	}
}

// Undeliverable says that an assignment could not be given to its worker.
type Undeliverable struct {
	Worker WorkerKey
	Token  Token
}

func (e Undeliverable) apply(s *Shard) {
	if slot := s.slots[e.Token.Key]; slot != nil && s.holds(slot, e.Worker, e.Token) {
		s.lose(slot, job.OutcomeUnclaimed, "the worker was gone before it got the attempt")
	}
}

// Abandon gives back what the shard took from the node's workers, before it is
// thrown away.
func (s *Shard) Abandon() {
	if s.inflight != nil {
		for _, messages := range s.inflight.messages {
			s.unsend(messages)
		}
	}
	for _, slot := range s.slots { // in any order: credit only adds up
		s.unsend(slot.messages)
	}
	for _, q := range s.queues {
		for _, t := range q.tiers() {
			q.node.add(-t.counts)
		}
		q.node = &waiting{}
	}
}

// syncBacklog makes a slot's row in the backlog what it should be: there if the
// slot is open and either not in memory or too old to be found by a scan.
func (s *Shard) syncBacklog(b *Batch, slot *slotState) {
	var want *store.BacklogRow
	if slot.row.State.Open() && (slot.displaced || slot.row.Key.FireTime < s.openFrom) {
		row := backlogRow(&slot.row, slot.job.spec)
		want = &row
	}
	if slot.backlog != nil && (want == nil || *slot.backlog != want.Key || slot.displaced || slot.relist) {
		b.Rows.BacklogDels = append(b.Rows.BacklogDels, *slot.backlog)
		slot.backlog = nil
	}
	if want != nil && slot.backlog == nil {
		b.Rows.BacklogPuts = append(b.Rows.BacklogPuts, *want)
		slot.backlog = &want.Key
	}
	slot.relist = false
}

// moveOpenFrom moves the place from which open slots are found by a scan, and
// lists those that it leaves behind. It moves seldom, and reaches the database
// only with a batch that, with those before it, holds all their rows.
func (s *Shard) moveOpenFrom() {
	if !s.Live() || s.now.Sub(s.movedAt) < s.cfg.OpenFromEvery {
		return
	}
	s.movedAt = s.now
	target := min(s.now.Add(-s.cfg.OpenFromLag), s.watermark)
	if target <= s.openFrom {
		return
	}
	s.openFrom = target
	for _, slot := range inOrder(maps.Values(s.slots)) {
		if slot.row.Key.FireTime < target && slot.backlog == nil && slot.row.State.Open() {
			s.markDirty(slot)
		}
	}
}
