package core

import (
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
)

// lastKeyOf is the place after every slot of an instant.
func lastKeyOf(i job.Instant) job.SlotKey {
	k := job.SlotKey{FireTime: i}
	for b := range k.UID {
		k.UID[b] = 0xff
	}
	return k
}

// nextAfter returns the first fire time of a job after an instant and not after
// its end.
func (j *jobState) nextAfter(after job.Instant) (job.Instant, bool) {
	at := j.spec.schedule.At
	if j.recurs() {
		sec, ok := j.plan().Next(after.Seconds())
		if !ok {
			return 0, false
		}
		at = job.AtSecond(sec)
	} else if j.spec.schedule.Kind != job.KindOnce || at <= after {
		return 0, false
	}
	if j.endedAt != 0 && at > j.endedAt {
		return 0, false
	}
	return at, true
}

// arm sets a job's timer to its first fire time after an instant. The next time
// is always computed from the scheduled one, never from when something ran.
func (s *Shard) arm(j *jobState, after job.Instant) {
	if !j.live {
		return
	}
	next, ok := j.nextAfter(after)
	if !ok {
		j.live = j.recurs() && j.endedAt == 0 // it stays known until it is deleted
		j.next = 0
		if j.live {
			s.retain.spent = append(s.retain.spent, j.uid)
		}
		return
	}
	j.next = next
	j.timer = s.wheel.Add(next.Milliseconds(), timer{timerFire, j.ref})
}

// fire makes the slot of a job's due occurrence.
func (s *Shard) fire(j *jobState) {
	if !j.live || j.next == 0 || j.next > s.now {
		return
	}
	key := job.SlotKey{FireTime: j.next, UID: j.uid}
	s.watchLongRun(j, j.last)
	j.last = j.next
	if s.slots[key] == nil {
		s.make(j, key, job.TriggerSchedule)
	}
	if !j.recurs() {
		j.live = false
		s.once.inMemory--
		s.dropJob(j)
		return
	}
	s.arm(j, j.next)
}

// make makes a slot and claims it at once if a worker has credit and nothing
// waits before it. An occurrence that a calendar of its job excludes is recorded, and
// that is all.
func (s *Shard) make(j *jobState, key job.SlotKey, trigger job.Trigger) *slotState {
	if by := j.excludedBy(key.FireTime, trigger); by != nil {
		return s.makeSkipped(j, key, trigger, job.CodeExcluded, "the calendar "+by.String()+" excludes it")
	}
	slot := s.track(job.Slot{Key: key, Trigger: trigger, State: job.Ready, CreatedAt: s.now, RequestedAt: s.requestedAt}, j)
	s.observe(slot, Observation{Kind: SlotMade, Trigger: trigger})
	s.markDirty(slot)
	if s.check(slot) {
		s.enqueue(slot)
	}
	return slot
}

// excludedBy returns the calendar that excludes an occurrence, or nil. What a user triggers
// is no occurrence of the schedule, and runs on any day.
func (j *jobState) excludedBy(fire job.Instant, trigger job.Trigger) *schedule.Calendar {
	if !j.recurs() || trigger != job.TriggerSchedule && trigger != job.TriggerBackfill {
		return nil
	}
	return j.spec.plan.Except.By(fire.Seconds())
}

// makeSkipped records an occurrence that is left out.
func (s *Shard) makeSkipped(j *jobState, key job.SlotKey, trigger job.Trigger, code, why string) *slotState {
	slot := s.track(job.Slot{Key: key, Trigger: trigger, State: job.StateNone, CreatedAt: s.now}, j)
	slot.row.ErrorCode, slot.row.ErrorText = code, why
	s.finish(slot, job.Skipped)
	return slot
}

// track puts a slot into memory.
func (s *Shard) track(row job.Slot, j *jobState) *slotState {
	slot := &slotState{row: row, job: j}
	slot.ref = s.slotRefs.add(slot)
	s.slots[row.Key] = slot
	j.open++
	return slot
}

// untrack removes a slot from memory.
func (s *Shard) untrack(slot *slotState) {
	if s.slots[slot.row.Key] != slot {
		return
	}
	s.wheel.Cancel(slot.timer)
	s.wheel.Cancel(slot.check)
	s.stopRunning(slot)
	s.queue(slot.job.spec.handler).leave(slot)
	s.leaveLine(slot)
	s.freePlace(slot)
	s.slotRefs.remove(slot.ref)
	delete(s.slots, slot.row.Key)
	slot.job.open--
	s.dropJob(slot.job)
}

// unique returns a fire time for a slot that no schedule asked for: it carries
// microseconds, so that it is no scheduled one, and is the only one of its kind
// in the shard.
func (s *Shard) unique() job.Instant {
	t := max(s.now, s.lastUnique+1)
	if t.Whole() {
		t++
	}
	s.lastUnique = t
	return t
}

// onceWindow is the part of the jobs of one fire time that is in memory: all
// those with a place up to to.
type onceWindow struct {
	to       job.SlotKey // the end of the last completed refill
	issued   job.Instant // the end of the one under way: creates up to it stay in memory
	inMemory int
}

// keeps reports whether a new job with this fire time belongs into memory.
func (w *onceWindow) keeps(at job.Instant) bool { return at <= max(w.to.FireTime, w.issued) }

// urgentWindow is how near the end of the window may come.
const urgentWindow = 5 * time.Second

// wantsOnce reports whether the window should be refilled.
func (s *Shard) wantsOnce() bool {
	ahead := s.once.to.FireTime.Sub(s.now)
	room := s.once.inMemory < s.cfg.OnceLimit/2 && ahead < s.cfg.OnceWindow/2
	return s.opened && (room || ahead < min(urgentWindow, s.cfg.OnceWindow/2)) // what is about to be due must come, whatever is in memory
}

// OnceLoaded answers a read of jobs of one fire time.
type OnceLoaded struct {
	Read Read
	Jobs []job.Job
}

func (e OnceLoaded) apply(s *Shard) {
	s.reads.open--
	s.reads.once = false
	if s.leaving {
		return // nothing of it would fire, and so the watermark must not pass it: the next owner reads it
	}
	for i := range e.Jobs {
		s.patchEnd(&e.Jobs[i])
		s.armOnce(&e.Jobs[i])
	}
	if len(e.Jobs) < e.Read.Limit {
		s.once.to = lastKeyOf(e.Read.Until)
	} else {
		last := &e.Jobs[len(e.Jobs)-1]
		s.once.to = job.SlotKey{FireTime: last.Schedule.At, UID: last.UID}
		s.once.issued = last.Schedule.At // what is created beyond it waits for its page
	}
}

// armOnce takes a job of one fire time into memory.
func (s *Shard) armOnce(j *job.Job) {
	if j.Quarantine != "" {
		return
	}
	state, err := s.addJob(j)
	if err != nil {
		s.quarantine(j.UID, err.Error())
		return
	}
	state.endedAt = max(state.endedAt, j.EndedAt)
	if state.endedAt != 0 {
		s.makeCancelled(state, job.SlotKey{FireTime: j.Schedule.At, UID: j.UID}, job.TriggerSchedule)
		return
	}
	if state.live {
		return
	}
	state.live = true // also of one that is here only for a slot that a user asked for
	s.once.inMemory++
	// The window may have been read late: what is due by now fires now.
	s.arm(state, j.Schedule.At-1)
}

// makeCancelled records an occurrence that a job owed when it ended.
func (s *Shard) makeCancelled(j *jobState, key job.SlotKey, trigger job.Trigger) {
	if s.slots[key] != nil {
		return
	}
	slot := s.track(job.Slot{Key: key, Trigger: trigger, State: job.StateNone, CreatedAt: s.now}, j)
	s.cancel(slot, "its job ended before the slot was made")
}

// observe attaches something to be counted to a slot's next write.
func (s *Shard) observe(slot *slotState, o Observation) {
	o.Handler = slot.job.spec.handler
	slot.messages = append(slot.messages, o)
}

// markDirty lists a slot for the next batch.
func (s *Shard) markDirty(slot *slotState) {
	if !slot.dirty {
		slot.dirty = true
		s.pending.dirty = append(s.pending.dirty, slot)
	}
}
