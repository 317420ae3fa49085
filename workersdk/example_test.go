package workersdk_test

import (
	"context"
	"errors"
	"log"
	"os/signal"
	"syscall"
	"time"

	worker "github.com/carillon-scheduler/carillon/workersdk"
)

type InvoiceArgs struct {
	Region string `json:"region"`
}

var errUnknownRegion = errors.New("unknown region")

func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w, err := worker.Dial(ctx, "127.0.0.1:7070", worker.Capacity(64))
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle(w, "billing.invoices", invoices, worker.Concurrency(8))
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func invoices(ctx context.Context, t *worker.Task[InvoiceArgs]) error {
	customers, err := due(ctx, t.Args.Region, t.FireTime())
	if errors.Is(err, errUnknownRegion) {
		return worker.Permanent(worker.Coded("unknown_region", err)) // straight to the dead letters
	}
	if err != nil {
		return worker.RetryAfter(time.Minute, err)
	}
	for i, c := range customers {
		if err := charge(ctx, c, t.Key(c)); err != nil { // the same key on every attempt
			return err
		}
		t.Progress(int64(i+1), int64(len(customers)), "charged "+c)
	}
	return t.SetResult(map[string]int{"invoices": len(customers)})
}

func due(context.Context, string, time.Time) ([]string, error) { return nil, nil }

func charge(context.Context, string, string) error { return nil }
