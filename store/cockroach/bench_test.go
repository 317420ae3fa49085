package cockroach_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
)

// BenchmarkCommit writes executions, each of them claimed by one batch and ended by
// the next, for several sizes of a batch. The server does not wait for its disk.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 20, 200, 1000} {
		b.Run(fmt.Sprint(size, " executions"), func(b *testing.B) {
			ctx := context.Background()
			name, err := server.NewDatabase(ctx, template)
			if err != nil {
				b.Fatal(err)
			}
			db, err := cockroach.Open(ctx, cockroach.Config{URL: server.URL(name)})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			if _, err := db.InitShards(ctx, 1); err != nil {
				b.Fatal(err)
			}
			owned, err := db.TakeOver(ctx, store.Claim{Node: "a", Rev: 1})
			if err != nil {
				b.Fatal(err)
			}
			j := everyMinute(1)
			if _, err := db.Commit(ctx, batch(store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: j}}})); err != nil {
				b.Fatal(err)
			}
			var last []job.Slot
			n := 0
			for b.Loop() {
				rows := store.ShardBatch{Proof: owned.Proof}
				for i := range last {
					s := last[i]
					s.State, s.StartedAt, s.FinishedAt, s.Outcome = job.Succeeded, 3, 4, job.OutcomeSucceeded
					rows.Updates = append(rows.Updates, store.SlotUpdate{Slot: s, FromState: job.Running, FromAttempt: 1})
				}
				last = last[:0]
				for range size {
					n++
					s := job.Slot{Key: job.SlotKey{FireTime: owned.Watermark + job.Instant(n)*job.Second, UID: j.UID}, Trigger: job.TriggerSchedule,
						State: job.Running, Attempt: 1, Epoch: 1, Worker: "worker-1", Incarnation: "0123456789abcdef", CreatedAt: 1, ClaimedAt: 1, Deadline: 2}
					last = append(last, s)
				}
				rows.Slots = last
				if _, err := db.Commit(ctx, batch(rows)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "executions/s")
		})
	}
}
