// Package engine is a node: it drives the shards that the coordinator gives it
// against the store and the workers.
//
// # One loop
//
// Everything that decides runs in one goroutine, the loop: it owns the shards
// (package core, pure values), the registry of workers and the table of waiting
// API calls. Beside it run, each started and awaited by Run:
//
//	coordinator   tells which shards are mine
//	loaders       take shards over and load them
//	committer     writes one group commit at a time, again until the answer is known
//	readers       read what the shards ask for
//
// They talk to the loop through one bounded channel of requests. A caller that
// finds it full waits: that is the node's back-pressure.
//
// # What leaves when
//
// A shard's messages leave only after the batch that makes them true was
// committed. A batch is committed, after any repeats, or its shards are dropped
// and loaded anew under a new epoch.
//
//	what fails                    what the node does
//	the database is unreachable   repeats the commit; acknowledges nothing meanwhile
//	a shard's epoch is stale      drops the shard, commits the rest
//	one job's rows are refused    commits the rest, sets the job aside
//	a shard makes a false step    drops the shard and loads it anew
//	a worker reads too slowly     closes its stream; it may come back
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// Store is what a node needs of the durable state.
type Store interface {
	store.Shards
	store.Committer
	store.Loader
	store.Inbox
	store.Catalog
	store.Clock
}

// Observer is told what happened, once, after it is durable.
type Observer interface {
	Observe(core.Observation)
	// Committed tells of one group commit.
	Committed(rows, statements int, took time.Duration)
	// CommitFailed tells of one failed try.
	CommitFailed()
	// FenceLost tells of a shard that somebody else owns.
	FenceLost()
	// LeaseExpired tells of a worker that was silent for too long.
	LeaseExpired()
	// ClocksCompared tells how far the node's clock was off, about once a second.
	ClocksCompared(clock.Verdict)
	// ShardOwned tells that a shard is live, or no longer.
	ShardOwned(owned bool)
}

// Config configures a node.
type Config struct {
	ID     string
	Shards int // of the cluster
	Core   core.Config
	Clock  clock.Source // nil: this machine's
	// CommitTimeout bounds one try of a commit, and one read.
	CommitTimeout time.Duration
	// InboxEvery is how often it is looked for jobs that were accepted without their owner.
	InboxEvery time.Duration
	// HandoverTimeout bounds how long a stopping node hands its shards over to others.
	HandoverTimeout time.Duration
	// DrainTimeout bounds how long a stopping node waits for running attempts.
	DrainTimeout time.Duration
	Log          *slog.Logger
	Observer     Observer
}

// DefaultConfig returns the values that the documentation names.
func DefaultConfig(id string, shards int) Config {
	return Config{
		ID: id, Shards: shards,
		Core:            core.DefaultConfig(rand.Float64),
		CommitTimeout:   10 * time.Second,
		InboxEvery:      time.Second,
		HandoverTimeout: 15 * time.Second,
		DrainTimeout:    5 * time.Second,
		Log:             slog.Default(),
		Observer:        nopObserver{},
	}
}

// Errors of the calls of a Node.
var (
	// ErrNotOwned: this node doesn't own the shard, or is still loading it.
	ErrNotOwned = errors.New("no node owns the shard at the moment")
	// ErrStopping: the node takes no more calls.
	ErrStopping = errors.New("the node is stopping")
)

// NotOwnedError is ErrNotOwned of a shard.
type NotOwnedError struct{ Shard shard.ID }

func (e *NotOwnedError) Error() string {
	return fmt.Sprintf("no node owns shard %d at the moment", e.Shard)
}

// Is makes it an ErrNotOwned.
func (*NotOwnedError) Is(target error) bool { return target == ErrNotOwned }

// maxRequests bounds what waits for the loop; beyond it callers wait.
const maxRequests = 1024

// request is something that the loop does.
type request func(l *loop)

// Node drives shards. Make one with New, and run it once.
type Node struct {
	cfg      Config
	store    Store
	coord    coordinator.Coordinator
	requests chan request
	stopped  chan struct{} // closed when the loop takes no more requests
	degraded atomic.Bool   // the last commit failed
	proof    proof
	started  atomic.Bool
	live     []atomic.Bool // by shard: it is owned and loaded here
}

// New returns a node that Run will start.
func New(cfg Config, st Store, coord coordinator.Coordinator) *Node {
	cfg.Core.Shards = cfg.Shards
	if cfg.Clock == nil {
		cfg.Clock = clock.System()
	}
	return &Node{
		cfg: cfg, store: st, coord: coord,
		requests: make(chan request, maxRequests),
		stopped:  make(chan struct{}),
		live:     make([]atomic.Bool, cfg.Shards),
	}
}

// Owns reports whether a shard is loaded here.
func (n *Node) Owns(id shard.ID) bool {
	return id >= 0 && int(id) < len(n.live) && n.live[id].Load()
}

// Degraded reports whether the node can't reach its database.
func (n *Node) Degraded() bool { return n.degraded.Load() }

// Run drives the node until ctx ends; then it hands its shards over to other nodes, if there
// can be any; else it claims nothing more, lets running attempts end within DrainTimeout, and
// writes what is left. Then it returns. A node runs once.
func (n *Node) Run(ctx context.Context) error {
	if n.started.Swap(true) {
		return errors.New("engine: a node runs once")
	}
	// The loop outlives ctx by the drain; everything else ends with work.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, work := errgroup.WithContext(work)
	changes := make(chan coordinator.Change)
	l := newLoop(n)
	group.Go(func() error { return n.coord.Run(work, changes) })
	group.Go(func() error { return l.loadAll(work, changes) })
	group.Go(func() error { return l.commitAll(work) })
	group.Go(func() error { return l.readAll(work) })
	group.Go(func() error { return l.watchClocks(work) })
	group.Go(func() error {
		defer stop()
		return l.run(ctx, work)
	})
	err := group.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// post hands a request to the loop.
func (n *Node) post(ctx context.Context, r request) error {
	select {
	case n.requests <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stopped:
		return ErrStopping
	}
}

type nopObserver struct{}

func (nopObserver) Observe(core.Observation)          {}
func (nopObserver) Committed(int, int, time.Duration) {}
func (nopObserver) CommitFailed()                     {}
func (nopObserver) FenceLost()                        {}
func (nopObserver) LeaseExpired()                     {}
func (nopObserver) ShardOwned(bool)                   {}
func (nopObserver) ClocksCompared(clock.Verdict)      {}
