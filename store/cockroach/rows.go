package cockroach

import (
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
