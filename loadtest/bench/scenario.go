package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/loadtest/process"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	// afterLoad is how long the load goes on after what is measured.
	afterLoad = 3 * time.Second
	// lastWatermark is how long a shard may take to store that nothing more is due.
	lastWatermark = 1500 * time.Millisecond
	// lead is how long before its time a job that fires once is created.
	lead = 5 * time.Second
)

// measured is what a scenario hands over: which executions count, and what was used.
type measured struct {
	window
	what          string // that is counted
	expected      int
	counts        func(workload.Execution) bool
	due           func(workload.Execution) int64  // microseconds; nil: the fire time
	kind          func(workload.Execution) string // nil: all are of one kind
	atOnce        bool                            // all of it is due at the beginning of the window
	before, after snapshot
	calls         *hdrhistogram.Histogram // what is measured are calls, not executions
	reads         *hdrhistogram.Histogram // calls of people beside them
	facts         map[string]float64
}

// window is the time that is measured.
type window struct{ from, until time.Time }

func (w window) holds(micros int64) bool {
	return micros >= w.from.UnixMicro() && micros < w.until.UnixMicro()
}

// ahead is how long before the ends of a window it is looked at what was used: much
// begins at each whole second, and a look at that time might come too late for it.
const ahead = 200 * time.Millisecond

// nextWindow begins at the next whole second that isn't too near.
func (r *rig) nextWindow() window {
	from := time.Now().Add(2 * ahead).Truncate(time.Second).Add(time.Second)
	return window{from, from.Add(r.cfg.Duration)}
}

// observe waits for the end of a window, a little less, and reads what was used in it.
func (r *rig) observe(ctx context.Context, w window) (before, after snapshot, err error) {
	sleep(ctx, time.Until(w.from.Add(-ahead)))
	if before, err = r.snapshot(ctx); err != nil {
		return before, after, err
	}
	end := w.until.Add(-ahead)
	saved, err := r.startProfiles(ctx, time.Until(end))
	if err != nil {
		return before, after, err
	}
	for err == nil && ctx.Err() == nil && time.Until(end) > 0 {
		sleep(ctx, min(5*time.Second, time.Until(end)))
		err = r.progress(ctx, w, before)
	}
	if err = errors.Join(err, <-saved); err != nil { // whatever failed: nobody goes on with the profiles
		return before, after, err
	}
	if after, err = r.snapshot(ctx); err != nil {
		return before, after, err
	}
	return before, after, context.Cause(ctx)
}

func (r *rig) progress(ctx context.Context, w window, before snapshot) error {
	now, err := r.metrics(ctx)
	if err != nil {
		return err
	}
	r.say("%s of %s: %.0f slots ended, %.0f wait, lag %.2f s", time.Since(w.from).Round(time.Second), r.cfg.Duration,
		now["carillon_slots_finished_total"]-before.metrics["carillon_slots_finished_total"],
		now["carillon_slots_ready"]+now["carillon_slots_backlog"], now["carillon_lag_seconds"])
	return nil
}

// startProfiles takes profiles for as long as is measured, if it is asked to.
func (r *rig) startProfiles(ctx context.Context, d time.Duration) (saved chan error, err error) {
	saved = make(chan error, 1)
	if r.cfg.Profiles == "" {
		saved <- nil
		return saved, nil
	}
	if r.pg != nil {
		if err := r.resetStatements(ctx); err != nil {
			return nil, err
		}
	}
	go func() {
		err := r.save(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(math.Ceil(d.Seconds()))), filepath.Join(r.cfg.Profiles, "node.pprof"))
		if err == nil && r.pg != nil {
			err = r.saveStatements(ctx, filepath.Join(r.cfg.Profiles, "statements.txt"))
		}
		if err == nil {
			err = r.save(ctx, "/debug/pprof/heap", filepath.Join(r.cfg.Profiles, "node-heap.pprof"))
		}
		saved <- err
	}()
	return saved, nil
}

// finish ends the recurring jobs numbered 0 to n-1, waits until all is done, and ends the
// worker, which writes its notes then.
func (r *rig) finish(ctx context.Context, n int) error {
	if n > 0 {
		sleep(ctx, afterLoad) // a job that is deleted takes what waits of it along
		r.say("ending %d jobs", n)
		if err := r.deleteAll(ctx, n); err != nil {
			return err
		}
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	sleep(ctx, lastWatermark)
	return r.end(&r.worker)
}

// steady lets jobs fire every second, and measures after the warm-up.
func (r *rig) steady(ctx context.Context) (measured, error) {
	if r.cfg.Once {
		return r.steadyOnce(ctx)
	}
	if err := r.createAll(ctx, 0, r.cfg.Rate, everySecond()); err != nil {
		return measured{}, err
	}
	r.say("%d jobs fire every second; warm-up %s", r.cfg.Rate, r.cfg.Warmup)
	sleep(ctx, r.cfg.Warmup)
	return r.measureRate(ctx)
}

// measureRate measures the jobs that fire every second.
func (r *rig) measureRate(ctx context.Context) (m measured, err error) {
	m.window, m.what = r.nextWindow(), "starts"
	m.expected = r.cfg.Rate * int(r.cfg.Duration/time.Second)
	m.counts = func(e workload.Execution) bool { return e.Job < int64(r.cfg.Rate) && m.holds(e.Fire) }
	if m.before, m.after, err = r.observe(ctx, m.window); err != nil {
		return m, err
	}
	return m, r.finish(ctx, r.cfg.Rate)
}

// steadyOnce lets jobs that fire once be due in each second; they are created while
// others fire.
func (r *rig) steadyOnce(ctx context.Context) (m measured, err error) {
	m.what = "starts"
	m.window = r.nextWindow()
	m.from, m.until = m.from.Add(lead+r.cfg.Warmup), m.until.Add(lead+r.cfg.Warmup)
	m.expected = r.cfg.Rate * int(r.cfg.Duration/time.Second)
	m.counts = func(e workload.Execution) bool { return m.holds(e.Fire) }
	r.say("%d new jobs fire in each second, once; warm-up %s", r.cfg.Rate, r.cfg.Warmup)
	group, groupCtx := errgroup.WithContext(ctx) // who fails first ends the other one
	group.Go(func() error { return r.createEachSecond(groupCtx, m.from.Add(-r.cfg.Warmup), m.until) })
	group.Go(func() (err error) {
		m.before, m.after, err = r.observe(groupCtx, m.window)
		return err
	})
	if err := group.Wait(); err != nil {
		return m, err
	}
	return m, r.finish(ctx, 0)
}

// createEachSecond creates RATE jobs for each second of a time, some seconds before.
func (r *rig) createEachSecond(ctx context.Context, from, until time.Time) error {
	first := 0
	for at := from; at.Before(until) && ctx.Err() == nil; at = at.Add(time.Second) {
		sleep(ctx, time.Until(at.Add(-lead)))
		n, end := first, first+r.cfg.Rate
		err := r.streamCreates(ctx, onceAt(at), func() (int, bool) { n++; return n - 1, n <= end }, func(time.Time) {})
		if err != nil {
			return err
		}
		if time.Until(at) < time.Second {
			return fmt.Errorf("%d jobs can't be created in a second, ahead of their time: it is the creates that are too slow", r.cfg.Rate)
		}
		first = end
	}
	return context.Cause(ctx)
}

// burst lets many jobs become due in one second, over those that fire every second.
func (r *rig) burst(ctx context.Context) (m measured, err error) {
	if err := r.createAll(ctx, 0, r.cfg.Rate, everySecond()); err != nil {
		return m, err
	}
	at := time.Now().Truncate(time.Second).Add(r.cfg.Warmup + time.Duration(r.cfg.Burst/2000)*time.Second)
	r.say("creating %d jobs that are due at %s", r.cfg.Burst, at.Format("15:04:05"))
	if err := r.createAll(ctx, r.cfg.Rate, r.cfg.Burst, onceAt(at)); err != nil {
		return m, err
	}
	if time.Until(at) < 2*time.Second {
		return m, fmt.Errorf("%d jobs could not be created well before they are due: raise --warmup", r.cfg.Burst)
	}
	m.what, m.window, m.expected, m.atOnce = "starts", window{at, at.Add(r.cfg.Duration)}, r.cfg.Burst, true
	m.counts = func(e workload.Execution) bool { return e.Job >= int64(r.cfg.Rate) }
	if m.before, m.after, err = r.observe(ctx, m.window); err != nil {
		return m, err
	}
	return m, r.finish(ctx, r.cfg.Rate)
}

// recurring looks at what jobs cost that aren't due, and then lets others fire beside
// them.
func (r *rig) recurring(ctx context.Context) (measured, error) {
	facts := map[string]float64{"idle_jobs": float64(r.cfg.IdleJobs)}
	empty, err := r.snapshot(ctx)
	if err != nil {
		return measured{}, err
	}
	began := time.Now()
	far := began.AddDate(0, 6, 0)
	r.say("creating %d jobs that fire in %s", r.cfg.IdleJobs, far.Month())
	if err := r.createAll(ctx, r.cfg.Rate, r.cfg.IdleJobs, cron(fmt.Sprintf("0 0 1 %d *", far.Month()))); err != nil {
		return measured{}, err
	}
	facts["creates_per_second"] = float64(r.cfg.IdleJobs) / time.Since(began).Seconds()
	took, err := r.restartNode(ctx)
	if err != nil {
		return measured{}, err
	}
	peak := float64(process.Peak(r.node.PID())) / (1 << 20)
	facts["load_seconds"], facts["load_peak_mebibytes"] = took.Seconds(), peak
	r.say("the node was ready %.2f s after its restart, and took at most %.0f MiB till then", took.Seconds(), peak)
	if err := r.idle(ctx, empty, facts); err != nil {
		return measured{}, err
	}
	m, err := r.steady(ctx)
	m.facts = facts
	return m, err
}

// fleet looks at what workers cost that have nothing to do, and then kills the node under
// those that have: each is to come back with the attempt that it holds.
func (r *rig) fleet(ctx context.Context) (m measured, err error) {
	sleep(ctx, r.cfg.Warmup)
	before, err := r.snapshot(ctx)
	if err != nil {
		return m, err
	}
	sleep(ctx, r.cfg.Duration)
	after, err := r.snapshot(ctx)
	if err != nil {
		return m, err
	}
	all := float64(r.cfg.Workers + r.cfg.IdleWorkers)
	m.facts = map[string]float64{
		"connected_workers":     all,
		"node_cpu_percent":      100 * (after.programs["node"].CPU - before.programs["node"].CPU).Seconds() / r.cfg.Duration.Seconds(),
		"node_bytes_per_worker": float64(after.programs["node"].Memory-r.bare) / all,
	}
	m.what, m.window, m.expected = "starts", window{time.Now(), time.Now().Add(time.Hour)}, r.cfg.Workers
	m.counts = func(workload.Execution) bool { return true }
	if err := r.createAll(ctx, 0, r.cfg.Workers, immediately()); err != nil {
		return m, err
	}
	err = r.eventually(ctx, r.cfg.Work/2, "each worker runs an attempt", func(ctx context.Context) (bool, error) {
		now, err := r.metrics(ctx)
		return now["carillon_slots_running"] == float64(r.cfg.Workers), err
	})
	if err != nil {
		return m, err
	}
	r.say("killing the node under %d running attempts", r.cfg.Workers)
	if err := r.killNode(ctx); err != nil {
		return m, err
	}
	ready := time.Now()
	if err := r.awaitWorkers(ctx); err != nil {
		return m, err
	}
	m.facts["all_back_seconds"] = time.Since(ready).Seconds()
	r.say("all %.0f workers were back %.2f s after the node was ready again", all, time.Since(ready).Seconds())
	m.before, m.after = before, after
	if err := r.settle(ctx); err != nil {
		return m, err
	}
	end, err := r.metrics(ctx)
	if err != nil {
		return m, err
	}
	m.until = time.Now()
	m.facts["leases_lost"] = end["carillon_worker_leases_expired_total"]
	m.facts["executions_beyond_the_first"] = end["carillon_attempts_ended_total"] - end["carillon_slots_finished_total"]
	return m, r.finish(ctx, 0)
}

// idleTime is how long a node is watched that has nothing to do.
const idleTime = 10 * time.Second

// idle watches the node while nothing is due.
func (r *rig) idle(ctx context.Context, empty snapshot, facts map[string]float64) error {
	sleep(ctx, r.cfg.Warmup)
	before, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	sleep(ctx, idleTime)
	after, err := r.snapshot(ctx)
	if err != nil {
		return err
	}
	facts["idle_node_cpu_percent"] = 100 * (after.programs["node"].CPU - before.programs["node"].CPU).Seconds() / idleTime.Seconds()
	facts["node_bytes_per_idle_job"] = float64(after.programs["node"].Memory-empty.programs["node"].Memory) / float64(r.cfg.IdleJobs)
	return context.Cause(ctx)
}

// immediate measures from the instant at which a create call was due to the first line
// of the handler.
func (r *rig) immediate(ctx context.Context) (m measured, err error) {
	warm := calls(r.cfg.Rate, r.cfg.Warmup)
	called := make([]int64, warm+calls(r.cfg.Rate, r.cfg.Duration)) // each is written by its own call
	var failed errorList
	create := func(n int, due time.Time) {
		called[n] = due.UnixMicro()
		failed.add(r.create(ctx, n, immediately()))
	}
	from := time.Now().Add(r.cfg.Warmup)
	m.what, m.window, m.expected = "starts", window{from, from.Add(r.cfg.Duration)}, len(called)-warm
	m.counts = func(e workload.Execution) bool { return e.Job >= int64(warm) }
	m.due = func(e workload.Execution) int64 { return called[e.Job] }
	var load sync.WaitGroup
	load.Go(func() { open(ctx, r.cfg.Rate, r.cfg.Warmup+r.cfg.Duration, create) })
	m.before, m.after, err = r.observe(ctx, m.window)
	load.Wait()
	failed.add(err)
	if err := failed.join(); err != nil {
		return m, err
	}
	return m, r.finish(ctx, 0)
}

// mixed numbers jobs by kind.
const (
	firstOnce      = 10_000_000
	firstImmediate = 20_000_000
)

// fails reports whether the first attempt of a job's slots fails.
func (r *rig) fails(n int) bool { return r.cfg.Scenario == "mixed" && n%20 == 0 }

// mixed is a day's work in short: half of the rate are recurring jobs, a quarter jobs
// that fire once, a quarter immediate ones, and for each twenty of them somebody reads.
func (r *rig) mixed(ctx context.Context) (m measured, err error) {
	recurring, quarter := r.cfg.Rate/2, r.cfg.Rate/4
	if quarter < 1 {
		return m, fmt.Errorf("the rate must be at least 4")
	}
	if err := r.createAll(ctx, 0, recurring, everySecond()); err != nil {
		return m, err
	}
	l := mixedLoad{rig: r, reads: newHistogram()}
	l.called, l.fires = make([]int64, calls(quarter, l.total())), make([]int64, calls(quarter, l.total()))
	r.say("%d recurring jobs, and %d of each other kind in a second; warm-up %s", recurring, quarter, lead+r.cfg.Warmup)
	var load sync.WaitGroup
	l.start(ctx, &load, quarter)
	sleep(ctx, lead+r.cfg.Warmup)
	m.window, m.what = r.nextWindow(), "starts"
	l.measure(m.window)
	m.before, m.after, err = r.observe(ctx, m.window)
	load.Wait()
	l.failed.add(err)
	if err := l.failed.join(); err != nil {
		return m, err
	}
	m.due, m.kind, m.reads = l.due, kindOf, l.reads
	m.counts = func(e workload.Execution) bool { return m.holds(l.due(e)) }
	m.expected = recurring * int(r.cfg.Duration/time.Second)
	for _, times := range [][]int64{l.called, l.fires} {
		for _, t := range times {
			if m.holds(t) {
				m.expected++
			}
		}
	}
	return m, r.finish(ctx, recurring)
}

// mixedLoad is what goes on beside the recurring jobs. All times are microseconds.
type mixedLoad struct {
	*rig
	called []int64 // when each immediate job was to be created; each is written by its own call
	fires  []int64 // when each once-job fires; likewise
	failed errorList
	mu     sync.Mutex
	window window                  // in which reads count; guarded by mu
	reads  *hdrhistogram.Histogram // guarded by mu
}

func (l *mixedLoad) measure(w window) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.window = w
}

func kindOf(e workload.Execution) string {
	switch {
	case e.Job >= firstImmediate:
		return "immediate"
	case e.Job >= firstOnce:
		return "once"
	}
	return "recurring"
}

func (l *mixedLoad) due(e workload.Execution) int64 {
	if e.Job >= firstImmediate {
		return l.called[e.Job-firstImmediate]
	}
	return e.Fire
}

// total is how long the load goes on: beyond the window, which begins with a second.
func (l *mixedLoad) total() time.Duration {
	return l.cfg.Warmup + lead + l.cfg.Duration + 2*time.Second
}

// start begins all that is done by the clock; load waits for its end.
func (l *mixedLoad) start(ctx context.Context, load *sync.WaitGroup, rate int) {
	total := l.total()
	load.Go(func() {
		open(ctx, rate, total, func(n int, due time.Time) {
			l.called[n] = due.UnixMicro()
			l.failed.add(l.create(ctx, firstImmediate+n, immediately()))
		})
	})
	load.Go(func() {
		open(ctx, rate, total, func(n int, due time.Time) {
			at := due.Add(lead).Truncate(time.Second)
			l.fires[n] = at.UnixMicro()
			l.failed.add(l.create(ctx, firstOnce+n, onceAt(at)))
		})
	})
	load.Go(func() {
		open(ctx, max(1, 4*rate/20), total, func(n int, due time.Time) { l.failed.add(l.read(ctx, n, due)) })
	})
}

// read is what a person does: looking at a job, or at its slots.
func (l *mixedLoad) read(ctx context.Context, n int, due time.Time) (err error) {
	name := parent + "/jobs/" + workload.JobName(n%max(1, l.cfg.Rate/2))
	if n%2 == 0 {
		_, err = l.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Name: name})
	} else {
		_, err = l.slots.ListSlots(ctx, &carillonv1.ListSlotsRequest{Parent: name, PageSize: 50})
	}
	if err != nil {
		return err
	}
	took := time.Since(due)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.window.holds(due.UnixMicro()) {
		return nil
	}
	return l.reads.RecordValue(took.Microseconds())
}
