package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// judge lets the checker hold what is stored against what the worker did. It returns how
// many slots of what was measured never began, because their jobs were ended first: a
// system that can't keep up has some.
func (r *rig) judge(ctx context.Context, m measured, noted []workload.Execution, stopped job.Instant) (cancelled int, err error) {
	db, err := r.cfg.Open(ctx, r.address)
	if err != nil {
		return 0, err
	}
	defer db.Close() // it was only read

	// One machine, one clock.
	h := checker.History{Now: stopped, Young: 2 * time.Second, ClockError: time.Millisecond}
	if h.Shards, err = checker.Read(ctx, db, shard.DefaultCount); err != nil {
		return 0, err
	}
	jobs := workload.JobsOf(h.Shards)
	h.Effects = workload.Effects(jobs, noted)
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
	return m.neverBegan(h.Shards, jobs, noted), nil
}

// neverBegan counts what was to be measured and never began: slots that were cancelled
// first, and times that a job was ended before.
func (m *measured) neverBegan(shards []store.Audit, jobs workload.Names, noted []workload.Execution) (n int) {
	began := make(map[[2]int64]bool, len(noted))
	for _, e := range noted {
		began[[2]int64{e.Job, e.Fire}] = true
	}
	for i := range shards {
		for _, s := range shards[i].Slots {
			e := workload.Execution{Job: jobs.Numbers[s.Key.UID], Fire: int64(s.Key.FireTime)}
			if s.State == job.Cancelled && m.counts(e) && !began[[2]int64{e.Job, e.Fire}] {
				n++
			}
		}
		for _, j := range shards[i].Jobs {
			if j.Schedule.Kind == job.KindCron && j.EndedAt != 0 {
				n += m.missed(jobs.Numbers[j.UID], int64(j.EndedAt))
			}
		}
	}
	return n
}

// missed counts the seconds of the window after an instant, in which a job would have
// fired.
func (m *measured) missed(number, end int64) (n int) {
	for at := m.from; at.Before(m.until); at = at.Add(time.Second) {
		if at.UnixMicro() > end && m.counts(workload.Execution{Job: number, Fire: at.UnixMicro()}) {
			n++
		}
	}
	return n
}
