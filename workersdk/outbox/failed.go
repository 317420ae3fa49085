package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// maxFailed bounds a page of failed rows.
const maxFailed = 1000

// Failed is a row whose job was refused for good. It stays until it is tried again by
// [Relay.Retry], or given up by [Relay.Discard].
type Failed struct {
	ID       int64
	Request  *carillonv1.CreateJobRequest // nil if the row can't be read
	Attempts int64
	Error    string
	Time     time.Time // when it was refused
}

// Failed lists up to limit failed rows, at most 1,000, whose ID is larger than after, by
// their ID.
func (r *Relay) Failed(ctx context.Context, after int64, limit int) ([]Failed, error) {
	rows, err := r.db.QueryContext(ctx, r.sql.failures, after, min(max(limit, 1), maxFailed))
	if err != nil {
		return nil, fmt.Errorf("list failed rows: %w", err)
	}
	defer rows.Close()
	var list []Failed
	for rows.Next() {
		f, err := scanFailed(rows)
		if err != nil {
			return nil, fmt.Errorf("list failed rows: %w", err)
		}
		list = append(list, f)
	}
	return list, rows.Err()
}

func scanFailed(rows *sql.Rows) (f Failed, err error) {
	var doc []byte
	var millis int64
	if err := rows.Scan(&f.ID, &f.Attempts, &doc, &f.Error, &millis); err != nil {
		return f, err
	}
	f.Time = time.UnixMilli(millis).UTC()
	f.Request = &carillonv1.CreateJobRequest{}
	if proto.Unmarshal(doc, f.Request) != nil {
		f.Request = nil
	}
	return f, nil
}

// Retry makes failed rows wait again, as they are, and returns how many there were of
// them. To change a job, discard its row and add it anew.
func (r *Relay) Retry(ctx context.Context, ids ...int64) (n int64, err error) {
	return r.change(ctx, "retry failed rows", r.sql.retry, ids)
}

// Discard deletes failed rows: their jobs are given up. It returns how many there were of
// them.
func (r *Relay) Discard(ctx context.Context, ids ...int64) (n int64, err error) {
	return r.change(ctx, "discard failed rows", r.sql.discard, ids)
}

func (r *Relay) change(ctx context.Context, what, query string, ids []int64) (int64, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	if len(ids) > maxFailed {
		return 0, fmt.Errorf("%s: at most %d at a time, are %d", what, maxFailed, len(ids))
	}
	query, args := listed(r.dialect, query, ids)
	done, err := r.db.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return done.RowsAffected()
}

// Stats is what is in an outbox.
type Stats struct {
	Waiting int64         // rows whose job is still to be created
	Oldest  time.Duration // how long the oldest of them has waited
	Failed  int64         // rows whose job was refused for good
}

// Stats counts what is in the outbox. An age that grows says that no relay comes through.
func (r *Relay) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	var millis int64
	if err := r.db.QueryRowContext(ctx, r.sql.stats).Scan(&s.Waiting, &s.Failed, &millis); err != nil {
		return s, fmt.Errorf("count the outbox: %w", err)
	}
	s.Oldest = time.Duration(millis) * time.Millisecond
	return s, nil
}
