package workersdk

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	testLease    = 10 * time.Second
	testInterval = 2500 * time.Millisecond
)

// node is a node as far as a worker sees it. Tests run in a bubble and steer it by
// its streams.
type node struct {
	carillonv1.UnimplementedWorkerServiceServer
	t        *testing.T
	name     string
	listener *bufconn.Listener

	mu      sync.Mutex // guards what follows
	streams []*nodeStream
	refusal error  // the answer to every hello
	able    string // a capability that it names, beside "reclaim"
	unsure  bool   // it vouches for nothing
	cluster string
	members *carillonv1.Membership
	shards  map[int32]int64 // that it owns, with their epochs; nil: all, and it tells no epochs
	slow    bool            // it answers a reclaim only when it is told to
}

// nodeStream is one stream, seen from the node. It acknowledges what it gets unless
// it is told not to.
type nodeStream struct {
	node *node
	st   grpc.BidiStreamingServer[carillonv1.ConnectRequest, carillonv1.ConnectResponse]
	end  chan error

	mu        sync.Mutex
	hello     *carillonv1.Hello
	got       []*carillonv1.ConnectRequest
	credit    int // what the worker granted and assign didn't use
	holding   int // assigned and without a result
	most      int // the most of credit and holding together
	asked     int // by reclaims that wait for their answer
	deaf      bool
	grants    *durationpb.Duration // how long leases last; nil: the usual time
	muteAcks  bool
	staleAcks bool
	over      bool
}

func startNode(t *testing.T) *node { return startNamed(t, "n1") }

func startNamed(t *testing.T, name string) *node {
	n := &node{t: t, name: name, listener: bufconn.Listen(1 << 20)}
	srv := grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20))
	carillonv1.RegisterWorkerServiceServer(srv, n)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(n.listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { srv.Stop(); <-done })
	return n
}

func (n *node) Connect(st grpc.BidiStreamingServer[carillonv1.ConnectRequest, carillonv1.ConnectResponse]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	s := &nodeStream{node: n, st: st, end: make(chan error, 1), hello: first.GetHello(), credit: int(first.GetHello().GetCredit())}
	s.holding = len(first.GetHello().GetHeld())
	s.most = s.credit + s.holding
	n.mu.Lock()
	refusal := n.refusal
	if refusal == nil {
		if len(n.streams) > 0 {
			last := n.streams[len(n.streams)-1]
			s.deaf, s.muteAcks, s.staleAcks = last.deaf, last.muteAcks, last.staleAcks
		}
		n.streams = append(n.streams, s)
	}
	welcome := &carillonv1.ConnectResponse{
		Welcome: &carillonv1.Welcome{
			Node: n.name, Lease: durationpb.New(testLease), HeartbeatInterval: durationpb.New(testInterval), Capabilities: []string{n.able, "reclaim"}, Cluster: n.cluster,
		},
		Membership: n.members,
	}
	for shard, epoch := range n.shards {
		welcome.Ownerships = append(welcome.Ownerships, &carillonv1.Ownership{Shard: shard, Epoch: epoch})
	}
	n.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	s.send(welcome)
	s.take(&carillonv1.ConnectRequest{Results: first.GetHello().GetResults(), Held: first.GetHello().GetHeld()})
	go s.receive()
	select {
	case err := <-s.end:
		return err
	case <-st.Context().Done():
		return st.Context().Err()
	}
}

func (s *nodeStream) receive() {
	for {
		m, err := s.st.Recv()
		if err != nil {
			s.mu.Lock()
			s.over = true
			s.mu.Unlock()
			if err == io.EOF {
				err = nil
			}
			s.close(err)
			return
		}
		s.mu.Lock()
		s.got = append(s.got, m)
		s.mu.Unlock()
		s.take(m)
	}
}

func (s *nodeStream) close(err error) {
	select {
	case s.end <- err:
	default:
	}
}

// owns returns the epoch under which the node owns a shard.
func (n *node) owns(shard int32) (epoch int64, owns bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shards == nil {
		return 0, true
	}
	epoch, owns = n.shards[shard]
	return epoch, owns
}

// attest says what the node knows of an attempt.
func (n *node) attest(t *carillonv1.AttemptToken) *carillonv1.Attestation {
	a := &carillonv1.Attestation{Token: t, Verdict: carillonv1.AttestationVerdict_ATTESTATION_VERDICT_UNKNOWN}
	epoch, owns := n.owns(t.GetShard())
	n.mu.Lock()
	defer n.mu.Unlock()
	if owns && !n.unsure {
		a.Verdict, a.Epoch = carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE, epoch
	}
	return a
}

// take keeps the accounts and answers.
func (s *nodeStream) take(m *carillonv1.ConnectRequest) {
	out := &carillonv1.ConnectResponse{}
	for _, t := range m.GetHeld() {
		out.Attestations = append(out.Attestations, s.node.attest(t))
	}
	var acks []*carillonv1.ResultAck
	for _, r := range m.GetResults() {
		if epoch, owns := s.node.owns(r.GetToken().GetShard()); owns {
			acks = append(acks, &carillonv1.ResultAck{Token: r.GetToken(), Verdict: carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED, Message: "it says why", Epoch: epoch})
		}
	}
	s.node.mu.Lock()
	slow := s.node.slow
	s.node.mu.Unlock()
	s.mu.Lock()
	s.holding -= len(m.GetResults())
	s.credit += int(m.GetCredit())
	s.most = max(s.most, s.credit+s.holding)
	if s.asked += int(m.GetReclaim()); m.GetReclaim() > 0 && !slow {
		out.Reclaimed = s.giveBack()
	}
	if hb := m.GetHeartbeat(); hb != nil && !s.deaf {
		out.HeartbeatAck = &carillonv1.HeartbeatAck{Sequence: hb.GetSequence(), Lease: s.grants}
	}
	if !s.muteAcks {
		out.ResultAcks = acks
	}
	for _, a := range out.ResultAcks {
		if s.staleAcks {
			a.Verdict = carillonv1.ResultVerdict_RESULT_VERDICT_STALE
		}
	}
	s.mu.Unlock()
	if proto.Size(out) > 0 {
		s.send(out)
	}
}

// giveBack takes away what was asked back. It is called under s.mu.
func (s *nodeStream) giveBack() *int32 {
	n := min(s.asked, max(0, s.credit))
	s.credit -= n
	s.asked = 0
	return proto.Int32(int32(n))
}

// send is called by one goroutine at a time: the test's own only after
// synctest.Wait.
func (s *nodeStream) send(m *carillonv1.ConnectResponse) {
	// A broken stream is what some tests make.
	_ = s.st.Send(m)
}

func (s *nodeStream) set(change func(*nodeStream)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// stream waits until the worker is quiet and returns the newest stream.
func (n *node) stream() *nodeStream {
	n.t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.streams) == 0 {
		n.t.Fatal("no worker connected")
	}
	return n.streams[len(n.streams)-1]
}

func (n *node) count() int {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.streams)
}

// messages returns what came on the stream after the hello.
func (s *nodeStream) messages() []*carillonv1.ConnectRequest {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*carillonv1.ConnectRequest{}, s.got...)
}

func (s *nodeStream) results() []*carillonv1.AttemptResult {
	var out []*carillonv1.AttemptResult
	for _, m := range s.messages() {
		out = append(out, m.GetResults()...)
	}
	return out
}

func (s *nodeStream) progress() []*carillonv1.Progress {
	var out []*carillonv1.Progress
	for _, m := range s.messages() {
		for _, p := range m.GetProgress() {
			out = append(out, p.GetProgress())
		}
	}
	return out
}

// onlyResult returns the one result that came.
func (s *nodeStream) onlyResult() *carillonv1.AttemptResult {
	s.node.t.Helper()
	rs := s.results()
	if len(rs) != 1 {
		s.node.t.Fatalf("%d results came, want 1: %v", len(rs), rs)
	}
	return rs[0]
}

func testToken(n int) *carillonv1.AttemptToken {
	fire := time.Date(2026, 11, 30, 2, 0, n, 0, time.UTC)
	return &carillonv1.AttemptToken{Shard: 3, JobUid: "01900000-0000-7000-8000-000000000001", FireTimeUs: fire.UnixMicro(), Attempt: 2, Epoch: 7}
}

// job returns an assignment; n makes it different from others.
func job(n int, handler, params string) *carillonv1.Assignment {
	fire := time.UnixMicro(testToken(n).GetFireTimeUs()).UTC()
	return &carillonv1.Assignment{
		Token: testToken(n), Slot: "namespaces/default/jobs/j/slots/" + fire.Format("20060102T150405Z"), Handler: handler,
		Params: &carillonv1.Json{Text: params}, Trigger: carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE,
		Timeout: durationpb.New(time.Minute), MaxAttempts: 5,
	}
}

func within(a *carillonv1.Assignment, d time.Duration) *carillonv1.Assignment {
	a.Timeout = durationpb.New(d)
	return a
}

// assign uses up credit as a node would, and insists that there is enough.
func (s *nodeStream) assign(as ...*carillonv1.Assignment) {
	s.node.t.Helper()
	synctest.Wait()
	s.set(func(s *nodeStream) { s.credit -= len(as); s.holding += len(as) })
	if credit, _ := s.accounts(); credit < 0 {
		s.node.t.Fatalf("assigned %d more than the worker granted", -credit)
	}
	s.send(&carillonv1.ConnectResponse{Assignments: as})
	synctest.Wait()
}

func (s *nodeStream) cancel(n int, reason carillonv1.CancellationReason) {
	synctest.Wait()
	s.send(&carillonv1.ConnectResponse{Cancellations: []*carillonv1.Cancellation{{Token: testToken(n), Reason: reason}}})
	synctest.Wait()
}

// runningWorker is a worker in its Run.
type runningWorker struct {
	t    *testing.T
	stop context.CancelFunc
	done chan struct{}
	err  error
}

func (n *node) dial(opts ...Option) *Worker {
	n.t.Helper()
	opts = append([]Option{
		ID("w1"), Logger(slog.New(slog.DiscardHandler)),
		DialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return n.listener.DialContext(ctx) })),
	}, opts...)
	w, err := Dial(n.t.Context(), "passthrough:///node", opts...)
	if err != nil {
		n.t.Fatal(err)
	}
	return w
}

// run starts the worker and stops it at the test's end.
func (n *node) run(w *Worker) *runningWorker {
	ctx, stop := context.WithCancel(context.Background())
	r := &runningWorker{t: n.t, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = w.Run(ctx)
	}()
	n.t.Cleanup(func() { stop(); <-r.done })
	return r
}

// end stops the worker and returns how long that took.
func (r *runningWorker) end() time.Duration {
	r.t.Helper()
	began := time.Now()
	r.stop()
	<-r.done
	if r.err != nil {
		r.t.Fatalf("Run: %v", r.err)
	}
	return time.Since(began)
}

// pass lets time pass and waits until all is quiet.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// accounts returns the credit that is left, and the most that credit and work were
// together.
func (s *nodeStream) accounts() (credit, most int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.credit, s.most
}

// set changes what the node does.
func (n *node) set(change func(*node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// capable lets the node name a capability.
func (n *node) capable(of string) { n.set(func(n *node) { n.able = of }) }

// refuse answers every hello with an error; nil welcomes again.
func (n *node) refuse(err error) { n.set(func(n *node) { n.refusal = err }) }

// isOver reports whether the worker has left the stream.
func (s *nodeStream) isOver() bool {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// held lists the attempts about which the worker asked.
func (s *nodeStream) held() (out []*carillonv1.AttemptToken) {
	for _, m := range s.messages() {
		out = append(out, m.GetHeld()...)
	}
	return out
}
