package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

func fresh(t *testing.T) (*DB, store.Owned) {
	t.Helper()
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "c.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.InitShards(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	owned, err := db.TakeOver(t.Context(), store.Claim{Node: "a", Rev: 1})
	if err != nil {
		t.Fatal(err)
	}
	return db, owned
}

func everySecond(params []byte) job.Job {
	return job.Job{UID: job.UID{1}, Namespace: "d", Name: "n", Handler: "h", Params: params,
		Schedule: job.Schedule{Kind: job.KindCron, Cron: "* * * * * *", Dialect: schedule.DialectVersion}, Retry: job.DefaultRetryPolicy}
}

// SQLite undoes only the statement, not the transaction, when some errors occur:
// a batch for which the disk has no room must leave nothing all the same.
func TestAFullDiskLeavesNothingOfABatch(t *testing.T) {
	db, owned := fresh(t)
	var pages int
	if err := db.write.QueryRow(`PRAGMA page_count`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	if _, err := db.write.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)); err != nil {
		t.Fatal(err)
	}
	_, err := db.Commit(t.Context(), store.Batch{Shards: []store.ShardBatch{{
		Proof: owned.Proof, Watermark: owned.Watermark + 5_000_000, Creates: []store.Create{{Job: everySecond(make([]byte, 200<<10))}},
		Slots: []job.Slot{{Key: job.SlotKey{FireTime: 5, UID: job.UID{2}}, State: job.Ready}}}}})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("commit: %v; want one that is repeated", err)
	}
	var watermark, slots int64
	if err := db.read.QueryRow(`SELECT watermark, (SELECT count(*) FROM slots) FROM shards WHERE shard = 0`).Scan(&watermark, &slots); err != nil {
		t.Fatal(err)
	}
	if watermark != int64(owned.Watermark) || slots != 0 {
		t.Errorf("a failed batch moved the watermark by %d us and left %d slots", watermark-int64(owned.Watermark), slots)
	}
}

// Loading finds, for each open slot, whether the backlog holds it. Without its own
// index that took the square of the backlog: half a minute for 20,000 rows.
func TestLoadFindsBacklogRowsByTheirSlot(t *testing.T) {
	db, owned := fresh(t)
	b := store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: everySecond(nil)}}}
	for i := range 20_000 {
		k := job.SlotKey{FireTime: owned.Watermark + job.Instant(i)*1_000, UID: job.UID{1}}
		b.Slots = append(b.Slots, job.Slot{Key: k, Trigger: job.TriggerManual, State: job.Ready, CreatedAt: k.FireTime})
		b.BacklogPuts = append(b.BacklogPuts, store.BacklogRow{
			Key: store.BacklogKey{Waiting: true, Handler: "h", Rank: k.FireTime, Slot: k}, ReadyAt: k.FireTime,
			WakeAt: k.FireTime, Trigger: job.TriggerManual})
	}
	if _, err := db.Commit(t.Context(), store.Batch{Shards: []store.ShardBatch{b}}); err != nil {
		t.Fatal(err)
	}
	l, err := db.Load(t.Context(), owned.Proof, nil)
	if err != nil || len(l.Open) != 0 {
		t.Fatalf("%d slots are open beside the backlog, %v", len(l.Open), err)
	}
}
