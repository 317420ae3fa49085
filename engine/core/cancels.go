package core

import (
	"fmt"
	"maps"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// stops are the attempts of slots that were cancelled: their workers were told to stop them,
// and haven't said yet that they did.
type stops struct {
	open map[Token]stopping
	due  job.Instant // no grace ends earlier
}

type stopping struct {
	worker WorkerKey
	until  job.Instant
}

// awaitStop notes that a worker was told to stop an attempt whose slot was cancelled.
func (s *Shard) awaitStop(slot *slotState) {
	if s.stops.open == nil {
		s.stops.open = map[Token]stopping{}
	}
	until := s.now.Add(s.cfg.CancelGrace)
	if len(s.stops.open) == 0 {
		s.stops.due = until // the others end later
	}
	s.stops.open[s.token(slot)] = stopping{workerOf(&slot.row), until}
}

// stopped notes what a worker says of an attempt that it was told to stop: whatever it says,
// the handler has ended.
func (s *Shard) stopped(worker WorkerKey, token Token) {
	if x, told := s.stops.open[token]; told && x.worker == worker {
		delete(s.stops.open, token)
		s.pending.messages = append(s.pending.messages, Observation{Kind: CancelConfirmed})
	}
}

// lostStops forgets what a worker was told whose lease has ended: its handlers' contexts have
// ended with it.
func (s *Shard) lostStops(worker WorkerKey) {
	maps.DeleteFunc(s.stops.open, func(_ Token, x stopping) bool { return x.worker == worker })
}

// overdueStops records the attempts that went on although they were to stop.
func (s *Shard) overdueStops() {
	if len(s.stops.open) == 0 || s.now < s.stops.due {
		return
	}
	s.stops.due = job.MaxInstant
	overdue := map[job.SlotKey]Token{}
	for token, x := range s.stops.open {
		if x.until > s.now {
			s.stops.due = min(s.stops.due, x.until)
			continue
		}
		overdue[token.Key] = token
	}
	for _, key := range sortedKeys(maps.Keys(overdue)) {
		token := overdue[key]
		s.note(store.EventCancelIgnored, key.UID, key.FireTime,
			fmt.Sprintf("attempt %d of worker %s was told to stop %s ago, and has not said that it did", token.Attempt, s.stops.open[token].worker.ID, s.cfg.CancelGrace))
		s.pending.messages = append(s.pending.messages, Observation{Kind: CancelIgnored})
		delete(s.stops.open, token)
	}
}
