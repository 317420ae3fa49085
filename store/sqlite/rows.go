package sqlite

import (
	"database/sql"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// collect reads all rows of a query.
func collect[T any](rows *sql.Rows, err error, scan func(storekit.Scanner) (T, error)) ([]T, error) {
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

// slotValues returns the columns of a slot that an update sets, in the order of
// insertSlot and updateSlot.
func slotValues(s *job.Slot) []any {
	return []any{int64(s.Trigger), int64(s.State), s.Attempt, s.Failures, int64(s.Epoch), s.Worker, s.Incarnation,
		int64(s.CreatedAt), int64(s.ClaimedAt), int64(s.StartedAt), int64(s.FinishedAt), int64(s.NotBefore), int64(s.Deadline),
		int64(s.Outcome), s.ErrorCode, s.ErrorText, storekit.NonNil(s.Result), int64(s.RequestedAt), int64(s.Breaches), storekit.NonNil(s.Params), storekit.NonNil(s.Notes)}
}
