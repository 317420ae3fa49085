package cockroach

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dialect is what only one of the two databases has. Everything else is the same SQL
// for both.
type dialect struct {
	name    string
	version int
	// session are settings of every connection.
	session map[string]string
	// stale begins a read that may be some seconds old and so waits for no writer;
	// empty where reads never do.
	stale string
	// urgent begins a transaction that goes before those that are in its way; empty where
	// there is no such thing.
	urgent string
	// unblock ends the sessions of ours that hold up another one, $1, for $2
	// milliseconds, longer than any commit takes; empty where urgent does it.
	unblock string
	// doubtful lists the tables that are thought to be all but empty and hold more than $1
	// rows; analyze and the table's name makes their statistics anew. Empty where the database looks after that.
	doubtful, analyze string
	// split makes ranges of a table, one for each shard, so that the load of a new
	// cluster is spread from the first minute on. Splitting twice changes nothing.
	split func(table string, shards int) string
}

// Oldest versions that are supported.
const (
	minPostgres  = 14
	minCockroach = 24
)

// postgres never walks a whole table for a statement of ours, whatever its
// statistics say: every one has its index. A table that filled up, or was emptied,
// since it was last analysed would else be joined by hashing all of it.
//
// A plan is made anew each time, by the size that the tables have: one that was made
// for an empty table, and kept, would read all of it once it has filled up. That costs
// about a tenth of a millisecond for a statement.
//
// A client that froze while it was sending a batch holds its locks for ever: the
// server's timeouts count while a statement runs, or between two round trips, but not
// while it waits for the rest of one. Whoever takes over ends that session.
func postgres(version int) dialect {
	return dialect{
		name: "PostgreSQL", version: version,
		session: map[string]string{
			"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_bitmapscan": "off", "enable_memoize": "off", "enable_material": "off",
			"jit": "off", "plan_cache_mode": "force_custom_plan",
		},
		doubtful: `SELECT c.relname::TEXT FROM pg_class c JOIN pg_stat_user_tables t ON t.relid = c.oid
			WHERE c.oid IN ('jobs'::REGCLASS, 'slots'::REGCLASS, 'attempts'::REGCLASS, 'backlog'::REGCLASS, 'dead_letters'::REGCLASS, 'events'::REGCLASS,
				'requests'::REGCLASS, 'inbox'::REGCLASS)
			AND c.reltuples >= 0 AND c.relpages > 0 AND pg_relation_size(c.oid) > 8 * 8192
			AND c.reltuples / c.relpages * pg_relation_size(c.oid) / 8192 < 1000 AND t.n_live_tup > $1`,
		analyze: `ANALYZE (SKIP_LOCKED) `,
		unblock: `SELECT count(pg_terminate_backend(a.pid)) FROM unnest(pg_blocking_pids($1)) AS b (pid) JOIN pg_stat_activity a ON a.pid = b.pid
			WHERE a.application_name = '` + applicationName + `' AND a.usename = current_user AND a.xact_start < clock_timestamp() - $2 * interval '1 millisecond'`,
	}
}

// cockroach reads what may be old from the nearest replica, and splits the tables by
// shard. Its row-level TTL isn't used: what may be deleted depends on gaps, and is
// decided under the fence.
func cockroach(version int) dialect {
	return dialect{
		name: "CockroachDB", version: version,
		stale:  `SET TRANSACTION AS OF SYSTEM TIME follower_read_timestamp()`,
		urgent: `SET TRANSACTION PRIORITY HIGH`,
		split: func(table string, shards int) string {
			values := make([]string, shards)
			for i := range values {
				values[i] = "(" + strconv.Itoa(i) + ")"
			}
			return `ALTER TABLE ` + table + ` SPLIT AT VALUES ` + strings.Join(values, ", ")
		},
	}
}

// splitTables are those whose keys lead with the shard and that grow.
var splitTables = []string{"jobs", "slots", "attempts", "backlog", "events"}

// DialectStatements are the statements that only CockroachDB understands, for those
// who check them.
func DialectStatements() map[string]string {
	d := cockroach(minCockroach)
	all := map[string]string{"stale": d.stale, "urgent": d.urgent}
	for _, table := range splitTables {
		all["split "+table] = d.split(table, 3)
	}
	return all
}

var serverVersion = regexp.MustCompile(`^(PostgreSQL|CockroachDB)\D* v?(\d+)`)

// dialectOf reads the answer to version().
func dialectOf(answer string) (dialect, error) {
	m := serverVersion.FindStringSubmatch(answer)
	if m == nil {
		return dialect{}, fmt.Errorf("cockroach: the database is %q: only CockroachDB and PostgreSQL are known", answer)
	}
	version, err := strconv.Atoi(m[2])
	d, oldest := postgres(version), minPostgres
	if m[1] == "CockroachDB" {
		d, oldest = cockroach(version), minCockroach
	}
	if err != nil || version < oldest {
		return dialect{}, fmt.Errorf("cockroach: the database is %s %d, version %d or newer is needed", d.name, version, oldest)
	}
	return d, nil
}

// askDialect asks a server what it is.
func askDialect(ctx context.Context, cfg *pgx.ConnConfig) (dialect, error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return dialect{}, unavailable("connect", err)
	}
	var answer string
	err = conn.QueryRow(ctx, `SELECT version()`).Scan(&answer)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return dialect{}, unavailable("ask for the version", err)
	}
	return dialectOf(answer)
}

// splitRanges gives every shard ranges of its own, where there are ranges.
func (d *dialect) splitRanges(ctx context.Context, pool *pgxpool.Pool, shards int) error {
	if d.split == nil {
		return nil
	}
	for _, table := range splitTables {
		if _, err := pool.Exec(ctx, d.split(table, shards)); err != nil {
			return unavailable("split table "+table, err)
		}
	}
	return nil
}

// inUrgentTx runs fn in a transaction that must not wait for a frozen client.
func (db *DB) inUrgentTx(ctx context.Context, op string, fn func(tx pgx.Tx) error) error {
	return db.inTx(ctx, op, func(tx pgx.Tx) error {
		if db.dialect.urgent != "" {
			if _, err := tx.Exec(ctx, db.dialect.urgent); err != nil {
				return err
			}
		}
		stop := db.unblockLater(ctx, tx.Conn().PgConn().PID())
		defer stop()
		return fn(tx)
	})
}

// unblockLater frees a session of ours from what holds it up, unless it is stopped
// before half of its patience is over. The returned function waits until that is
// done.
func (db *DB) unblockLater(ctx context.Context, pid uint32) (stop func()) {
	if db.dialect.unblock == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-time.After(db.lockTimeout / 2):
			// An error changes nothing: the lock's own timeout ends the wait.
			_ = db.unblock(ctx, pid)
		case <-ctx.Done():
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// unblock ends the sessions that hold up the one of pid, from a connection of its own:
// those of the pools may all be taken.
func (db *DB) unblock(ctx context.Context, pid uint32) error {
	conn, err := pgx.ConnectConfig(ctx, db.owner.Config().ConnConfig)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, db.dialect.unblock, pid, (db.lockTimeout / 2).Milliseconds())
	return errors.Join(err, conn.Close(ctx))
}

// readStale runs fn in a read transaction that may see the past of some seconds ago.
func (db *DB) readStale(ctx context.Context, op string, fn func(tx pgx.Tx) error) error {
	return inTx(ctx, db.reader, pgx.TxOptions{AccessMode: pgx.ReadOnly}, op, func(tx pgx.Tx) error {
		if db.dialect.stale != "" {
			if _, err := tx.Exec(ctx, db.dialect.stale); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}
