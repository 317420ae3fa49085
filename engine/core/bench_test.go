package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// BenchmarkExecution measures what a shard itself costs per execution of a
// recurring job, without database and network: firing, claim, batch, result.
func BenchmarkExecution(b *testing.B) {
	const jobs = 1000
	now := job.AtSecond(t0)
	workers := NewWorkers()
	key := WorkerKey{ID: "w", Incarnation: "1"}
	workers.Join(key, []string{"h"}, 2*jobs, 2*jobs, job.MaxInstant)
	var loaded store.Loaded
	for i := range jobs {
		loaded.Recurring = append(loaded.Recurring, job.Job{UID: job.UID{0: byte(i >> 8), 1: byte(i)}, Name: fmt.Sprint(i), Handler: "h",
			Schedule: job.Schedule{Kind: job.KindCron, Cron: "* * * * * *", Dialect: schedule.DialectVersion}, Retry: job.DefaultRetryPolicy, Timeout: time.Minute})
	}
	s := New(DefaultConfig(func() float64 { return 0 }), store.Owned{Watermark: now}, loaded, workers, now)
	commit := func() (assigned []Assign) {
		for batch := s.Ready(now, store.MaxBatchRows); batch != nil; batch = s.Ready(now, store.MaxBatchRows) {
			s.Step(now, Committed{})
			for _, m := range s.Messages() {
				if a, ok := m.(Assign); ok {
					assigned = append(assigned, a)
				}
			}
		}
		return assigned
	}
	commit()
	b.ReportAllocs()
	done := 0
	for b.Loop() {
		now = now.Add(time.Second)
		s.Step(now, Tick{})
		for _, a := range commit() {
			s.Step(now, Result{Worker: key, Token: a.Token, Outcome: job.OutcomeSucceeded, StartedAt: now})
			workers.AddCredit(workers.Get("w"), 1)
			done++
		}
		commit()
	}
	if done < jobs {
		b.Fatalf("%d executions", done)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/execution")
}
