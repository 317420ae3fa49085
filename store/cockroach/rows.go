package cockroach

import (
	"context"

	"github.com/jackc/pgx/v5"

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
func list[T any](ctx context.Context, db *DB, op string, scan func(storekit.Scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.reader.Query(ctx, query, args...)
	all, err := collect(rows, err, scan)
	if err != nil {
		return nil, unavailable(op, err)
	}
	return all, nil
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
