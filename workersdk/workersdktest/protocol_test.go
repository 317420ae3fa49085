package workersdktest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

const lease = 10 * time.Second // the server's default

// link is a network between a worker and the server, whose two directions can be black holes
// of their own.
type link struct {
	mu       sync.Mutex
	to       *workersdktest.Server
	up, down bool // black holes
	delay    time.Duration
	conns    []*linkConn
}

// linkConn is a connection over the link.
type linkConn struct {
	net.Conn
	link *link
}

func (l *link) option() worker.Option {
	return worker.DialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := l.to.Dial(ctx)
		if err != nil {
			return nil, err
		}
		c := &linkConn{Conn: conn, link: l}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
		return c, nil
	}))
}

func (l *link) set(up, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.down = up, down
}

// cut resets all connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Conn.Close()
	}
	l.conns = nil
}

func (l *link) state() (up, down bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.down, l.delay
}

func (c *linkConn) Write(p []byte) (int, error) {
	up, _, delay := c.link.state()
	time.Sleep(delay)
	if up {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *linkConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		_, down, delay := c.link.state()
		time.Sleep(delay)
		if err != nil || !down {
			return n, err
		}
	}
}

// bench is a server with one worker over a link, and what its handler did.
type bench struct {
	*workersdktest.Server
	link *link

	mu    sync.Mutex
	runs  map[string]int // by slot and attempt
	ended []end
}

type end struct {
	cause error
	at    time.Time
}

// simulate runs a worker whose handler takes a time.
func simulate(t *testing.T, takes time.Duration, test func(t *testing.T, b *bench), opts ...workersdktest.ServerOption) {
	t.Helper()
	workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) {
		b := &bench{Server: s, link: &link{to: s}, runs: map[string]int{}}
		s.Worker(func(w *worker.Worker) {
			worker.Handle(w, "h", func(ctx context.Context, task *worker.Task[any]) error { return b.handle(ctx, task, takes) })
		}, b.link.option(), worker.Capacity(8))
		s.Advance(time.Second)
		test(t, b)
	}, opts...)
}

func (b *bench) handle(ctx context.Context, task *worker.Task[any], takes time.Duration) error {
	b.mu.Lock()
	b.runs[fmt.Sprint(task.Slot(), " ", task.Attempt())]++
	b.mu.Unlock()
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended = append(b.ended, end{context.Cause(ctx), time.Now()})
		return context.Cause(ctx)
	}
}

// fire makes slots that are due now.
func (b *bench) fire(n int) {
	for i := range n {
		b.Create(fmt.Sprintf("j-%d", i), &carillonv1.Job{Handler: "h", AttemptTimeout: durationpb.New(time.Hour),
			RetryPolicy: &carillonv1.RetryPolicy{MaxAttempts: proto.Int32(20), InitialBackoff: durationpb.New(time.Second)},
			Schedule:    &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}})
	}
}

// check wants every slot to have succeeded, once, with so many attempts, and no attempt to have
// run twice.
func (b *bench) check(t *testing.T, n int, attempts func(int32) bool) {
	t.Helper()
	for i := range n {
		slots := b.History(fmt.Sprintf("j-%d", i))
		if len(slots) != 1 || slots[0].GetState() != carillonv1.SlotState_SLOT_STATE_SUCCEEDED || !attempts(slots[0].GetAttempt()) {
			t.Errorf("job %d has %v", i, slots)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, n := range b.runs {
		if n != 1 {
			t.Errorf("%s ran %d times", key, n)
		}
	}
}

func once(n int32) bool     { return n == 1 }
func twice(n int32) bool    { return n == 2 }
func anyTimes(n int32) bool { return n >= 1 }

// Resets cost nothing: the worker comes back with what it runs (F9).
func TestStreamsThatAreReset(t *testing.T) {
	simulate(t, 30*time.Second, func(t *testing.T, b *bench) {
		b.fire(8)
		for range 20 {
			b.Advance(3 * time.Second)
			b.link.cut()
		}
		b.Advance(time.Minute)
		b.check(t, 8, once)
	})
}

// A worker whose words arrive, and that hears nothing, takes its link for lost, and its leases
// for over before anybody else may begin (F13); so does one that is not heard (F13), and one
// that is cut off from everything (F14).
func TestPartitions(t *testing.T) {
	for what, hole := range map[string]struct{ up, down bool }{"it hears nothing": {false, true}, "it isn't heard": {true, false}, "both": {true, true}} {
		simulate(t, time.Minute, func(t *testing.T, b *bench) {
			b.fire(4)
			b.Advance(5 * time.Second)
			began := time.Now()
			b.link.set(hole.up, hole.down)
			b.Advance(2 * lease)
			b.mu.Lock()
			if len(b.ended) != 4 {
				t.Errorf("%s: %d of 4 handlers were ended", what, len(b.ended))
			}
			for _, e := range b.ended {
				if after := e.at.Sub(began); e.cause != worker.ErrLeaseLost || after > lease {
					t.Errorf("%s: a handler was ended after %s by %v", what, after, e.cause)
				}
			}
			b.mu.Unlock()
			// Nobody else began before: the slots were reclaimed after the handlers had ended.
			for i := range 4 {
				if slot := b.History(fmt.Sprintf("j-%d", i))[0]; slot.GetState() != carillonv1.SlotState_SLOT_STATE_READY || slot.GetAttempt() != 1 {
					t.Errorf("%s: %v", what, slot)
				}
			}
			b.link.set(false, false)
			b.link.cut()
			b.Advance(2 * time.Minute)
			b.check(t, 4, twice)
		})
	}
}

// A hole shorter than the lease costs no attempt.
func TestAShortPartition(t *testing.T) {
	simulate(t, time.Minute, func(t *testing.T, b *bench) {
		b.fire(4)
		b.Advance(5 * time.Second)
		b.link.set(true, true)
		b.Advance(4 * time.Second)
		b.link.set(false, false)
		b.link.cut()
		b.Advance(2 * time.Minute)
		b.check(t, 4, once)
	})
}

// A slow network costs no lease.
func TestASlowNetwork(t *testing.T) {
	simulate(t, 30*time.Second, func(t *testing.T, b *bench) {
		b.link.mu.Lock()
		b.link.delay = 400 * time.Millisecond // for each piece that is written or read
		b.link.mu.Unlock()
		b.fire(8)
		b.Advance(2 * time.Minute)
		b.check(t, 8, once)
	})
}

// An idle worker keeps its connection, which nobody takes for a flood of pings, but for the
// hourly handover; nothing is done between the old stream and the new one.
func TestAnIdleConnection(t *testing.T) {
	simulate(t, time.Second, func(t *testing.T, b *bench) {
		const hours = 3
		b.Advance(hours * time.Hour)
		b.link.mu.Lock()
		n := len(b.link.conns)
		b.link.mu.Unlock()
		if n < hours || n > hours+1+hours/10 {
			t.Errorf("%d connections in %d hours", n, hours)
		}
		b.fire(8)
		b.Advance(5 * time.Second)
		b.check(t, 8, once)
	})
}

// mangler delivers messages late, twice, and in another order, but for the first of each
// direction (F28).
type mangler struct{ seed uint64 }

const mostLate = 1500 * time.Millisecond

func (m mangler) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.FullMethod != carillonv1.WorkerService_Connect_FullMethodName {
		return handler(srv, stream)
	}
	s := &mangled{ServerStream: stream, rnd: rand.New(rand.NewPCG(m.seed, 1)), in: make(chan proto.Message, 10_000), end: make(chan error, 1)}
	go s.receive()
	defer s.late.Wait()
	return handler(srv, s)
}

type mangled struct {
	grpc.ServerStream
	in   chan proto.Message
	end  chan error
	late sync.WaitGroup

	mu   sync.Mutex // guards what follows, and sending
	rnd  *rand.Rand
	sent bool
}

// copies draws when a message is delivered: once or twice.
func (s *mangled) copies() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := []time.Duration{time.Duration(s.rnd.Int64N(int64(mostLate)))}
	if s.rnd.IntN(3) == 0 {
		at = append(at, time.Duration(s.rnd.Int64N(int64(mostLate))))
	}
	return at
}

func (s *mangled) later(d time.Duration, do func()) {
	s.late.Go(func() {
		select {
		case <-time.After(d):
			do()
		case <-s.Context().Done():
		}
	})
}

func (s *mangled) receive() {
	for first := true; ; first = false {
		m := &carillonv1.ConnectRequest{}
		if err := s.ServerStream.RecvMsg(m); err != nil {
			s.end <- err
			return
		}
		if first {
			s.in <- m
			continue
		}
		credit := m.GetCredit()
		for i, d := range s.copies() {
			c := proto.CloneOf(m)
			if c.Credit = 0; i == 0 {
				c.Credit = credit // it adds up, and so has no place in a message that may come twice
			}
			s.later(d, func() { s.in <- c })
		}
	}
}

func (s *mangled) RecvMsg(m any) error {
	select {
	case got := <-s.in:
		proto.Merge(m.(proto.Message), got)
		return nil
	case err := <-s.end:
		return err
	}
}

func (s *mangled) SendMsg(m any) error {
	s.mu.Lock()
	first := !s.sent
	s.sent = true
	s.mu.Unlock()
	if first {
		return s.ServerStream.SendMsg(m)
	}
	for _, d := range s.copies() {
		c := proto.CloneOf(m.(*carillonv1.ConnectResponse))
		s.later(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			_ = s.ServerStream.SendMsg(c) // the stream may be over
		})
	}
	return nil
}

func TestMessagesThatComeTwiceLateAndInAnotherOrder(t *testing.T) {
	for seed := range uint64(8) {
		simulate(t, time.Duration(seed)*300*time.Millisecond, func(t *testing.T, b *bench) {
			b.fire(40)
			for i := range 12 {
				b.Advance(10 * time.Second)
				if i%3 == 2 {
					b.link.cut()
				}
			}
			b.Advance(time.Minute)
			b.check(t, 40, anyTimes)
			lost := 0
			for i := range 40 {
				lost += int(b.History(fmt.Sprintf("j-%d", i))[0].GetFailures())
			}
			if lost > 0 {
				t.Errorf("seed %d: %d leases were lost", seed, lost)
			}
		}, workersdktest.Interceptor(mangler{seed}.intercept))
	}
}

// Peers that say nothing, or read nothing, are cut off, and cost the others nothing (F32).
func TestPeersThatHoldUpTheirStreams(t *testing.T) {
	var open atomic.Int32
	count := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		open.Add(1)
		defer open.Add(-1)
		return handler(srv, stream)
	}
	simulate(t, time.Second, func(t *testing.T, b *bench) {
		conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(65535),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return b.Dial(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := carillonv1.NewWorkerServiceClient(conn)
		var silent []carillonv1.WorkerService_ConnectClient
		for range 500 {
			st, err := client.Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, st)
		}
		deaf, err := client.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := deaf.Send(&carillonv1.ConnectRequest{Hello: &carillonv1.Hello{WorkerId: "deaf", Incarnation: "1", Capacity: 100_000, Credit: 100_000,
			Handlers: []*carillonv1.HandlerRegistration{{Name: "big"}}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i := range 1200 { // each in a delivery of its own
			b.Create(fmt.Sprintf("big-%d", i), &carillonv1.Job{Handler: "big", Params: &carillonv1.Json{Text: `"` + strings.Repeat("x", 1000) + `"`},
				Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}})
		}
		b.fire(8)
		b.Advance(6 * time.Second)
		b.check(t, 8, once)
		b.Advance(3 * time.Second)
		if n := open.Load(); n != 1 { // before the peer reads anything
			t.Errorf("%d streams are served, want that of the worker", n)
		}
		for _, st := range silent {
			if _, err := st.Recv(); status.Code(err) != codes.DeadlineExceeded {
				t.Fatalf("a stream without a hello ended with %v", err)
			}
		}
		for {
			if _, err := deaf.Recv(); err != nil {
				if status.Code(err) != codes.ResourceExhausted {
					t.Errorf("a peer that reads nothing was left with %v", err)
				}
				break
			}
		}
	}, workersdktest.Interceptor(count))
}
