package once

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
)

// Dialect is a kind of database.
type Dialect = sqltext.Dialect

// The dialects: PostgreSQL 9.5, MySQL 8.0, MariaDB 10.6 and SQLite 3.35, or newer.
const (
	PostgreSQL = sqltext.PostgreSQL
	MySQL      = sqltext.MySQL
	SQLite     = sqltext.SQLite
)

// DefaultTable is the table's name if no other one is chosen.
const DefaultTable = "carillon_once"

// ErrFenced says that a newer attempt of the slot has come first: this one must not go on.
// A handler returns it; whatever it returns counts no more.
var ErrFenced = errors.New("a newer attempt of the slot has come first")

// Attempt says for which attempt of which slot an effect is. *workersdk.Task is one.
type Attempt interface {
	// Job is the resource name of the job, for people who read the table.
	Job() string
	// FireTime is the slot's, for the same.
	FireTime() time.Time
	// Fence grows with each attempt of the slot.
	Fence() int64
	// Key is the same on every attempt of the slot, and differs between slots and parts.
	Key(parts ...any) string
}

// Tx is what a guard needs of a transaction, for drivers that have neither database/sql
// nor pgx.
type Tx = sqltext.Tx

// Guard guards effects in one database. T is a transaction of its driver. A guard may be
// used by many goroutines; it holds no connection.
type Guard[T any] struct {
	dialect Dialect
	table   string
	wrap    func(T) Tx
	sql     statements
}

// Option changes a guard.
type Option func(*options)

type options struct{ table string }

// Table names the guard's table: 1 to 48 lower-case letters, digits or '_'. Default:
// DefaultTable.
func Table(name string) Option { return func(o *options) { o.table = name } }

// New makes a guard for database/sql. It fails if the dialect or the table's name is none.
func New(d Dialect, opts ...Option) (*Guard[*sql.Tx], error) {
	return NewFor(d, sqltext.Of, opts...)
}

// NewFor makes a guard for any driver, by a function that wraps its transactions.
func NewFor[T any](d Dialect, wrap func(T) Tx, opts ...Option) (*Guard[T], error) {
	o := options{table: DefaultTable}
	for _, opt := range opts {
		opt(&o)
	}
	if err := sqltext.Check(d, o.table); err != nil {
		return nil, fmt.Errorf("make a guard: %w", err)
	}
	return &Guard[T]{dialect: d, table: o.table, wrap: wrap, sql: newStatements(d, o.table)}, nil
}

// Do runs an effect in the user's transaction, unless an attempt of the slot has made it
// before; ran says which. It counts once that transaction commits: a handler must not
// return success before. After an error roll the transaction back. The error is
// ErrFenced if a newer attempt has come first, the effect's own, or the database's.
//
// Parts tell the effects of one handler apart: two with the same parts are the same
// effect, of which only the first runs.
func (g *Guard[T]) Do(ctx context.Context, tx T, a Attempt, effect func(ctx context.Context, tx T) error, parts ...any) (ran bool, err error) {
	key := a.Key(parts...)
	done, err := g.claim(ctx, g.wrap(tx), a, key)
	if done || err != nil {
		return false, err
	}
	if err := effect(ctx, tx); err != nil {
		return false, err
	}
	if err := g.mark(ctx, g.wrap(tx), key); err != nil {
		return false, err
	}
	return true, nil
}

// Claim refuses all older attempts of the slot from the commit of this transaction on, and
// reports whether the effect of these parts was made before. Use a transaction of its own,
// which you commit at once, before an effect that takes long. It fails with ErrFenced
// if a newer attempt has come first.
func (g *Guard[T]) Claim(ctx context.Context, tx T, a Attempt, parts ...any) (done bool, err error) {
	return g.claim(ctx, g.wrap(tx), a, a.Key(parts...))
}

// claim locks the row of an effect, made if it isn't there, and raises its fence.
func (g *Guard[T]) claim(ctx context.Context, tx Tx, a Attempt, key string) (done bool, err error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	args := []any{key, a.Job(), g.dialect.Time(a.FireTime()), a.Fence()}
	var fence int64
	if fence, done, err = g.sql.claim(ctx, tx, args); err != nil {
		return false, fmt.Errorf("claim the effect %s: %w", key, err)
	}
	if fence > a.Fence() {
		return false, fmt.Errorf("attempt %d of the effect %s: %w: attempt %d", a.Fence(), key, ErrFenced, fence)
	}
	return done, nil
}

// mark says that the effect was made. The row is locked since the claim, so that it can
// only be gone, or marked, by what the effect itself did.
func (g *Guard[T]) mark(ctx context.Context, tx Tx, key string) error {
	n, err := tx.Exec(ctx, g.sql.mark, key)
	if err != nil {
		return fmt.Errorf("mark the effect %s: %w", key, err)
	}
	if n != 1 {
		return fmt.Errorf("mark the effect %s: its row was changed by the effect itself: give effects within effects parts of their own", key)
	}
	return nil
}

// maxKeyBytes is what the key of a MySQL table takes with room to spare.
const maxKeyBytes = 512

// checkKey refuses what databases compare in ways of their own.
func checkKey(key string) error {
	if key == "" || len(key) > maxKeyBytes {
		return fmt.Errorf("the effect's key must have 1 to %d bytes, has %d: shorten its parts", maxKeyBytes, len(key))
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return fmt.Errorf("the effect's key must be printable ASCII without blanks, is %q", key)
		}
	}
	return nil
}
