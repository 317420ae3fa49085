// Package pgxtx lets a transaction of pgx be used where the SDK wants any driver's.
package pgxtx

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
)

// Of wraps a transaction.
func Of(tx pgx.Tx) sqltext.Tx { return wrapped{tx} }

type wrapped struct{ tx pgx.Tx }

func (w wrapped) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	done, err := w.tx.Exec(ctx, query, args...)
	return done.RowsAffected(), err
}

func (w wrapped) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return w.tx.QueryRow(ctx, query, args...).Scan(dest...)
}
