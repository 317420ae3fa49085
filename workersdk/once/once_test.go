package once_test

import (
	"context"
	"database/sql"
	"testing"

	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/internal/oncetest"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltest"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
	"github.com/carillon-scheduler/carillon/workersdk/once"
)

var _ once.Attempt = (*worker.Task[struct{}])(nil)

func TestMain(m *testing.M) { sqltest.Main(m) }

func database(t *testing.T, d once.Dialect) oncetest.Database[*sql.Tx] {
	db := sqltest.Open(t, d)
	return oncetest.Database[*sql.Tx]{
		Dialect:  d,
		New:      func(opts ...once.Option) (*once.Guard[*sql.Tx], error) { return once.New(d, opts...) },
		Wrap:     sqltext.Of,
		Begin:    func(ctx context.Context) (*sql.Tx, error) { return db.BeginTx(ctx, nil) },
		Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		Waiting:  func(ctx context.Context, asked int) (int, error) { return sqltest.Waiting(ctx, db, d, asked) },
	}
}

func TestGuard(t *testing.T) {
	for _, d := range sqltest.Dialects {
		t.Run(d.String(), func(t *testing.T) {
			oncetest.Run(t, func(t *testing.T) oncetest.Database[*sql.Tx] { return database(t, d) })
		})
	}
}
