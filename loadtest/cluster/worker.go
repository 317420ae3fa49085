package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// handler is what the workers serve.
const handler = "greet"

// greeting are the parameters of greet.
type greeting struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"` // that it takes
}

// serve runs a worker until ctx ends.
func serve(ctx context.Context, id, address string) error {
	w, err := worker.Dial(ctx, address, worker.ID(id), worker.Logger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil {
		return err
	}
	worker.Handle(w, handler, greet)
	return w.Run(ctx)
}

func greet(ctx context.Context, t *worker.Task[greeting]) error {
	fmt.Printf("%s  hello, %s: due at %s, attempt %d\n", time.Now().Format("15:04:05.000"), t.Args.Name, t.FireTime().Format("15:04:05.000"), t.Attempt())
	select {
	case <-time.After(time.Duration(t.Args.Seconds * float64(time.Second))):
		return t.SetResult(map[string]string{"greeted": t.Args.Name})
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
