package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// The handlers of the demo's worker.
const (
	handlerEcho   = "demo.echo"   // succeeds at once
	handlerFlaky  = "demo.flaky"  // fails on the first attempts of each slot, then succeeds
	handlerBroken = "demo.broken" // always fails
	handlerReport = "demo.report" // takes parameters, answers a result
)

var allHandlers = []string{handlerBroken, handlerEcho, handlerFlaky, handlerReport}

// flakyAttempts is the attempt on which demo.flaky succeeds.
const flakyAttempts = 3

// reportArgs are the parameters of demo.report.
type reportArgs struct {
	Region string `json:"region"`
}

// serve runs the worker until ctx ends. It outlives the server: the SDK connects
// again by itself.
func serve(ctx context.Context, address string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	w, err := worker.Dial(ctx, address, worker.ID("demo-worker"), worker.Logger(log))
	if err != nil {
		return err
	}
	worker.Handle(w, handlerEcho, echo)
	worker.Handle(w, handlerFlaky, flaky)
	worker.Handle(w, handlerBroken, broken)
	worker.Handle(w, handlerReport, report)
	return w.Run(ctx)
}

func echo(_ context.Context, t *worker.Task[json.RawMessage]) error {
	if len(t.Args) == 0 {
		return nil
	}
	return t.SetResult(t.Args)
}

func flaky(_ context.Context, t *worker.Task[json.RawMessage]) error {
	if t.Attempt() < flakyAttempts {
		return worker.Coded("flaky", fmt.Errorf("attempt %d fails, %d will not", t.Attempt(), flakyAttempts))
	}
	return nil
}

func broken(context.Context, *worker.Task[json.RawMessage]) error {
	return worker.Coded("broken", errors.New("this handler always fails"))
}

func report(_ context.Context, t *worker.Task[reportArgs]) error {
	return t.SetResult(map[string]any{"region": t.Args.Region, "until": t.FireTime()})
}
