package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// retryCalls makes a call again while the server says that it may: shards move, nodes come and
// go, and nobody who types a command should see it. Calls that would have another effect each
// time get a request id.
func retryCalls(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	makeRepeatable(req)
	for said := false; ; said = true {
		err := invoke(ctx, method, req, reply, conn, opts...)
		pause, may := retryAfter(err)
		if !may {
			return err
		}
		if !said {
			fmt.Fprintln(os.Stderr, "waiting:", status.Convert(err).Message())
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func makeRepeatable(req any) {
	switch req := req.(type) {
	case *carillonv1.CreateJobRequest:
		if req.GetRequestId() == "" {
			req.RequestId = uuid.NewString()
		}
	case *carillonv1.RunJobRequest:
		if req.GetRequestId() == "" {
			req.RequestId = uuid.NewString()
		}
	}
}

// retryAfter reads from an error whether the call may be made again, and when.
func retryAfter(err error) (time.Duration, bool) {
	st := status.Convert(err)
	if st.Code() != codes.Unavailable {
		return 0, false
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return max(info.GetRetryDelay().AsDuration(), 10*time.Millisecond), true
		}
	}
	return 0, false
}
