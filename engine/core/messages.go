package core

import (
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// WorkerKey names one start of a worker's process.
type WorkerKey struct{ ID, Incarnation string }

// Token names an attempt and proves the right to report on it.
type Token struct {
	Shard   shard.ID
	Key     job.SlotKey
	Attempt int32
	Epoch   shard.Epoch // of the claim
}

// Message is what a shard has to say to somebody.
type Message interface{ isMessage() }

// Assign hands an attempt to a worker.
type Assign struct {
	Worker   WorkerKey
	Token    Token
	Work     Work
	Trigger  job.Trigger
	Failures int32
	// Checkpoint is what the attempts before left to this one.
	Checkpoint []byte
	By         shard.Epoch // of the owner; set on the way out
}

// Work is what a worker must know of a job to run it.
type Work struct {
	Namespace, Name, Handler string
	Params                   string // one JSON document, or empty
	Timeout                  time.Duration
	MaxAttempts              int32
}

// Ack answers a result.
type Ack struct {
	Worker   WorkerKey
	Token    Token
	Accepted bool
	Why      string
	By       shard.Epoch // of the owner that says so; set on the way out, as those below
}

// Continue tells a worker that an attempt that it presented is still its own.
type Continue struct {
	Worker WorkerKey
	Token  Token
	By     shard.Epoch
}

// Owned tells a worker who owns a shard from now on.
type Owned struct {
	Shard shard.ID
	Epoch shard.Epoch
}

// StopReason says why an attempt must stop.
type StopReason int8

// The reasons.
const (
	StopCancelled StopReason = iota + 1
	StopTimedOut
	StopLeaseLost
)

// Stop tells a worker that an attempt must stop.
type Stop struct {
	Worker WorkerKey
	Token  Token
	Reason StopReason
	By     shard.Epoch
}

// Disowned tells a worker that this node no longer speaks for an attempt: its lease stays as
// it is until the shard's owner renews it.
type Disowned struct {
	Worker WorkerKey
	Token  Token
}

// Reclaimed tells a worker how many of its credits were given back, as it asked.
type Reclaimed struct{ Credit int }

// Wanted tells a worker how many slots wait that it could run, if it gave credit for them.
type Wanted struct{ Slots int }

// Reply answers a request of the API. Exactly one of the fields beside Tag is
// set.
type Reply struct {
	Tag      uint64
	Job      *job.Job     // created, or ended
	Existing *job.Job     // stood in the way of a create
	Slot     *job.Slot    // made, or cancelled
	Earlier  *job.SlotKey // the slot that the same request made before
	Gap      *GapInfo     // made, changed or cancelled
	Err      error
}

// Observation is something that happened and is to be counted, once.
type Observation struct {
	Kind     ObservationKind
	Handler  string
	Trigger  job.Trigger
	Outcome  job.Outcome
	State    job.State
	Breach   job.Breach
	Lateness time.Duration
}

// ObservationKind says what an Observation tells.
type ObservationKind int8

// The kinds.
const (
	SlotMade       ObservationKind = iota + 1 // Trigger
	AttemptStarted                            // Lateness, of a first attempt
	AttemptEnded                              // Outcome
	SlotFinished                              // State
	ResultRefused
	ObjectiveMissed // Breach
	HandlerStalled  // a slot of the handler waits for a worker for too long
	HandlerUnserved // no worker serves the handler, and a job of it is about to fire
	CancelConfirmed // a worker says that it stopped an attempt
	CancelIgnored   // a worker has not said so for too long
	RunTooLong      // a slot is due while the one before it still runs
)

func (Assign) isMessage()      {}
func (Ack) isMessage()         {}
func (Stop) isMessage()        {}
func (Continue) isMessage()    {}
func (Owned) isMessage()       {}
func (Noted) isMessage()       {}
func (Disowned) isMessage()    {}
func (Reclaimed) isMessage()   {}
func (Wanted) isMessage()      {}
func (Reply) isMessage()       {}
func (Observation) isMessage() {}
