// Package cockroach keeps Carillon's state in CockroachDB or PostgreSQL, with the
// same SQL for both.
//
// # The fence
//
// A batch is one transaction whose first statement locks the rows of its shards
// and fails in the database unless each stands under its writer's epoch. A
// take-over updates that row, so it queues behind at most one commit, and whatever
// comes later is refused. A plain read of the epoch would not do: on PostgreSQL
// the writer could commit after the take-over.
//
// # Retries
//
// Every transaction is run as a whole by crdb.ExecuteCtx, and again, with back-off,
// when the database says that it may be (40001, 40P01). crdb.ExecuteTx must not be
// used: on PostgreSQL it loses the error of a commit.
//
// # Two pools
//
// Commits and loads have connections of their own, so that no flood of people's
// lists can delay them. Every connection has timeouts that are shorter than a
// caller's patience: a frozen writer must not hold a lock for ever.
package cockroach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// Config says where the database is and how it is used.
type Config struct {
	URL                     string // postgres://…; it may hold a password and is never shown
	Isolation               string // "serializable" or "read committed"; empty: the database's default
	OwnerConns, ReaderConns int32
	// How long a statement may take, wait for a lock, and how long a transaction may
	// wait for its client, after which the server ends it. Zero: the default.
	StatementTimeout, LockTimeout, IdleTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.OwnerConns, c.ReaderConns = max(c.OwnerConns, defaultOwnerConns), max(c.ReaderConns, defaultReaderConns)
	c.StatementTimeout = cmp.Or(c.StatementTimeout, defaultStatementTimeout)
	c.LockTimeout = cmp.Or(c.LockTimeout, defaultLockTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, defaultIdleTimeout)
	return c
}

// Bounds of the connections.
const (
	defaultOwnerConns  = 4
	defaultReaderConns = 8
	connLifetime       = 15 * time.Minute
	connJitter         = 2 * time.Minute
	connectTimeout     = 5 * time.Second

	// All are shorter than the patience of the callers in package engine.
	defaultStatementTimeout = 8 * time.Second
	defaultLockTimeout      = 3 * time.Second
	defaultIdleTimeout      = 5 * time.Second
)

// DB is an open database. It has all roles of package store.
type DB struct {
	owner   *pgxpool.Pool // commits, take-overs, loads
	reader  *pgxpool.Pool // people's questions
	opts    pgx.TxOptions
	dialect dialect

	lockTimeout time.Duration

	looking   sync.Mutex
	lookAgain time.Time // at the statistics; guarded by looking
}

var _ store.Store = (*DB)(nil)

// Open connects to a database whose schema is up to date; see Migrate.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	cfg = cfg.withDefaults()
	db := &DB{opts: pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(cfg.Isolation)}, lockTimeout: cfg.LockTimeout}
	var err error
	if db.owner, db.dialect, err = newPool(ctx, cfg, cfg.OwnerConns); err != nil {
		return nil, err
	}
	if db.reader, _, err = newPool(ctx, cfg, cfg.ReaderConns); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := checkSchema(ctx, db.owner); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// poolConfig reads a URL. It stays out of every error: it may hold a password.
func poolConfig(c Config, conns int32) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, errors.New("cockroach: the database's URL can't be read; it begins with postgres://")
	}
	cfg.MaxConns = conns
	cfg.MaxConnLifetime, cfg.MaxConnLifetimeJitter = connLifetime, connJitter
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	for name, value := range map[string]string{
		"statement_timeout": millis(c.StatementTimeout), "lock_timeout": millis(c.LockTimeout),
		"idle_in_transaction_session_timeout": millis(c.IdleTimeout), "application_name": applicationName, "timezone": "UTC",
	} {
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	return cfg, nil
}

// applicationName is how the server's own views show our connections.
const applicationName = "carillon"

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// newPool opens a pool, after it has asked the server what it is.
func newPool(ctx context.Context, c Config, conns int32) (*pgxpool.Pool, dialect, error) {
	cfg, err := poolConfig(c, conns)
	if err != nil {
		return nil, dialect{}, err
	}
	d, err := askDialect(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, d, err
	}
	maps.Copy(cfg.ConnConfig.RuntimeParams, d.session)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, d, fmt.Errorf("cockroach: open pool: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, d, unavailable("connect", err)
	}
	return pool, d, nil
}

// Close closes all connections.
func (db *DB) Close() error {
	for _, p := range []*pgxpool.Pool{db.owner, db.reader} {
		if p != nil {
			p.Close()
		}
	}
	return nil
}

// Retries of a transaction that the database asked for.
const (
	maxTries   = 10
	minBackoff = 5 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// inTx runs fn in one transaction of the owner's pool, and again as a whole where
// the database asks for it. fn must have no other effects.
func (db *DB) inTx(ctx context.Context, op string, fn func(tx pgx.Tx) error) error {
	return inTx(ctx, db.owner, db.opts, op, fn)
}

func inTx(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, op string, fn func(tx pgx.Tx) error) error {
	return again(ctx, op, func(ctx context.Context) error { return once(ctx, pool, opts, fn) })
}

// again runs fn, and again where the database asks for it.
func again(ctx context.Context, op string, fn func(ctx context.Context) error) error {
	backoff := minBackoff
	for try := 1; ; try++ {
		err := crdb.ExecuteCtx(crdb.WithMaxRetries(ctx, 0), func(ctx context.Context, _ ...any) error { return fn(ctx) })
		if err == nil || !retryable(err) || try == maxTries {
			return outward(op, err)
		}
		select {
		case <-time.After(backoff/2 + rand.N(backoff/2)):
		case <-ctx.Done():
			return outward(op, ctx.Err())
		}
		backoff = min(backoff*2, maxBackoff)
	}
}

// once runs a transaction one time. The error of COMMIT is the transaction's.
func once(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		// The caller's context may be over; the connection must come back all the same.
		// If the rollback fails, the pool drops the connection.
		_ = tx.Rollback(context.WithoutCancel(ctx))
		return err
	}
	return tx.Commit(ctx)
}

// retryable reports whether the database wants the transaction again.
func retryable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "CR000")
}

// domainError is an error that is not the database's: it leaves as it is.
type domainError struct{ err error }

func (e domainError) Error() string { return e.err.Error() }
func (e domainError) Unwrap() error { return e.err }

// outward maps an error to the kinds of package store.
func outward(op string, err error) error {
	if err == nil {
		return nil
	}
	var own domainError
	if errors.As(err, &own) {
		return own.err
	}
	return unavailable(op, err)
}

func unavailable(op string, err error) error {
	return fmt.Errorf("cockroach: %s: %w: %w", op, store.ErrUnavailable, err)
}

func fenced(ids ...shard.ID) error { return domainError{&store.FencedError{Shards: ids}} }

// refusedByDatabase reports whether the database can't store a row whatever is
// tried: a broken constraint, an impossible value, something too large.
func refusedByDatabase(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || isFence(pg) {
		return false
	}
	return strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") || strings.HasPrefix(pg.Code, "54")
}
