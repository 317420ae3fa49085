package httprun_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/httprun"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

// A worker that sends webhooks.
func Example() {
	ctx := context.Background() // of your program
	sender, err := httprun.New(httprun.AllowHosts("hooks.example.com", "*.partners.example.com"))
	if err != nil {
		log.Fatal(err)
	}
	defer sender.Close()
	w, err := worker.Dial(ctx, "127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle(w, httprun.Name, sender.Handle, worker.Concurrency(32))
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// What the receiver of a webhook gets: by its key it knows a request that it has seen before.
func ExampleSender_Handle() {
	seen := map[string]bool{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			log.Fatal(err)
		}
		key := r.Header.Get("Idempotency-Key")
		fmt.Printf("attempt %s, due at %s: %s (seen before: %v)\n", r.Header.Get("Carillon-Attempt"), r.Header.Get("Carillon-Fire-Time"), body, seen[key])
		if !seen[key] {
			seen[key] = true
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"taken": true}`)
	}))
	defer receiver.Close()
	sender, err := httprun.New(httprun.AllowHosts("127.0.0.1:*"), httprun.AllowPrivate("127.0.0.0/8")) // the test's receiver is on loopback
	if err != nil {
		log.Fatal(err)
	}
	defer sender.Close()

	due := time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)
	for attempt := range 2 {
		o, err := workersdktest.Run(context.Background(), sender.Handle,
			httprun.Request{URL: receiver.URL + "/orders", Body: json.RawMessage(`{"order": 17}`)},
			workersdktest.FireTime(due), workersdktest.Attempt(attempt+1))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(o.State, o.Code, o.RetryAfter)
	}
	// Output:
	// attempt 1, due at 2026-12-01T02:00:00Z: {"order":17} (seen before: false)
	// FAILED http_503 7s
	// attempt 2, due at 2026-12-01T02:00:00Z: {"order":17} (seen before: true)
	// SUCCEEDED  0s
}
