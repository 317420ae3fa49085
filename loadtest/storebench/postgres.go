package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/process"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
)

// postgres is a server that waits for its disk.
type postgres struct {
	server *pgtest.Server
	url    string
}

func newPostgres(ctx context.Context) (*postgres, error) {
	server, err := pgtest.StartReal(ctx)
	if err != nil {
		return nil, err
	}
	p := &postgres{server: server}
	name, err := server.NewDatabase(ctx, "")
	if err == nil {
		p.url = server.URL(name)
		err = cockroach.Migrate(ctx, p.url)
	}
	if err == nil {
		err = p.apply(ctx, []string{`CREATE TABLE bench_jobs (n INT4 PRIMARY KEY, shard INT4 NOT NULL, uid BYTEA NOT NULL)`})
	}
	if err == nil {
		err = p.onDatabase(ctx, func(conn *pgx.Conn) error {
			_, err := conn.CopyFrom(ctx, pgx.Identifier{"bench_jobs"}, []string{"n", "shard", "uid"}, pgx.CopyFromSlice(jobs, func(n int) ([]any, error) {
				uid := uidOf(n)
				return []any{int32(n), int32(shardOf(n)), uid[:]}, nil
			}))
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return p, nil
}

func (p *postgres) open(ctx context.Context) (store.Store, error) {
	return cockroach.Open(ctx, cockroach.Config{URL: p.url})
}

func (p *postgres) empty() []string { return []string{`TRUNCATE slots`} }

// The last variant isn't taken back: nothing is measured after it.
func (p *postgres) variants() []variant {
	return []variant{
		{name: "as it is"},
		{name: "a transaction for each shard", commits: eachShard},
		{name: "a transaction for each shard, four at a time", commits: concurrent},
		{name: "with a history index (shard, uid, fire_time)", make: []string{`CREATE INDEX bench_index ON slots (shard, uid, fire_time)`}, unmake: []string{`DROP INDEX bench_index`}},
		{name: "with an index of open slots (… WHERE state IN (1, 2))", make: []string{`CREATE INDEX bench_index ON slots (shard, fire_time, uid) WHERE state IN (1, 2)`, `ANALYZE slots`},
			unmake: []string{`DROP INDEX bench_index`}},
		{name: "with an index by state (shard, state, fire_time)", make: []string{`CREATE INDEX bench_index ON slots (shard, state, fire_time)`}, unmake: []string{`DROP INDEX bench_index`}},
		{name: "fill factor 100", make: []string{`ALTER TABLE slots SET (fillfactor = 100)`}, unmake: []string{`ALTER TABLE slots SET (fillfactor = 50)`}},
		{name: "fill factor 70", make: []string{`ALTER TABLE slots SET (fillfactor = 70)`}, unmake: []string{`ALTER TABLE slots SET (fillfactor = 50)`}},
		{name: "job-leading key (shard, uid, fire_time)",
			make: []string{`ALTER TABLE slots DROP CONSTRAINT slots_pkey`, `ALTER TABLE slots ADD CONSTRAINT slots_pkey PRIMARY KEY (shard, uid, fire_time)`}},
	}
}

// fillTable makes finished slots in the order of their fire times, as they come to be.
const fillTable = `INSERT INTO slots
	SELECT j.shard, s.at, j.uid, $3, $4, 1, 0, 1, 'worker-1', '0123456789abcdef', s.at, s.at, s.at + 3000, s.at + 5000, 0, s.at + 600000000, $5, '', '', '', 0, 0, ''
	FROM (SELECT n, $6::INT8 + n * 1000000 AS at FROM generate_series($1::INT8, $2::INT8) AS n) s
	JOIN bench_jobs j ON j.n >= s.n % $7::INT8 * $8::INT8 AND j.n < (s.n % $7::INT8 + 1) * $8::INT8`

func (p *postgres) fill(ctx context.Context, slots int) (span, error) {
	seconds := slots / aSecond
	const step = 400 // seconds, a million slots
	for first := 0; first < seconds; first += step {
		err := p.onDatabase(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, fillTable, first, min(first+step, seconds)-1, job.TriggerSchedule, job.Succeeded, job.OutcomeSucceeded, int64(begin), period, aSecond)
			return err
		})
		if err != nil {
			return span{}, err
		}
	}
	return span{seconds}, p.apply(ctx, []string{`VACUUM ANALYZE slots`})
}

func (p *postgres) onDatabase(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

func (p *postgres) apply(ctx context.Context, statements []string) error {
	return p.onDatabase(ctx, func(conn *pgx.Conn) error {
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		_, err := conn.Exec(ctx, `CHECKPOINT`) // lest a measurement wait for what was made
		return err
	})
}

func (p *postgres) used(ctx context.Context) (u usage, err error) {
	all, _ := process.UsageOf(p.server.PID()) // where it isn't known it is nothing
	u.cpu = all.CPU
	err = p.onDatabase(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::INT8, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'slots'`).
			Scan(&u.written, &u.updates, &u.hot)
	})
	return u, err
}

func (p *postgres) bytesPerSlot(ctx context.Context) (table, key float64, err error) {
	err = p.onDatabase(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT pg_table_size('slots')::FLOAT8 / n, pg_relation_size('slots_pkey')::FLOAT8 / n
			FROM (SELECT greatest(n_live_tup, 1)::FLOAT8 AS n FROM pg_stat_user_tables WHERE relname = 'slots') t`).Scan(&table, &key)
	})
	return table, key, err
}

func (p *postgres) close() error { return p.server.Stop() }
