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
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// newBench measures a Carillon that it starts itself.
func newBench() *cobra.Command {
	var cfg bench.Config
	var jsonFile string
	var about strings.Builder
	about.WriteString("Starts a node, a worker and a database as processes of their own, lets jobs be due by the clock, measures,\nand checks that nothing was lost or doubled. Scenarios:\n\n")
	names := slices.Sorted(maps.Keys(bench.Scenarios))
	for _, name := range names {
		fmt.Fprintf(&about, "  %-10s %s\n", name, bench.Scenarios[name])
	}
	cmd := &cobra.Command{
		Use: "bench " + strings.Join(names, "|"), Short: "Measure how fast and how late a Carillon on this machine is", Long: about.String(), Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Scenario = args[0]; bench.Scenarios[cfg.Scenario] == "" {
				return invalidInput("there is no scenario %q; there are %s", args[0], strings.Join(names, ", "))
			}
			if cfg.Rate < 1 || cfg.Duration < time.Second || cfg.Warmup < time.Second || cfg.Callers < 1 || cfg.Capacity < 1 || cfg.Burst < 1 {
				return invalidInput("--rate, --burst, --callers and --capacity must be at least 1, --duration and --warmup 1s")
			}
			return runBench(cmd.Context(), cfg, jsonFile, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&cfg.Store, "store", "postgres", "postgres or sqlite, which are started and thrown away, or a database's address")
	flags.IntVar(&cfg.Rate, "rate", 1000, "occurrences in a second")
	flags.IntVar(&cfg.Burst, "burst", 10_000, "additional occurrences in one second")
	flags.DurationVar(&cfg.Duration, "duration", 30*time.Second, "how long is measured")
	flags.DurationVar(&cfg.Warmup, "warmup", 5*time.Second, "how long is not")
	flags.DurationVar(&cfg.Work, "work", 0, "how long each attempt takes")
	flags.IntVar(&cfg.Callers, "callers", 64, "callers at the same time, for create")
	flags.IntVar(&cfg.Capacity, "capacity", 10_000, "attempts that the worker runs at the same time")
	flags.StringVar(&jsonFile, "json", "", "write the result to this file, too")
	return cmd
}

func runBench(ctx context.Context, cfg bench.Config, jsonFile string, out, log io.Writer) (err error) {
	if cfg.Dir, err = os.MkdirTemp("", "carillon-bench"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(cfg.Dir)) }()
	if cfg.Carillon, err = os.Executable(); err != nil {
		return err
	}
	cfg.Log = log
	cfg.Open = func(ctx context.Context, at string) (store.Store, error) {
		if file, ok := strings.CutPrefix(at, "sqlite:"); ok {
			return sqlite.Open(ctx, file)
		}
		return cockroach.Open(ctx, cockroach.Config{URL: at, StatementTimeout: 10 * time.Minute}) // the audit reads all
	}
	report, err := bench.Run(ctx, cfg)
	if err != nil {
		return err
	}
	report.Print(out)
	if jsonFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(jsonFile, append(text, '\n'), 0o644)
}

// newBenchWorker is the worker process of a benchmark.
func newBenchWorker() *cobra.Command {
	var address, file string
	var capacity int
	var work time.Duration
	cmd := &cobra.Command{
		Use: "bench-worker", Hidden: true, Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.ServeWorker(cmd.Context(), address, capacity, work, file)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "address", "", "gRPC address of the node")
	flags.StringVar(&file, "file", "", "where the executions are written at the end")
	flags.IntVar(&capacity, "capacity", 1, "attempts at the same time")
	flags.DurationVar(&work, "work", 0, "how long each takes")
	return cmd
}
