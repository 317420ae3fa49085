package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/loadtest/bench"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// benchFlags are the flags of `carillon bench`.
type benchFlags struct {
	bench.Config
	via      string
	runs     int
	jsonFile string
}

// newBench measures a Carillon that it starts itself.
func newBench() *cobra.Command {
	var f benchFlags
	var about strings.Builder
	about.WriteString("Starts a node, workers and a database as processes of their own, lets jobs be due by the clock, measures,\nand checks that nothing was lost or doubled. Scenarios:\n\n")
	names := slices.Sorted(maps.Keys(bench.Scenarios))
	for _, name := range names {
		fmt.Fprintf(&about, "  %-10s %s\n", name, bench.Scenarios[name].About)
	}
	cmd := &cobra.Command{
		Use: "bench " + strings.Join(names, "|"), Short: "Measure how fast and how late a Carillon on this machine is", Long: about.String(), Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Scenario = args[0]
			if err := f.check(names); err != nil {
				return err
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Store, "store", "postgres", "postgres or sqlite, which are started and thrown away, or the address of an empty database")
	flags.IntVar(&f.Rate, "rate", 0, "occurrences in a second (1000; immediate: 100)")
	flags.IntVar(&f.Burst, "burst", 0, "additional occurrences in one second, for burst (10000)")
	flags.DurationVar(&f.Duration, "duration", 30*time.Second, "how long is measured")
	flags.DurationVar(&f.Warmup, "warmup", 5*time.Second, "how long is not")
	flags.DurationVar(&f.Work, "work", 0, "how long each attempt takes")
	flags.IntVar(&f.Payload, "payload", 0, "bytes of each job's parameters (25)")
	flags.BoolVar(&f.Once, "once", false, "for steady: new jobs in each second, which fire once, instead of recurring ones")
	flags.StringVar(&f.via, "via", "grpc", "how immediate and create make jobs: grpc or rest, create also batch or stream")
	flags.IntVar(&f.Callers, "callers", 0, "callers at the same time, for create (64; batches and streams: 4)")
	flags.IntVar(&f.Batch, "batch", 0, "jobs of a batch (1000)")
	flags.IntVar(&f.Capacity, "capacity", 10_000, "attempts at the same time, of all workers together")
	flags.IntVar(&f.Workers, "workers", 0, "connected workers that have work (1; workers: 100)")
	flags.IntVar(&f.IdleWorkers, "idle-workers", 0, "connected workers that have none (0; workers: 1000, fleet: 10000)")
	flags.IntVar(&f.IdleJobs, "idle-jobs", 0, "recurring jobs that aren't due, for recurring (100000)")
	flags.IntVar(&f.runs, "runs", 1, "runs, whose medians are the result")
	flags.StringVar(&f.jsonFile, "json", "", "write the result to this file, too")
	flags.StringVar(&f.Profiles, "profiles", "", "write profiles of what is measured to this folder")
	cmd.AddCommand(newBenchTable())
	return cmd
}

// check says what is wrong with the flags.
func (f *benchFlags) check(names []string) error {
	if !slices.Contains(names, f.Scenario) {
		return invalidInput("there is no scenario %q; there are %s", f.Scenario, strings.Join(names, ", "))
	}
	for _, n := range []struct {
		flag        string
		value, most int
	}{{"--rate", f.Rate, 1_000_000}, {"--burst", f.Burst, 10_000_000}, {"--payload", f.Payload, 256 << 10}, {"--callers", f.Callers, 10_000},
		{"--batch", f.Batch, 1000}, {"--workers", f.Workers, 10_000}, {"--idle-workers", f.IdleWorkers, 100_000}, {"--idle-jobs", f.IdleJobs, 100_000_000}} {
		if n.value < 0 || n.value > n.most {
			return invalidInput("%s must be at most %d and not negative, is %d", n.flag, n.most, n.value)
		}
	}
	if f.Duration < time.Second || f.Warmup < time.Second || f.Duration%time.Second != 0 || f.Warmup%time.Second != 0 {
		return invalidInput("--duration and --warmup must be whole seconds, at least one")
	}
	if f.Work < 0 || f.Capacity < 1 || f.runs < 1 {
		return invalidInput("--capacity and --runs must be at least 1, --work not negative")
	}
	if f.runs > 1 && f.Store != "postgres" && f.Store != "sqlite" {
		return invalidInput("--runs on a given database must be 1: each run needs an empty one")
	}
	f.Via = bench.Via(f.via)
	ways := []bench.Via{bench.ByCall, bench.ByREST}
	if f.Scenario == "create" {
		ways = append(ways, bench.ByBatch, bench.ByStream)
	}
	if !slices.Contains(ways, f.Via) {
		return invalidInput("--via of %s must be one of %v, is %q", f.Scenario, ways, f.via)
	}
	return nil
}

func (f *benchFlags) run(ctx context.Context, out, log io.Writer) (err error) {
	f.Log = log
	if f.Carillon, err = os.Executable(); err != nil {
		return err
	}
	if f.Profiles != "" {
		if err := os.MkdirAll(f.Profiles, 0o755); err != nil {
			return err
		}
	}
	f.Open = func(ctx context.Context, at string) (store.Store, error) {
		if file, ok := strings.CutPrefix(at, "sqlite:"); ok {
			return sqlite.Open(ctx, file)
		}
		return cockroach.Open(ctx, cockroach.Config{URL: at, StatementTimeout: 10 * time.Minute}) // the audit reads all
	}
	report, err := bench.RunMany(ctx, f.Config, f.runs)
	if err != nil {
		return err
	}
	report.Print(out)
	if f.jsonFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(f.jsonFile, append(text, '\n'), 0o644)
}

// newBenchTable shows results of earlier runs side by side.
func newBenchTable() *cobra.Command {
	return &cobra.Command{
		Use: "table FILE...", Short: "Show results that --json wrote as a table in Markdown", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			var all []bench.Report
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				var rep bench.Report
				if err := json.Unmarshal(text, &rep); err != nil {
					return invalidInput("%s is no result of carillon bench: %w", file, err)
				}
				all = append(all, rep)
			}
			bench.Table(cmd.OutOrStdout(), all)
			return nil
		},
	}
}

// newBenchWorker is the process of the workers of a benchmark.
func newBenchWorker() *cobra.Command {
	var cfg workload.Config
	cmd := &cobra.Command{
		Use: "bench-worker", Hidden: true, Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Workers < 1 || cfg.Idle < 0 || cfg.Capacity < cfg.Workers {
				return errors.New("--workers must be at least 1, --capacity as many")
			}
			return workload.Serve(cmd.Context(), cfg)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Address, "address", "", "gRPC address of the node, or of several, separated by commas")
	flags.StringVar(&cfg.ID, "id", "bench", "what the workers' ids begin with")
	flags.StringVar(&cfg.File, "file", "", "where the executions are written at the end")
	flags.IntVar(&cfg.Workers, "workers", 1, "workers that have work")
	flags.IntVar(&cfg.Idle, "idle", 0, "workers that have none")
	flags.IntVar(&cfg.Capacity, "capacity", 1, "attempts at the same time, of all workers together")
	flags.DurationVar(&cfg.Work, "work", 0, "how long each takes")
	flags.StringVar(&cfg.Profile, "profile", "", "write a CPU profile to this file")
	return cmd
}
