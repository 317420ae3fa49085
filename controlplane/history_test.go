package controlplane

import (
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// Where most slots were deleted, those that are left are listed all the same: dead
// letters, and what was made up for late. Nobody walks years of fire times for them.
func TestAHistoryBeforeTheLineOfRetention(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "c.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.InitShards(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	owned, err := db.TakeOver(t.Context(), store.Claim{Node: "a", Rev: 1})
	if err != nil {
		t.Fatal(err)
	}
	begin := job.AtSecond(1_000_000_000) // twenty-five years ago
	line := job.AtSecond(1_700_000_000)
	mine := job.Job{UID: job.UID{5}, Namespace: "default", Name: "j", Handler: "h", EffectiveFrom: begin, EndedAt: line + 500*job.Second,
		Schedule: job.Schedule{Kind: job.KindCron, Cron: "* * * * * *", Dialect: schedule.DialectVersion}}
	other := mine
	other.UID, other.Name = job.UID{9}, "other"
	rows := store.ShardBatch{Proof: owned.Proof, RetainedFrom: line, Creates: []store.Create{{Job: mine}, {Job: other}}}
	var want []job.Instant
	add := func(uid job.UID, at job.Instant, trigger job.Trigger) {
		rows.Slots = append(rows.Slots, job.Slot{Key: job.SlotKey{FireTime: at, UID: uid}, Trigger: trigger, State: job.Dead})
		if uid == mine.UID {
			want = append(want, at)
		}
	}
	for i := range job.Instant(30) {
		add(mine.UID, line+i*10*job.Second, job.TriggerSchedule)       // complete, as far as it goes
		add(mine.UID, begin+i*job.AtSecond(9999), job.TriggerSchedule) // left over
	}
	add(mine.UID, line-job.Second+7, job.TriggerManual)
	same := line - 100*job.Second // more keys of one instant than one look holds
	for i := range 7000 {
		add(job.UID{9, byte(i >> 8), byte(i)}, same, job.TriggerSchedule)
	}
	add(mine.UID, same, job.TriggerSchedule)
	if _, err := db.Commit(t.Context(), store.Batch{Shards: []store.ShardBatch{rows}}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Reverse(want)
	for _, size := range []int{7, 1000} {
		h := history{store: db, job: &mine, before: math.MaxInt64, oldest: line, now: job.At(time.Now())}
		var got []job.Instant
		pages := 0
		for !h.done {
			page, err := h.page(t.Context(), size)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page {
				got = append(got, s.Slot.Key.FireTime)
			}
			if pages++; pages > 100 {
				t.Fatal("it walks for ever")
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d at a time: %d slots, want %d", size, len(got), len(want))
		}
	}
}
