package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// BenchmarkFirePath measures the two commits of an execution, made and claimed,
// then finished, in batches of this many slots, with synchronous=FULL.
func BenchmarkFirePath(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(map[int]string{1: "batch=1", 100: "batch=100", 1000: "batch=1000"}[size], func(b *testing.B) { firePath(b, size) })
	}
}

func firePath(b *testing.B, size int) {
	ctx := b.Context()
	db, err := sqlite.Open(ctx, filepath.Join(b.TempDir(), "carillon.db"))
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
	commit := func(rows store.ShardBatch) {
		rows.Proof = owned.Proof
		if _, err := db.Commit(ctx, store.Batch{Shards: []store.ShardBatch{rows}}); err != nil {
			b.Fatal(err)
		}
	}
	at := job.At(time.Now())
	for b.Loop() {
		at += job.Second
		made, finished := make([]job.Slot, size), make([]store.SlotUpdate, size)
		for i := range made {
			made[i] = job.Slot{Key: job.SlotKey{FireTime: at, UID: job.UID{14: byte(i >> 8), 15: byte(i)}}, Trigger: job.TriggerSchedule,
				State: job.Running, Attempt: 1, Epoch: 1, Worker: "w", Incarnation: "i", CreatedAt: at, ClaimedAt: at, Deadline: at}
			done := made[i]
			done.State, done.Outcome, done.FinishedAt = job.Succeeded, job.OutcomeSucceeded, at
			finished[i] = store.SlotUpdate{Slot: done, FromState: job.Running, FromAttempt: 1}
		}
		commit(store.ShardBatch{Slots: made})
		commit(store.ShardBatch{Updates: finished})
	}
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "executions/s")
}
