package main

import (
	"context"
	"fmt"
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
	parent = "namespaces/default"
	// The numbers of jobs say what they are: recurring ones begin at 0.
	firstLong  = 10_000_000
	firstProbe = 20_000_000
	batchSize  = 500
)

// load is what is due while a round is played.
type load struct {
	*stage
	long int // jobs that were created

	mu    sync.Mutex
	acked []job.UID // guarded by mu
}

// begin creates the jobs that are due every second.
func (l *load) begin(ctx context.Context) error {
	var requests []*carillonv1.CreateJobRequest
	for n := range l.rate {
		requests = append(requests, request(n, workload.Params(0, false), &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "* * * * * *"}}))
	}
	return l.create(ctx, requests)
}

// work creates long jobs that are due at about the same time, and returns it. They take 10 to 15 s each.
func (l *load) work(ctx context.Context, n int) (time.Time, error) {
	due := time.Now().Truncate(time.Second).Add(2 * time.Second)
	var requests []*carillonv1.CreateJobRequest
	for i := range n {
		takes := 10*time.Second + time.Duration(i)*5*time.Second/time.Duration(n)
		requests = append(requests, request(firstLong+l.long+i, workload.ParamsOfWork(takes), &carillonv1.Schedule{Kind: &carillonv1.Schedule_RunAt{RunAt: timestamppb.New(due)}}))
	}
	l.long += n
	return due, l.create(ctx, requests)
}

func request(n int, params string, schedule *carillonv1.Schedule) *carillonv1.CreateJobRequest {
	return &carillonv1.CreateJobRequest{Parent: parent, JobId: workload.JobName(n), Job: &carillonv1.Job{
		Handler: workload.Handler, Params: &carillonv1.Json{Text: params}, Schedule: schedule}}
}

func (l *load) create(ctx context.Context, requests []*carillonv1.CreateJobRequest) error {
	jobs := carillonv1.NewJobServiceClient(l.site.Running()[0].Conn)
	for len(requests) > 0 {
		n := min(len(requests), batchSize)
		resp, err := jobs.BatchCreateJobs(ctx, &carillonv1.BatchCreateJobsRequest{Parent: parent, Requests: requests[:n]})
		if err != nil {
			return fmt.Errorf("create jobs: %w", err)
		}
		for _, j := range resp.GetJobs() {
			if err := l.ack(j); err != nil {
				return err
			}
		}
		requests = requests[n:]
	}
	return nil
}

// ack notes a job that a node says it has.
func (l *load) ack(j *carillonv1.Job) error {
	uid, err := job.ParseUID(j.GetUid())
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = append(l.acked, uid)
	return nil
}

// end ends the recurring jobs.
func (l *load) end(ctx context.Context) error {
	jobs := carillonv1.NewJobServiceClient(l.site.Running()[0].Conn)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for n := range l.rate {
		group.Go(func() error {
			_, err := jobs.DeleteJob(ctx, &carillonv1.DeleteJobRequest{Name: parent + "/jobs/" + workload.JobName(n)})
			if status.Code(err) == codes.NotFound {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}
