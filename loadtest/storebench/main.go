// Command storebench measures the fire path of a store: claims and finishes of slots, in
// batches of several sizes, on an empty table and on one with many slots that are
// finished, and on variants of the table that were not chosen. The choice stands in
// docs/decisions/0014.
//
// Each measurement goes through Commit, as the node does: a batch inserts slots that
// are claimed and finishes those of the batch before. The database is a throwaway one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// config is what the command line asks for.
type config struct {
	stores   []string
	variants []string // whose names begin with one of these; empty: all
	slots    int      // finished ones in the full table
	sizes    []int    // of batches
	time     time.Duration
	repeats  int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cfg, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, cfg)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "storebench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (cfg config, err error) {
	flags := flag.NewFlagSet("storebench", flag.ContinueOnError)
	stores := flags.String("stores", "postgres,sqlite", "what is measured")
	variants := flags.String("variants", "", "names of variants, by their beginnings; empty: all")
	sizes := flags.String("sizes", "1,100,1000", "executions in a batch")
	flags.IntVar(&cfg.slots, "slots", 20_000_000, "finished slots in the full table")
	flags.DurationVar(&cfg.time, "time", 2*time.Second, "how long each measurement takes")
	flags.IntVar(&cfg.repeats, "repeats", 3, "measurements, whose median is the result")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	cfg.stores = strings.Split(*stores, ",")
	cfg.variants = strings.FieldsFunc(*variants, func(r rune) bool { return r == ',' })
	for _, s := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxSize {
			return cfg, fmt.Errorf("-sizes must be numbers from 1 to %d, has %q", maxSize, s)
		}
		cfg.sizes = append(cfg.sizes, n)
	}
	if cfg.slots < 0 || cfg.repeats < 1 || cfg.time <= 0 {
		return cfg, errors.New("-slots must not be negative, -repeats and -time be positive")
	}
	return cfg, nil
}

// run measures every store, first with an empty table, then with a full one.
func run(ctx context.Context, cfg config) error {
	for _, name := range cfg.stores {
		for _, slots := range []int{0, cfg.slots} {
			b, err := newBackend(ctx, name)
			if err != nil {
				return err
			}
			err = measureBackend(ctx, cfg, name, b, slots)
			if err = errors.Join(err, b.close()); err != nil {
				return err
			}
		}
	}
	return nil
}

func newBackend(ctx context.Context, name string) (backend, error) {
	switch name {
	case "postgres":
		return newPostgres(ctx)
	case "sqlite":
		return newSQLite(ctx)
	}
	return nil, fmt.Errorf("there is no store %q", name)
}

func measureBackend(ctx context.Context, cfg config, name string, b backend, slots int) error {
	began := time.Now()
	history, err := b.fill(ctx, slots)
	if err != nil {
		return fmt.Errorf("fill %s: %w", name, err)
	}
	fmt.Fprintf(os.Stderr, "%s: %d finished slots made in %s\n", name, slots, time.Since(began).Round(time.Second))
	fmt.Printf("\n%s, %d finished slots in the table\n\n", name, slots)
	fmt.Println("| variant | batch | executions/s | of the runs | ms of CPU per 1,000 | bytes written | HOT | bytes of a slot: table, key |")
	fmt.Println("|---|--:|--:|---|--:|--:|--:|--:|")
	for _, v := range b.variants() {
		if !wanted(cfg.variants, v.name) {
			continue
		}
		if err := measureVariant(ctx, cfg, b, v, slots, &history); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return nil
}

func wanted(beginnings []string, name string) bool {
	for _, b := range beginnings {
		if strings.HasPrefix(name, b) {
			return true
		}
	}
	return len(beginnings) == 0
}

// measureVariant makes a variant of the table, measures it, and takes it back.
func measureVariant(ctx context.Context, cfg config, b backend, v variant, slots int, history *span) error {
	if slots == 0 { // lest it be filled by the variants before
		if err := b.apply(ctx, b.empty()); err != nil {
			return err
		}
	}
	if err := b.apply(ctx, v.make); err != nil {
		return err
	}
	results := make([][]result, len(cfg.sizes))
	for i, size := range cfg.sizes {
		for range cfg.repeats {
			r, err := measure(ctx, b, v, size, cfg.time, history)
			if err != nil {
				return err
			}
			results[i] = append(results[i], r)
		}
	}
	table, key, err := b.bytesPerSlot(ctx)
	if err != nil {
		return err
	}
	for i, size := range cfg.sizes {
		fmt.Println(row(v.name, size, results[i], table, key))
	}
	return b.apply(ctx, v.unmake)
}
