// Package again makes calls again while a node says that it may be done: shards move, nodes come
// and go, and nobody who asks any of them should see it.
package again

import (
	"context"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Calls returns an interceptor that makes a call again while the answer says that it may, and when,
// until its deadline. Calls that would have another effect each time get a request id. waits, if it isn't
// nil, is told once for each call why it has to wait.
func Calls(waits func(why string)) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		makeRepeatable(req)
		for said := false; ; said = true {
			err := invoke(ctx, method, req, reply, conn, opts...)
			pause, may := after(err)
			if !may {
				return err
			}
			if !said && waits != nil {
				waits(status.Convert(err).Message())
			}
			if !wait(ctx, pause) {
				return err
			}
		}
	}
}

// wait waits; false: ctx ended before.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// makeRepeatable gives a request an id if repeats of it need one.
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

// after reads from an error whether the call may be made again, and when.
func after(err error) (time.Duration, bool) {
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
