package again

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func TestCallsAreMadeAgainWhileTheServerSaysSo(t *testing.T) {
	st, err := status.New(codes.Unavailable, "moving").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(500 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		errs  []error
		calls int
		took  time.Duration
	}{
		"it comes back":          {[]error{st.Err(), st.Err(), nil}, 3, time.Second},
		"it never comes back":    {[]error{st.Err()}, 21, 10 * time.Second},
		"nobody says try again":  {[]error{status.Error(codes.Unavailable, "refused")}, 1, 0},
		"it is the caller's own": {[]error{status.Error(codes.InvalidArgument, "bad")}, 1, 0},
		"it works":               {[]error{nil}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
				defer cancel()
				began, calls, waits, ids := time.Now(), 0, 0, map[string]bool{}
				req := &carillonv1.CreateJobRequest{}
				err := Calls(func(string) { waits++ })(ctx, "m", req, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
					calls++
					ids[req.GetRequestId()] = true
					return c.errs[min(calls, len(c.errs))-1]
				})
				if want := c.errs[len(c.errs)-1]; !errors.Is(err, want) && status.Code(err) != status.Code(want) {
					t.Errorf("it ends with %v", err)
				}
				if calls != c.calls || time.Since(began).Truncate(time.Second) != c.took {
					t.Errorf("%d calls in %s, want %d in %s", calls, time.Since(began), c.calls, c.took)
				}
				if once := c.took > 0; waits != map[bool]int{true: 1}[once] {
					t.Errorf("it was told %d times that it waits", waits)
				}
				if len(ids) != 1 || ids[""] {
					t.Errorf("the calls had the request ids %v, want one", ids)
				}
			})
		})
	}
}
