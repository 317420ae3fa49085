package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/loadtest/process"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
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

// tenSeconds measures everything that is due in the first ten seconds of time.
func tenSeconds(expected int) measured {
	m := measured{window: window{time.UnixMicro(0), time.UnixMicro(10_000_000)}, what: "starts", expected: expected}
	m.counts = func(e workload.Execution) bool { return m.holds(e.Fire) }
	return m
}

func reportOf(m measured, neverBegan int, all ...workload.Execution) (Report, error) {
	r := &rig{cfg: Config{Scenario: "steady", Store: "sqlite", Duration: 10 * time.Second}}
	return r.report(m, all, neverBegan)
}

func within(got, want float64) bool { return got >= want*0.999 && got <= want*1.001 }

// thousand are executions of which most are 20 ms late, one in a hundred 900 ms, and one
// 2.9 s, in the eighth second.
func thousand() (all []workload.Execution) {
	for i := range int64(1000) {
		late := int64(20_000)
		if i%100 == 0 {
			late = 900_000
		}
		if i == 777 {
			late = 2_900_000
		}
		all = append(all, workload.Execution{Job: i, Fire: i % 10 * 1_000_000, Attempt: 1, Began: i%10*1_000_000 + late})
	}
	return all
}

// What was late by so much is reported as late by so much.
func TestTheLatenessIsWhatItWas(t *testing.T) {
	all := append(thousand(), workload.Execution{Job: 5, Fire: 50_000_000, Began: 99_000_000}) // not of the window
	rep, err := reportOf(tenSeconds(1000), 0, all...)
	if err != nil {
		t.Fatal(err)
	}
	q := rep.Latency
	if !within(q.P50, 20) || !within(q.P99, 900) || !within(q.Max, 2900) || rep.PerSecond != 100 || !within(rep.Drained, 9.9) {
		t.Errorf("%+v", rep)
	}
	if len(rep.Timeline) != 10 || rep.Timeline[7].Starts != 100 || !within(rep.Timeline[7].Max, 2900) || !within(rep.Timeline[3].Max, 20) {
		t.Errorf("timeline %+v", rep.Timeline)
	}
	var out strings.Builder
	rep.Print(&out)
	if !strings.Contains(out.String(), "p99 900") || !strings.Contains(out.String(), "█") {
		t.Error(out.String())
	}
}

// Lateness counts from when something was due, which for an immediate job is when it was
// to be created, and each kind has its own.
func TestEachKindHasItsLatency(t *testing.T) {
	m := tenSeconds(2)
	m.due = func(e workload.Execution) int64 { return e.Fire - 5000 }
	m.kind = func(e workload.Execution) string { return fmt.Sprint("kind ", e.Job) }
	rep, err := reportOf(m, 0, workload.Execution{Job: 1, Fire: 1_000_000, Began: 1_001_000}, workload.Execution{Job: 2, Fire: 1_000_000, Began: 1_100_000})
	if err != nil {
		t.Fatal(err)
	}
	if one, two := rep.ByKind["kind 1"], rep.ByKind["kind 2"]; !within(one.Max, 6) || !within(two.P50, 105) || !within(rep.Latency.Max, 105) {
		t.Errorf("%v %v %v", one, two, rep.Latency)
	}
}

func TestALostExecutionIsNoticed(t *testing.T) {
	if _, err := reportOf(tenSeconds(2), 0, workload.Execution{Job: 1}); err == nil || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("one of two: %v", err)
	}
	// A second attempt of one slot is no second start.
	if _, err := reportOf(tenSeconds(2), 0, workload.Execution{Job: 1, Attempt: 1}, workload.Execution{Job: 1, Attempt: 2}); err == nil {
		t.Error("two attempts of one slot count as two starts")
	}
	// What was ended before it could begin is not lost, but the result says so.
	rep, err := reportOf(tenSeconds(2), 1, workload.Execution{Job: 1})
	var out strings.Builder
	rep.Print(&out)
	if err != nil || !strings.Contains(out.String(), "DID NOT KEEP UP") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// What was used in the window was used by all that began in it, be it measured or not; a
// burst's rate is that until its last start.
func TestWhatWasUsedIsSharedByAllThatBegan(t *testing.T) {
	m := tenSeconds(2)
	m.atOnce = true
	m.counts = func(e workload.Execution) bool { return e.Job >= 100 }
	m.before = snapshot{programs: map[string]process.Usage{"node": {}}}
	m.after = snapshot{programs: map[string]process.Usage{"node": {CPU: time.Second}}, metrics: map[string]float64{"carillon_commit_rows_sum": 8}}
	rep, err := reportOf(m, 0, workload.Execution{Job: 1, Fire: 1, Began: 3, Attempt: 1}, workload.Execution{Job: 1, Fire: 1, Began: 9, Attempt: 2}, workload.Execution{Job: 2, Fire: 1, Began: 4},
		workload.Execution{Job: 3, Fire: 1, Began: 20_000_000}, workload.Execution{Job: 100, Began: 1_000_000}, workload.Execution{Job: 101, Began: 2_000_000})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Database.Rows != 2 || rep.CPU["node"] != 250 || rep.PerSecond != 1 {
		t.Errorf("rows %v, CPU %v, %v/s; want 8 rows and 1 s of four executions, and 2 in 2 s", rep.Database.Rows, rep.CPU, rep.PerSecond)
	}
}

// What is stored is held against what the worker did: a run in which an execution was
// doubled, or recorded and never made, has no result.
func TestADoubledExecutionIsNoticed(t *testing.T) {
	at := job.AtSecond(1_800_000_000)
	good := workload.Execution{Job: 1, Fire: int64(at), Attempt: 1, Began: int64(at) + 20, Done: int64(at) + 30}
	failed := good
	failed.Done = 0
	for name, c := range map[string]struct {
		noted []workload.Execution
		says  string
	}{
		"good":      {[]workload.Execution{good}, ""},
		"doubled":   {[]workload.Execution{good, good}, "violations"},
		"never run": {[]workload.Execution{}, "violations"},
		"failed":    {[]workload.Execution{failed}, "violations"},
		"unknown":   {[]workload.Execution{good, {Job: 7, Fire: int64(at), Attempt: 1, Began: int64(at), Done: int64(at)}}, "violations"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{cfg: Config{Log: t.Output()}}
			r.cfg.Open = func(ctx context.Context, _ string) (store.Store, error) { return stored(ctx, t.TempDir(), at) }
			m := measured{counts: func(workload.Execution) bool { return true }}
			cancelled, err := r.judge(t.Context(), m, c.noted, at+60*job.Second)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("judged: %v", err)
			}
			if err == nil && cancelled != 1 {
				t.Errorf("%d never began, want the one that was cancelled", cancelled)
			}
		})
	}
}

// stored makes a database that holds a once-job with its successful slot, and another
// one whose slot was cancelled.
func stored(ctx context.Context, dir string, at job.Instant) (store.Store, error) {
	db, err := sqlite.Open(ctx, filepath.Join(dir, "c.db"))
	if err != nil {
		return nil, err
	}
	if _, err := db.InitShards(ctx, shard.DefaultCount); err != nil {
		return nil, err
	}
	rev := int64(0)
	for i, s := range []job.Slot{{State: job.Succeeded, Attempt: 1, Worker: "w", Incarnation: "i", ClaimedAt: at + 1, StartedAt: at + 20, FinishedAt: at + 40, Outcome: job.OutcomeSucceeded},
		{State: job.Cancelled, FinishedAt: at + 40}} {
		name := workload.JobName(i + 1)
		id := shard.Of("default", name, shard.DefaultCount)
		rev++
		owned, err := db.TakeOver(ctx, store.Claim{Shard: id, Node: "n", Rev: rev})
		if err != nil {
			return nil, err
		}
		j := job.Job{UID: job.UID{byte(i + 1)}, Shard: id, Namespace: "default", Name: name, Handler: workload.Handler, CreatedAt: at - job.Second, EffectiveFrom: at - job.Second,
			Schedule: job.Schedule{Kind: job.KindOnce, At: at, Dialect: schedule.DialectVersion}, Retry: job.DefaultRetryPolicy, Timeout: time.Minute}
		s.Key, s.Trigger, s.CreatedAt, s.Epoch = job.SlotKey{FireTime: at, UID: j.UID}, job.TriggerSchedule, at+1, owned.Proof.Epoch
		if _, err := db.Commit(ctx, store.Batch{Shards: []store.ShardBatch{{Proof: owned.Proof, Creates: []store.Create{{Job: j}}, Slots: []job.Slot{s}, Watermark: at + 50*job.Second}}}); err != nil {
			return nil, err
		}
	}
	return db, nil
}

func TestMetricsAreSummedOverTheirLabels(t *testing.T) {
	got, err := readMetrics(strings.NewReader("# HELP a b\na{x=\"1 {\"} 2\na{x=\"2\"} 3.5\nb 1e+06\n"))
	if err != nil || got["a"] != 5.5 || got["b"] != 1e6 || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := readMetrics(strings.NewReader("a x\n")); err == nil {
		t.Error("a metric that is no number is read")
	}
}

// The JSON of a result is read by others: its keys stay.
func TestTheKeysOfAResult(t *testing.T) {
	m := tenSeconds(1000)
	m.kind, m.facts = func(workload.Execution) string { return "k" }, map[string]float64{"f": 1}
	m.before = snapshot{programs: map[string]process.Usage{"node": {}}, wal: &wal{}}
	m.after = snapshot{programs: map[string]process.Usage{"node": {CPU: time.Second, Memory: 1 << 20, Written: 5000}}, wal: &wal{bytes: 7000, updates: 4, hot: 1},
		metrics: map[string]float64{"carillon_commit_rows_sum": 2000, "carillon_commit_statements_total": 50, "carillon_commits_total": 10}}
	rep, err := reportOf(m, 0, thousand()...)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Median([]Report{rep, rep, rep}))
	if err != nil {
		t.Fatal(err)
	}
	keys := keysOf(t, text)
	want := strings.Fields(`scenario store machine settings what expected executions never_began per_second latency_milliseconds latency_milliseconds_by_kind drained_seconds
		cpu_seconds_per_1000 memory_mebibytes database_per_execution facts timeline runs
		machine.cpus machine.cpu_model machine.memory_mebibytes machine.os machine.kernel machine.arch machine.go machine.revision
		settings.rate_per_second settings.burst settings.seconds settings.warmup_seconds settings.work_seconds settings.payload_bytes settings.once settings.via
		settings.callers settings.batch settings.capacity settings.workers settings.idle_workers settings.idle_jobs
		latency_milliseconds.p50 latency_milliseconds.p90 latency_milliseconds.p99 latency_milliseconds.p999 latency_milliseconds.max
		latency_milliseconds_by_kind.k cpu_seconds_per_1000.node memory_mebibytes.node facts.f
		database_per_execution.rows database_per_execution.statements database_per_execution.commits database_per_execution.wal_bytes database_per_execution.written_bytes
		database_per_execution.hot_update_share`)
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("keys %v, want %v", keys, want)
	}
	d := rep.Database
	if d.Rows != 2 || d.Statements != 0.05 || d.Commits != 0.01 || *d.WALBytes != 7 || *d.Written != 5 || *d.HotShare != 0.25 || rep.CPU["node"] != 1 || rep.Memory["node"] != 1 {
		t.Errorf("%+v %v %v", d, rep.CPU, rep.Memory)
	}
	var seconds []map[string]float64
	var top map[string]json.RawMessage
	if json.Unmarshal(text, &top) != nil || json.Unmarshal(top["timeline"], &seconds) != nil || len(seconds) != 10 {
		t.Fatalf("timeline %s", top["timeline"])
	}
	if keys := slices.Sorted(maps.Keys(seconds[0])); !slices.Equal(keys, []string{"max_milliseconds", "p50_milliseconds", "second", "starts"}) {
		t.Errorf("keys of a second: %v", keys)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	Table(&table, []Report{back})
	if !strings.Contains(table.String(), "| steady 0/s | sqlite | 100 | 20.") {
		t.Error(table.String())
	}
}

// keysOf lists the keys of the first two levels.
func keysOf(t *testing.T, text []byte) (keys []string) {
	t.Helper()
	var top map[string]json.RawMessage
	if err := json.Unmarshal(text, &top); err != nil {
		t.Fatal(err)
	}
	for key, value := range top {
		keys = append(keys, key)
		var below map[string]json.RawMessage
		if json.Unmarshal(value, &below) == nil {
			for k := range below {
				keys = append(keys, key+"."+k)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

func TestMedians(t *testing.T) {
	var all []Report
	for _, v := range []float64{5, 1, 3} {
		all = append(all, Report{Scenario: "s", PerSecond: v, Executions: int(v), Latency: Quantiles{P50: v, P99: 10 - v}, CPU: map[string]float64{"node": v},
			Database: Database{Rows: v, WALBytes: new(v)}, Timeline: []Second{{Starts: int(v)}}})
	}
	m := Median(all)
	if m.PerSecond != 3 || m.Executions != 3 || m.Latency.P50 != 3 || m.Latency.P99 != 7 || m.CPU["node"] != 3 || *m.Database.WALBytes != 3 || m.Database.HotShare != nil ||
		m.Timeline[0].Starts != 3 || len(m.Runs) != 3 {
		t.Errorf("%+v", m)
	}
	all[1].NeverBegan = 7 // the fastest run isn't the whole truth
	if m := Median(all); m.NeverBegan != 7 {
		t.Errorf("%d never began, of a run that didn't keep up", m.NeverBegan)
	}
	if even := Median(all[:2]); even.PerSecond != 3 {
		t.Errorf("of two: %v", even.PerSecond)
	}
}

// What a job owes after its end never begins: a system that is behind ends jobs before
// it has fired all that was due.
func TestTimesAfterTheEndOfAJobNeverBegin(t *testing.T) {
	m := tenSeconds(10)
	ended := job.Job{UID: job.UID{1}, Namespace: "default", Name: workload.JobName(3), EndedAt: 6_500_000, Schedule: job.Schedule{Kind: job.KindCron}}
	once := ended
	once.UID, once.Name, once.Schedule.Kind = job.UID{2}, workload.JobName(4), job.KindOnce
	shards := []store.Audit{{Jobs: []job.Job{ended, once}, Slots: []job.Slot{{Key: job.SlotKey{FireTime: 6_000_000, UID: ended.UID}, State: job.Cancelled, Attempt: 1},
		{Key: job.SlotKey{FireTime: 5_000_000, UID: ended.UID}, State: job.Cancelled, Attempt: 1}}}}
	// 7, 8 and 9 s lie after the end; 6 s was cancelled after an attempt that nobody saw.
	if n := m.neverBegan(shards, workload.JobsOf(shards), []workload.Execution{{Job: 3, Fire: 5_000_000}}); n != 4 {
		t.Errorf("%d never began, want 4", n)
	}
}
