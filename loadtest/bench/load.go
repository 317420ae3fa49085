package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	parent   = "namespaces/default"
	maxBatch = 1000 // that the API takes
	// windowOfStream is how many creates of a stream wait for their answer.
	windowOfStream = 1000
)

// cron, immediately and onceAt are the schedules of a benchmark.
func cron(expr string) *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: expr}}
}

func everySecond() *carillonv1.Schedule { return cron("* * * * * *") }

func immediately() *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}
}

func onceAt(t time.Time) *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_RunAt{RunAt: timestamppb.New(t)}}
}

// request asks for job number n.
func (r *rig) request(n int, schedule *carillonv1.Schedule) *carillonv1.CreateJobRequest {
	return &carillonv1.CreateJobRequest{Parent: parent, JobId: workload.JobName(n), Job: &carillonv1.Job{
		Handler: workload.Handler, Params: &carillonv1.Json{Text: workload.Params(r.cfg.Payload, r.fails(n))}, Schedule: schedule}}
}

// createAll creates jobs numbered from first on, a thousand at a time.
func (r *rig) createAll(ctx context.Context, first, n int, schedule *carillonv1.Schedule) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for at := first; at < first+n; at += maxBatch {
		group.Go(func() error { return r.createBatch(ctx, at, min(first+n-at, maxBatch), schedule) })
	}
	return group.Wait()
}

func (r *rig) createBatch(ctx context.Context, first, n int, schedule *carillonv1.Schedule) error {
	req := &carillonv1.BatchCreateJobsRequest{Parent: parent}
	for i := range n {
		req.Requests = append(req.Requests, r.request(first+i, schedule))
	}
	resp, err := r.jobs.BatchCreateJobs(ctx, req)
	if err != nil {
		return err
	}
	for _, j := range resp.GetJobs() {
		if err := r.ack(j.GetName(), j.GetUid()); err != nil {
			return err
		}
	}
	return nil
}

// create creates one job, by a call or a request.
func (r *rig) create(ctx context.Context, n int, schedule *carillonv1.Schedule) error {
	if r.cfg.Via == ByREST {
		return r.post(ctx, n, schedule)
	}
	resp, err := r.jobs.CreateJob(ctx, r.request(n, schedule))
	if err != nil {
		return err
	}
	return r.ack(resp.GetJob().GetName(), resp.GetJob().GetUid())
}

// post creates one job over REST, as a client in any language would.
func (r *rig) post(ctx context.Context, n int, schedule *carillonv1.Schedule) error {
	when := map[string]any{"immediate": struct{}{}}
	switch kind := schedule.GetKind().(type) {
	case *carillonv1.Schedule_RunAt:
		when = map[string]any{"runAt": kind.RunAt.AsTime()}
	case *carillonv1.Schedule_Cron:
		when = map[string]any{"cron": kind.Cron}
	}
	body, err := json.Marshal(map[string]any{"handler": workload.Handler, "params": json.RawMessage(workload.Params(r.cfg.Payload, r.fails(n))), "schedule": when})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.http+"/v1/"+parent+"/jobs?job_id="+workload.JobName(n), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var made struct{ Name, UID string }
	if err := json.Unmarshal(answer, &made); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("create over REST: %s: %s", resp.Status, answer)
	}
	return r.ack(made.Name, made.UID)
}

// ack notes a job that the server says it has.
func (r *rig) ack(name, uid string) error {
	id, err := job.ParseUID(uid)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[name] = id
	return nil
}

// streamCreates sends a create for each number that next returns, as long as it says so,
// and tells when each was sent and answered.
func (r *rig) streamCreates(ctx context.Context, schedule *carillonv1.Schedule, next func() (int, bool), answered func(sent time.Time)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a sender that waits for room ends, too
	stream, err := r.jobs.StreamCreateJobs(ctx)
	if err != nil {
		return err
	}
	room := make(chan struct{}, windowOfStream)
	var mu sync.Mutex
	sent := map[int64]time.Time{} // guarded by mu
	sending := make(chan error, 1)
	go func() {
		for index := int64(0); ; index++ {
			n, ok := next()
			if !ok {
				sending <- stream.CloseSend()
				return
			}
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				sending <- context.Cause(ctx)
				return
			}
			mu.Lock()
			sent[index] = time.Now()
			mu.Unlock()
			if err := stream.Send(&carillonv1.StreamCreateJobsRequest{Create: r.request(n, schedule)}); err != nil {
				sending <- err
				return
			}
		}
	}()
	for {
		a, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return <-sending
		}
		if err != nil {
			return err
		}
		if e := a.GetError(); e != nil {
			return status.ErrorProto(e)
		}
		<-room
		mu.Lock()
		at := sent[a.GetIndex()]
		delete(sent, a.GetIndex())
		mu.Unlock()
		if err := r.ack(a.GetJob().GetName(), a.GetJob().GetUid()); err != nil {
			return err
		}
		answered(at)
	}
}

// deleteAll ends the recurring jobs numbered 0 to n-1, by callers at the same time.
func (r *rig) deleteAll(ctx context.Context, n int) error {
	numbers := make(chan int)
	var callers sync.WaitGroup
	var failed errorList
	for range 64 {
		callers.Go(func() {
			for i := range numbers {
				_, err := r.jobs.DeleteJob(ctx, &carillonv1.DeleteJobRequest{Name: parent + "/jobs/" + workload.JobName(i)})
				if status.Code(err) != codes.NotFound {
					failed.add(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case numbers <- i:
		case <-ctx.Done():
		}
	}
	close(numbers)
	callers.Wait()
	return failed.join()
}

// errorList gathers errors, the first few of them.
type errorList struct {
	mu  sync.Mutex
	all []error // guarded by mu
	n   int     // guarded by mu
}

func (l *errorList) add(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; l.n <= 5 {
		l.all = append(l.all, err)
	}
}

func (l *errorList) join() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n > len(l.all) {
		return errors.Join(append(l.all, fmt.Errorf("and %d errors more", l.n-len(l.all)))...)
	}
	return errors.Join(l.all...)
}

// settleTime is how long what was due may take to its end after the load.
const settleTime = 2 * time.Minute

// settle waits until no slot is open. The node's own numbers are asked first, since they
// cost nothing.
func (r *rig) settle(ctx context.Context) error {
	return r.eventually(ctx, settleTime, "all that was due has ended", func(ctx context.Context) (bool, error) {
		m, err := r.metrics(ctx)
		if err != nil || m["carillon_slots_ready"]+m["carillon_slots_running"]+m["carillon_slots_backlog"]+m["carillon_gaps_open"] > 0 {
			return false, err
		}
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
