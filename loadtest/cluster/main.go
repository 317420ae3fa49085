// Command cluster runs a whole cluster on this machine, to be played with: three members of etcd, a
// PostgreSQL, three nodes and two workers, each a process of its own. It prints where everything is
// and what may be tried, restarts nothing, and ends all of it with Ctrl-C, or after CLUSTER_SECONDS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/site"
)

const (
	members, nodes, workers = 3, 3, 2
	shards                  = 64
	sessionTTL              = 5 * time.Second
	maxSeconds              = 86_400
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := dispatch(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// dispatch runs the cluster, or one of its workers.
func dispatch(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	if len(args) > 0 && args[0] == "worker" {
		id := flags.String("id", "", "of this worker")
		address := flags.String("address", "", "gRPC addresses of nodes, separated by commas")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return serve(ctx, *id, *address)
	}
	carillon := flags.String("carillon", "bin/carillon", "the binary")
	if err := flags.Parse(args); err != nil {
		return err
	}
	seconds, err := secondsOf(os.Getenv("CLUSTER_SECONDS"))
	if err != nil {
		return err
	}
	return run(ctx, *carillon, seconds, os.Stdout)
}

// secondsOf reads CLUSTER_SECONDS; zero: until it is told to end.
func secondsOf(value string) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxSeconds {
		return 0, fmt.Errorf("CLUSTER_SECONDS must be 1 to %d, is %q", maxSeconds, value)
	}
	return time.Duration(n) * time.Second, nil
}

// run runs a cluster until ctx ends or its time is over, and leaves nothing behind.
func run(ctx context.Context, carillon string, d time.Duration, out io.Writer) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "carillon-cluster")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintln(out, "starting three members of etcd, PostgreSQL, three nodes and two workers …")
	s, err := site.Start(ctx, site.Config{Carillon: carillon, Dir: dir, Members: members, Nodes: nodes, Workers: workers, TTL: sessionTTL, Shards: shards, MayEnd: true,
		Worker: func(number int, addresses string) []string {
			return []string{self, "worker", "--id", "worker-" + strconv.Itoa(number+1), "--address", addresses}
		}})
	if ctx.Err() != nil {
		return nil // it was ended before it began
	}
	if err != nil {
		return err
	}
	if err := describe(out, s, carillon); err != nil {
		return errors.Join(err, s.Stop())
	}
	wait(ctx, d)
	fmt.Fprintln(out, "\nstopping all of it …")
	if err := s.Stop(); err != nil {
		return err
	}
	fmt.Fprintln(out, "all processes have ended, and their files are removed")
	return nil
}

// wait waits for the end.
func wait(ctx context.Context, d time.Duration) {
	if d > 0 {
		limited, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		ctx = limited
	}
	<-ctx.Done()
}
