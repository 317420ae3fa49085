package workersdktest_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

// FuzzServer has workers say anything, in any order, over streams and by calls. Whatever they
// say, the server goes on, no call fails by its fault, and every slot comes to its end once a
// worker comes that behaves.
func FuzzServer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 9, 20, 2, 5, 10, 0, 12, 0, 1})
	f.Add([]byte{10, 1, 12, 0, 1, 11, 0, 0, 2, 2, 1, 0, 0, 0, 7, 0, 0, 0, 1, 0, 3})
	f.Add([]byte{0, 1, 3, 8, 200, 1, 2, 3, 0, 1, 4, 9, 255, 4, 0, 6, 5, 0, 3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 200 {
			data = data[:200]
		}
		workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) { fuzzServer(t, s, data) })
	})
}

// rough is a client that also sends what is no message.
type rough struct {
	t      *testing.T
	client carillonv1.WorkerServiceClient
	data   []byte
	stream carillonv1.WorkerService_ConnectClient
	known  []*carillonv1.AttemptToken
}

// rawCodec sends bytes as they are.
type rawCodec struct{ encoding.CodecV2 }

type raw []byte

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func fuzzServer(t *testing.T, s *workersdktest.Server, data []byte) {
	const jobs = 5
	for i := range jobs {
		_, err := s.Jobs.CreateJob(t.Context(), &carillonv1.CreateJobRequest{Parent: "namespaces/default", JobId: fmt.Sprint("j-", i), AllowUnregisteredHandler: true,
			Job: &carillonv1.Job{Handler: "h", AttemptTimeout: durationpb.New(time.Minute),
				Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(protocodec.Name)})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.Dial(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &rough{t: t, client: carillonv1.NewWorkerServiceClient(conn), data: data}
	for len(r.data) > 0 {
		r.step(ctx)
		synctest.Wait()
	}
	cancel()
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	s.Worker(func(w *worker.Worker) {
		worker.Handle(w, "h", func(context.Context, *worker.Task[any]) error { return nil })
	}, worker.ID("good"))
	s.Advance(20 * time.Minute)
	for i := range jobs {
		for _, slot := range s.History(fmt.Sprint("j-", i)) {
			if st := slot.GetState(); st != carillonv1.SlotState_SLOT_STATE_SUCCEEDED && st != carillonv1.SlotState_SLOT_STATE_DEAD {
				t.Errorf("a slot is left as %v", slot)
			}
		}
	}
}

func (r *rough) take() int {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return int(b)
}

// token is one that was given out, or nearly so.
func (r *rough) token() *carillonv1.AttemptToken {
	b := r.take()
	t := &carillonv1.AttemptToken{JobUid: "0198c0de-0000-7000-8000-000000000000", Attempt: 1, Epoch: 1}
	if n := len(r.known); n > 0 {
		k := r.known[b%n]
		t = &carillonv1.AttemptToken{Shard: k.GetShard(), JobUid: k.GetJobUid(), FireTimeUs: k.GetFireTimeUs(), Attempt: k.GetAttempt(), Epoch: k.GetEpoch()}
	}
	switch b / 64 {
	case 1:
		t.Attempt++
	case 2:
		t.Epoch++
	case 3:
		t.Shard = int32(b - 200)
	}
	return t
}

func (r *rough) results() []*carillonv1.AttemptResult {
	return []*carillonv1.AttemptResult{{Token: r.token(), Outcome: carillonv1.AttemptOutcome(r.take() % 9), Permanent: r.take()%8 == 0, Log: []byte{255}, Checkpoint: []byte("c")}}
}

func (r *rough) progress() []*carillonv1.ProgressReport {
	return []*carillonv1.ProgressReport{{Token: r.token(), Sequence: int64(r.take()), Checkpoint: make([]byte, r.take()*300), Progress: &carillonv1.Progress{Note: "\x00"}}}
}

func (r *rough) step(ctx context.Context) {
	m := &carillonv1.ConnectRequest{}
	id := func() (string, string) { return fmt.Sprint("w", r.take()%2), fmt.Sprint(r.take() % 3) }
	switch op := r.take() % 14; op {
	case 0:
		r.open(ctx)
		h := &carillonv1.Hello{Capacity: 4, Credit: int32(r.take() % 5), Capabilities: []string{"reclaim", "membership"}, Handlers: []*carillonv1.HandlerRegistration{{Name: "h"}}}
		h.WorkerId, h.Incarnation = id()
		for range r.take() % 3 {
			h.Held = append(h.Held, r.token())
		}
		m.Hello = h
	case 1, 2:
		m.Results, m.Credit = r.results(), 1
	case 3:
		m.Heartbeat = &carillonv1.Heartbeat{Sequence: int64(r.take())}
	case 4:
		m.Progress = r.progress()
	case 5:
		m.Held = []*carillonv1.AttemptToken{r.token(), r.token()}
	case 6:
		m.Draining = r.take()%2 == 0
	case 7:
		m.Credit, m.Reclaim = int32(int8(r.take())), int32(int8(r.take()))
	case 8:
		n := min(r.take(), len(r.data))
		if r.stream != nil {
			_ = r.stream.SendMsg(raw(r.data[:n])) // the server's answer is the stream's end
		}
		r.data = r.data[n:]
		return
	case 9:
		time.Sleep(time.Duration(r.take()) * 100 * time.Millisecond)
		return
	case 10:
		req := &carillonv1.PollRequest{Handlers: []string{"h"}, MaxAttempts: int32(r.take() % 4), Wait: durationpb.New(time.Duration(r.take()) * 10 * time.Millisecond)}
		req.WorkerId, req.Incarnation = id()
		resp, err := r.client.Poll(ctx, req)
		r.allow(err)
		r.learn(resp.GetAssignments())
		return
	case 11:
		req := &carillonv1.ExtendRequest{Held: []*carillonv1.AttemptToken{r.token()}, Progress: r.progress()}
		req.WorkerId, req.Incarnation = id()
		_, err := r.client.Extend(ctx, req)
		r.allow(err)
		return
	case 12:
		req := &carillonv1.FinishRequest{Results: append(r.results(), r.results()...)}
		req.WorkerId, req.Incarnation = id()
		_, err := r.client.Finish(ctx, req)
		r.allow(err)
		return
	default:
		r.stream = nil // left as it is
		return
	}
	if r.stream != nil {
		_ = r.stream.Send(m) // the server's answer is the stream's end
	}
}

// allow wants a call to fail by its caller's fault alone.
func (r *rough) allow(err error) {
	r.t.Helper()
	switch status.Code(err) {
	case codes.OK, codes.InvalidArgument, codes.FailedPrecondition, codes.Aborted, codes.DeadlineExceeded:
	default:
		r.t.Errorf("a call ended with %v", err)
	}
}

func (r *rough) learn(all []*carillonv1.Assignment) {
	for _, a := range all {
		r.known = append(r.known, a.GetToken())
	}
}

// open opens a stream. What comes over it is learned in the bubble, by one goroutine at a time.
func (r *rough) open(ctx context.Context) {
	st, err := r.client.Connect(ctx)
	r.allow(err)
	r.stream = st
	if err != nil {
		return
	}
	go func() {
		for {
			m, err := st.Recv()
			if err != nil {
				if c := status.Code(err); c == codes.Internal || c == codes.Unknown {
					r.t.Errorf("a stream ended with %v", err)
				}
				return
			}
			r.learn(m.GetAssignments())
		}
	}()
}
