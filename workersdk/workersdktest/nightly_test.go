package workersdktest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

// ReportArgs are the parameters of the nightly report.
type ReportArgs struct {
	Region string `json:"region"`
}

// reports makes a report of the day before the fire time, region by region, and goes on from
// its checkpoint if an earlier attempt was cut off.
type reports struct {
	pages int                          // of each report
	send  func(key, page string) error // to where they are read; a key comes in once
}

func (r reports) nightly(ctx context.Context, t *worker.Task[ReportArgs]) error {
	if t.Args.Region == "" {
		return worker.Permanent(worker.Coded("no_region", errors.New("the region is missing")))
	}
	done := 0
	if _, err := fmt.Sscanf(string(t.Checkpoint()), "%d", &done); err != nil {
		done = 0 // nothing was done yet
	}
	day := t.FireTime().AddDate(0, 0, -1).Format(time.DateOnly)
	for page := done + 1; page <= r.pages; page++ {
		if err := r.send(t.Key(page), fmt.Sprintf("%s %s page %d", t.Args.Region, day, page)); err != nil {
			return worker.RetryAfter(time.Minute, err)
		}
		t.Progress(int64(page), int64(r.pages), day)
		if err := t.SaveCheckpoint(ctx, fmt.Append(nil, page)); err != nil {
			return err
		}
	}
	t.Logger().Info("the report is complete", "day", day, "pages", r.pages)
	return t.SetResult(map[string]int{"pages": r.pages})
}

// One attempt, with what an earlier one left.
func ExampleRun() {
	r := reports{pages: 3, send: func(_, page string) error { fmt.Println(page); return nil }}
	o, err := workersdktest.Run(context.Background(), r.nightly, ReportArgs{"eu"},
		workersdktest.FireTime(time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)), workersdktest.Attempt(2), workersdktest.Checkpoint([]byte("1")))
	fmt.Println(o.State, string(o.Result), string(o.Checkpoint), err)
	// Output:
	// eu 2026-11-30 page 2
	// eu 2026-11-30 page 3
	// SUCCEEDED {"pages":3} 3 <nil>
}

// pages is where reports are read: a page that comes twice, by its key, is there once.
type pages struct {
	mu   sync.Mutex
	sent map[string]string
}

func (p *pages) send(key, page string) error {
	time.Sleep(2 * time.Second) // of the simulation
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[key] = page
	return nil
}

// Some hours of reports, of which some are cut off in the middle: each page is there, once.
func TestReportsThatAreCutOff(t *testing.T) {
	workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) {
		p := &pages{sent: map[string]string{}}
		s.Worker(func(w *worker.Worker) { worker.Handle(w, "reports", reports{pages: 4, send: p.send}.nightly) })
		s.Create("hourly", &carillonv1.Job{Handler: "reports", Params: &carillonv1.Json{Text: `{"region":"eu"}`},
			Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "0 * * * *"}}})
		s.Advance(8*time.Hour + time.Minute)
		if len(p.sent) != 8*4 {
			t.Errorf("%d pages: %v", len(p.sent), p.sent)
		}
		cut := 0
		for _, slot := range s.History("hourly") {
			if slot.GetState() != carillonv1.SlotState_SLOT_STATE_SUCCEEDED {
				t.Errorf("a report is %v", slot)
			}
			if slot.GetAttempt() > 1 {
				cut++
			}
		}
		if cut == 0 || cut == 8 {
			t.Errorf("%d of 8 reports were cut off", cut)
		}
	}, workersdktest.KillMidway(3))
}
