package model_test

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/sim/model"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

const fire0 = job.Instant(1_700_000_000_000_000)

// BenchmarkCommit is one slot's life, in a shard that has 10,000 slots: a commit that makes
// and claims it, and a commit that finishes it.
func BenchmarkCommit(b *testing.B) {
	st, owned := filled(b)
	fire := fire0 + 10_000*job.Second
	var create, finish [1]store.ShardBatch
	slots, updates := make([]job.Slot, 1), make([]store.SlotUpdate, 1)
	b.ReportAllocs()
	for b.Loop() {
		fire += job.Second
		s := job.Slot{Key: job.SlotKey{FireTime: fire, UID: job.UID{1}}, Trigger: job.TriggerSchedule, State: job.Running, Attempt: 1,
			Epoch: owned.Epoch, Worker: "w", Incarnation: "i", CreatedAt: fire, ClaimedAt: fire, Deadline: fire + job.Second}
		slots[0] = s
		create[0] = store.ShardBatch{Proof: owned, Watermark: fire, Slots: slots}
		commit(b, st, create[:])
		s.State, s.Outcome, s.FinishedAt = job.Succeeded, job.OutcomeSucceeded, fire+1
		updates[0] = store.SlotUpdate{Slot: s, FromState: job.Running, FromAttempt: 1}
		finish[0] = store.ShardBatch{Proof: owned, Watermark: fire + 1, Updates: updates}
		commit(b, st, finish[:])
	}
}

// BenchmarkReads are the reads that an owner makes again and again, when there is nothing
// for it.
func BenchmarkReads(b *testing.B) {
	st, owned := filled(b)
	ctx := b.Context()
	for name, read := range map[string]func() error{
		"InboxShards": func() error { _, err := st.InboxShards(ctx); return err },
		"Oldest":      func() error { _, err := st.Oldest(ctx, owned, store.Old{}); return err },
		"OldSlots": func() error {
			_, err := st.OldSlots(ctx, owned, store.PruneQuery{Until: fire0, Limit: 100})
			return err
		},
		"EndedJobs": func() error {
			_, err := st.EndedJobs(ctx, owned, store.EndedQuery{Before: fire0, Limit: 100})
			return err
		},
		"DoneJobs": func() error {
			_, err := st.DoneJobs(ctx, owned, store.EndedQuery{Before: fire0, Limit: 100})
			return err
		},
		"Waiting": func() error {
			_, err := st.Waiting(ctx, owned, store.BacklogQuery{Handler: "h", Limit: 100})
			return err
		},
		"Load": func() error { _, err := st.Load(ctx, owned, nil); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// filled returns a database with one job and 10,000 slots that have ended.
func filled(b *testing.B) (*model.Store, shard.Proof) {
	b.Helper()
	st := model.New(func() job.Instant { return fire0 })
	owned := own(b, st, 1)[0].Proof
	rows := store.ShardBatch{Proof: owned, OpenFrom: fire0 + 10_000*job.Second,
		Creates: []store.Create{{Job: job.Job{UID: job.UID{1}, Namespace: "n", Name: "j", Handler: "h", Schedule: job.Schedule{Kind: job.KindCron}}}}}
	for i := range job.Instant(10_000) {
		rows.Slots = append(rows.Slots, job.Slot{Key: job.SlotKey{FireTime: fire0 + i*job.Second, UID: job.UID{1}}, State: job.Succeeded})
	}
	commit(b, st, []store.ShardBatch{rows})
	return st, owned
}

func commit(b *testing.B, st store.Store, batch []store.ShardBatch) {
	out, err := st.Commit(b.Context(), store.Batch{Shards: batch})
	if err != nil || len(out.Shards[0].Slots) > 0 {
		b.Fatal(out, err)
	}
}
