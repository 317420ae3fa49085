package model

import (
	"iter"
	"maps"
	"math"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// stored returns a job as the database keeps it: times in microseconds, and nothing where
// there is nothing.
func stored(j *job.Job) *job.Job {
	row := copyJob(j)
	row.Timeout = row.Timeout.Truncate(time.Microsecond)
	row.EndedByItself = false // only an end says so
	row.Params = noneIfEmpty(row.Params)
	return &row
}

// copyJob returns j with labels of its own; nil if it has none.
func copyJob(j *job.Job) job.Job {
	c := *j
	if c.Labels = maps.Clone(c.Labels); len(c.Labels) == 0 {
		c.Labels = nil
	}
	return c
}

// copyOptions returns o with a map of its own; nil if it is empty.
func copyOptions(o store.GapOptions) store.GapOptions {
	if o.CatchUp = maps.Clone(o.CatchUp); len(o.CatchUp) == 0 {
		o.CatchUp = nil
	}
	return o
}

func noneIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// write puts a slot into its row, as the database keeps it.
func write(row, slot *job.Slot) {
	*row = *slot
	row.Result, row.Params, row.Notes = noneIfEmpty(slot.Result), noneIfEmpty(slot.Params), noneIfEmpty(slot.Notes)
}

// putJob adds the row of a job, unless its uid, its name or its request stand in the way.
func (m *Store) putJob(s *rows, j *job.Job) bool {
	name, request := nameOf(j), requestOf(j)
	if s.jobs.has(j.UID) || j.EndedAt == 0 && s.live[name] != nil || j.RequestID != "" && s.asked[request] != nil {
		return false
	}
	row := stored(j)
	s.jobs.insert(row.UID, row)
	m.names.insert(jobKey{name, row.UID, s.id}, row)
	if row.RequestID != "" {
		s.asked[request] = row
	}
	if row.Schedule.Kind == job.KindOnce {
		s.once.insert(onceKey(row), struct{}{})
	}
	if row.EndedAt != 0 {
		s.ended.insert(job.SlotKey{FireTime: row.EndedAt, UID: row.UID}, struct{}{})
		return true
	}
	s.live[name] = row
	if recurs(row) {
		s.recurring.insert(row.UID, struct{}{})
	} else {
		s.single.insert(singleKey(row), struct{}{})
	}
	return true
}

// endJob moves a live job to those that have ended.
func (s *rows) endJob(row *job.Job, at job.Instant, byItself bool) {
	delete(s.live, nameOf(row))
	s.recurring.delete(row.UID)
	s.single.delete(singleKey(row))
	row.EndedAt, row.EndedByItself = at, byItself
	s.ended.insert(job.SlotKey{FireTime: at, UID: row.UID}, struct{}{})
}

// dropJob removes the row of a job.
func (m *Store) dropJob(s *rows, row *job.Job) {
	s.jobs.delete(row.UID)
	m.names.delete(jobKey{nameOf(row), row.UID, s.id})
	if row.RequestID != "" {
		delete(s.asked, requestOf(row))
	}
	s.once.delete(onceKey(row))
	if row.EndedAt != 0 {
		s.ended.delete(job.SlotKey{FireTime: row.EndedAt, UID: row.UID})
		return
	}
	delete(s.live, nameOf(row))
	s.recurring.delete(row.UID)
	s.single.delete(singleKey(row))
}

// rival returns the job that stands in the way of another one: itself, sent before, or the
// one with its request id or its name.
func (s *rows) rival(j *job.Job) *job.Job {
	if row, found := s.jobs.get(j.UID); found {
		return row
	}
	if row := s.asked[requestOf(j)]; row != nil && j.RequestID != "" {
		return row
	}
	return s.live[nameOf(j)]
}

func nameOf(j *job.Job) nameKey       { return nameKey{j.Namespace, j.Name} }
func requestOf(j *job.Job) requestKey { return requestKey{j.Namespace, j.RequestID} }
func onceKey(j *job.Job) job.SlotKey  { return job.SlotKey{FireTime: j.Schedule.At, UID: j.UID} }

// singleKey is the place of a job that fires once: its fire time, or its creation if it is
// immediate.
func singleKey(j *job.Job) job.SlotKey {
	if j.Schedule.Kind == job.KindOnce {
		return onceKey(j)
	}
	return job.SlotKey{FireTime: j.CreatedAt, UID: j.UID}
}

// recurs is Kind.Recurring, of kinds that aren't known as well.
func recurs(j *job.Job) bool { return j.Schedule.Kind >= job.KindCron }

// putSlot adds the row of a slot, unless there is one.
func (s *rows) putSlot(slot *job.Slot) bool {
	row := new(job.Slot)
	if !s.slots.insert(slot.Key, row) {
		return false
	}
	write(row, slot)
	if unscheduled(row) {
		s.unscheduled.insert(jobsSlot(row.Key), row)
	}
	return true
}

// replaceSlot writes a slot over its row.
func (s *rows) replaceSlot(row, slot *job.Slot) {
	was := unscheduled(row)
	write(row, slot)
	if is := unscheduled(row); is && !was {
		s.unscheduled.insert(jobsSlot(row.Key), row)
	} else if was && !is {
		s.unscheduled.delete(jobsSlot(row.Key))
	}
}

// dropSlot removes the row of a slot with its attempts and its dead letter.
func (s *rows) dropSlot(row *job.Slot) {
	s.slots.delete(row.Key)
	s.unscheduled.delete(jobsSlot(row.Key))
	var tries []attemptKey
	for k := range s.attemptsOf(row.Key) {
		tries = append(tries, k)
	}
	for _, k := range tries {
		s.attempts.delete(k)
	}
	s.dropDead(row.Key)
}

// unscheduled reports whether no schedule asked for a slot.
func unscheduled(slot *job.Slot) bool {
	return slot.Trigger == job.TriggerImmediate || slot.Trigger == job.TriggerManual
}

func jobsSlot(k job.SlotKey) slotOfJob { return slotOfJob{k.UID, k.FireTime} }

// dropDead removes a dead letter, if there is one.
func (s *rows) dropDead(key job.SlotKey) {
	if !s.dead.delete(key) {
		return
	}
	if s.deadOf[key.UID]--; s.deadOf[key.UID] == 0 {
		delete(s.deadOf, key.UID)
	}
}

// putBacklog adds a row to the backlog, unless it is there.
func (s *rows) putBacklog(r store.BacklogRow) {
	r.ReadyAt, r.Trigger = 0, 0
	if !s.backlog.insert(r.Key, r) {
		return
	}
	s.backlogSlots.insert(backlogSlot{jobsSlot(r.Key.Slot), r.Key}, struct{}{})
	if r.CheckAt != 0 {
		s.backlogChecks.insert(backlogCheck{r.CheckAt, r.Key}, struct{}{})
	}
}

// dropBacklog removes a row from the backlog, if it is there.
func (s *rows) dropBacklog(key store.BacklogKey) {
	r, found := s.backlog.get(key)
	if !found {
		return
	}
	s.backlog.delete(key)
	s.backlogSlots.delete(backlogSlot{jobsSlot(key.Slot), key})
	if r.CheckAt != 0 {
		s.backlogChecks.delete(backlogCheck{r.CheckAt, key})
	}
}

// attemptsOf returns the attempts of a slot, in order.
func (s *rows) attemptsOf(key job.SlotKey) iter.Seq2[attemptKey, *job.Attempt] {
	return func(yield func(attemptKey, *job.Attempt) bool) {
		for k, a := range s.attempts.from(attemptKey{key, math.MinInt32}) {
			if k.slot != key || !yield(k, a) {
				return
			}
		}
	}
}
