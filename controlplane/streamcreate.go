package controlplane

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// maxStreamCreates bounds the creates of a stream that are under way: as many as a
// group commit or two can take.
const maxStreamCreates = 1000

// StreamCreateJobs implements JobService. This goroutine receives, each create has one
// of its own, which waits for the commit, and one sends the answers. A client that
// doesn't read its answers isn't read from.
func (s jobService) StreamCreateJobs(stream carillonv1.JobService_StreamCreateJobsServer) error {
	answers := make(chan *carillonv1.StreamCreateJobsResponse, maxStreamCreates)
	sent := make(chan error, 1)
	go func() { sent <- sendAnswers(stream, answers) }()
	err := s.receiveCreates(stream, answers)
	close(answers)
	return errors.Join(err, <-sent)
}

// sendAnswers sends until there are none; also after a failure it takes all, so that no
// create waits for it.
func sendAnswers(stream carillonv1.JobService_StreamCreateJobsServer, answers <-chan *carillonv1.StreamCreateJobsResponse) (err error) {
	for a := range answers {
		if err == nil {
			err = stream.Send(a)
		}
	}
	return err
}

// receiveCreates returns once every create that it received is answered.
func (s jobService) receiveCreates(stream carillonv1.JobService_StreamCreateJobsServer, answers chan<- *carillonv1.StreamCreateJobsResponse) error {
	var underWay errgroup.Group // their errors are answers
	underWay.SetLimit(maxStreamCreates)
	defer func() { _ = underWay.Wait() }()
	for index := int64(0); ; index++ {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		underWay.Go(func() error {
			answers <- s.createOfStream(stream.Context(), index, req.GetCreate())
			return nil
		})
	}
}

// createOfStream is one create. It has the deadline of a call of its own, and a panic
// in it is its own error, as with a call.
func (s jobService) createOfStream(ctx context.Context, index int64, req *carillonv1.CreateJobRequest) (answer *carillonv1.StreamCreateJobsResponse) {
	failed := func(err error) *carillonv1.StreamCreateJobsResponse {
		return &carillonv1.StreamCreateJobsResponse{Index: index, Result: &carillonv1.StreamCreateJobsResponse_Error{Error: status.Convert(err).Proto()}}
	}
	defer func() {
		if p := recover(); p != nil {
			answer = failed(s.panicked(ctx, carillonv1.JobService_StreamCreateJobs_FullMethodName, p))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, maxUnaryDeadline)
	defer cancel()
	if req == nil {
		return failed(invalid("create", reasonInvalidField, "is required"))
	}
	resp, err := s.CreateJob(ctx, req)
	if err != nil {
		return failed(err)
	}
	return &carillonv1.StreamCreateJobsResponse{Index: index, Result: &carillonv1.StreamCreateJobsResponse_Job{Job: resp.GetJob()}}
}
