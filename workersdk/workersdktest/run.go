package workersdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// RunOption says what the attempt is that [Run] makes.
type RunOption func(*attempt)

type attempt struct {
	job        string
	handler    string
	fireTime   time.Time
	number     int32
	trigger    carillonv1.SlotTrigger
	timeout    time.Duration
	checkpoint []byte
	params     json.RawMessage
	cancelled  <-chan struct{}
	worker     []worker.Option
}

// Attempt is the number of the attempt, which is its fence. Default: 1.
func Attempt(n int) RunOption { return func(a *attempt) { a.number = int32(n) } }

// FireTime is the scheduled fire time. Default: now, on a whole second.
func FireTime(t time.Time) RunOption { return func(a *attempt) { a.fireTime = t } }

// OfJob is the resource name of the job. Default: namespaces/default/jobs/test.
func OfJob(name string) RunOption { return func(a *attempt) { a.job = name } }

// Named is the name of the handler. Default: test.
func Named(handler string) RunOption { return func(a *attempt) { a.handler = handler } }

// AttemptTimeout is how long the attempt may run. Default: a minute.
func AttemptTimeout(d time.Duration) RunOption { return func(a *attempt) { a.timeout = d } }

// Checkpoint is what the attempts before left.
func Checkpoint(data []byte) RunOption { return func(a *attempt) { a.checkpoint = data } }

// Backfill makes the attempt one that makes up for a missed fire time, or for a range that a
// person asked for.
func Backfill() RunOption {
	return func(a *attempt) { a.trigger = carillonv1.SlotTrigger_SLOT_TRIGGER_BACKFILL }
}

// CancelWhen cancels the slot once a channel is closed.
func CancelWhen(c <-chan struct{}) RunOption { return func(a *attempt) { a.cancelled = c } }

// WorkerOptions are those of the worker, such as interceptors and a codec.
func WorkerOptions(opts ...worker.Option) RunOption {
	return func(a *attempt) { a.worker = append(a.worker, opts...) }
}

// Params are the parameters as they are stored, in place of args: for a codec, or to see what
// a handler does with parameters that don't fit.
func Params(doc string) RunOption { return func(a *attempt) { a.params = json.RawMessage(doc) } }

// Outcome is what an attempt came to, as the server is told.
type Outcome struct {
	// State is SUCCEEDED, FAILED, TIMED_OUT, CANCELLED or RELEASED.
	State string
	// Code and Text are of a failure.
	Code, Text string
	// Permanent says that no further attempt is to be made.
	Permanent bool
	// RetryAfter is the delay that the handler asked for; zero if it did not.
	RetryAfter time.Duration
	// Result is the stored document; empty if the handler set none.
	Result json.RawMessage
	// Checkpoint is what the next attempt would get; nil if nothing.
	Checkpoint []byte
	// Log is what the handler logged.
	Log string
	// Done, Total and Note are the newest progress of which the server was told, which it is
	// about once a second.
	Done, Total int64
	Note        string
}

// Succeeded reports whether the attempt did.
func (o Outcome) Succeeded() bool { return o.State == "SUCCEEDED" }

// Run runs a handler once, as a worker would, and returns what the server would be told. The
// handler's context ends with ctx, as on a worker that stops. It works in a bubble of
// testing/synctest, too: then a timeout of an hour takes no time.
func Run[A any](ctx context.Context, fn func(context.Context, *worker.Task[A]) error, args A, opts ...RunOption) (Outcome, error) {
	a := &attempt{job: "namespaces/default/jobs/test", handler: "test", fireTime: time.Now().Truncate(time.Second), number: 1,
		trigger: carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE, timeout: time.Minute}
	for _, opt := range opts {
		opt(a)
	}
	if a.params == nil {
		doc, err := json.Marshal(args)
		if err != nil {
			return Outcome{}, fmt.Errorf("encode the arguments: %w", err)
		}
		a.params = doc
	}
	n, err := serveNode(a)
	if err != nil {
		return Outcome{}, err
	}
	defer n.close()
	w, err := worker.Dial(ctx, "passthrough:///test", append([]worker.Option{
		worker.ID("test"), worker.Logger(slog.New(slog.DiscardHandler)), worker.ShutdownGrace(0), worker.TLS(nil), worker.Token(nil), worker.DialOptions(n.dialer()),
	}, a.worker...)...)
	if err != nil {
		return Outcome{}, err
	}
	worker.Handle(w, a.handler, fn)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case r := <-n.result:
		stop()
		return n.outcome(r), <-ended
	case err := <-ended:
		select {
		case r := <-n.result: // of a worker that stopped
			return n.outcome(r), err
		default:
			return Outcome{}, errors.Join(err, errors.New("the worker stopped before the attempt had an outcome"))
		}
	}
}

// node hands out one attempt and takes its result.
type node struct {
	carillonv1.UnimplementedWorkerServiceServer
	attempt  *attempt
	token    *carillonv1.AttemptToken
	listener *bufconn.Listener
	server   *grpc.Server
	served   chan struct{}
	result   chan *carillonv1.AttemptResult // has room for one

	reported carillonv1.ProgressReport // the newest of each part; complete before result is sent
	sending  sync.Mutex
}

func serveNode(a *attempt) (*node, error) {
	name, ok := strings.CutPrefix(a.job, "namespaces/")
	if parts := strings.Split(name, "/"); !ok || len(parts) != 3 || parts[1] != "jobs" {
		return nil, fmt.Errorf("the job %q is not of the form namespaces/{namespace}/jobs/{job}", a.job)
	}
	if a.number < 1 {
		return nil, fmt.Errorf("the attempt must be at least 1, is %d", a.number)
	}
	n := &node{attempt: a, listener: bufconn.Listen(1 << 20), server: grpc.NewServer(grpc.MaxRecvMsgSize(16<<20),
		// The worker pings a connection on which nothing comes.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true})), served: make(chan struct{}),
		result: make(chan *carillonv1.AttemptResult, 1),
		token:  &carillonv1.AttemptToken{JobUid: "00000000-0000-7000-8000-000000000001", FireTimeUs: a.fireTime.UnixMicro(), Attempt: a.number, Epoch: 1}}
	carillonv1.RegisterWorkerServiceServer(n.server, n)
	go func() {
		defer close(n.served)
		_ = n.server.Serve(n.listener) // it ends with close
	}()
	return n, nil
}

func (n *node) close() {
	n.server.Stop()
	<-n.served
}

func (n *node) dialer() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return n.listener.DialContext(ctx) })
}

// Connect implements WorkerService.
func (n *node) Connect(stream carillonv1.WorkerService_ConnectServer) error {
	hello, err := stream.Recv()
	if err != nil {
		return err
	}
	lease := job.DefaultTimeout
	first := &carillonv1.ConnectResponse{Welcome: &carillonv1.Welcome{Node: "test", Lease: durationpb.New(lease), HeartbeatInterval: durationpb.New(lease / 4), Capabilities: []string{"checkpoints"}}}
	if len(hello.GetHello().GetHeld()) == 0 {
		first.Assignments = []*carillonv1.Assignment{n.assignment()}
	}
	if err := n.send(stream, first); err != nil {
		return err
	}
	go n.cancel(stream) // it ends with the stream
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := n.send(stream, n.answer(m)); err != nil {
			return err
		}
	}
}

func (n *node) send(stream carillonv1.WorkerService_ConnectServer, m *carillonv1.ConnectResponse) error {
	n.sending.Lock()
	defer n.sending.Unlock()
	return stream.Send(m)
}

func (n *node) assignment() *carillonv1.Assignment {
	at := job.At(n.attempt.fireTime)
	return &carillonv1.Assignment{
		Token: n.token, Slot: n.attempt.job + "/slots/" + at.ID(), Handler: n.attempt.handler, Params: &carillonv1.Json{Text: string(n.attempt.params)},
		Trigger: n.attempt.trigger, FireTime: timestamppb.New(at.Time()), Timeout: durationpb.New(n.attempt.timeout),
		MaxAttempts: max(n.attempt.number, job.DefaultRetryPolicy.MaxAttempts), Failures: n.attempt.number - 1, Checkpoint: n.attempt.checkpoint,
	}
}

// cancel tells the worker that the slot is cancelled, when it is.
func (n *node) cancel(stream carillonv1.WorkerService_ConnectServer) {
	select {
	case <-n.attempt.cancelled:
		// A stream that has ended has nothing left to cancel.
		_ = n.send(stream, &carillonv1.ConnectResponse{Cancellations: []*carillonv1.Cancellation{{Token: n.token, Reason: carillonv1.CancellationReason_CANCELLATION_REASON_CANCELLED}}})
	case <-stream.Context().Done():
	}
}

// answer takes a message of the worker.
func (n *node) answer(m *carillonv1.ConnectRequest) *carillonv1.ConnectResponse {
	resp := &carillonv1.ConnectResponse{}
	if hb := m.GetHeartbeat(); hb != nil {
		resp.HeartbeatAck = &carillonv1.HeartbeatAck{Sequence: hb.GetSequence()}
	}
	for _, p := range m.GetProgress() {
		proto.Merge(&n.reported, p)
		resp.ProgressAcks = append(resp.ProgressAcks, &carillonv1.ProgressAck{Token: p.GetToken(), Sequence: p.GetSequence()})
	}
	for _, r := range m.GetResults() {
		resp.ResultAcks = append(resp.ResultAcks, &carillonv1.ResultAck{Token: r.GetToken(), Verdict: carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED})
		select {
		case n.result <- r:
		default: // it comes again
		}
	}
	return resp
}

func (n *node) outcome(r *carillonv1.AttemptResult) Outcome {
	o := Outcome{
		State: strings.TrimPrefix(r.GetOutcome().String(), "ATTEMPT_OUTCOME_"), Code: r.GetErrorCode(), Text: string(r.GetErrorMessage()),
		Permanent: r.GetPermanent(), RetryAfter: r.GetRetryAfter().AsDuration(), Log: string(n.reported.GetLog()), Checkpoint: n.attempt.checkpoint,
		Done: n.reported.GetProgress().GetDone(), Total: n.reported.GetProgress().GetTotal(), Note: n.reported.GetProgress().GetNote(),
	}
	if text := r.GetResult().GetText(); text != "" {
		o.Result = json.RawMessage(text)
	}
	if r.Log != nil {
		o.Log = string(r.Log)
	}
	if n.reported.Checkpoint != nil {
		o.Checkpoint = n.reported.Checkpoint
	}
	if r.Checkpoint != nil {
		o.Checkpoint = r.Checkpoint
	}
	return o
}
