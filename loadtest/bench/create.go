package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/carillon-scheduler/carillon/loadtest/workload"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// creates is the load of the scenario create: callers that each send the next create
// when the one before is answered. The jobs are due in a year.
type creates struct {
	*rig
	far  *carillonv1.Schedule
	next atomic.Int64
	end  time.Time // of the load

	mu        sync.Mutex
	latencies *hdrhistogram.Histogram // of calls made in the window; guarded by mu
	jobs      int                     // answered in the window; guarded by mu
	window    window
}

// createScenario measures how many creates are acknowledged, and how long each call takes.
func (r *rig) createScenario(ctx context.Context) (m measured, err error) {
	now := time.Now()
	c := &creates{rig: r, far: onceAt(now.Truncate(time.Second).AddDate(1, 0, 0)), latencies: newHistogram()}
	c.window = window{now.Add(r.cfg.Warmup), now.Add(r.cfg.Warmup + r.cfg.Duration)}
	c.end = c.window.until
	r.say("%d callers create jobs by %s; warm-up %s", r.cfg.Callers, r.cfg.Via, r.cfg.Warmup)
	var callers sync.WaitGroup
	var failed errorList
	for range r.cfg.Callers {
		callers.Go(func() { failed.add(c.caller(ctx)) })
	}
	m.window = c.window
	m.before, m.after, err = r.observe(ctx, m.window)
	callers.Wait()
	failed.add(err)
	if err := failed.join(); err != nil {
		return m, err
	}
	m.what, m.expected, m.calls = "creates", c.jobs, c.latencies
	m.counts = func(workload.Execution) bool { return false }
	return m, r.finish(ctx, 0)
}

func (c *creates) caller(ctx context.Context) error {
	if c.cfg.Via == ByStream {
		return c.streamCreates(ctx, c.far, func() (int, bool) {
			return int(c.next.Add(1)) - 1, time.Now().Before(c.end) && ctx.Err() == nil
		}, func(sent time.Time) { c.answered(sent, 1) })
	}
	size := 1
	if c.cfg.Via == ByBatch {
		size = c.cfg.Batch
	}
	for time.Now().Before(c.end) && ctx.Err() == nil {
		n, called := int(c.next.Add(int64(size)))-size, time.Now()
		var err error
		if c.cfg.Via == ByBatch {
			err = c.createBatch(ctx, n, size, c.far)
		} else {
			err = c.create(ctx, n, c.far)
		}
		if err != nil {
			return fmt.Errorf("create job %d: %w", n, err)
		}
		c.answered(called, size)
	}
	return context.Cause(ctx)
}

// answered counts the jobs that were answered in the window, and how long a call took that
// was made in it, also if its answer came later.
func (c *creates) answered(called time.Time, jobs int) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window.holds(now.UnixMicro()) {
		c.jobs += jobs
	}
	if c.window.holds(called.UnixMicro()) {
		// The histogram's top is far beyond the deadline of a call.
		_ = c.latencies.RecordValue(now.Sub(called).Microseconds())
	}
}
