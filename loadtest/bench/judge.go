package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// judge lets the checker hold what is stored against what the worker did. It returns how
// many slots of what was measured never began, because their jobs were ended first: a
// system that can't keep up has some.
func (r *rig) judge(ctx context.Context, m measured, noted []execution, stopped job.Instant) (cancelled int, err error) {
	db, err := r.cfg.Open(ctx, r.address)
	if err != nil {
		return 0, err
	}
	defer db.Close() // it was only read
	h := checker.History{Now: stopped, Young: 2 * time.Second}
	if h.Shards, err = checker.Read(ctx, db, shard.DefaultCount); err != nil {
		return 0, err
	}
	jobs := jobsOf(h.Shards)
	h.Effects = effects(jobs, noted)
	for _, uid := range r.acked {
		h.Ledger.Acked = append(h.Ledger.Acked, uid)
	}
	violations := checker.Check(h)
	for i, v := range violations {
		if i == 10 {
			break
		}
		fmt.Fprintln(r.cfg.Log, "violation:", v)
	}
	if len(violations) > 0 {
		return 0, fmt.Errorf("the run has no result: %d violations of what must hold", len(violations))
	}
	return m.neverBegan(h.Shards, jobs), nil
}

// names knows the jobs of a run by their numbers, and the other way round.
type names struct {
	uids    map[int64]job.UID
	numbers map[job.UID]int64
}

func jobsOf(shards []store.Audit) names {
	n := names{map[int64]job.UID{}, map[job.UID]int64{}}
	for i := range shards {
		for _, j := range shards[i].Jobs {
			number := numberOf(j.ResourceName())
			n.uids[number], n.numbers[j.UID] = j.UID, number
		}
	}
	return n
}

// effects turns what the worker noted into the checker's words.
func effects(jobs names, all []execution) []checker.Effect {
	effects := make([]checker.Effect, 0, 2*len(all))
	for _, e := range all {
		one := checker.Effect{Job: jobs.uids[e.Job], Fire: e.fireTime(), Attempt: int32(e.Attempt), Kind: checker.Began, At: job.Instant(e.Began)}
		effects = append(effects, one)
		if e.Done != 0 {
			one.Kind, one.At = checker.Done, job.Instant(e.Done)
			effects = append(effects, one)
		}
	}
	return effects
}

// neverBegan counts what was to be measured and was cancelled before it could begin.
func (m *measured) neverBegan(shards []store.Audit, jobs names) int {
	n := 0
	for i := range shards {
		for _, s := range shards[i].Slots {
			if s.State == job.Cancelled && s.Attempt == 0 && m.counts(execution{Job: jobs.numbers[s.Key.UID], Fire: int64(s.Key.FireTime)}) {
				n++
			}
		}
	}
	return n
}
