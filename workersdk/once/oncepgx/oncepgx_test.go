package oncepgx_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillon-scheduler/carillon/workersdk/internal/oncetest"
	"github.com/carillon-scheduler/carillon/workersdk/internal/pgxtx"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltest"
	"github.com/carillon-scheduler/carillon/workersdk/once"
	"github.com/carillon-scheduler/carillon/workersdk/once/oncepgx"
)

func TestMain(m *testing.M) { sqltest.Main(m) }

// Simple is the protocol that poolers between a program and its database ask for.
func TestGuard(t *testing.T) {
	for name, mode := range map[string]pgx.QueryExecMode{"extended": pgx.QueryExecModeCacheStatement, "simple": pgx.QueryExecModeSimpleProtocol} {
		t.Run(name, func(t *testing.T) {
			oncetest.Run(t, func(t *testing.T) oncetest.Database[pgx.Tx] { return database(t, mode) })
		})
	}
}

func database(t *testing.T, mode pgx.QueryExecMode) oncetest.Database[pgx.Tx] {
	cfg, err := pgxpool.ParseConfig(sqltest.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DefaultQueryExecMode, cfg.MaxConns = mode, 10
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return oncetest.Database[pgx.Tx]{
		Dialect:  once.PostgreSQL,
		New:      oncepgx.New,
		Wrap:     pgxtx.Of,
		Begin:    func(ctx context.Context) (pgx.Tx, error) { return pool.Begin(ctx) },
		Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		Waiting: func(ctx context.Context, asked int) (n int, err error) {
			err = pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&n)
			return n, err
		},
	}
}
