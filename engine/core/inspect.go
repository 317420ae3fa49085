package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// SlotInfo is what the owner knows of a slot in its memory.
type SlotInfo struct {
	Slot       job.Slot
	StartedAt  job.Instant
	LeaseUntil job.Instant
	Ahead      int    // slots that are queued before it, roughly
	Unstored   bool   // not durable yet
	Behind     string // the slots of its own job for which it waits; empty if for none
}

// Slot returns what is known of a slot in memory.
func (s *Shard) Slot(key job.SlotKey) (SlotInfo, bool) {
	slot := s.slots[key]
	if slot == nil {
		return SlotInfo{}, false
	}
	info := SlotInfo{Slot: slot.row, StartedAt: slot.started, Unstored: !slot.stored}
	if worker := s.workers.Get(slot.row.Worker); worker != nil && slot.row.State == job.Running && worker.Key == workerOf(&slot.row) {
		info.LeaseUntil = worker.LeaseUntil
	}
	if slot.lined {
		info.Behind = s.behindOf(slot)
	}
	if slot.queued {
		info.Ahead = len(s.queue(slot.job.spec.handler).ready) - 1
	}
	return info, true
}

// behindOf says what a slot that stands in line waits for.
func (s *Shard) behindOf(slot *slotState) string {
	l := s.lane(slot.row.Key.UID)
	ahead := slices.Index(l.lineFor(slot).slots, slot)
	if len(l.placed) == 0 && ahead == 0 {
		return "older occurrences of its job are still to be made up for"
	}
	text := fmt.Sprintf("%d others of its job are before it", ahead+len(l.placed))
	for _, first := range inOrder(maps.Keys(l.placed)) {
		return text + fmt.Sprintf(", that of %s, which is %v, among them", first.row.Key.FireTime, first.row.State)
	}
	return text
}

// Stats is a shard in numbers.
type Stats struct {
	Jobs, Ready, Running, Backlog, Timers, Gaps int
	OldestReady                                 job.Instant // fire time of the oldest slot that waits for a worker; zero: none
	FiredTo                                     job.Instant
}

// Stats counts what is in memory.
func (s *Shard) Stats() Stats {
	st := Stats{Jobs: s.jobs.len(), Timers: s.wheel.Len(), Gaps: len(s.gaps), FiredTo: s.firedTo}
	for _, set := range s.running {
		st.Running += len(set)
	}
	for _, q := range s.queues {
		for _, p := range q.tiers() {
			st.Ready += p.counts + p.asleep
			st.Backlog += p.rows
		}
		if slot := q.peek(); slot != nil && (st.OldestReady == 0 || slot.row.Key.FireTime < st.OldestReady) {
			st.OldestReady = slot.row.Key.FireTime
		}
	}
	for _, l := range s.lanes {
		for i := range l.lines {
			st.Ready += len(l.lines[i].slots)
			st.Backlog += l.lines[i].far.rows
		}
	}
	return st
}

// Unsent returns how many claims of a worker it doesn't know of yet: they use up
// credit that it thinks it still has.
func (s *Shard) Unsent(worker WorkerKey) int {
	n := 0
	for slot := range s.running[worker] {
		if slot.unsent {
			n++
		}
	}
	return n
}

// Running returns how many attempts of the shard run.
func (s *Shard) Running() int {
	n := 0
	for _, set := range s.running {
		n += len(set)
	}
	return n
}

// Holders lists the attempts that workers hold, or were told to.
func (s *Shard) Holders() map[WorkerKey][]Token {
	out := make(map[WorkerKey][]Token, len(s.running))
	for key, set := range s.running {
		for slot := range set {
			if !slot.unsent {
				out[key] = append(out[key], s.token(slot))
			}
		}
	}
	return out
}
