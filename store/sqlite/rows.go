package sqlite

import (
	"database/sql"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// collect reads all rows of a query.
func collect[T any](rows *sql.Rows, err error, scan func(storekit.Scanner) (T, error)) ([]T, error) {
	return collectInto(nil, rows, err, scan)
}

// collectInto reads all rows of a query behind others. The room for them is doubled: of
// thousands of large values, smaller steps make more garbage than all the rest.
func collectInto[T any](all []T, rows *sql.Rows, err error, scan func(storekit.Scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		if len(all) == cap(all) {
			all = slices.Grow(all, max(len(all), 8))
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// slotValues returns the columns of a slot that an update sets, in the order of
// insertSlot and updateSlot.
func slotValues(s *job.Slot) []any {
	return []any{int64(s.Trigger), int64(s.State), s.Attempt, s.Failures, int64(s.Epoch), s.Worker, s.Incarnation,
		int64(s.CreatedAt), int64(s.ClaimedAt), int64(s.StartedAt), int64(s.FinishedAt), int64(s.NotBefore), int64(s.Deadline),
		int64(s.Outcome), s.ErrorCode, s.ErrorText, storekit.NonNil(s.Result), int64(s.RequestedAt), int64(s.Breaches), storekit.NonNil(s.Params)}
}
