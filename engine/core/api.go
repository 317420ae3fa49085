package core

import (
	"errors"
	"fmt"
	"iter"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// createState is a create on its way to the database.
type createState struct {
	tag   uint64
	quiet bool    // nobody waits for an answer
	row   job.Job // as it is to be stored
	job   *jobState
	slots []*slotState // made with it
	fires job.Instant  // of an immediate job
}

// Create asks for a new job. The shard decides its EffectiveFrom. It is answered
// by a Reply with Job or Existing.
type Create struct {
	Tag uint64
	Job job.Job
}

func (e Create) apply(s *Shard) {
	if len(s.pending.creates) >= s.cfg.PendingLimit/10 {
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: errBusy})
		return
	}
	if e.Job.Schedule.Kind.Recurring() {
		if err := e.Job.Schedule.Check(); err != nil {
			s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: err})
			return
		}
	}
	c := &createState{tag: e.Tag, row: e.Job}
	c.row.CreatedAt = s.now
	if e.Job.Schedule.Kind == job.KindImmediate {
		c.fires = s.unique()
	}
	s.pending.creates = append(s.pending.creates, c)
}

// writeCreates moves creates into the batch. Only now is it decided from when
// their schedules count: from the watermark that this very batch may carry, so
// that no occurrence lies between the two. Jobs that are due are written together
// with their slot.
func (s *Shard) writeCreates(b *Batch, room int) {
	n := 0
	for n < len(s.pending.creates) && b.Rows.Rows() < room {
		c := s.pending.creates[n]
		s.writeCreate(b, c)
		n++
	}
	s.pending.creates = append([]*createState(nil), s.pending.creates[n:]...)
}

func (s *Shard) writeCreate(b *Batch, c *createState) {
	kind, at := c.row.Schedule.Kind, c.row.Schedule.At
	c.row.EffectiveFrom = max(s.firedTo, s.watermark, s.lastEnd)
	if kind == job.KindImmediate {
		c.row.EffectiveFrom = min(c.row.EffectiveFrom, c.fires-1)
	}
	j, err := newState(&c.row)
	if err != nil {
		b.after = append(b.after, Reply{Tag: c.tag, Err: err})
		return
	}
	c.job, j.held = j, true
	s.jobs.add(j)
	switch {
	case kind == job.KindImmediate:
		c.slots = append(c.slots, s.make(j, job.SlotKey{FireTime: c.fires, UID: j.uid}, job.TriggerImmediate))
	case kind == job.KindOnce && at <= j.effectiveFrom:
		c.slots = append(c.slots, s.make(j, job.SlotKey{FireTime: at, UID: j.uid}, job.TriggerSchedule))
	}
	row := store.Create{Job: c.row}
	for _, slot := range c.slots {
		row.Slots = append(row.Slots, slot.row)
		s.forgetDirty(slot)
		s.writeSlot(b, slot, true)
	}
	b.Rows.Creates = append(b.Rows.Creates, row)
	b.creates = append(b.creates, c)
}

// created says what became of a create.
func (s *Shard) created(c *createState, e Committed) {
	j := c.job
	j.held = false
	existing, conflict := e.Outcome.Creates[j.uid]
	refused := e.Refused[j.uid]
	if conflict || refused != nil {
		for _, slot := range c.slots {
			s.forget(slot)
		}
		s.dropJob(j)
		reply := Reply{Tag: c.tag, Existing: &existing}
		if refused != nil {
			reply = Reply{Tag: c.tag, Err: refused}
		}
		if !c.quiet {
			s.outbox = append(s.outbox, reply)
		}
		return
	}
	if !c.quiet {
		s.outbox = append(s.outbox, Reply{Tag: c.tag, Job: &c.row})
	}
	switch {
	case j.recurs():
		j.live = true
		s.arm(j, j.effectiveFrom)
	case c.row.Schedule.Kind == job.KindOnce && len(c.slots) == 0 && s.once.keeps(c.row.Schedule.At):
		j.live = true
		s.once.inMemory++
		s.arm(j, j.effectiveFrom)
	default:
		s.dropJob(j)
	}
}

// Delete ends a job. The job is the database's row of it, for one that isn't in
// memory. It is answered by a Reply with Job.
type Delete struct {
	Tag uint64
	Job job.Job
}

func (e Delete) apply(s *Shard) {
	if e.Job.EndedAt != 0 {
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Job: &e.Job})
		return
	}
	ended := e.Job
	ended.EndedAt = max(s.firedTo, s.watermark)
	if at := s.endOf(ended.UID); at != 0 {
		ended.EndedAt = at
	}
	if j := s.jobs.get(e.Job.UID); j != nil {
		ended.EndedAt = max(ended.EndedAt, j.last)
		if j.endedAt != 0 {
			ended.EndedAt = j.endedAt
		}
		s.endJob(j, ended.EndedAt, "its job was deleted")
	}
	s.noteEnd(ended.UID, ended.EndedAt)
	s.lastEnd = max(s.lastEnd, ended.EndedAt)
	s.pending.rows.Ends = append(s.pending.rows.Ends, store.JobEnd{UID: ended.UID, EndedAt: ended.EndedAt})
	s.note(store.EventJobDeleted, ended.UID, 0, ended.ResourceName())
	s.reads.endedJobs = append(s.reads.endedJobs, ended.UID)
	s.pending.replies = append(s.pending.replies, Reply{Tag: e.Tag, Job: &ended})
}

// endJob stops a job in memory and cancels what waits of it.
func (s *Shard) endJob(j *jobState, at job.Instant, why string) {
	if j.live && !j.recurs() {
		s.once.inMemory--
	}
	j.live, j.endedAt = false, at
	s.wheel.Cancel(j.timer)
	for _, slot := range inOrder(s.readyOf(j)) {
		s.cancel(slot, why)
	}
	s.dropJob(j)
}

// readyOf are the READY slots of a job that are in memory.
func (s *Shard) readyOf(j *jobState) iter.Seq[*slotState] {
	return func(yield func(*slotState) bool) {
		if j.open == 0 {
			return
		}
		for _, slot := range s.slots { // in any order: the caller sorts them
			if slot.job == j && slot.row.State == job.Ready && !yield(slot) {
				return
			}
		}
	}
}

// triggerState is a trigger on its way to the database.
type triggerState struct {
	event Trigger
	slot  *slotState
}

// Trigger makes a slot of a job now. It is answered by a Reply with Slot, or with
// Earlier if the same request made one before.
type Trigger struct {
	Tag       uint64
	Job       job.Job
	RequestID string // may be empty
	Hash      string
}

func (e Trigger) apply(s *Shard) {
	if len(s.pending.triggers) >= s.cfg.PendingLimit/10 {
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: errBusy})
		return
	}
	s.patchEnd(&e.Job)
	s.pending.triggers = append(s.pending.triggers, &triggerState{event: e})
}

func (s *Shard) writeTriggers(b *Batch) {
	for _, t := range s.pending.triggers {
		j, err := s.addJob(&t.event.Job)
		if err == nil && (j.endedAt != 0 || j.aside) {
			err = fmt.Errorf("job %s: %w", j.name, ErrJobEnded)
		}
		if err != nil {
			b.after = append(b.after, Reply{Tag: t.event.Tag, Err: err})
			if j != nil {
				s.dropJob(j)
			}
			continue
		}
		key := job.SlotKey{FireTime: s.unique(), UID: j.uid}
		for s.slots[key] != nil { // an immediate slot of the same microsecond
			key.FireTime = s.unique()
		}
		t.slot = s.make(j, key, job.TriggerManual)
		if s.reads.open > 0 {
			if s.reads.triggered == nil {
				s.reads.triggered = map[job.UID]bool{}
			}
			s.reads.triggered[j.uid] = true
		}
		if t.event.RequestID != "" {
			b.Rows.Requests = append(b.Rows.Requests, store.Request{
				Namespace: j.spec.namespace, RequestID: t.event.RequestID, Hash: t.event.Hash, Key: t.slot.row.Key,
			})
		}
		s.forgetDirty(t.slot)
		s.writeLane(b, s.lanes[j.uid])
		s.writeSlot(b, t.slot, false)
		b.triggers = append(b.triggers, t)
	}
	s.pending.triggers = nil
}

// triggered says what became of a trigger.
func (s *Shard) triggered(t *triggerState, e Committed) {
	if _, taken := e.Outcome.Slots[t.slot.row.Key]; taken {
		s.outbox = append(s.outbox, Reply{Tag: t.event.Tag, Err: store.ErrUnavailable})
		return
	}
	earlier, lost := e.Outcome.Requests[t.event.Job.Namespace+"/"+t.event.RequestID]
	if err := e.Refused[t.event.Job.UID]; err != nil {
		s.outbox = append(s.outbox, Reply{Tag: t.event.Tag, Err: err})
		return
	}
	if !lost || t.event.RequestID == "" || earlier.Key == t.slot.row.Key {
		row := t.slot.row
		s.outbox = append(s.outbox, Reply{Tag: t.event.Tag, Slot: &row})
		return
	}
	s.forget(t.slot)
	reply := Reply{Tag: t.event.Tag, Earlier: &earlier.Key}
	if earlier.Hash != t.event.Hash {
		reply = Reply{Tag: t.event.Tag, Err: ErrRequestReused}
	}
	s.outbox = append(s.outbox, reply)
}

// errBusy answers a call while too many wait for the database.
var errBusy = fmt.Errorf("too many calls wait to be written: %w", store.ErrUnavailable)

// ErrRequestReused says that a request id was used for something else before.
var ErrRequestReused = fmt.Errorf("the request id was used for another request")

// CancelSlot cancels a slot. Found is the database's row, for one that isn't in
// memory. It is answered by a Reply with Slot, as it is after the cancel.
type CancelSlot struct {
	Tag    uint64
	Found  store.SlotOf
	Reason string
}

func (e CancelSlot) apply(s *Shard) {
	slot := s.slots[e.Found.Slot.Key]
	if slot == nil && e.Found.Slot.State.Open() {
		slot = s.adopt(e.Found.Slot, &e.Found.Job, true)
	}
	if slot == nil {
		row := e.Found.Slot
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Slot: &row})
		return
	}
	if slot.row.State.Open() {
		s.cancel(slot, e.Reason)
		s.note(store.EventSlotCancelled, slot.row.Key.UID, slot.row.Key.FireTime, e.Reason)
	} else {
		s.markDirty(slot) // how it ended may not be written yet: the answer follows the write
	}
	s.answerWith(slot, e.Tag)
}

// InboxHint says that the shard's inbox isn't empty.
type InboxHint struct{}

func (InboxHint) apply(s *Shard) { s.reads.inboxWanted = true }

// maxDirectSlots bounds the slots that are made at once for a job of the inbox;
// a longer past becomes a gap.
const maxDirectSlots = 100

// InboxLoaded answers a read of the inbox.
type InboxLoaded struct {
	Read Read
	Jobs []job.Job
}

func (e InboxLoaded) apply(s *Shard) {
	s.reads.open--
	s.reads.inbox = false
	s.reads.inboxWanted = s.reads.inboxWanted || len(e.Jobs) == e.Read.Limit
	for i := range e.Jobs {
		s.patchEnd(&e.Jobs[i])
		if _, err := e.Jobs[i].Schedule.Recurrence(); errors.Is(err, job.ErrDialect) {
			continue // it stays in the inbox, for an owner that knows it
		}
		s.adoptJob(&e.Jobs[i])
	}
}

// adoptJob takes over a job of the inbox: in one batch its inbox row goes, and
// what it owes since it was accepted gets its slots, or a gap.
func (s *Shard) adoptJob(j *job.Job) {
	s.pending.adopted = append(s.pending.adopted, j.UID)
	state, err := s.addJob(j)
	if err != nil {
		s.quarantine(j.UID, err.Error())
		return
	}
	state.endedAt = max(state.endedAt, j.EndedAt)
	if state.live {
		return
	}
	switch j.Schedule.Kind {
	case job.KindImmediate:
		key := job.SlotKey{FireTime: j.EffectiveFrom + 1, UID: j.UID}
		if key.FireTime.Whole() {
			key.FireTime++
		}
		s.owe(state, key, job.TriggerImmediate)
	case job.KindOnce:
		s.adoptOnce(state)
	default:
		state.live = state.endedAt == 0
		s.catchUp(state)
	}
	s.dropJob(state)
}

// owe makes a slot of an occurrence that a job of the inbox owes; if the job was
// deleted meanwhile, a cancelled one.
func (s *Shard) owe(j *jobState, key job.SlotKey, trigger job.Trigger) {
	switch {
	case s.slots[key] != nil:
	case j.endedAt != 0:
		s.makeCancelled(j, key, trigger)
	default:
		s.make(j, key, trigger)
	}
}

func (s *Shard) adoptOnce(j *jobState) {
	at := j.spec.schedule.At
	switch {
	case j.endedAt != 0 && at > j.endedAt:
	case at <= s.firedTo:
		s.owe(j, job.SlotKey{FireTime: at, UID: j.uid}, job.TriggerSchedule)
	case s.once.keeps(at):
		j.live = true
		s.once.inMemory++
		s.arm(j, at-1)
	}
}

// catchUp makes what a recurring job owes up to now, and arms it.
func (s *Shard) catchUp(j *jobState) {
	from := j.effectiveFrom
	for range maxDirectSlots {
		at, ok := j.nextAfter(from)
		if !ok || at > s.firedTo {
			break
		}
		s.owe(j, job.SlotKey{FireTime: at, UID: j.uid}, job.TriggerSchedule)
		from = at
	}
	if at, ok := j.nextAfter(from); ok && at <= s.firedTo {
		s.openGap(store.GapKey{To: s.firedTo, UID: j.uid}, from)
	}
	s.arm(j, max(s.firedTo, j.effectiveFrom))
}
