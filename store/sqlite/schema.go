package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// upgrades are what each later version of the schema adds to the tables below,
// beginning with version 2.
var upgrades = [][]string{{
	`ALTER TABLE jobs ADD COLUMN labels TEXT NOT NULL DEFAULT '{}'`,
	`ALTER TABLE shards ADD COLUMN retained_from INTEGER NOT NULL DEFAULT 0`,
	`ALTER TABLE dead_letters ADD COLUMN namespace TEXT NOT NULL DEFAULT ''`,
	`ALTER TABLE dead_letters ADD COLUMN error_code TEXT NOT NULL DEFAULT ''`,
	`ALTER TABLE dead_letters ADD COLUMN fingerprint TEXT NOT NULL DEFAULT ''`,
	`ALTER TABLE dead_letters ADD COLUMN sample TEXT NOT NULL DEFAULT ''`,
	`UPDATE dead_letters SET namespace = (SELECT j.namespace FROM jobs j WHERE j.shard = dead_letters.shard AND j.uid = dead_letters.uid)
		WHERE EXISTS (SELECT 1 FROM jobs j WHERE j.shard = dead_letters.shard AND j.uid = dead_letters.uid)`,
	`CREATE INDEX requests_by_time ON requests (shard, fire_time)`,
	`CREATE INDEX events_by_time ON events (shard, at)`,
	`CREATE INDEX dead_letters_by_cause ON dead_letters (namespace, handler, fingerprint, error_code)`,
	`CREATE INDEX jobs_single ON jobs (shard, coalesce(fire_at, created_at), uid) WHERE kind < 3 AND ended_at IS NULL`,
}, {
	`ALTER TABLE jobs ADD COLUMN ended_by_itself INTEGER NOT NULL DEFAULT 0`,
}, {
	`CREATE TABLE calendars (
		namespace   TEXT NOT NULL,
		name        TEXT NOT NULL,
		version     INTEGER NOT NULL,
		description TEXT NOT NULL,
		items       TEXT NOT NULL,
		deleted     INTEGER NOT NULL,
		created_at  INTEGER NOT NULL,
		PRIMARY KEY (namespace, name, version)
	) STRICT, WITHOUT ROWID`,
	`CREATE INDEX dead_letters_by_job ON dead_letters (shard, uid)`,
}, {
	`ALTER TABLE jobs ADD COLUMN policies TEXT NOT NULL DEFAULT '{}'`,
	`ALTER TABLE slots ADD COLUMN requested_at INTEGER NOT NULL DEFAULT 0`,
	`ALTER TABLE slots ADD COLUMN breaches INTEGER NOT NULL DEFAULT 0`,
	`ALTER TABLE slots ADD COLUMN params BLOB NOT NULL DEFAULT X''`,
	`ALTER TABLE backlog ADD COLUMN check_at INTEGER`,
	`CREATE INDEX backlog_by_check ON backlog (shard, check_at) WHERE check_at IS NOT NULL`,
	`CREATE TABLE skips (
		shard     INTEGER NOT NULL,
		uid       BLOB NOT NULL,
		to_time   INTEGER NOT NULL,
		from_time INTEGER NOT NULL,
		count     INTEGER NOT NULL,
		code      TEXT NOT NULL,
		made_at   INTEGER NOT NULL,
		PRIMARY KEY (shard, uid, to_time)
	) STRICT, WITHOUT ROWID`,
	`CREATE INDEX skips_by_time ON skips (shard, made_at)`,
	`ALTER TABLE gaps ADD COLUMN options TEXT NOT NULL DEFAULT '{}'`,
}, {
	`ALTER TABLE slots ADD COLUMN notes BLOB NOT NULL DEFAULT X''`,
	`ALTER TABLE attempts ADD COLUMN log TEXT NOT NULL DEFAULT ''`,
}, {
	`ALTER TABLE shards ADD COLUMN try INTEGER NOT NULL DEFAULT 0`,
}}

// schemaVersion is the newest version. A file of a later one is refused.
var schemaVersion = 1 + len(upgrades)

// Times are microseconds since the Unix epoch. A uid is its 16 bytes. The keys of
// slots lead with the time under the shard, so that a batch touches few pages; no
// index holds a slot's state, so that a finish rewrites nothing but its row. The
// checks are far beyond what the API lets in: they keep a faulty writer out.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS meta (
		key   TEXT PRIMARY KEY,
		value INTEGER NOT NULL
	) STRICT, WITHOUT ROWID`,

	`CREATE TABLE IF NOT EXISTS shards (
		shard     INTEGER PRIMARY KEY,
		owner     TEXT NOT NULL,
		epoch     INTEGER NOT NULL,
		owner_gen INTEGER NOT NULL,
		owner_rev INTEGER NOT NULL,
		watermark INTEGER NOT NULL,
		open_from INTEGER NOT NULL
	) STRICT`,

	`CREATE TABLE IF NOT EXISTS epochs (
		shard     INTEGER NOT NULL,
		epoch     INTEGER NOT NULL,
		owner     TEXT NOT NULL,
		owner_gen INTEGER NOT NULL,
		owner_rev INTEGER NOT NULL,
		taken_at  INTEGER NOT NULL,
		PRIMARY KEY (shard, epoch)
	) STRICT, WITHOUT ROWID`,

	`CREATE TABLE IF NOT EXISTS jobs (
		shard          INTEGER NOT NULL,
		uid            BLOB NOT NULL,
		namespace      TEXT NOT NULL,
		name           TEXT NOT NULL,
		handler        TEXT NOT NULL,
		params         BLOB NOT NULL CHECK (length(params) <= 1048576),
		kind           INTEGER NOT NULL,
		fire_at        INTEGER,
		schedule       TEXT NOT NULL,
		retry          TEXT NOT NULL,
		timeout_us     INTEGER NOT NULL,
		created_at     INTEGER NOT NULL,
		effective_from INTEGER NOT NULL,
		ended_at       INTEGER,
		request_id     TEXT,
		request_hash   TEXT NOT NULL,
		quarantine     TEXT,
		PRIMARY KEY (shard, uid)
	) STRICT, WITHOUT ROWID`,
	`CREATE UNIQUE INDEX IF NOT EXISTS jobs_live_name ON jobs (shard, namespace, name) WHERE ended_at IS NULL`,
	`CREATE UNIQUE INDEX IF NOT EXISTS jobs_request ON jobs (shard, namespace, request_id) WHERE request_id IS NOT NULL`,
	`CREATE INDEX IF NOT EXISTS jobs_by_name ON jobs (namespace, name, uid)`,
	`CREATE INDEX IF NOT EXISTS jobs_once ON jobs (shard, fire_at, uid) WHERE fire_at IS NOT NULL`,
	`CREATE INDEX IF NOT EXISTS jobs_recurring ON jobs (shard, uid) WHERE kind >= 3 AND ended_at IS NULL`,
	`CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (shard, ended_at) WHERE ended_at IS NOT NULL`,

	`CREATE TABLE IF NOT EXISTS slots (
		shard       INTEGER NOT NULL,
		fire_time   INTEGER NOT NULL,
		uid         BLOB NOT NULL,
		trigger     INTEGER NOT NULL,
		state       INTEGER NOT NULL,
		attempt     INTEGER NOT NULL,
		failures    INTEGER NOT NULL,
		epoch       INTEGER NOT NULL,
		worker      TEXT NOT NULL,
		incarnation TEXT NOT NULL,
		created_at  INTEGER NOT NULL,
		claimed_at  INTEGER NOT NULL,
		started_at  INTEGER NOT NULL,
		finished_at INTEGER NOT NULL,
		not_before  INTEGER NOT NULL,
		deadline    INTEGER NOT NULL,
		outcome     INTEGER NOT NULL,
		error_code  TEXT NOT NULL,
		error_text  TEXT NOT NULL,
		result      BLOB NOT NULL CHECK (length(result) <= 1048576),
		PRIMARY KEY (shard, fire_time, uid)
	) STRICT, WITHOUT ROWID`,
	`CREATE INDEX IF NOT EXISTS slots_unscheduled ON slots (shard, uid, fire_time) WHERE trigger IN (2, 3)`,

	`CREATE TABLE IF NOT EXISTS attempts (
		shard      INTEGER NOT NULL,
		fire_time  INTEGER NOT NULL,
		uid        BLOB NOT NULL,
		attempt    INTEGER NOT NULL,
		worker     TEXT NOT NULL,
		epoch      INTEGER NOT NULL,
		claimed_at INTEGER NOT NULL,
		started_at INTEGER NOT NULL,
		ended_at   INTEGER NOT NULL,
		outcome    INTEGER NOT NULL,
		error_code TEXT NOT NULL,
		error_text TEXT NOT NULL,
		late       TEXT NOT NULL,
		PRIMARY KEY (shard, fire_time, uid, attempt)
	) STRICT, WITHOUT ROWID`,

	`CREATE TABLE IF NOT EXISTS backlog (
		shard     INTEGER NOT NULL,
		waiting   INTEGER NOT NULL,
		handler   TEXT NOT NULL,
		priority  INTEGER NOT NULL,
		fairness  TEXT NOT NULL,
		ready_at  INTEGER NOT NULL,
		fire_time INTEGER NOT NULL,
		uid       BLOB NOT NULL,
		wake_at   INTEGER NOT NULL,
		PRIMARY KEY (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid)
	) STRICT, WITHOUT ROWID`,

	`CREATE INDEX IF NOT EXISTS backlog_slot ON backlog (shard, fire_time, uid)`,

	`CREATE TABLE IF NOT EXISTS dead_letters (
		shard     INTEGER NOT NULL,
		fire_time INTEGER NOT NULL,
		uid       BLOB NOT NULL,
		handler   TEXT NOT NULL,
		dead_at   INTEGER NOT NULL,
		PRIMARY KEY (shard, fire_time, uid)
	) STRICT, WITHOUT ROWID`,

	`CREATE TABLE IF NOT EXISTS gaps (
		shard       INTEGER NOT NULL,
		to_time     INTEGER NOT NULL,
		uid         BLOB NOT NULL,
		from_time   INTEGER NOT NULL,
		cursor_time INTEGER NOT NULL,
		cursor_uid  BLOB NOT NULL,
		made_at     INTEGER NOT NULL,
		PRIMARY KEY (shard, to_time, uid)
	) STRICT, WITHOUT ROWID`,

	`CREATE TABLE IF NOT EXISTS inbox (
		shard INTEGER NOT NULL,
		uid   BLOB NOT NULL,
		PRIMARY KEY (shard, uid)
	) STRICT, WITHOUT ROWID`,

	`CREATE TABLE IF NOT EXISTS requests (
		shard      INTEGER NOT NULL,
		namespace  TEXT NOT NULL,
		request_id TEXT NOT NULL,
		hash       TEXT NOT NULL,
		fire_time  INTEGER NOT NULL,
		uid        BLOB NOT NULL,
		PRIMARY KEY (shard, namespace, request_id)
	) STRICT, WITHOUT ROWID`,

	`CREATE TABLE IF NOT EXISTS handlers (
		name         TEXT PRIMARY KEY,
		created_at   INTEGER NOT NULL,
		last_seen_at INTEGER NOT NULL
	) STRICT, WITHOUT ROWID`,

	`CREATE TABLE IF NOT EXISTS events (
		shard     INTEGER NOT NULL,
		epoch     INTEGER NOT NULL,
		seq       INTEGER NOT NULL,
		at        INTEGER NOT NULL,
		kind      TEXT NOT NULL,
		uid       BLOB,
		fire_time INTEGER NOT NULL,
		detail    TEXT NOT NULL,
		PRIMARY KEY (shard, epoch, seq)
	) STRICT, WITHOUT ROWID`,
}

// migrate makes the tables of a new file, brings an older one up to date, and refuses
// one of a later version. The version is written last, so that a crash in the middle
// is repaired by the next start.
func migrate(ctx context.Context, db *sql.DB) error {
	for _, statement := range schema {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create schema: %w", err)
		}
	}
	if _, err := db.ExecContext(ctx, `INSERT INTO meta (key, value) VALUES ('schema_version', ?) ON CONFLICT DO NOTHING`, 1); err != nil {
		return fmt.Errorf("write schema version: %w", err)
	}
	var have int
	if err := db.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = 'schema_version'`).Scan(&have); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if have > schemaVersion {
		return fmt.Errorf("the database has schema version %d, this program knows version %d: use a newer program", have, schemaVersion)
	}
	for ; have < schemaVersion; have++ {
		if err := upgrade(ctx, db, have+1, upgrades[have-1]); err != nil {
			return fmt.Errorf("upgrade the schema to version %d: %w", have+1, err)
		}
	}
	return nil
}

// upgrade runs the statements of a version and notes it, all or nothing.
func upgrade(ctx context.Context, db *sql.DB, version int, statements []string) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE meta SET value = ? WHERE key = 'schema_version'`, version); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
