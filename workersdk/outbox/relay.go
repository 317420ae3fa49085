package outbox

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of a relay.
const (
	defaultInterval = time.Second
	minInterval     = 10 * time.Millisecond
	// defaultBatch is as many creates as a node takes in one group commit or two without
	// holding up others; maxBatch keeps the list of ids in what every database takes.
	defaultBatch = 100
	maxBatch     = 1000
	maxInFlight  = 64

	// A claim outlives all that is done under it: sending, and then settling.
	leaseTime     = time.Minute
	sendTimeout   = 30 * time.Second
	callTimeout   = 10 * time.Second
	settleTimeout = 5 * time.Second

	// A transaction that fails is run again at once, then left to the pauses.
	maxTries = 6
	minRetry = 10 * time.Millisecond

	// Pauses while the database, or every node, fails.
	minPause = 250 * time.Millisecond
	maxPause = 30 * time.Second
)

// Creator creates jobs: a carillonv1.JobServiceClient is one.
type Creator interface {
	CreateJob(ctx context.Context, in *carillonv1.CreateJobRequest, opts ...grpc.CallOption) (*carillonv1.CreateJobResponse, error)
}

// Relay creates the jobs of an outbox. Any number of relays may work on one: each row is
// claimed by one of them at a time.
type Relay struct {
	db       *sql.DB
	jobs     Creator
	dialect  Dialect
	table    string
	sql      statements
	interval time.Duration
	batch    int
	log      *slog.Logger
	wake     chan struct{}
}

// RelayOption changes a relay.
type RelayOption func(*Relay)

// Interval sets how often a relay looks for rows when nobody wakes it: at least 10 ms,
// default 1 s.
func Interval(d time.Duration) RelayOption {
	return func(r *Relay) { r.interval = max(d, minInterval) }
}

// Batch sets how many rows are claimed at a time: 1 to 1,000, default 100.
func Batch(n int) RelayOption { return func(r *Relay) { r.batch = min(max(n, 1), maxBatch) } }

// Logger sets the logger: default slog.Default().
func Logger(l *slog.Logger) RelayOption { return func(r *Relay) { r.log = l } }

// Relay makes a relay for the box. It uses one connection of db at a time, whatever
// driver Add uses: a pool of pgx gives a db by stdlib.OpenDBFromPool.
func (b *Box[T]) Relay(db *sql.DB, jobs Creator, opts ...RelayOption) *Relay {
	r := &Relay{db: db, jobs: jobs, dialect: b.dialect, table: b.table, sql: b.sql, interval: defaultInterval, batch: defaultBatch, log: slog.Default(),
		wake: make(chan struct{}, 1)}
	for _, opt := range opts {
		opt(r)
	}
	r.log = r.log.With("outbox", r.table)
	return r
}

// Wake makes a relay look for rows at once. Call it after a commit. It never blocks.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // it is woken already
	}
}

// Run relays until ctx ends, and returns nil then. Whatever fails is logged and tried
// again. What is under way when ctx ends is cut short: rows of which no answer is known stay
// and are repeated. Run returns within about 5 s.
func (r *Relay) Run(ctx context.Context) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = minPause, maxPause, 2
	for ctx.Err() == nil {
		done, err := r.pass(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.log.WarnContext(ctx, "the outbox can't be read or written; it is tried again", "error", err)
			r.wait(ctx, pause.NextBackOff(), nil)
		case done.stuck():
			r.wait(ctx, pause.NextBackOff(), nil) // a commit is no reason to try a node that is away
		default:
			pause.Reset()
			if done.claimed < r.batch {
				r.wait(ctx, r.interval, r.wake)
			}
		}
	}
	return nil
}

// wait returns after a time, at a wake, or when ctx ends.
func (r *Relay) wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// Flush relays what is due and returns how many jobs were created, once nothing is due
// any more, or no node answers. It is for programs that end, and for tests; rows that wait
// for a later attempt, or that another relay has claimed, are not waited for.
func (r *Relay) Flush(ctx context.Context) (created int, err error) {
	for {
		done, err := r.pass(ctx)
		created += done.created
		if err = errors.Join(err, ctx.Err()); err != nil || done.claimed == 0 || done.stuck() {
			return created, err
		}
	}
}
