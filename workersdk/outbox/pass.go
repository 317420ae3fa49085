package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// row is a row that this relay has claimed, and what became of it.
type row struct {
	id       int64
	attempts int64 // claims of the row, this one included
	request  []byte
	answer   answer
}

// summary is what a pass did.
type summary struct{ claimed, created, failed int }

// stuck reports whether there was something to do, and no answer to any of it.
func (s summary) stuck() bool { return s.claimed > 0 && s.created+s.failed == 0 }

// pass claims some rows, creates their jobs, and notes what became of them.
func (r *Relay) pass(ctx context.Context) (summary, error) {
	rows, err := r.claim(ctx)
	if err != nil || len(rows) == 0 {
		return summary{}, err
	}
	r.send(ctx, rows)
	return r.settle(ctx, rows)
}

// claim takes the rows that have been due for longest, in the order in which they were
// added; none if all that are due are being taken by others.
func (r *Relay) claim(ctx context.Context) ([]row, error) {
	rows, err := again(ctx, func() ([]row, error) { return r.tryClaim(ctx) })
	if err != nil && !errors.Is(err, errTaken) {
		return nil, fmt.Errorf("claim rows: %w", err)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	return rows, nil
}

// errTaken says that rows are due and all of them locked: a moment later they are either
// another relay's, or free.
var errTaken = errors.New("others are taking the rows")

// tryClaim looks before it writes: on SQLite, whoever writes keeps others from it.
func (r *Relay) tryClaim(ctx context.Context) ([]row, error) {
	var one int
	switch err := r.db.QueryRowContext(ctx, r.sql.due).Scan(&one); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	claim := r.claimByOne
	if r.dialect == MySQL {
		claim = r.claimByTwo
	}
	rows, err := claim(ctx)
	if err == nil && len(rows) == 0 {
		err = errTaken
	}
	return rows, err
}

func (r *Relay) claimByOne(ctx context.Context) ([]row, error) {
	return read(r.db.QueryContext(ctx, r.sql.claim, r.batch, leaseTime.Milliseconds()))
}

// claimByTwo reads and then leases. READ COMMITTED, since at MySQL's default level the
// read would keep others from adding rows.
func (r *Relay) claimByTwo(ctx context.Context) ([]row, error) {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	rows, err := read(tx.QueryContext(ctx, r.sql.pick, r.batch))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	query, args := listed(r.dialect, r.sql.lease, ids(rows), leaseTime.Milliseconds())
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return nil, err
	}
	return rows, tx.Commit()
}

// read reads the rows of a claim.
func read(found *sql.Rows, err error) ([]row, error) {
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []row
	for found.Next() {
		var one row
		if err := found.Scan(&one.id, &one.attempts, &one.request); err != nil {
			return nil, err
		}
		rows = append(rows, one)
	}
	return rows, found.Err()
}

func ids(rows []row) []int64 {
	list := make([]int64, len(rows))
	for i := range rows {
		list[i] = rows[i].id
	}
	return list
}

// send creates the jobs of rows. It ends well before their lease does.
func (r *Relay) send(ctx context.Context, rows []row) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	var underWay errgroup.Group // their errors are answers
	underWay.SetLimit(maxInFlight)
	for i := range rows {
		underWay.Go(func() error {
			rows[i].answer = r.create(ctx, &rows[i])
			return nil
		})
	}
	_ = underWay.Wait()
}

func (r *Relay) create(ctx context.Context, one *row) answer {
	req := &carillonv1.CreateJobRequest{}
	if err := proto.Unmarshal(one.request, req); err != nil {
		return answer{failed, fmt.Errorf("read the row: %w", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.jobs.CreateJob(ctx, req)
	a := judge(err)
	switch {
	case a.verdict == failed:
		r.log.ErrorContext(ctx, "a job was refused; its row stays in the outbox as failed", "id", one.id, "job", jobName(req), "error", err)
	case a.verdict == later && !errors.Is(context.Cause(ctx), context.Canceled):
		r.log.WarnContext(ctx, "a job could not be created; it is tried again", "id", one.id, "job", jobName(req), "attempts", one.attempts, "error", err)
	}
	return a
}

// settle notes what became of rows, also when the relay stops. If it can't, they are due
// again when their lease ends, and creating them again makes nothing twice.
func (r *Relay) settle(ctx context.Context, rows []row) (summary, error) {
	stopping := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return again(ctx, func() (summary, error) { return r.note(ctx, rows, stopping) })
}

// again runs a transaction a few times: relays that meet in the indexes of MySQL deadlock
// now and then, and SQLite is busy.
func again[T any](ctx context.Context, tx func() (T, error)) (T, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = minRetry
	return backoff.Retry(ctx, tx, backoff.WithBackOff(pause), backoff.WithMaxTries(maxTries))
}

// note writes what became of rows, in one transaction.
func (r *Relay) note(ctx context.Context, rows []row, stopping bool) (summary, error) {
	done := summary{claimed: len(rows)}
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return done, err
	}
	defer tx.Rollback()
	var created []int64
	for i := range rows {
		switch rows[i].answer.verdict {
		case made:
			created = append(created, rows[i].id)
		case failed:
			done.failed++
			err = r.noteFailed(ctx, tx, &rows[i])
		case later:
			err = r.noteLater(ctx, tx, &rows[i], stopping)
		}
		if err != nil {
			return done, fmt.Errorf("note what became of a row: %w", err)
		}
	}
	done.created = len(created)
	if err := r.noteCreated(ctx, tx, created); err != nil {
		return done, fmt.Errorf("delete rows: %w", err)
	}
	return done, tx.Commit()
}

func (r *Relay) noteCreated(ctx context.Context, tx *sql.Tx, created []int64) error {
	if len(created) == 0 {
		return nil
	}
	query, args := listed(r.dialect, r.sql.created, created)
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

func (r *Relay) noteFailed(ctx context.Context, tx *sql.Tx, one *row) error {
	_, err := tx.ExecContext(ctx, r.sql.failed, one.answer.text(), one.id, one.attempts)
	return err
}

// noteLater keeps a row for a later attempt. One that is unfinished only because this relay
// stops is due at once.
func (r *Relay) noteLater(ctx context.Context, tx *sql.Tx, one *row, stopping bool) error {
	delay, text := delayAfter(one.attempts), sql.NullString{String: one.answer.text(), Valid: true}
	if stopping {
		delay, text.Valid = 0, false
	}
	_, err := tx.ExecContext(ctx, r.sql.later, delay.Milliseconds(), text, one.id, one.attempts)
	return err
}
