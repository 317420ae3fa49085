package core

import (
	"errors"
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// ErrNotDead says that a slot that is to be redriven or discarded is no dead letter, or no
// longer one.
var ErrNotDead = errors.New("the slot is no dead letter")

// ErrJobEnded says that a job that has ended isn't run again.
var ErrJobEnded = errors.New("the job fires no more")

// RedriveSlot lets a dead slot be tried again, with a new retry budget, and with other
// parameters if there are some. Found is the database's row. It is answered by a Reply with Slot, as it is after that.
type RedriveSlot struct {
	Tag    uint64
	Found  store.SlotOf
	Params []byte // one JSON document; empty: those that it has
	Reason string
}

func (e RedriveSlot) apply(s *Shard) {
	s.patchEnd(&e.Found.Job)
	slot, err := s.deadSlot(&e.Found, e.Found.Job.EndedAt == 0 && e.Found.Job.Quarantine == "")
	if err != nil {
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: err})
		return
	}
	why := e.Reason
	if len(e.Params) > 0 {
		slot.row.Params = e.Params
		why += fmt.Sprintf(" (with other parameters: %s)", job.CleanText(e.Params, maxNotedParams))
	}
	s.note(store.EventSlotRedriven, slot.row.Key.UID, slot.row.Key.FireTime, why)
	slot.row.Failures = 0
	slot.row.RequestedAt = max(s.now, slot.row.CreatedAt+1)
	s.retry(slot, s.now)
	s.answerWith(slot, e.Tag)
}

// maxNotedParams bounds the parameters that an event shows.
const maxNotedParams = 1024

// DiscardSlot gives a dead slot up. Found is the database's row. It is answered by a Reply
// with Slot, as it is after that.
type DiscardSlot struct {
	Tag    uint64
	Found  store.SlotOf
	Reason string
}

func (e DiscardSlot) apply(s *Shard) {
	slot, err := s.deadSlot(&e.Found, true)
	if err != nil {
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: err})
		return
	}
	s.note(store.EventSlotDiscarded, slot.row.Key.UID, slot.row.Key.FireTime, e.Reason)
	if a := slot.row.NewestAttempt(); a.Number > 0 {
		slot.ended = append(slot.ended, a) // it ended when the slot died, and the slot ends now
	}
	slot.row.ErrorText = job.CleanText([]byte("discarded: "+e.Reason+"\n"+slot.row.ErrorText), job.MaxErrorBytes)
	s.finish(slot, job.Discarded)
	s.answerWith(slot, e.Tag)
}

// deadSlot returns a dead slot, in memory or taken there, if what is asked for may be done.
// What the database has instead, if it changed since it was read, the write finds out.
func (s *Shard) deadSlot(found *store.SlotOf, may bool) (*slotState, error) {
	slot := s.slots[found.Slot.Key]
	switch {
	case slot != nil && slot.row.State != job.Dead, slot == nil && found.Slot.State != job.Dead:
		return nil, ErrNotDead
	case !may:
		return nil, ErrJobEnded
	case slot != nil:
		return slot, nil
	}
	state, err := s.addJob(&found.Job)
	if err != nil {
		return nil, err
	}
	return s.take(found.Slot, state, false), nil
}

// answerWith answers a call with a slot as it is now, once that is written.
func (s *Shard) answerWith(slot *slotState, tag uint64) {
	row := slot.row
	slot.messages = append(slot.messages, Reply{Tag: tag, Slot: &row})
}
