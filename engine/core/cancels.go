package core

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// stopping is an attempt of a slot that was cancelled: its worker was told to stop it, and
// hasn't said yet that it did.
type stopping struct {
	worker WorkerKey
	token  Token
	until  job.Instant
}

// awaitStop notes that a worker was told to stop an attempt whose slot was cancelled.
func (s *Shard) awaitStop(slot *slotState) {
	s.stops = append(s.stops, stopping{workerOf(&slot.row), s.token(slot), s.now.Add(s.cfg.CancelGrace)})
}

// stopped notes what a worker says of an attempt that it was told to stop: whatever it says,
// the handler has ended.
func (s *Shard) stopped(worker WorkerKey, token Token) {
	before := len(s.stops)
	s.stops = slices.DeleteFunc(s.stops, func(x stopping) bool { return x.worker == worker && x.token == token })
	if len(s.stops) < before {
		s.pending.messages = append(s.pending.messages, Observation{Kind: CancelConfirmed})
	}
}

// overdueStops records the attempts that went on although they were to stop. They come in the
// order of their ends.
func (s *Shard) overdueStops() {
	for len(s.stops) > 0 && s.stops[0].until <= s.now {
		x := s.stops[0]
		s.stops = s.stops[1:]
		s.note(store.EventCancelIgnored, x.token.Key.UID, x.token.Key.FireTime,
			fmt.Sprintf("attempt %d of worker %s was told to stop %s ago, and has not said that it did", x.token.Attempt, x.worker.ID, s.cfg.CancelGrace))
		s.pending.messages = append(s.pending.messages, Observation{Kind: CancelIgnored})
	}
}
