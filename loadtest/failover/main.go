// Command failover breaks clusters under load, and judges what came of it.
//
// A round is one cluster of its own, as processes: etcd, PostgreSQL, nodes and workers. Jobs are
// due every second; long ones run through whatever happens; a prober calls any node at random. The
// round does something to the cluster (the files are named after what), and heals it. Then the
// work comes to its end, and is judged:
//
//   - by loadtest/checker: nothing lost, nothing doubled, by the database's rows, by what the
//     workers noted and by which creates were acknowledged;
//   - by what the round allows: how late, how many attempts, how long without an owner;
//   - by the prober: which calls failed, and how long any of them took.
//
// Each round appends one line to a file of results. Rounds that are there are not run again, so
// that a run can go on where it ended. `failover table` shows the file for docs/reliability.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	switch err := run(ctx, os.Args[1:], os.Stdout); {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "failover: interrupted")
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	carillon := flags.String("carillon", "bin/carillon", "the binary")
	results := flags.String("results", "bin/failover.jsonl", "file to which each round appends a line")
	only := flags.String("rounds", "", "rounds to run, as a regular expression on their names; empty: all")
	rate := flags.Int("rate", defaultRate, "starts in a second")
	times := flags.Int("times", 0, "how often each round is run; 0: as often as it says itself")
	keep := flags.String("dir", "", "folder for the logs of rounds that fail; empty: one that is made")
	if err := flags.Parse(args); err != nil {
		return err
	}
	done, err := readResults(*results)
	if err != nil {
		return err
	}
	if flags.Arg(0) == "table" {
		return printTable(out, done)
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	r := runner{options: options{carillon: *carillon, rate: *rate, dir: *keep, log: out, ttl: defaultTTL}, results: *results, done: done, times: *times}
	return r.all(ctx, chosen)
}

// runner runs rounds one after the other.
type runner struct {
	options
	results string
	done    []result
	times   int
}

// all runs the rounds that are chosen and not done, to the last, and says which failed.
func (r *runner) all(ctx context.Context, chosen *regexp.Regexp) error {
	failed := 0
	for _, one := range rounds {
		if !chosen.MatchString(one.name) {
			continue
		}
		times := one.times
		if r.times > 0 {
			times = r.times
		}
		for n := range times {
			if r.isDone(one.name, n) {
				continue
			}
			res, err := play(ctx, one, n, r.options)
			if errors.Is(err, errNotHere) {
				fmt.Fprintf(r.log, "%s: not run: %v\n", one.name, err)
				break
			}
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", one.name, n+1, err)
			}
			if err := res.append(r.results); err != nil {
				return err
			}
			res.print(r.log)
			if !res.passed() {
				failed++
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d rounds failed", failed)
	}
	return nil
}

func (r *runner) isDone(name string, n int) bool {
	for _, d := range r.done {
		if d.Round == name && d.Number == n {
			return true
		}
	}
	return false
}
