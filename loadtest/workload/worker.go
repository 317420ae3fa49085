// Package workload is the work of load tests, and what came of it: jobs that are known by their
// numbers, a process of workers that notes each execution in its first and its last line, and
// those notes in the checker's words.
package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime/pprof"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// Config says what the process of the workers does.
type Config struct {
	Address  string        // of the node, or of several, separated by commas
	ID       string        // what the workers' ids begin with
	Workers  int           // that run what is measured, each with a connection of its own
	Idle     int           // that are connected and have nothing to do
	Capacity int           // attempts at the same time, of all workers together
	Work     time.Duration // that each attempt takes whose job doesn't say so
	File     string        // for what was noted
	Profile  string        // file for a CPU profile; empty: none is taken
}

// errFails is what an attempt that has to fail ends with.
var errFails = errors.New("this attempt fails, as it should")

// Serve runs workers until ctx ends, and then writes what they noted to a file.
func Serve(ctx context.Context, cfg Config) (err error) {
	if cfg.Profile != "" {
		stop, profileErr := startProfile(cfg.Profile)
		if profileErr != nil {
			return profileErr
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	n := &notes{all: make([]Execution, 0, 1<<20)}
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range cfg.Workers + cfg.Idle {
		w, err := worker.Dial(ctx, cfg.Address, worker.ID(cfg.ID+"-"+strconv.Itoa(i)), worker.Capacity(cfg.Capacity/cfg.Workers), worker.ShutdownGrace(time.Second))
		if err != nil {
			return err
		}
		name := Handler
		if i >= cfg.Workers {
			name = IdleHandler
		}
		worker.Handle(w, name, n.handler(cfg.Work), worker.Concurrency(cfg.Capacity/cfg.Workers))
		group.Go(func() error { return w.Run(groupCtx) })
	}
	return errors.Join(group.Wait(), n.write(cfg.File))
}

func startProfile(file string) (stop func() error, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

// handler is what is measured: its first line is the time at which an execution began.
func (n *notes) handler(work time.Duration) func(context.Context, *worker.Task[json.RawMessage]) error {
	return func(ctx context.Context, t *worker.Task[json.RawMessage]) error {
		e := Execution{Began: time.Now().UnixMicro(), Fire: t.FireTime().UnixMicro(), Attempt: int64(t.Attempt()), Job: NumberOf(t.Job())}
		defer func() { n.add(e) }()
		if takes := workOf(t.Args, work); takes > 0 {
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if t.Attempt() == 1 && bytes.HasPrefix(t.Args, []byte(failing)) {
			return errFails
		}
		e.Done = time.Now().UnixMicro()
		return nil
	}
}
