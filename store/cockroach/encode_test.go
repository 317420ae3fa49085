package cockroach

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// BenchmarkEncode measures what a batch costs until it is bytes, without a database: the
// arrays of claims and of finishes, and their encoding.
func BenchmarkEncode(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(size, " executions"), func(b *testing.B) {
			batch := executions(size)
			types := pgtype.NewMap()
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				w := newWriter(&batch)
				w.fence()
				w.slots()
				buf = encode(b, types, w, buf[:0])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/execution")
			b.ReportMetric(float64(len(buf))/float64(size), "bytes/execution")
		})
	}
}

// executions are claims and finishes of as many slots, over all shards.
func executions(n int) store.Batch {
	batch := store.Batch{Shards: make([]store.ShardBatch, shard.DefaultCount)}
	for i := range n {
		s := &batch.Shards[i%shard.DefaultCount]
		s.Proof = shard.Proof{Shard: shard.ID(i % shard.DefaultCount), Epoch: 7}
		claimed := job.Slot{Key: job.SlotKey{FireTime: job.AtSecond(1_800_000_000), UID: job.UID{byte(i >> 8), byte(i)}}, Trigger: job.TriggerSchedule, State: job.Running,
			Attempt: 1, Epoch: 7, Worker: "worker-1", Incarnation: "0123456789abcdef", CreatedAt: 1, ClaimedAt: 1, Deadline: 2}
		done := claimed
		done.Key.FireTime -= job.Second
		done.State, done.StartedAt, done.FinishedAt, done.Outcome = job.Succeeded, 3, 4, job.OutcomeSucceeded
		s.Slots = append(s.Slots, claimed)
		s.Updates = append(s.Updates, store.SlotUpdate{Slot: done, FromState: job.Running, FromAttempt: 1})
	}
	return batch
}

// encode appends every argument of the statements as the driver sends it.
func encode(b *testing.B, types *pgtype.Map, w *writer, buf []byte) []byte {
	for _, q := range w.batch.QueuedQueries {
		for _, arg := range q.Arguments {
			t, ok := types.TypeForValue(arg)
			if !ok {
				b.Fatalf("no type is known for %T", arg)
			}
			var err error
			if buf, err = types.Encode(t.OID, pgtype.BinaryFormatCode, arg, buf); err != nil {
				b.Fatal(err)
			}
		}
	}
	return buf
}
