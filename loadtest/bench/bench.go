// Package bench measures a whole Carillon: a node, workers and a database as processes
// of their own on one machine.
//
// The load is open: what is due is due by the clock, however late the system is, so a
// slow answer doesn't slow the test. Lateness is from the scheduled time to the first
// line of the handler in the worker process, by one clock, and corrected for nothing.
// At the end everything is stopped, and the checker of histories judges what is stored:
// a run that lost or doubled anything has no result.
//
// A run goes through the files of this package: rig starts the processes, scenario and
// load make them work, snapshot reads what they used, judge looks at what is stored, and
// report says what came of it.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	"github.com/carillon-scheduler/carillon/store"
)

// Config says what is measured, and on what. What is zero has the scenario's default.
type Config struct {
	Scenario    string // one of Scenarios
	Store       string // "postgres", "sqlite", or the address of an empty database
	Rate        int    // occurrences due in each second
	Burst       int    // additional ones, in one second
	Warmup      time.Duration
	Duration    time.Duration // that is measured
	Work        time.Duration // that each attempt takes
	Payload     int           // bytes of each job's parameters
	Once        bool          // jobs that fire once, created as the run goes, not recurring ones
	Via         Via           // how jobs are created by immediate and create
	Callers     int           // that create at the same time
	Batch       int           // jobs that one call creates, by batch
	Capacity    int           // attempts at the same time, of all workers together
	Workers     int           // that have work
	IdleWorkers int           // that have none
	IdleJobs    int           // recurring jobs that aren't due

	Carillon string                                             // the binary
	Open     func(context.Context, string) (store.Store, error) // opens a database after the run
	Log      io.Writer                                          // progress
	Profiles string                                             // folder for profiles of what is measured; empty: none are taken
}

// Via is a way to create jobs.
type Via string

// The ways.
const (
	ByCall   Via = "grpc"   // a call for each job
	ByREST   Via = "rest"   // a request for each job
	ByBatch  Via = "batch"  // calls that create many jobs
	ByStream Via = "stream" // a stream for each caller
)

// scenario is a kind of load.
type scenario struct {
	About    string
	defaults Config
	run      func(*rig, context.Context) (measured, error)
}

// Scenarios are what can be measured, by name.
var Scenarios = map[string]scenario{
	"steady":    {"RATE jobs that fire every second, or with --once RATE new ones in each second", Config{}, (*rig).steady},
	"burst":     {"BURST jobs due in one second, over RATE jobs that fire every second", Config{Burst: 10_000}, (*rig).burst},
	"immediate": {"immediate jobs, RATE in a second: create call to handler", Config{Rate: 100}, (*rig).immediate},
	"create":    {"creates by CALLERS as fast as they are answered, --via grpc, rest, batch or stream", Config{}, (*rig).createScenario},
	"recurring": {"IDLE-JOBS recurring jobs that aren't due: memory, load after a restart, idle CPU, and RATE beside them", Config{IdleJobs: 100_000}, (*rig).recurring},
	"workers":   {"RATE jobs that fire every second, on WORKERS connected workers beside IDLE-WORKERS without work", Config{Workers: 100, IdleWorkers: 1000}, (*rig).steady},
	"fleet":     {"IDLE-WORKERS connected workers: memory and CPU for each; then the node is killed under WORKERS that run one attempt each", Config{Workers: 1000, IdleWorkers: 10_000, Rate: 1, Capacity: 1000, Work: 20 * time.Second}, (*rig).fleet},
	"mixed":     {"recurring, once and immediate jobs, one attempt in 20 fails once, and people read: RATE together", Config{}, (*rig).mixed},
}

// withDefaults completes a configuration.
func (c Config) withDefaults() (Config, error) {
	s, ok := Scenarios[c.Scenario]
	if !ok {
		return c, fmt.Errorf("there is no scenario %q", c.Scenario)
	}
	c.Rate = cmp.Or(c.Rate, s.defaults.Rate, 1000)
	c.Burst = cmp.Or(c.Burst, s.defaults.Burst)
	c.Workers = cmp.Or(c.Workers, s.defaults.Workers, 1)
	c.IdleWorkers = cmp.Or(c.IdleWorkers, s.defaults.IdleWorkers)
	c.IdleJobs = cmp.Or(c.IdleJobs, s.defaults.IdleJobs)
	c.Work = cmp.Or(c.Work, s.defaults.Work)
	c.Capacity = cmp.Or(s.defaults.Capacity, c.Capacity)
	c.Via = cmp.Or(c.Via, ByCall)
	c.Batch = cmp.Or(c.Batch, maxBatch)
	c.Capacity = max(c.Capacity, c.Workers)
	if c.Callers == 0 {
		c.Callers = map[Via]int{ByCall: 64, ByREST: 64, ByBatch: 4, ByStream: 4}[c.Via]
	}
	if c.Batch > maxBatch {
		return c, fmt.Errorf("a batch holds at most %d jobs", maxBatch)
	}
	return c, nil
}

// Run measures a scenario once.
func Run(ctx context.Context, cfg Config) (_ Report, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp("", "carillon-bench")
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r, err := start(ctx, cfg, dir, fail)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return Report{}, errors.Join(cause(ctx, err), r.stopAll())
	}
	m, err := Scenarios[cfg.Scenario].run(r, ctx)
	if err != nil {
		return Report{}, errors.Join(cause(ctx, err), r.stopAll())
	}
	stopped := job.At(time.Now())
	if err := r.stopAll(); err != nil {
		return Report{}, err
	}
	noted, err := workload.ReadNotes(r.notesFile())
	if err != nil {
		return Report{}, err
	}
	cancelled, err := r.judge(ctx, m, noted, stopped)
	if err != nil {
		return Report{}, err
	}
	return r.report(m, noted, cancelled)
}

// deathTimeout is how much later than its callers we hear of a program's end.
const deathTimeout = time.Second

// cause is why a run failed: that a program ended, if one did, whatever that did to a call.
func cause(ctx context.Context, err error) error {
	sleep(ctx, deathTimeout)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// RunMany measures a scenario several times, and returns the medians, which hold the
// single runs.
func RunMany(ctx context.Context, cfg Config, runs int) (Report, error) {
	var all []Report
	for i := range runs {
		if runs > 1 {
			fmt.Fprintf(cfg.Log, "run %d of %d\n", i+1, runs)
		}
		rep, err := Run(ctx, cfg)
		if err != nil {
			return Report{}, err
		}
		all = append(all, rep)
	}
	return Median(all), nil
}
