package controlplane

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of the creates of a stream that are under way, which are those whose answer
// was not sent yet.
const (
	// maxStreamCreates are as many as a group commit or two can take.
	maxStreamCreates = 1000
	maxStreamBytes   = maxRequestBytes
)

// createStream is a stream of creates. One goroutine receives, each create has one of
// its own, which waits for the commit, and one sends the answers. A client that doesn't
// read its answers isn't read from.
type createStream struct {
	jobService
	carillonv1.JobService_StreamCreateJobsServer
	answers  chan createAnswer
	bytes    *semaphore.Weighted // of requests under way
	stopping atomic.Bool         // a create met a server that stops
}

type createAnswer struct {
	*carillonv1.StreamCreateJobsResponse
	bytes int64 // of its request
}

// StreamCreateJobs implements JobService.
func (s jobService) StreamCreateJobs(stream carillonv1.JobService_StreamCreateJobsServer) error {
	c := &createStream{jobService: s, JobService_StreamCreateJobsServer: stream, answers: make(chan createAnswer), bytes: semaphore.NewWeighted(maxStreamBytes)}
	sent := make(chan error, 1)
	go func() { sent <- c.send() }()
	err := c.receive()
	close(c.answers)
	return cmp.Or(err, <-sent)
}

// send sends until there are no answers; also after a failure it takes all, so that no
// create waits for it.
func (c *createStream) send() (err error) {
	for a := range c.answers {
		if err == nil {
			err = c.Send(a.StreamCreateJobsResponse)
		}
		c.bytes.Release(a.bytes)
	}
	return err
}

// receive returns once every create that it received is answered. A server that stops
// reads no further: the rest of the stream belongs to another one.
func (c *createStream) receive() error {
	var underWay errgroup.Group // their errors are answers
	underWay.SetLimit(maxStreamCreates)
	defer func() { _ = underWay.Wait() }()
	for index := int64(0); ; index++ {
		if c.stopping.Load() {
			return retriable(reasonStopping, "create jobs: this node is stopping")
		}
		req, err := c.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		size := min(int64(proto.Size(req)), maxStreamBytes)
		if err := c.bytes.Acquire(c.Context(), size); err != nil {
			return status.FromContextError(err).Err()
		}
		underWay.Go(func() error {
			c.answers <- createAnswer{c.create(c.Context(), index, req.GetCreate()), size}
			return nil
		})
	}
}

// create is one create. It has the deadline of a call of its own, and a panic in it is
// its own error, as with a call.
func (c *createStream) create(ctx context.Context, index int64, req *carillonv1.CreateJobRequest) (answer *carillonv1.StreamCreateJobsResponse) {
	failed := func(err error) *carillonv1.StreamCreateJobsResponse {
		return &carillonv1.StreamCreateJobsResponse{Index: index, Result: &carillonv1.StreamCreateJobsResponse_Error{Error: status.Convert(err).Proto()}}
	}
	defer func() {
		if p := recover(); p != nil {
			answer = failed(c.panicked(ctx, carillonv1.JobService_StreamCreateJobs_FullMethodName, p))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, maxUnaryDeadline)
	defer cancel()
	if req == nil {
		return failed(invalid("create", reasonInvalidField, "is required"))
	}
	resp, err := c.CreateJob(ctx, req)
	c.metrics.requestsHandled.WithLabelValues(carillonv1.JobService_StreamCreateJobs_FullMethodName, codeName(status.Code(err))).Inc()
	if err != nil {
		if reasonOf(err) == reasonStopping {
			c.stopping.Store(true)
		}
		return failed(err)
	}
	return &carillonv1.StreamCreateJobsResponse{Index: index, Result: &carillonv1.StreamCreateJobsResponse_Job{Job: resp.GetJob()}}
}

// reasonOf is the reason that an error gives, or nothing.
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}
