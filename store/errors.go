package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// The kinds of errors that every adapter returns, wrapped.
var (
	// ErrNotFound: what was asked for isn't there.
	ErrNotFound = errors.New("not found")
	// ErrSuperseded: a take-over came too late; another claim is at least as new.
	ErrSuperseded = errors.New("superseded by another owner")
	// ErrUnavailable: the database can't be reached or didn't answer. A write may
	// or may not have been made.
	ErrUnavailable = errors.New("database unavailable")
)

// FencedError says that the writer's epoch is not the current one in some
// shards. Nothing was written.
type FencedError struct {
	Shards []shard.ID
}

func (e *FencedError) Error() string {
	ids := make([]string, len(e.Shards))
	for i, id := range e.Shards {
		ids[i] = fmt.Sprint(id)
	}
	return "fenced: another epoch owns shard " + strings.Join(ids, ", ")
}

// RefusedError says that the database can't store the rows of one job, whatever
// is tried. Nothing was written.
type RefusedError struct {
	Shard shard.ID
	UID   job.UID
	Err   error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("row of job %s in shard %d refused: %v", e.UID, e.Shard, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }
