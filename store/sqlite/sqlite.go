// Package sqlite keeps Carillon's state in one SQLite file, for one process on
// one machine: `carillon dev`, tests, and small installations.
//
// All writes go through one connection that begins each transaction as a writer,
// so a read that decides a write can't be overtaken: that is the fence. The file
// is in WAL mode with synchronous=FULL: what was acknowledged survives the loss
// of power. Reads run beside the writer on connections that can't write.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/job"

	sqlitedriver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// DB is an open file. It has all roles of package store.
type DB struct {
	write *sql.DB // one connection
	read  *sql.DB
	lock  *os.File
	hot   map[string]*sql.Stmt // the statements of every batch, prepared on write
	sync  int
	clock func() time.Time
}

var _ store.Store = (*DB)(nil)

// maxReaders bounds the connections that read; each may hold some megabytes.
const maxReaders = 4

// Every connection has a cache of pages of its own. The readers' are small: what they scan
// they read once, and the operating system keeps it for all of them.
const (
	writerCache = "cache_size(-65536)"
	readerCache = "cache_size(-8192)"
)

// How SQLite syncs its file: at each commit, or not at all.
const (
	syncFull = 2
	syncOff  = 0
)

// Option changes how a file is opened.
type Option func(*DB)

// Volatile is for tests and simulations: what was acknowledged survives the end of the process,
// but not that of the machine, and the disk isn't waited for.
func Volatile() Option { return func(db *DB) { db.sync = syncOff } }

// Clock is what tells the database's time. Default: this machine's clock.
func Clock(now func() time.Time) Option { return func(db *DB) { db.clock = now } }

// Open opens or makes the file at path. It fails if another process has it open.
func Open(ctx context.Context, path string, opts ...Option) (*DB, error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	db := &DB{lock: lock, hot: map[string]*sql.Stmt{}, sync: syncFull, clock: time.Now}
	for _, opt := range opts {
		opt(db)
	}
	if err := db.open(ctx, path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func (db *DB) open(ctx context.Context, path string) (err error) {
	common := []string{"journal_mode(WAL)", fmt.Sprintf("synchronous(%d)", db.sync), "busy_timeout(5000)", "foreign_keys(1)"}
	if db.write, err = sql.Open("sqlite", dsn(path, "immediate", append(common, writerCache)...)); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	db.write.SetMaxOpenConns(1)
	if err := checkPragmas(ctx, db.write, db.sync); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if err := migrate(ctx, db.write); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	for _, query := range hotStatements {
		if db.hot[query], err = db.write.PrepareContext(ctx, query); err != nil {
			return fmt.Errorf("prepare %q: %w", query, err)
		}
	}
	if db.read, err = sql.Open("sqlite", dsn(path, "deferred", append(common, readerCache, "query_only(1)")...)); err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	db.read.SetMaxOpenConns(maxReaders)
	return nil
}

// dsn builds the driver's address of a file. The pragmas are constants: the
// driver runs them as SQL.
func dsn(path, txlock string, pragmas ...string) string {
	q := url.Values{"_txlock": {txlock}, "_pragma": pragmas}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// checkPragmas reads back what durability depends on.
func checkPragmas(ctx context.Context, db *sql.DB, want int) error {
	var mode string
	var sync int
	if err := db.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&sync); err != nil {
		return err
	}
	if mode != "wal" || sync != want {
		return fmt.Errorf("journal_mode is %s and synchronous is %d, want wal and %d: is the file on a network file system?", mode, sync, want)
	}
	return nil
}

// lockFile keeps a second process away: two schedulers on one file would fence
// each other in turns.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is held by another process: %w", path, err), f.Close())
	}
	return f, nil
}

// Close closes the file.
func (db *DB) Close() error {
	var errs []error
	for _, s := range db.hot {
		errs = append(errs, s.Close())
	}
	db.hot = nil
	for _, d := range []*sql.DB{db.read, db.write} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	if db.lock != nil {
		errs = append(errs, db.lock.Close())
		db.lock = nil
	}
	return errors.Join(errs...)
}

// errAbort rolls a transaction back without being an error of the database.
type errAbort struct{ err error }

func (e errAbort) Error() string { return e.err.Error() }

// inTx runs fn in one write transaction. An error of the database becomes
// store.ErrUnavailable; what fn wraps in errAbort is returned as it is.
func (db *DB) inTx(ctx context.Context, fn func(tx *writeTx) error) error {
	sqlTx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return unavailable("begin", err)
	}
	tx := &writeTx{ctx: ctx, tx: sqlTx, db: db}
	if err := fn(tx); err != nil {
		if rollbackErr := sqlTx.Rollback(); rollbackErr != nil && !errors.Is(rollbackErr, sql.ErrTxDone) {
			return unavailable("roll back", errors.Join(err, rollbackErr))
		}
		if abort := (errAbort{}); errors.As(err, &abort) {
			return abort.err
		}
		return unavailable("write", err)
	}
	if err := sqlTx.Commit(); err != nil {
		return unavailable("commit", err)
	}
	return nil
}

// writeTx is a write transaction. Statements that were prepared at the start are
// run as such.
type writeTx struct {
	ctx context.Context // of the transaction, which is shorter than any call
	tx  *sql.Tx
	db  *DB
	// failed is the first failure. After it nothing runs: SQLite may have ended the
	// transaction by itself, and a later statement would stand alone.
	failed error
	// statements is how many were run.
	statements int
}

// exec runs a statement and returns how many rows it changed.
func (t *writeTx) exec(query string, args ...any) (int64, error) {
	r, err := t.run(query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (t *writeTx) run(query string, args ...any) (r sql.Result, err error) {
	if t.failed != nil {
		return nil, t.failed
	}
	t.statements++
	defer func() { t.failed = err }()
	if s, ok := t.db.hot[query]; ok {
		return t.tx.StmtContext(t.ctx, s).ExecContext(t.ctx, args...)
	}
	return t.tx.ExecContext(t.ctx, query, args...)
}

func (t *writeTx) queryRow(query string, args ...any) *sql.Row {
	t.statements++
	return t.tx.QueryRowContext(t.ctx, query, args...)
}

// unavailable wraps an error of the database.
func unavailable(op string, err error) error {
	return fmt.Errorf("sqlite: %s: %w: %w", op, store.ErrUnavailable, err)
}

// refused reports whether the database can't store a row whatever is tried.
func refused(err error) bool {
	var e *sqlitedriver.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return true
	}
	return false
}

// fenced is the abort of a transaction whose epoch is stale.
func fenced(ids ...shard.ID) error { return errAbort{&store.FencedError{Shards: ids}} }

// now is the database's clock, which for an embedded database is the process's.
func (db *DB) now() int64 { return db.clock().UnixMicro() }

// Now implements store.Clock: the database's time is this machine's.
func (db *DB) Now(context.Context) (job.Instant, error) { return job.Instant(db.now()), nil }
