package cockroach

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// collect reads all rows of a query.
func collect[T any](rows pgx.Rows, err error, scan func(storekit.Scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// list answers a question of people's with all rows of a query.
func list[T any](ctx context.Context, db *DB, op string, scan func(storekit.Scanner) (T, error), query string, args ...any) (all []T, err error) {
	err = again(ctx, op, func(ctx context.Context) (err error) {
		rows, err := db.reader.Query(ctx, query, args...)
		all, err = collect(rows, err, scan)
		return err
	})
	return all, err
}

// one answers a question of people's with the row of a query, or says what is not
// there.
func one[T any](ctx context.Context, db *DB, what string, scan func(storekit.Scanner) (T, error), query string, args ...any) (v T, err error) {
	err = again(ctx, "read "+what, func(ctx context.Context) (err error) {
		v, err = scan(db.reader.QueryRow(ctx, query, args...))
		if errors.Is(err, pgx.ErrNoRows) {
			return domainError{fmt.Errorf("cockroach: %s: %w", what, store.ErrNotFound)}
		}
		return err
	})
	return v, err
}

// batcher is a pool or a transaction.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// lists runs several queries in one round trip.
func lists[T any](ctx context.Context, q batcher, scan func(storekit.Scanner) (T, error), batch *pgx.Batch) ([][]T, error) {
	results := q.SendBatch(ctx, batch)
	answers := make([][]T, batch.Len())
	for i := range answers {
		rows, err := results.Query()
		if answers[i], err = collect(rows, err, scan); err != nil {
			_ = results.Close() // tells the same
			return nil, err
		}
	}
	return answers, results.Close()
}
