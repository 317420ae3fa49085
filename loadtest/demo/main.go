// Command demo shows Carillon at work and proves what it shows.
//
// It plays a short story on this machine, with three processes: itself, a
// `carillon dev` server, and a worker (this program again, as `demo worker`).
//
//	1 the server and the worker start, on free loopback ports, in a temporary folder
//	2 jobs are created: immediate, once, every second, flaky, broken, daily
//	3 immediate jobs, one after the other, measure create → first line of the handler
//	4 for DEMO_SECONDS a table shows the slots as they come
//	5 the server is killed with SIGKILL, right after it acknowledged one more job
//	6 five seconds later it starts again, on the same data and ports, and makes up
//	  for the seconds that it missed; the worker connects again by itself
//	7 every slot is listed and held against what must be there
//
// What must be there is computed here, by plain arithmetic on seconds (expect.go)
// that shares nothing with the product's own idea of a schedule; verify.go holds
// the two against each other. The exit code is 0 only if each expected occurrence
// has exactly one slot that ended as it should, nothing else exists, and both
// processes stopped cleanly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	defaultSeconds = 20
	minSeconds     = 5
	maxSeconds     = 86_400
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(dispatch(ctx, os.Args[1:]))
}

// dispatch runs the worker or the demo and returns the exit code.
func dispatch(ctx context.Context, args []string) int {
	run := runDemo
	if len(args) > 0 && args[0] == "worker" {
		run, args = runWorker, args[1:]
	}
	switch err := run(ctx, args); {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errVerdict): // everything was said
		return 1
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "demo: interrupted")
		return 1
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
}

func runWorker(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo worker", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:7070", "gRPC address of the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return serve(ctx, *address)
}

func runDemo(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	carillon := flags.String("carillon", "bin/carillon", "the binary to demonstrate")
	if err := flags.Parse(args); err != nil {
		return err
	}
	live, err := liveFor(os.Getenv("DEMO_SECONDS"))
	if err != nil {
		return err
	}
	return play(ctx, *carillon, live, newScreen(os.Stdout))
}

// liveFor reads DEMO_SECONDS: how long the server runs before it is killed.
func liveFor(value string) (time.Duration, error) {
	if value == "" {
		return defaultSeconds * time.Second, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < minSeconds || n > maxSeconds {
		return 0, fmt.Errorf("DEMO_SECONDS must be %d to %d, is %q", minSeconds, maxSeconds, value)
	}
	return time.Duration(n) * time.Second, nil
}
