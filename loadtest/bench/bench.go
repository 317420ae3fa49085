// Package bench measures a whole Carillon: a node, a worker and a database as processes
// of their own on one machine.
//
// The load is open: what is due is due by the clock, however late the system is, so a
// slow answer doesn't slow the test. Lateness is from the scheduled time to the first
// line of the handler in the worker process, by one clock, and corrected for nothing.
// At the end everything is stopped, and the checker of histories judges what is stored:
// a run that lost or doubled anything has no result.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// Config says what is measured, and on what.
type Config struct {
	Scenario string // one of Scenarios
	Store    string // "postgres", "sqlite", or the address of a database
	Rate     int    // steady and burst: occurrences due in each second
	Burst    int    // burst: additional ones, in one second
	Warmup   time.Duration
	Duration time.Duration // that is measured
	Work     time.Duration // that each attempt takes
	Callers  int           // create: callers at the same time
	Capacity int           // of the worker

	Carillon string                                             // the binary
	Open     func(context.Context, string) (store.Store, error) // opens a database after the run
	Log      io.Writer                                          // progress
	Dir      string                                             // for files; removed by the caller
}

// Scenarios are what can be measured.
var Scenarios = map[string]string{
	"steady":    "RATE jobs that fire every second",
	"burst":     "BURST jobs due in one second, over RATE jobs that fire every second",
	"immediate": "immediate jobs on an idle system, RATE in a second: create call to handler",
	"create":    "creates by CALLERS at the same time",
}

// Run measures a scenario.
func Run(ctx context.Context, cfg Config) (_ Report, err error) {
	r, err := start(ctx, cfg)
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return Report{}, errors.Join(err, r.stopAll())
	}
	report, err := r.measure(ctx)
	if err != nil {
		return report, errors.Join(err, r.stopAll())
	}
	stopped := job.At(time.Now())
	if err := r.stopAll(); err != nil {
		return report, err
	}
	return report, r.judge(ctx, stopped)
}

// measure runs the scenario, which leaves nothing under way.
func (r *rig) measure(ctx context.Context) (Report, error) {
	switch r.cfg.Scenario {
	case "steady":
		return r.steady(ctx)
	case "burst":
		return r.burst(ctx)
	case "immediate":
		return r.immediate(ctx)
	case "create":
		return r.create(ctx)
	}
	return Report{}, fmt.Errorf("there is no scenario %q", r.cfg.Scenario)
}

// judge lets the checker hold what is stored against what the worker did.
func (r *rig) judge(ctx context.Context, stopped job.Instant) error {
	db, err := r.cfg.Open(ctx, r.address)
	if err != nil {
		return err
	}
	defer db.Close() // it was only read
	h := checker.History{Now: stopped, Young: 2 * time.Second}
	if h.Shards, err = checker.Read(ctx, db, shard.DefaultCount); err != nil {
		return err
	}
	if h.Effects, err = r.effects(h.Shards); err != nil {
		return err
	}
	for _, uid := range r.acked {
		h.Ledger.Acked = append(h.Ledger.Acked, uid)
	}
	violations := checker.Check(h)
	for i, v := range violations {
		if i == 10 {
			break
		}
		fmt.Fprintln(r.cfg.Log, "violation:", v)
	}
	if len(violations) > 0 {
		return fmt.Errorf("the run has no result: %d violations of what must hold", len(violations))
	}
	return nil
}

// effects turns what the worker noted into the checker's words.
func (r *rig) effects(shards []store.Audit) ([]checker.Effect, error) {
	all, err := readNotes(r.notesFile())
	if err != nil {
		return nil, err
	}
	uids := map[int64]job.UID{}
	for i := range shards {
		for _, j := range shards[i].Jobs {
			uids[numberOf(j.ResourceName())] = j.UID
		}
	}
	effects := make([]checker.Effect, 0, 2*len(all))
	for _, e := range all {
		one := checker.Effect{Job: uids[e.Job], Fire: e.fireTime(), Attempt: int32(e.Attempt), Kind: checker.Began, At: job.Instant(e.Began)}
		done := one
		done.Kind, done.At = checker.Done, job.Instant(e.Done)
		effects = append(effects, one, done)
	}
	return effects, nil
}

func (r *rig) say(format string, args ...any) {
	fmt.Fprintf(r.cfg.Log, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func (r *rig) notesFile() string { return r.cfg.Dir + string(os.PathSeparator) + "executions" }
