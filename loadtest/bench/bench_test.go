package bench

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// The load is open: calls are made when they are due, however long those before take.
func TestSlowCallsDoNotSlowTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		late, calls := time.Duration(0), 0
		open(t.Context(), 100, 10*time.Second, func(n int, due time.Time) {
			mu.Lock()
			late = max(late, time.Since(due))
			calls++
			mu.Unlock()
			time.Sleep(time.Hour) // of the bubble
		})
		if calls != 1000 || late > time.Microsecond || time.Since(begin) > time.Hour+10*time.Second {
			t.Errorf("%d calls, the latest by %s, after %s", calls, late, time.Since(begin))
		}
	})
}

// reportOf reports executions that a worker noted.
func reportOf(t *testing.T, expected int, all ...execution) (Report, error) {
	t.Helper()
	r := &rig{cfg: Config{Dir: t.TempDir(), Duration: 10 * time.Second}}
	n := &notes{all: all}
	if err := n.write(r.notesFile()); err != nil {
		t.Fatal(err)
	}
	w := window{from: time.UnixMicro(0), until: time.UnixMicro(10_000_000)}
	return r.report(w, expected, func(e execution) bool { return e.Fire < 10_000_000 }, nil, usage{}, usage{})
}

// What was late by so much is reported as late by so much.
func TestTheLatenessIsWhatItWas(t *testing.T) {
	var all []execution
	for i := range int64(1000) {
		late := int64(20_000) // 20 ms
		if i%100 == 0 {
			late = 900_000 // one in a hundred
		}
		if i == 777 {
			late = 3_000_000
		}
		all = append(all, execution{Job: i, Fire: i % 10 * 1_000_000, Attempt: 1, Began: i%10*1_000_000 + late})
	}
	all = append(all, execution{Job: 5, Fire: 50_000_000, Began: 99_000_000}) // not of the window
	rep, err := reportOf(t, 1000, all...)
	if err != nil {
		t.Fatal(err)
	}
	within := func(got, want float64) bool { return got >= want*0.999 && got <= want*1.001 }
	q := rep.Latency
	if !within(q.P50, 20) || !within(q.P99, 900) || !within(q.Max, 3000) || rep.PerSecond != 100 || !within(rep.Drained, 10) {
		t.Errorf("%+v", rep)
	}
	if len(rep.Timeline) != 10 || rep.Timeline[7].Starts != 100 || !within(rep.Timeline[7].Max, 3000) || !within(rep.Timeline[3].Max, 20) {
		t.Errorf("timeline %+v", rep.Timeline)
	}
	var out strings.Builder
	rep.Print(&out)
	if !strings.Contains(out.String(), "p99 900") || !strings.Contains(out.String(), "█") {
		t.Error(out.String())
	}
}

func TestALostExecutionIsNoticed(t *testing.T) {
	if _, err := reportOf(t, 2, execution{Job: 1}); err == nil || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("one of two: %v", err)
	}
	// A second attempt of one slot is no second start.
	if _, err := reportOf(t, 2, execution{Job: 1, Attempt: 1}, execution{Job: 1, Attempt: 2}); err == nil {
		t.Error("two attempts of one slot count as two starts")
	}
}

// What is stored is held against what the worker did: a run in which an execution was
// doubled, or recorded and never made, has no result.
func TestADoubledExecutionIsNoticed(t *testing.T) {
	at := job.AtSecond(1_800_000_000)
	good := execution{Job: 1, Fire: int64(at), Attempt: 1, Began: int64(at) + 20, Done: int64(at) + 30}
	for name, c := range map[string]struct {
		noted []execution
		says  string
	}{
		"good":      {[]execution{good}, ""},
		"doubled":   {[]execution{good, good}, "violations"},
		"never run": {nil, "violations"},
		"unknown":   {[]execution{good, {Job: 7, Fire: int64(at), Attempt: 1, Began: int64(at), Done: int64(at)}}, "violations"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{cfg: Config{Dir: t.TempDir(), Log: t.Output()}}
			n := &notes{all: c.noted}
			if err := n.write(r.notesFile()); err != nil {
				t.Fatal(err)
			}
			r.cfg.Open = func(ctx context.Context, _ string) (store.Store, error) { return stored(ctx, r.cfg.Dir, at) }
			err := r.judge(t.Context(), at+60*job.Second)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("judged: %v", err)
			}
		})
	}
}

// stored makes a database that holds one once-job and its successful slot.
func stored(ctx context.Context, dir string, at job.Instant) (store.Store, error) {
	db, err := sqlite.Open(ctx, filepath.Join(dir, "c.db"))
	if err != nil {
		return nil, err
	}
	if _, err := db.InitShards(ctx, shard.DefaultCount); err != nil {
		return nil, err
	}
	id := shard.Of("default", jobName(1), shard.DefaultCount)
	owned, err := db.TakeOver(ctx, store.Claim{Shard: id, Node: "n", Rev: 1})
	if err != nil {
		return nil, err
	}
	j := job.Job{UID: job.UID{1}, Shard: id, Namespace: "default", Name: jobName(1), Handler: handlerName, CreatedAt: at - job.Second, EffectiveFrom: at - job.Second,
		Schedule: job.Schedule{Kind: job.KindOnce, At: at, Dialect: schedule.DialectVersion}, Retry: job.DefaultRetryPolicy, Timeout: time.Minute}
	s := job.Slot{Key: job.SlotKey{FireTime: at, UID: j.UID}, Trigger: job.TriggerSchedule, State: job.Succeeded, Attempt: 1, Epoch: owned.Proof.Epoch, Worker: "w",
		Incarnation: "i", CreatedAt: at + 1, ClaimedAt: at + 1, StartedAt: at + 20, FinishedAt: at + 40, Outcome: job.OutcomeSucceeded}
	_, err = db.Commit(ctx, store.Batch{Shards: []store.ShardBatch{{Proof: owned.Proof, Creates: []store.Create{{Job: j}}, Slots: []job.Slot{s}, Watermark: at + 50*job.Second}}})
	return db, err
}
