package store

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// Auditor reads everything that the store holds of a shard, for those who check it:
// tests, the simulation and `carillon verify`.
type Auditor interface {
	// Audit reads all rows of a shard as of one instant. Its size is the shard's.
	Audit(ctx context.Context, id shard.ID) (Audit, error)
}

// Audit is all that is stored of one shard. Lists are in the order of their keys.
type Audit struct {
	Shard        shard.ID
	Owner        string
	Epoch        shard.Epoch
	Gen, Rev     int64 // of the claim that the owner made
	Watermark    job.Instant
	OpenFrom     job.Instant
	RetainedFrom job.Instant

	TakeOvers   []TakeOver
	Jobs        []job.Job // live and ended
	Inbox       []job.UID
	Slots       []job.Slot
	Attempts    []SlotAttempt
	Backlog     []BacklogRow // without their triggers
	DeadLetters []DeadLetter
	Skips       []Skip
	Gaps        []Gap
	Events      []Event // oldest first
}

// TakeOver is an entry of the audit of epochs.
type TakeOver struct {
	Epoch    shard.Epoch
	Owner    string
	Gen, Rev int64
	At       job.Instant // by the database's clock
}
