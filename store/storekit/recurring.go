package storekit

import (
	"database/sql"
	"fmt"
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
const RecurringColumns = `j.uid, j.params, j.namespace || char(31) || j.name || char(31) || j.handler || char(31) || j.schedule || char(31) || j.retry
	|| char(31) || j.policies || char(31) || j.timeout_us || char(31) || j.effective_from || char(31) || coalesce(j.ended_at, 0) || char(31) || coalesce(j.quarantine, '')`

// RecurringScanner reads RecurringColumns of one shard's jobs.
type RecurringScanner struct {
	Shard       shard.ID
	uid, params sql.RawBytes
}

// Scan reads one job.
func (r *RecurringScanner) Scan(row Scanner) (j job.Job, err error) {
	var joined string
	if err := row.Scan(&r.uid, &r.params, &joined); err != nil {
		return j, err
	}
	j.Shard = r.Shard
	copy(j.UID[:], r.uid)
	if len(r.params) > 0 {
		j.Params = append([]byte(nil), r.params...)
	}
	parts := strings.SplitN(joined, partMark, joinedParts+1)
	if len(parts) != joinedParts+1 {
		return j, fmt.Errorf("job %s has %d parts, not %d", j.UID, len(parts), joinedParts+1)
	}
	// Whoever keeps the name must not keep all of the text with it.
	j.Namespace, j.Name, j.Handler = parts[0], strings.Clone(parts[1]), parts[2]
	var numbers [3]int64
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(parts[6+i], 10, 64); err != nil {
			return j, fmt.Errorf("job %s: %w", j.UID, err)
		}
	}
	j.Timeout, j.EffectiveFrom, j.EndedAt = time.Duration(numbers[0])*time.Microsecond, job.Instant(numbers[1]), job.Instant(numbers[2])
	j.Quarantine = parts[9]
	DecodeJob(&j, JobTexts{Schedule: parts[3], Retry: parts[4], Labels: "{}", Policies: parts[5]})
	return j, nil
}
