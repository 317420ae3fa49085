package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/store"
)

// lateEnough is from when on a start is listed as evidence.
const lateEnough = 500 * time.Millisecond

// evidence writes what may tell why a round failed beside the logs: who owned which shard when, and
// what began late. The database is gone by then.
func (v *verdict) evidence(dir string) error {
	f, err := os.Create(filepath.Join(dir, "evidence"))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	for name, at := range v.events {
		fmt.Fprintf(out, "%s event %s\n", clockOf(at), name)
	}
	for _, p := range v.phases {
		fmt.Fprintf(out, "%s phase %s until %s\n", clockOf(p.from), p.name, clockOf(p.until))
	}
	for i := range v.shards {
		v.evidenceOf(out, &v.shards[i])
	}
	return errors.Join(out.Flush(), f.Close())
}

// evidenceOf writes that of one shard. The writer keeps its error.
func (v *verdict) evidenceOf(out *bufio.Writer, a *store.Audit) {
	for _, t := range a.TakeOvers {
		fmt.Fprintf(out, "%s shard %d epoch %d owner %q claim %d.%d\n", clockOf(t.At.Time()), a.Shard, t.Epoch, t.Owner, t.Gen, t.Rev)
	}
	for _, one := range a.Attempts {
		fmt.Fprintf(out, "%s attempt %d of shard %d job %d due %s claimed %s, %v, %s\n", clockOf(one.Attempt.EndedAt.Time()), one.Attempt.Number, a.Shard,
			v.jobs.Numbers[one.Key.UID], clockOf(one.Key.FireTime.Time()), clockOf(one.Attempt.ClaimedAt.Time()), one.Attempt.Outcome, one.Attempt.Worker)
	}
	for i := range a.Slots {
		s := &a.Slots[i]
		if late := s.StartedAt.Sub(s.Key.FireTime); late > lateEnough || s.Attempt != 1 {
			fmt.Fprintf(out, "%s late shard %d job %d due %s made %s claimed %s, %s late, epoch %d, attempt %d, %v, %s\n", clockOf(s.StartedAt.Time()), a.Shard,
				v.jobs.Numbers[s.Key.UID], clockOf(s.Key.FireTime.Time()), clockOf(s.CreatedAt.Time()), clockOf(s.ClaimedAt.Time()), late, s.Epoch, s.Attempt, s.State, s.Worker)
		}
	}
}

func clockOf(t time.Time) string { return t.UTC().Format("15:04:05.000") }
