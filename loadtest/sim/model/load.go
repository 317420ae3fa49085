package model

import (
	"context"
	"iter"
	"math"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// Before all that a shard holds of one instant.
var (
	firstEvent = eventKey{math.MinInt64, math.MinInt64}
	firstSkip  = skipKey{to: math.MinInt64}
)

// ownedRead begins a read that has seen the owner's epoch.
func (m *Store) ownedRead(ctx context.Context, p shard.Proof) (*rows, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	s := m.shard(p.Shard)
	if s == nil || s.epoch != p.Epoch {
		m.leave()
		return nil, fenced(p.Shard)
	}
	return s, nil
}

// Load implements store.Loader.
func (m *Store) Load(ctx context.Context, p shard.Proof, room []job.Job) (store.Loaded, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return store.Loaded{}, err
	}
	defer m.leave()
	l := store.Loaded{Gaps: s.openGaps(), Open: s.open(), Claimed: s.claimed(), Backlog: s.countBacklog()}
	l.Recurring = s.load(room[:0])
	for k := range s.backlogChecks.all() {
		if k.row.Waiting {
			l.CheckAt = k.at
			break
		}
	}
	return l, nil
}

// load appends the live recurring jobs, and those that ended after the watermark or the
// oldest open gap's cursor: they may still owe slots. Jobs with an inbox row are left to the
// inbox.
func (s *rows) load(jobs []job.Job) []job.Job {
	add := func(uid job.UID) {
		if !s.inbox.has(uid) {
			row, _ := s.jobs.get(uid)
			jobs = append(jobs, forOwner(row))
		}
	}
	for uid := range s.recurring.all() {
		add(uid)
	}
	from := s.watermark
	for _, g := range s.gaps.all() {
		from = min(from, g.Cursor.FireTime)
	}
	for k := range s.ended.from(job.SlotKey{FireTime: from}) {
		if row, _ := s.jobs.get(k.UID); row.Schedule.Kind >= job.KindOnce {
			add(k.UID)
		}
	}
	return jobs
}

// forOwner returns a job without what its owner doesn't need.
func forOwner(row *job.Job) job.Job {
	j := *row
	j.Labels, j.RequestID, j.RequestHash, j.CreatedAt, j.EndedByItself = nil, "", "", 0, false
	return j
}

// open returns the slots that are not final, from open-from on, but for those that wait in
// the backlog.
func (s *rows) open() []store.SlotOf {
	var open []store.SlotOf
	for key, slot := range s.slots.from(job.SlotKey{FireTime: s.openFrom}) {
		if slot.State.Open() && !s.waits(key) {
			open = s.appendSlotOf(open, slot)
		}
	}
	return open
}

// waits reports whether a slot waits in the backlog.
func (s *rows) waits(key job.SlotKey) bool {
	slot := jobsSlot(key)
	for k := range s.backlogSlots.from(backlogSlot{slot: slot, row: firstWaiting}) {
		return k.slot == slot
	}
	return false
}

// firstWaiting stands before all rows of the backlog that wait.
var firstWaiting = store.BacklogKey{Waiting: true, Priority: math.MinInt32, Rank: math.MinInt64, Slot: job.SlotKey{FireTime: math.MinInt64}}

// claimed returns the slots of the backlog that are claimed.
func (s *rows) claimed() []store.SlotOf {
	var claimed []store.SlotOf
	for k := range s.backlog.all() {
		if k.Waiting {
			break
		}
		if slot, found := s.slots.get(k.Slot); found {
			claimed = s.appendSlotOf(claimed, slot)
		}
	}
	return claimed
}

func (s *rows) countBacklog() []store.BacklogCount {
	var counts []store.BacklogCount
	for k, r := range s.backlog.from(firstWaiting) {
		n := len(counts)
		if n == 0 || counts[n-1].Handler != k.Handler || counts[n-1].Priority != k.Priority || counts[n-1].Fairness != k.Fairness {
			counts = append(counts, store.BacklogCount{Handler: k.Handler, Priority: k.Priority, Fairness: k.Fairness, WakeAt: r.WakeAt})
			n++
		}
		c := &counts[n-1]
		c.Rows++
		c.WakeAt = min(c.WakeAt, r.WakeAt)
	}
	return counts
}

// appendSlotOf appends a slot with its job, if that is there.
func (s *rows) appendSlotOf(slots []store.SlotOf, slot *job.Slot) []store.SlotOf {
	if j, found := s.jobs.get(slot.Key.UID); found {
		slots = append(slots, store.SlotOf{Slot: *slot, Job: copyJob(j)})
	}
	return slots
}

// OnceJobs implements store.Loader.
func (m *Store) OnceJobs(ctx context.Context, p shard.Proof, after job.SlotKey, until job.Instant, limit int) ([]job.Job, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var jobs []job.Job
	for k := range s.once.after(after) {
		if k.FireTime > until || len(jobs) == limit {
			break
		}
		if row, _ := s.jobs.get(k.UID); (row.EndedAt == 0 || row.EndedAt >= k.FireTime) && !s.inbox.has(k.UID) {
			jobs = append(jobs, copyJob(row))
		}
	}
	return jobs, nil
}

// Waiting implements store.Loader.
func (m *Store) Waiting(ctx context.Context, p shard.Proof, q store.BacklogQuery) ([]store.BacklogSlot, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	switch {
	case !q.UID.IsZero():
		return s.waiting(slices.Values(s.waitingOf(q.UID)), q.Limit), nil
	case q.Checks:
		return s.waiting(s.waitingChecks(), q.Limit), nil
	}
	return s.waiting(s.waitingAfter(q), q.Limit), nil
}

// waiting returns rows of the backlog with their slots and jobs.
func (s *rows) waiting(keys iter.Seq[store.BacklogKey], limit int) []store.BacklogSlot {
	var slots []store.BacklogSlot
	for k := range keys {
		if len(slots) == limit {
			break
		}
		r, _ := s.backlog.get(k)
		slot, found := s.slots.get(k.Slot)
		if !found {
			continue
		}
		if j, found := s.jobs.get(k.Slot.UID); found {
			slots = append(slots, store.BacklogSlot{Row: r, SlotOf: store.SlotOf{Slot: *slot, Job: copyJob(j)}})
		}
	}
	return slots
}

// waitingOf lists the waiting rows of one job.
func (s *rows) waitingOf(uid job.UID) []store.BacklogKey {
	var keys []store.BacklogKey
	for k := range s.backlogSlots.from(backlogSlot{slot: slotOfJob{uid, math.MinInt64}}) {
		if k.slot.uid != uid {
			break
		}
		if k.row.Waiting {
			keys = append(keys, k.row)
		}
	}
	slices.SortFunc(keys, compareBacklog)
	return keys
}

// waitingChecks lists the waiting rows that are to be checked, the earliest first.
func (s *rows) waitingChecks() iter.Seq[store.BacklogKey] {
	return func(yield func(store.BacklogKey) bool) {
		for k := range s.backlogChecks.all() {
			if k.row.Waiting && !yield(k.row) {
				return
			}
		}
	}
}

// waitingAfter lists the waiting rows of a handler, priority and fairness key after a place.
func (s *rows) waitingAfter(q store.BacklogQuery) iter.Seq[store.BacklogKey] {
	after := store.BacklogKey{Waiting: true, Handler: q.Handler, Priority: q.Priority, Fairness: q.Fairness, Rank: q.After.Rank, Slot: q.After.Slot}
	return func(yield func(store.BacklogKey) bool) {
		for k := range s.backlog.after(after) {
			if k.Handler != q.Handler || k.Priority != q.Priority || k.Fairness != q.Fairness || !yield(k) {
				return
			}
		}
	}
}

// SlotOf implements store.Loader.
func (m *Store) SlotOf(ctx context.Context, p shard.Proof, key job.SlotKey) (store.SlotOf, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return store.SlotOf{}, err
	}
	defer m.leave()
	if slot, found := s.slots.get(key); found {
		if j, found := s.jobs.get(key.UID); found {
			return store.SlotOf{Slot: *slot, Job: copyJob(j)}, nil
		}
	}
	return store.SlotOf{}, notFound("slot %s of job %s", key.FireTime, key.UID)
}

// OldSlots implements store.Loader.
func (m *Store) OldSlots(ctx context.Context, p shard.Proof, q store.PruneQuery) ([]store.PruneSlot, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var slots []store.PruneSlot
	for key, slot := range s.slots.after(q.After) {
		if key.FireTime >= q.Until || len(slots) == q.Limit {
			break
		}
		old := store.PruneSlot{SlotPrune: store.SlotPrune{Key: key, State: slot.State, Attempt: slot.Attempt}, FinishedAt: slot.FinishedAt}
		if j, found := s.jobs.get(key.UID); found {
			old.Retention = j.Policies.Retention
		}
		slots = append(slots, old)
	}
	return slots, nil
}

// EndedJobs implements store.Loader.
func (m *Store) EndedJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.EndedJob, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	return jobsBy(&s.ended, q), nil
}

// DoneJobs implements store.Loader.
func (m *Store) DoneJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.DoneJob, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var jobs []store.DoneJob
	for _, e := range jobsBy(&s.single, q) {
		jobs = append(jobs, store.DoneJob{EndedJob: e, Done: s.done(e.UID, q.Before)})
	}
	return jobs, nil
}

// jobsBy returns a page of an order of jobs.
func jobsBy(order *set[job.SlotKey], q store.EndedQuery) []store.EndedJob {
	var jobs []store.EndedJob
	for k := range order.after(job.SlotKey{FireTime: q.AfterTime, UID: q.AfterUID}) {
		if k.FireTime >= q.Before || len(jobs) == q.Limit {
			break
		}
		jobs = append(jobs, store.EndedJob{UID: k.UID, At: k.FireTime})
	}
	return jobs
}

// done reports whether a job that fires once has ended by itself.
func (s *rows) done(uid job.UID, before job.Instant) bool {
	row, _ := s.jobs.get(uid)
	if row.Quarantine != "" || s.inbox.has(uid) || s.unscheduledMatters(uid, before) {
		return false
	}
	return row.Schedule.Kind != job.KindOnce || !s.slotMatters(onceKey(row), before)
}

// SpentJob implements store.Loader.
func (m *Store) SpentJob(ctx context.Context, p shard.Proof, uid job.UID, last, before job.Instant) (bool, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return false, err
	}
	defer m.leave()
	return s.deadOf[uid] == 0 && !s.unscheduledMatters(uid, before) && !s.slotMatters(job.SlotKey{FireTime: last, UID: uid}, before), nil
}

// slotMatters reports whether a slot keeps its job: matters, if it is there.
func (s *rows) slotMatters(key job.SlotKey, before job.Instant) bool {
	slot, found := s.slots.get(key)
	return found && matters(slot, before)
}

// unscheduledMatters reports whether a slot that no schedule asked for keeps its job.
func (s *rows) unscheduledMatters(uid job.UID, before job.Instant) bool {
	for k, slot := range s.unscheduled.from(slotOfJob{uid, math.MinInt64}) {
		if k.uid != uid {
			return false
		}
		if matters(slot, before) {
			return true
		}
	}
	return false
}

// matters reports whether a slot is open or dead, or has finished at an instant or later.
func matters(slot *job.Slot, before job.Instant) bool {
	return slot.State.Open() || slot.State == job.Dead || slot.FinishedAt >= before
}

// Oldest implements store.Loader.
func (m *Store) Oldest(ctx context.Context, p shard.Proof, from store.Old) (store.Old, error) {
	s, err := m.ownedRead(ctx, p)
	if err != nil {
		return store.Old{}, err
	}
	defer m.leave()
	var old store.Old
	for k := range s.requestAges.from(requestAge{at: from.RequestsFrom}) {
		old.RequestsFrom = k.at
		break
	}
	for k := range s.eventAges.from(eventAge{from.EventsFrom, firstEvent}) {
		old.EventsFrom = k.at
		break
	}
	for k := range s.skipAges.from(skipAge{from.SkipsFrom, firstSkip}) {
		old.SkipsFrom = k.at
		break
	}
	return old, nil
}
