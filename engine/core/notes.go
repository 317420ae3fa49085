package core

import (
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// How often the notes of a running attempt are stored, at the most. What comes in between is
// shown to people, and goes along with the next write of its slot.
const (
	checkpointEvery = 900 * time.Millisecond // workers report once a second, more or less
	progressEvery   = 5 * time.Second        // with no checkpoint in it, it is worth less
)

// Progressed says how far a handler is, and what the next attempt should know. It is answered
// by a Noted once it is stored, unless Sequence is zero.
type Progressed struct {
	Worker     WorkerKey
	Token      Token
	Sequence   int64 // of the attempt's reports; an older one than the newest changes nothing
	Progress   *Progress
	Checkpoint []byte // nil: the one before stays
	Log        *string
}

// Progress is how far a handler says it is.
type Progress struct {
	Done, Total int64
	Note        string
}

// Noted tells a worker that a report of an attempt is stored.
type Noted struct {
	Worker   WorkerKey
	Token    Token
	Sequence int64
	By       shard.Epoch
}

func (e Progressed) apply(s *Shard) {
	slot := s.slots[e.Token.Key]
	if slot == nil || !s.holds(slot, e.Worker, e.Token) || e.Sequence != 0 && e.Sequence < slot.reported {
		return
	}
	slot.reported = max(slot.reported, e.Sequence)
	n := job.DecodeNotes(slot.row.Notes)
	if p := e.Progress; p != nil {
		n.Done, n.Total, n.Note = p.Done, p.Total, p.Note
	}
	slot.row.Notes = withNotes(n, e.Checkpoint, e.Log).Encode()
	every := progressEvery
	if e.Checkpoint != nil {
		every = checkpointEvery
	}
	if slot.noted != 0 && s.now.Sub(slot.noted) < every {
		return
	}
	slot.noted, slot.touched = s.now, true
	if e.Sequence != 0 {
		slot.messages = append(slot.messages, Noted{Worker: e.Worker, Token: e.Token, Sequence: e.Sequence})
	}
	s.markDirty(slot)
}

func withNotes(n job.Notes, checkpoint []byte, log *string) job.Notes {
	if checkpoint != nil {
		n.Checkpoint = checkpoint
	}
	if log != nil {
		n.Log = *log
	}
	return n
}

// noteEnd takes what a result leaves to the next attempt, and to people.
func (slot *slotState) noteEnd(e Result) {
	if e.Checkpoint != nil || e.Log != nil {
		slot.row.Notes = withNotes(job.DecodeNotes(slot.row.Notes), e.Checkpoint, e.Log).Encode()
	}
}

// beginNotes leaves to a new attempt what the one before handed on.
func (slot *slotState) beginNotes() {
	slot.noted, slot.reported = 0, 0
	if len(slot.row.Notes) > 0 {
		slot.row.Notes = job.DecodeNotes(slot.row.Notes).Handed().Encode()
	}
}

// endNotes drops what no further attempt will need.
func (slot *slotState) endNotes() {
	if n := job.DecodeNotes(slot.row.Notes); slot.row.State != job.Dead && len(n.Checkpoint) > 0 {
		n.Checkpoint = nil
		slot.row.Notes = n.Encode()
	}
}
