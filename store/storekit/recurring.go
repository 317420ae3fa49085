package storekit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// joinedParts is how many columns of a job are joined to one.
const joinedParts = 9

// partMark parts them. No name, number or JSON text holds it; the last part may.
const partMark = "\x1f"

// RecurringColumns are what an owner needs of a recurring job, of the table j: three columns,
// since a driver that makes a value of each of twenty takes longer than everything else that
// loading a million jobs does.
const RecurringColumns = `j.uid, j.params, j.namespace` + and + `j.name` + and + `j.handler` + and + `j.schedule` + and + `j.retry` + and + `j.policies` +
	and + `CAST(j.timeout_us AS TEXT)` + and + `CAST(j.effective_from AS TEXT)` + and + `CAST(coalesce(j.ended_at, 0) AS TEXT)` + and + `coalesce(j.quarantine, '')`

const and = ` || '` + partMark + `' || `

// RecurringScanner reads RecurringColumns of one shard's jobs. Borrow returns the target of
// a driver for bytes that are its own.
type RecurringScanner struct {
	Shard       shard.ID
	Borrow      func(*[]byte) any
	uid, params []byte
	joined      string
	targets     []any
}

// Rows are the rows of a query.
type Rows interface {
	Scanner
	Next() bool
	Err() error
}

// ScanAll reads all rows behind others, each in its place. The room for them is doubled: of
// thousands of large values, smaller steps make more garbage than all the rest.
func (r *RecurringScanner) ScanAll(jobs []job.Job, rows Rows) ([]job.Job, error) {
	for rows.Next() {
		n := len(jobs)
		if n == cap(jobs) {
			jobs = slices.Grow(jobs, max(n, 8))
		}
		jobs = append(jobs, job.Job{})
		if err := r.scan(rows, &jobs[n]); err != nil {
			return nil, err
		}
	}
	return jobs, rows.Err()
}

// scan reads one job into a zero one.
func (r *RecurringScanner) scan(row Scanner, j *job.Job) (err error) {
	if r.targets == nil {
		r.targets = []any{r.Borrow(&r.uid), r.Borrow(&r.params), &r.joined}
	}
	if err := row.Scan(r.targets...); err != nil {
		return err
	}
	j.Shard = r.Shard
	copy(j.UID[:], r.uid)
	if len(r.params) > 0 {
		j.Params = append([]byte(nil), r.params...)
	}
	joined := r.joined
	var parts [joinedParts + 1]string
	last := len(parts) - 1
	for i := range last {
		var more bool
		if parts[i], joined, more = strings.Cut(joined, partMark); !more {
			return fmt.Errorf("job %s has %d parts, not %d", j.UID, i+1, len(parts))
		}
	}
	parts[last] = joined
	// Whoever keeps the name must not keep all of the text with it.
	j.Namespace, j.Name, j.Handler = parts[0], strings.Clone(parts[1]), parts[2]
	var numbers [3]int64
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(parts[6+i], 10, 64); err != nil {
			return fmt.Errorf("job %s: %w", j.UID, err)
		}
	}
	j.Timeout, j.EffectiveFrom, j.EndedAt = time.Duration(numbers[0])*time.Microsecond, job.Instant(numbers[1]), job.Instant(numbers[2])
	j.Quarantine = parts[last]
	DecodeJob(j, JobTexts{Schedule: parts[3], Retry: parts[4], Labels: "{}", Policies: parts[5]})
	return nil
}
