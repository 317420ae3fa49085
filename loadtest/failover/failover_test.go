package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/site"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

var binary string // the built carillon

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "carillon-failover")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "carillon")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/carillon").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

const (
	// briefRate is little, so that rounds can run beside other tests, and several at a time: they mostly
	// wait.
	briefRate  = 200
	atSameTime = 3
)

// The rounds that every change must pass: real processes, really killed. `make failover` runs all of
// them, longer, more often and under more load.
func TestRounds(t *testing.T) {
	var names = []string{"kill", "freeze", "restart", "etcd-quorum", "etcd-wiped", "resize", "cut-database", "cut-etcd"}
	played := make([]chan func(*testing.T), len(names))
	room := make(chan struct{}, atSameTime)
	for i, name := range names {
		played[i] = make(chan func(*testing.T), 1)
		go func() { // the subtest of this round waits for it
			room <- struct{}{}
			played[i] <- brief(t.Context(), name)
			<-room
		}()
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) { (<-played[i])(t) })
	}
}

// brief plays a round, and returns what a test says of it.
func brief(ctx context.Context, name string) func(*testing.T) {
	one := rounds[slices.IndexFunc(rounds, func(r round) bool { return r.name == name })]
	log := &strings.Builder{}
	res, err := play(ctx, one, 0, options{carillon: binary, rate: briefRate, log: log, ttl: defaultTTL, brief: true})
	res.print(log)
	return func(t *testing.T) {
		if errors.Is(err, site.ErrNoNetwork) {
			t.Skip(site.ErrNoNetwork)
		}
		t.Log(log)
		if err != nil || !res.passed() {
			t.Errorf("the round failed: %v", err)
		}
	}
}

// second is an instant by its seconds.
func second(n float64) job.Instant { return job.Instant(n * float64(job.Second)) }

// A shard had three owners; two slots of the last, and one that was late.
func example() *verdict {
	key := func(fire float64) job.SlotKey { return job.SlotKey{FireTime: second(fire), UID: job.UID{1}} }
	a := store.Audit{
		TakeOvers: []store.TakeOver{{Epoch: 1, Owner: "a", At: second(1)}, {Epoch: 2, At: second(10)}, {Epoch: 3, Owner: "b", At: second(11)}, {Epoch: 4, Owner: "a", At: second(30)}},
		Jobs:      []job.Job{{UID: job.UID{1}, Namespace: "default", Name: workload.JobName(7), Schedule: job.Schedule{Kind: job.KindCron}}},
		Slots: []job.Slot{
			{Key: key(9), State: job.Succeeded, Attempt: 1, Epoch: 1, StartedAt: second(9.1)},
			{Key: key(10), State: job.Succeeded, Attempt: 1, Epoch: 3, StartedAt: second(11.5)},
			{Key: key(12), State: job.Dead, Attempt: 2, Failures: 2, Epoch: 3, StartedAt: second(12.5)},
		},
	}
	v := &verdict{stage: &stage{load: &load{}, facts: map[string]float64{}, events: map[string]time.Time{"kill": second(9.5).Time()}}, shards: []store.Audit{a}}
	v.jobs = workload.JobsOf(v.shards)
	for _, s := range a.Slots {
		v.runs = append(v.runs, workload.Execution{Job: 7, Fire: int64(s.Key.FireTime), Attempt: 1, Began: int64(s.StartedAt)})
	}
	v.phases = []phase{{"warm-up", second(0).Time(), second(8).Time()}, {"before", second(8).Time(), second(10).Time()}, {"after", second(10).Time(), second(20).Time()}}
	return v
}

func TestWhatIsRead(t *testing.T) {
	v := example()
	if l := v.lateness(v.phases[2]); l.Starts != 2 || l.Max < 1499 || l.Max > 1502 {
		t.Errorf("lateness %+v", l)
	}
	if n := v.takeOvers(second(9).Time()); n != 2 {
		t.Errorf("%d take-overs", n)
	}
	if first, last := v.next([]shard.ID{0}, "a", v.events["kill"]); first != 2*time.Second || last != first {
		t.Errorf("work began again after %s, %s", first, last)
	}
	if a := v.attempts(); a["1"] != 2 || a["2"] != 1 {
		t.Errorf("attempts %v", a)
	}
}

func TestWhatIsNotAllowedIsSaid(t *testing.T) {
	for says, check := range map[string]func(*verdict){
		`in the phase "after" a start was 1500 ms late`: func(v *verdict) { v.expectLateness(time.Second) },
		"1 slots took more than one attempt":            func(v *verdict) { v.expectOneAttempt() },
		"0 long jobs have slots, of 0":                  func(v *verdict) { v.expectLongWork() },
		"the first start of one of the 1 shards came 2.00 s after": func(v *verdict) {
			v.expectNext([]shard.ID{0}, "a", "kill", time.Second)
		},
	} {
		v := example()
		if check(v); len(v.failed) != 1 || !strings.Contains(v.failed[0], says) {
			t.Errorf("said %q, want %q", v.failed, says)
		}
	}
	v := example()
	v.expectLateness(time.Second, "before")
	v.expectNext([]shard.ID{0}, "a", "kill", 2*time.Second)
	if len(v.failed) > 0 {
		t.Errorf("all is allowed, and it says %q", v.failed)
	}
}

func TestResultsAreKeptAndShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	if all, err := readResults(file); err != nil || len(all) > 0 {
		t.Errorf("before any round: %v, %v", all, err)
	}
	for n, failed := range [][]string{nil, {"too late"}} {
		r := result{Round: "kill", Number: n, Executions: 10, Failed: failed, Attempts: map[string]int{"1": 9, "2": 1}, TakeOvers: 20 + n,
			Lateness: []lateness{{Phase: "before", Max: 50}, {Phase: "after", Max: 5000}}, Facts: map[string]float64{"first_start_seconds": 5}, Probes: map[string]probed{"GetJob": {Calls: 1, SlowestS: 2}}}
		if err := r.append(file); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readResults(file)
	if err != nil || len(all) != 2 || !all[0].passed() || all[1].passed() {
		t.Fatalf("%+v, %v", all, err)
	}
	r := runner{done: all}
	if !r.isDone("kill", 1) || r.isDone("kill", 2) || r.isDone("freeze", 0) {
		t.Error("which rounds are done isn't known")
	}
	var table strings.Builder
	if err := printTable(&table, all); err != nil {
		t.Fatal(err)
	}
	const want = "| kill: a node is killed with SIGKILL, and comes back | 1 of 2 | 20 | 0 | 50 ms, 5.0 s | 2 | 20 to 21 | 2.0 s | first start seconds 5 |"
	if !strings.Contains(table.String(), want) {
		t.Errorf("%s\nwant\n%s", table.String(), want)
	}
}
