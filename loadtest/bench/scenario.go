package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	parent      = "namespaces/default"
	batchCreate = 1000
	// afterLoad is how long the load goes on after what is measured.
	afterLoad = 5 * time.Second
	// settleTime is how long what was due may take to its end after the load.
	settleTime = 60 * time.Second
)

// everySecond, immediately and onceAt are the schedules of a benchmark.
func everySecond() *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "* * * * * *"}}
}

func immediately() *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}
}

func onceAt(t time.Time) *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_RunAt{RunAt: timestamppb.New(t)}}
}

func spec(schedule *carillonv1.Schedule) *carillonv1.Job {
	return &carillonv1.Job{Handler: handlerName, Params: &carillonv1.Json{Text: `{"tenant":"acme","n":12345}`}, Schedule: schedule}
}

// createAll creates jobs numbered from first on, a thousand at a time.
func (r *rig) createAll(ctx context.Context, first, n int, schedule *carillonv1.Schedule) error {
	for ; n > 0; first, n = first+batchCreate, n-batchCreate {
		req := &carillonv1.BatchCreateJobsRequest{Parent: parent}
		for i := range min(n, batchCreate) {
			req.Requests = append(req.Requests, &carillonv1.CreateJobRequest{JobId: jobName(first + i), Job: spec(schedule)})
		}
		resp, err := r.jobs.BatchCreateJobs(ctx, req)
		if err != nil {
			return err
		}
		for _, j := range resp.GetJobs() {
			if err := r.ack(j); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *rig) ack(j *carillonv1.Job) error {
	uid, err := job.ParseUID(j.GetUid())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[j.GetName()] = uid
	return nil
}

// deleteAll ends the recurring jobs numbered 0 to n-1, by callers at the same time.
func (r *rig) deleteAll(ctx context.Context, n int) error {
	numbers := make(chan int)
	var callers sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for range 64 {
		callers.Go(func() {
			for i := range numbers {
				if _, err := r.jobs.DeleteJob(ctx, &carillonv1.DeleteJobRequest{Name: parent + "/jobs/" + jobName(i)}); err != nil && status.Code(err) != codes.NotFound {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	callers.Wait()
	return errors.Join(errs...)
}

// settle waits until no slot is open.
func (r *rig) settle(ctx context.Context) error {
	return r.eventually(ctx, settleTime, "all that was due has ended", func(ctx context.Context) (bool, error) {
		for token := ""; ; { // a page looks at a bounded number of slots, and may be empty
			resp, err := r.slots.ListSlots(ctx, &carillonv1.ListSlotsRequest{Parent: parent + "/jobs/-", PageSize: 1, PageToken: token,
				States: []carillonv1.SlotState{carillonv1.SlotState_SLOT_STATE_READY, carillonv1.SlotState_SLOT_STATE_RUNNING}})
			if err != nil || len(resp.GetSlots()) > 0 {
				return false, err
			}
			if token = resp.GetNextPageToken(); token == "" {
				return true, nil
			}
		}
	})
}

// window is the time that is measured.
type window struct{ from, until time.Time }

// steady lets jobs fire every second, and measures after the warm-up.
func (r *rig) steady(ctx context.Context) (Report, error) {
	if err := r.createAll(ctx, 0, r.cfg.Rate, everySecond()); err != nil {
		return Report{}, err
	}
	r.say("%d jobs fire every second; warm-up %s", r.cfg.Rate, r.cfg.Warmup)
	sleep(ctx, r.cfg.Warmup)
	w := window{from: time.Now().Truncate(time.Second).Add(time.Second)}
	sleep(ctx, time.Until(w.from))
	before := r.usage()
	w.until = w.from.Add(r.cfg.Duration)
	for ctx.Err() == nil && time.Until(w.until) > 0 {
		sleep(ctx, min(10*time.Second, time.Until(w.until)))
		r.say("%s of %s", time.Since(w.from).Round(time.Second), r.cfg.Duration)
	}
	after := r.usage()
	if err := r.finishRecurring(ctx, r.cfg.Rate); err != nil {
		return Report{}, err
	}
	return r.report(w, r.cfg.Rate*int(r.cfg.Duration/time.Second), func(e execution) bool {
		return !time.UnixMicro(e.Fire).Before(w.from) && time.UnixMicro(e.Fire).Before(w.until)
	}, nil, before, after)
}

func (r *rig) finishRecurring(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	sleep(ctx, afterLoad) // a job that is deleted takes what waits of it along
	r.say("ending %d jobs", n)
	if err := r.deleteAll(ctx, n); err != nil {
		return err
	}
	return r.finish(ctx)
}

// finish waits until all is done, and ends the worker, which writes its notes then.
func (r *rig) finish(ctx context.Context) error {
	if err := r.settle(ctx); err != nil {
		return err
	}
	sleep(ctx, 1500*time.Millisecond) // the last watermark
	err := r.worker.Stop()
	r.worker = nil
	return err
}

// burst lets many jobs become due in one second, over those that fire every second.
func (r *rig) burst(ctx context.Context) (Report, error) {
	if err := r.createAll(ctx, 0, r.cfg.Rate, everySecond()); err != nil {
		return Report{}, err
	}
	lead := r.cfg.Warmup + time.Duration(r.cfg.Burst/2000)*time.Second
	at := time.Now().Truncate(time.Second).Add(lead)
	r.say("creating %d jobs that are due at %s", r.cfg.Burst, at.Format("15:04:05"))
	if err := r.createAll(ctx, r.cfg.Rate, r.cfg.Burst, onceAt(at)); err != nil {
		return Report{}, err
	}
	if time.Until(at) < 3*time.Second {
		return Report{}, fmt.Errorf("creating %d jobs took until %s before they are due: raise --warmup", r.cfg.Burst, time.Until(at).Round(time.Millisecond))
	}
	sleep(ctx, time.Until(at.Add(-time.Second)))
	before := r.usage()
	sleep(ctx, time.Until(at.Add(r.cfg.Duration)))
	after := r.usage()
	if err := r.finishRecurring(ctx, r.cfg.Rate); err != nil {
		return Report{}, err
	}
	return r.report(window{at, at.Add(time.Second)}, r.cfg.Burst, func(e execution) bool { return e.Job >= int64(r.cfg.Rate) }, nil, before, after)
}

// calls is how many calls open makes.
func calls(rate int, d time.Duration) int { return int(d.Seconds() * float64(rate)) }

// open calls fn at a rate by the clock, for a time, each call on its own.
func open(ctx context.Context, rate int, d time.Duration, fn func(n int, due time.Time)) {
	var under sync.WaitGroup
	begin := time.Now()
	for n := 0; n < calls(rate, d) && ctx.Err() == nil; n++ {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(rate))
		sleep(ctx, time.Until(due))
		under.Go(func() { fn(n, due) })
	}
	under.Wait()
}

// immediate measures from the instant at which a create call was due to the first line
// of the handler.
func (r *rig) immediate(ctx context.Context) (Report, error) {
	warm := calls(r.cfg.Rate, r.cfg.Warmup)
	called := make([]time.Time, warm+calls(r.cfg.Rate, r.cfg.Duration))
	var mu sync.Mutex
	var errs []error
	create := func(n int, due time.Time) {
		resp, err := r.jobs.CreateJob(ctx, &carillonv1.CreateJobRequest{Parent: parent, JobId: jobName(n), Job: spec(immediately())})
		if err == nil {
			err = r.ack(resp.GetJob())
		}
		mu.Lock()
		defer mu.Unlock()
		called[n] = due
		if err != nil {
			errs = append(errs, err)
		}
	}
	open(ctx, r.cfg.Rate, r.cfg.Warmup, func(n int, due time.Time) { create(n, due) })
	before, begin := r.usage(), time.Now()
	open(ctx, r.cfg.Rate, r.cfg.Duration, func(n int, due time.Time) { create(warm+n, due) })
	after := r.usage()
	if err := errors.Join(errs...); err != nil {
		return Report{}, err
	}
	if err := r.finish(ctx); err != nil {
		return Report{}, err
	}
	n := 0
	for _, t := range called[warm:] {
		if !t.IsZero() {
			n++
		}
	}
	return r.report(window{begin, begin.Add(r.cfg.Duration)}, n, func(e execution) bool { return e.Job >= int64(warm) },
		func(e execution) int64 { return called[e.Job].UnixMicro() }, before, after)
}

// create measures how many creates by callers at the same time are acknowledged, and
// how long each takes. The jobs are due in a year.
func (r *rig) create(ctx context.Context) (Report, error) {
	latencies := newHistogram()
	var mu sync.Mutex
	var callers sync.WaitGroup
	var errs []error
	next, counted := 0, 0
	begin := time.Now()
	from, until := begin.Add(r.cfg.Warmup), begin.Add(r.cfg.Warmup+r.cfg.Duration)
	far := onceAt(begin.Truncate(time.Second).AddDate(1, 0, 0))
	before := r.usage()
	for range r.cfg.Callers {
		callers.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				called := time.Now()
				resp, err := r.jobs.CreateJob(ctx, &carillonv1.CreateJobRequest{Parent: parent, JobId: jobName(n), Job: spec(far)})
				answered := time.Now()
				if err == nil {
					err = r.ack(resp.GetJob())
				}
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else if called.After(from) && answered.Before(until) {
					counted++
					errs = append(errs, latencies.RecordValue(answered.Sub(called).Microseconds()))
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	after := r.usage()
	if err := errors.Join(errs...); err != nil {
		return Report{}, err
	}
	if err := r.finish(ctx); err != nil {
		return Report{}, err
	}
	report := r.newReport(before, after, counted)
	report.What, report.PerSecond, report.Expected, report.Executions = "create calls", float64(counted)/r.cfg.Duration.Seconds(), counted, counted
	report.Latency = quantiles(latencies)
	return report, nil
}
