package checker

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// History is what was stored, and what is known from elsewhere.
type History struct {
	Shards []store.Audit // of all shards of the cluster
	// Now is how far the history goes, by the database's clock: when it was read, or
	// when the last node stopped.
	Now job.Instant
	// Quiet says that all faults were healed and the work had time to come to its end.
	Quiet bool

	Ledger  Ledger
	Effects []Effect // nil: nobody wrote them down

	Young      time.Duration // zero: DefaultYoung
	ClockError time.Duration // zero: DefaultClockError
}

// Defaults of a History.
const (
	// DefaultYoung is longer than an occurrence may take to its slot, and a result to
	// its row.
	DefaultYoung = 5 * time.Second
	// DefaultClockError is the largest offset between two clocks before there is an
	// alarm, the same as CockroachDB's.
	DefaultClockError = 500 * time.Millisecond
)

// Ledger is what clients know.
type Ledger struct {
	Acked   []job.UID // jobs whose create was acknowledged
	Refused []job.UID // jobs whose create was definitely refused
	// Ended are acknowledged jobs that may be deleted by now: they ended long ago.
	Ended []job.UID
	// Redriven are slots whose retry budget began anew because somebody asked for it.
	Redriven []job.SlotKey
}

// Effect is what a handler wrote down somewhere else, before the shards were read.
type Effect struct {
	Job     job.UID
	Fire    job.Instant
	Attempt int32
	Kind    EffectKind
	At      job.Instant // by the worker's clock
}

// EffectKind says what a handler did.
type EffectKind int8

// The kinds.
const (
	Began EffectKind = iota + 1 // its first line
	Done                        // its work is complete: it is about to return no error
)

// Read reads all shards of a cluster, each as of one instant of its own.
func Read(ctx context.Context, a store.Auditor, shards int) ([]store.Audit, error) {
	all := make([]store.Audit, shards)
	for id := range all {
		var err error
		if all[id], err = a.Audit(ctx, shard.ID(id)); err != nil {
			return nil, fmt.Errorf("read shard %d: %w", id, err)
		}
	}
	return all, nil
}
