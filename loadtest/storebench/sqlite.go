package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/process"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite" // registers the driver, too
)

// keyMark begins a statement that stands for making slots_new, like slots, with this key.
const keyMark = "-- key "

// embedded is a file, written by this process.
type embedded struct{ dir string }

func newSQLite(ctx context.Context) (*embedded, error) {
	dir, err := os.MkdirTemp("", "carillon-storebench")
	if err != nil {
		return nil, err
	}
	e := &embedded{dir}
	db, err := e.open(ctx) // makes the tables
	if err == nil {
		err = db.Close()
	}
	if err == nil {
		err = e.onFile(ctx, func(conn *sql.Conn) error { return addJobs(ctx, conn) })
	}
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func addJobs(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, `CREATE TABLE bench_jobs (n INTEGER PRIMARY KEY, shard INTEGER NOT NULL, uid BLOB NOT NULL) STRICT`); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO bench_jobs VALUES (?, ?, ?)`)
	for n := 0; n < jobs && err == nil; n++ {
		uid := uidOf(n)
		_, err = insert.ExecContext(ctx, n, int(shardOf(n)), uid[:])
	}
	return errors.Join(err, tx.Commit())
}

func (e *embedded) file() string { return filepath.Join(e.dir, "carillon.db") }

func (e *embedded) open(ctx context.Context) (store.Store, error) { return sqlite.Open(ctx, e.file()) }

// copySlots are the statements that give slots another key. The rows are stored in its
// order, so they are copied in it.
func copySlots(key string) []string {
	return []string{keyMark + key, `INSERT INTO slots_new SELECT * FROM slots ORDER BY ` + key, `DROP TABLE slots`, `ALTER TABLE slots_new RENAME TO slots`,
		`CREATE INDEX slots_unscheduled ON slots (shard, uid, fire_time) WHERE trigger IN (2, 3)`}
}

func (e *embedded) empty() []string { return []string{`DELETE FROM slots`, `VACUUM`} }

// The last variant isn't taken back: nothing is measured after it.
func (e *embedded) variants() []variant {
	return []variant{
		{name: "as it is"},
		{name: "a transaction for each shard", commits: eachShard},
		{name: "with a history index (shard, uid, fire_time)", make: []string{`CREATE INDEX bench_index ON slots (shard, uid, fire_time)`}, unmake: []string{`DROP INDEX bench_index`}},
		{name: "with an index of open slots (… WHERE state IN (1, 2))", make: []string{`CREATE INDEX bench_index ON slots (shard, fire_time, uid) WHERE state IN (1, 2)`}, unmake: []string{`DROP INDEX bench_index`}},
		{name: "with an index by state (shard, state, fire_time)", make: []string{`CREATE INDEX bench_index ON slots (shard, state, fire_time)`}, unmake: []string{`DROP INDEX bench_index`}},
		{name: "job-leading key (shard, uid, fire_time)", make: copySlots("shard, uid, fire_time")},
	}
}

// fillSlots makes finished slots in the order of their fire times, as they come to be.
const fillSlots = `INSERT INTO slots
	WITH RECURSIVE s(n) AS (VALUES (?1) UNION ALL SELECT n + 1 FROM s WHERE n < ?2)
	SELECT j.shard, s.at, j.uid, ?3, ?4, 1, 0, 1, 'worker-1', '0123456789abcdef', s.at, s.at, s.at + 3000, s.at + 5000, 0, s.at + 600000000, ?5, '', '', X'', 0, 0, X'', X''
	FROM (SELECT n, ?6 + n * 1000000 AS at FROM s) s CROSS JOIN bench_jobs j ON j.n >= s.n % ?7 * ?8 AND j.n < (s.n % ?7 + 1) * ?8`

func (e *embedded) fill(ctx context.Context, slots int) (span, error) {
	seconds := slots / aSecond
	const step = 100 // seconds, a quarter of a million slots
	err := e.onFile(ctx, func(conn *sql.Conn) error {
		for first := 0; first < seconds; first += step {
			if _, err := conn.ExecContext(ctx, fillSlots, first, min(first+step, seconds)-1, job.TriggerSchedule, job.Succeeded, job.OutcomeSucceeded, int64(begin), period, aSecond); err != nil {
				return err
			}
		}
		return nil
	})
	return span{seconds}, err
}

// onFile lets do work on the file, which no store has open. What it makes is brought to
// the disk at its end, lest a measurement wait for it.
func (e *embedded) onFile(ctx context.Context, do func(*sql.Conn) error) error {
	db, err := sql.Open("sqlite", "file:"+e.file()+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=cache_size(-1000000)")
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err == nil {
		err = errors.Join(do(conn), conn.Close())
	}
	return errors.Join(err, db.Close(), e.sync())
}

func (e *embedded) sync() error {
	f, err := os.OpenFile(e.file(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (e *embedded) apply(ctx context.Context, statements []string) error {
	return e.onFile(ctx, func(conn *sql.Conn) error {
		for _, s := range statements {
			key, isKey := strings.CutPrefix(s, keyMark)
			if isKey {
				s = "" // the table's own definition with another key
				if err := conn.QueryRowContext(ctx, `SELECT sql FROM sqlite_master WHERE name = 'slots'`).Scan(&s); err != nil {
					return err
				}
				s = strings.Replace(strings.Replace(s, "slots", "slots_new", 1), "PRIMARY KEY (shard, fire_time, uid)", "PRIMARY KEY ("+key+")", 1)
			}
			if _, err := conn.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
}

// used counts this process: its own part is small beside the database's.
func (e *embedded) used(context.Context) (usage, error) {
	u, _ := process.UsageOf(os.Getpid())
	return usage{cpu: u.CPU, written: u.Written}, nil
}

func (e *embedded) bytesPerSlot(ctx context.Context) (table, key float64, err error) {
	err = e.onFile(ctx, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, `SELECT cast((SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size) AS REAL) / max(1, count(*)) FROM slots`).Scan(&table)
	})
	return table, 0, err // the rows are in the key
}

func (e *embedded) close() error { return os.RemoveAll(e.dir) }
