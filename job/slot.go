package job

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/shard"
)

// State says where a slot stands.
type State int8

// The states. The numbers are stored and are those of the API.
const (
	StateNone State = iota
	Ready
	Running
	Succeeded
	Dead
	Cancelled
	Expired
	Skipped
	Discarded
)

var stateNames = [...]string{"NONE", "READY", "RUNNING", "SUCCEEDED", "DEAD", "CANCELLED", "EXPIRED", "SKIPPED", "DISCARDED"}

// String returns the name of s as the API writes it.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("STATE_%d", int8(s))
	}
	return stateNames[s]
}

// Open reports whether a slot in s is still to be worked on.
func (s State) Open() bool { return s == Ready || s == Running }

// Final reports whether a slot in s never changes again.
func (s State) Final() bool { return s > Running && s != Dead }

// transitions lists for each state the states that may follow it. RUNNING
// follows itself when a failed attempt and the claim of the next one reach the
// database as one write; READY follows itself when only its not_before moves. What may
// follow DEAD but DISCARDED and a late success follows a redrive, which may reach the database
// with what came after it.
var transitions = map[State][]State{
	StateNone: {Ready, Running, Cancelled, Skipped, Expired},
	Ready:     {Ready, Running, Succeeded, Dead, Cancelled, Expired, Skipped},
	Running:   {Running, Ready, Succeeded, Dead, Cancelled, Expired},
	Dead:      {Ready, Running, Succeeded, Discarded, Cancelled, Expired, Skipped},
}

// CanBecome reports whether a slot in s may be in next after one write.
func (s State) CanBecome(next State) bool { return slices.Contains(transitions[s], next) }

// Trigger says why a slot exists. The numbers are stored and are those of the
// API.
type Trigger int8

// The triggers.
const (
	TriggerNone Trigger = iota
	TriggerSchedule
	TriggerImmediate
	TriggerManual
	TriggerBackfill
)

// Outcome says what an attempt came to. The numbers are stored and are those of
// the API.
type Outcome int8

// The outcomes.
const (
	OutcomeNone      Outcome = iota
	OutcomeSucceeded         // the handler returned no error
	OutcomeFailed            // it returned an error or panicked
	OutcomeTimedOut          // it ran beyond the attempt timeout
	OutcomeLeaseLost         // its worker's lease ended
	OutcomeReleased          // its worker handed it back
	OutcomeCancelled         // the slot was cancelled
	OutcomeUnclaimed         // nobody vouched for it after a take-over
)

var outcomeNames = [...]string{"NONE", "SUCCEEDED", "FAILED", "TIMED_OUT", "LEASE_LOST", "RELEASED", "CANCELLED", "UNCLAIMED"}

// String returns the name of o as the API writes it.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return fmt.Sprintf("OUTCOME_%d", int8(o))
	}
	return outcomeNames[o]
}

// The error codes of slots, and of ranges of occurrences, that a policy ended.
const (
	CodeCancelled   = "cancelled"
	CodeExcluded    = "excluded"      // a calendar of its job excludes it; the text names it
	CodeExpired     = "expired"       // its own deadline passed
	CodeOverlaps    = "overlaps"      // another slot of its job was open
	CodeReplaced    = "replaced"      // a newer slot of its job took its place
	CodeSuperseded  = "superseded"    // it was made after a newer slot of its job
	CodeNotCaughtUp = "not_caught_up" // it was missed, and its job doesn't make up for so much
)

// CountsAsFailure reports whether o uses up the retry budget.
func (o Outcome) CountsAsFailure() bool {
	return o == OutcomeFailed || o == OutcomeTimedOut || o == OutcomeLeaseLost
}

// SlotKey names a slot within its shard.
type SlotKey struct {
	FireTime Instant
	UID      UID
}

// Less orders keys as the store does: by fire time, then uid.
func (k SlotKey) Less(o SlotKey) bool {
	if k.FireTime != o.FireTime {
		return k.FireTime < o.FireTime
	}
	return k.UID.Less(o.UID)
}

// Slot is the durable record of one occurrence.
type Slot struct {
	Key         SlotKey
	Trigger     Trigger
	State       State
	Attempt     int32 // the newest attempt's number and fence, 0 before the first
	Failures    int32 // attempts that used up the retry budget
	Epoch       shard.Epoch
	Worker      string
	Incarnation string
	CreatedAt   Instant
	ClaimedAt   Instant
	StartedAt   Instant
	FinishedAt  Instant
	NotBefore   Instant
	Deadline    Instant // of the running attempt
	Outcome     Outcome // of the newest ended attempt
	ErrorCode   string
	ErrorText   string
	Result      []byte
	RequestedAt Instant // when a person asked for it: a redrive or a backfill; zero: nobody did
	Breaches    Breach  // the objectives that it missed
	Params      []byte  // one JSON document, instead of its job's; empty: its job's
	Notes       []byte  // what its newest attempt said of itself, as Notes.Encode writes it
}

// Same reports whether two rows record the same step of a slot: what tells, after
// a write whose reply was lost, that the row is the one that was written.
func (s *Slot) Same(o *Slot) bool {
	return s.Key == o.Key && s.Trigger == o.Trigger && s.CreatedAt == o.CreatedAt && s.State == o.State && s.Attempt == o.Attempt &&
		s.Epoch == o.Epoch && s.Worker == o.Worker && s.Incarnation == o.Incarnation && s.FinishedAt == o.FinishedAt
}

// Attempt is one claim of a slot that did not end it. The attempt that ended a
// slot stands in the slot itself.
type Attempt struct {
	Number    int32
	Worker    string
	Epoch     shard.Epoch
	ClaimedAt Instant
	StartedAt Instant
	EndedAt   Instant
	Outcome   Outcome
	ErrorCode string
	ErrorText string
	Late      string // what its worker reported after it was over, refused
	Log       string // the newest lines that its handler logged
}

// NewestAttempt returns the newest attempt of s, as far as s records it.
func (s *Slot) NewestAttempt() Attempt {
	a := Attempt{
		Number: s.Attempt, Worker: s.Worker, Epoch: s.Epoch,
		ClaimedAt: s.ClaimedAt, StartedAt: s.StartedAt, EndedAt: s.FinishedAt, Log: DecodeNotes(s.Notes).Log,
	}
	if s.State != Running {
		a.Outcome, a.ErrorCode, a.ErrorText = s.Outcome, s.ErrorCode, s.ErrorText
	}
	return a
}
