package core

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// mostBytesPerJob is what an idle recurring job may cost in its shard's memory.
const mostBytesPerJob = 200

// A million jobs with a thousand expressions, in as many shards as a cluster has, cost
// what they are: the expressions are shared. Jobs with intervals, and jobs that a
// spread moves, cost no more.
func TestJobsAreSmallInMemory(t *testing.T) {
	const jobs, shards = 1_000_000, 64
	for what, scheduleOf := range map[string]func(i int) job.Schedule{
		"cron": func(i int) job.Schedule { return job.Schedule{Kind: job.KindCron, Cron: expression(i), Dialect: 1} },
		"own parameters": func(i int) job.Schedule {
			return job.Schedule{Kind: job.KindCron, Cron: expression(i), Dialect: 1}
		},
		"interval": func(i int) job.Schedule {
			return job.Schedule{Kind: job.KindInterval, Every: time.Duration(1+i%1000) * time.Hour, Anchor: job.AtSecond(int64(i)), Dialect: 1}
		},
		"spread": func(i int) job.Schedule {
			return job.Schedule{Kind: job.KindCron, Cron: expression(i), Dialect: 2, Spread: time.Hour, Offset: time.Duration(i%3600) * time.Second, Calendars: "closed@1=SAT,SUN,12-25"}
		},
	} {
		t.Run(what, func(t *testing.T) {
			ownParams := what == "own parameters"
			before := heapBytes()
			all := make([]*Shard, shards)
			for id := range all {
				all[id] = shardOf(shard.ID(id), jobs/shards, scheduleOf, ownParams)
			}
			per := float64(heapBytes()-before) / jobs
			t.Logf("%.0f bytes per job", per)
			most := mostBytesPerJob
			if ownParams {
				most += 32 // what they take themselves
			}
			if per > float64(most) {
				t.Errorf("a job costs %.0f bytes, %d are allowed", per, most)
			}
			runtime.KeepAlive(all)
		})
	}
}

// expression returns one of a thousand.
func expression(i int) string { return fmt.Sprintf("%d %d * * *", i%1000%60, i%1000/60) }

func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // what the first one found unused is freed now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// shardOf loads a shard with so many jobs, as a node would.
func shardOf(id shard.ID, jobs int, scheduleOf func(i int) job.Schedule, ownParams bool) *Shard {
	now := job.AtSecond(t0)
	var loaded store.Loaded
	for i := range jobs {
		n := int(id)*jobs + i
		j := job.Job{Shard: id, Namespace: strings.Clone("default"), Name: fmt.Sprintf("tenant-%d-report", n), Handler: strings.Clone("reports.make"),
			Schedule: scheduleOf(n), Retry: job.DefaultRetryPolicy, Timeout: job.DefaultTimeout, CreatedAt: now, EffectiveFrom: now, RequestHash: fmt.Sprintf("%064d", n)}
		if ownParams {
			j.Params = fmt.Appendf(nil, `{"tenant":%d}`, n)
		}
		binary.BigEndian.PutUint64(j.UID[:], uint64(n)*0x9e3779b97f4a7c15)
		loaded.Recurring = append(loaded.Recurring, j)
	}
	owned := store.Owned{Proof: shard.Proof{Shard: id, Epoch: 1}, Watermark: now, OpenFrom: now}
	return New(DefaultConfig(func() float64 { return 0 }), owned, loaded, NewWorkers(), now)
}
