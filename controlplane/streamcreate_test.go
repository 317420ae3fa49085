package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// answersOf sends creates while it receives, and returns the answers by index.
func (s *server) answersOf(creates ...*carillonv1.CreateJobRequest) map[int64]*carillonv1.StreamCreateJobsResponse {
	s.t.Helper()
	stream, err := s.jobs.StreamCreateJobs(s.t.Context())
	must(s.t, err)
	sent := make(chan error, 1)
	go func() {
		for _, c := range creates {
			if err := stream.Send(&carillonv1.StreamCreateJobsRequest{Create: c}); err != nil {
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	answers := map[int64]*carillonv1.StreamCreateJobsResponse{}
	for {
		a, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(s.t, err)
		if answers[a.GetIndex()] != nil {
			s.t.Errorf("create %d is answered twice", a.GetIndex())
		}
		answers[a.GetIndex()] = a
	}
	must(s.t, <-sent)
	return answers
}

// Each create of a stream has its own answer, and what is wrong with one harms no other.
func TestAStreamOfCreates(t *testing.T) {
	s := newServer(t)
	year := scheduleAt(time.Now().Truncate(time.Second).AddDate(1, 0, 0))
	repeatable := func(c *carillonv1.CreateJobRequest) *carillonv1.CreateJobRequest {
		c.RequestId = "r1"
		return c
	}
	answers := s.answersOf(repeatable(job("first", "h", year)), job("", "h", scheduleCron("never")), nil, job("last", "h", year))
	for index, want := range map[int64]string{0: ns + "/jobs/first", 3: ns + "/jobs/last"} {
		if got := answers[index].GetJob(); got.GetName() != want || got.GetUid() == "" || got.GetEffectiveFrom() == nil {
			t.Errorf("answer %d: %v, want job %s", index, answers[index], want)
		}
	}
	for index, says := range map[int64]string{1: "job.schedule.cron", 2: "create: is required"} {
		if e := answers[index].GetError(); codes.Code(e.GetCode()) != codes.InvalidArgument || !strings.Contains(e.GetMessage(), says) || len(e.GetDetails()) == 0 {
			t.Errorf("answer %d: %v, want INVALID_ARGUMENT with %q and details", index, answers[index], says)
		}
	}
	again := s.answersOf(repeatable(job("first", "h", year)), job("first", "h", year))
	if got := again[0].GetJob(); !proto.Equal(got, answers[0].GetJob()) {
		t.Errorf("sent again: %v, want the same job", again[0])
	}
	if e := again[1].GetError(); codes.Code(e.GetCode()) != codes.AlreadyExists {
		t.Errorf("another create of that name: %v", again[1])
	}
}

// More creates than may be under way at a time are all answered.
func TestALongStreamOfCreates(t *testing.T) {
	s := newServer(t)
	const n = 3500
	creates := make([]*carillonv1.CreateJobRequest, n)
	for i := range creates {
		creates[i] = job(fmt.Sprint("j", i), "h", scheduleCron("0 0 1 1 *"))
	}
	answers := s.answersOf(creates...)
	for i := range creates {
		if want := fmt.Sprint(ns, "/jobs/j", i); answers[int64(i)].GetJob().GetName() != want {
			t.Fatalf("answer %d: %v, want %s", i, answers[int64(i)], want)
		}
	}
}

// A client that doesn't read its answers isn't read from: it sends as much as may be under
// way, and what fits into the buffers of the transport, and then waits. All is answered
// once it reads.
func TestAStreamOfCreatesWithoutAReader(t *testing.T) {
	s := newServer(t)
	stream, err := s.jobs.StreamCreateJobs(t.Context())
	must(t, err)
	// Refused at once, and large: their answers wait behind the first that isn't read.
	big := job("", "h", scheduleCron("never"))
	big.Job.Params = &carillonv1.Json{Text: `"` + strings.Repeat("x", 100_000) + `"`}
	const creates = 1500
	var sent atomic.Int64
	sending := make(chan error, 1)
	go func() {
		for range creates {
			if err := stream.Send(&carillonv1.StreamCreateJobsRequest{Create: big}); err != nil {
				sending <- err
				return
			}
			sent.Add(1)
		}
		sending <- stream.CloseSend()
	}()
	last := int64(-1)
	s.eventually("the client is held up", func() bool {
		now := sent.Load()
		stands := now == last && now > 0
		last = now
		return stands
	})
	if last == creates {
		t.Errorf("the server read all %d creates, and nobody its answers", creates)
	}
	for range creates {
		a, err := stream.Recv()
		must(t, err)
		if codes.Code(a.GetError().GetCode()) != codes.InvalidArgument {
			t.Fatalf("answer %v", a)
		}
	}
	must(t, <-sending)
}

// A client that goes away in the middle leaves nothing behind that waits for it; what
// it had sent may be stored, whole.
func TestAStreamOfCreatesThatIsCutOff(t *testing.T) {
	s := newServer(t)
	ctx, hangUp := context.WithCancel(t.Context())
	stream, err := s.jobs.StreamCreateJobs(ctx)
	must(t, err)
	for i := range 5000 { // nobody reads the answers
		if i == 2000 {
			hangUp()
		}
		if stream.Send(&carillonv1.StreamCreateJobsRequest{Create: job(fmt.Sprint("j", i), "h", scheduleCron("0 0 1 1 *"))}) != nil {
			break
		}
	}
	hangUp()
	must(t, s.stop())
}
