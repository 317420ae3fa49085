package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
)

// workerService implements carillon.v1.WorkerService.
type workerService struct {
	carillonv1.UnsafeWorkerServiceServer
	*Server
}

// Bounds of a worker's stream.
const (
	helloTimeout = 5 * time.Second
	// maxDeliveries bounds what waits to be sent to a worker. One that doesn't read
	// for that long is cut off.
	maxDeliveries = 1024
	maxHandlers   = 1000
	maxCapacity   = 100_000
	maxHeld       = 200_000
	// maxResponseBytes bounds one message to a worker.
	maxResponseBytes = 1 << 20
	maxAttestations  = 10_000 // in one message: less than a megabyte, too
	disconnectWait   = 5 * time.Second
	// reconnectGrace is how long a worker may take to leave a stream that is too old.
	reconnectGrace = 30 * time.Second
	// finishTimeout is how long a stream that is over may take to send what is queued.
	finishTimeout = 2 * time.Second
)

// What this node speaks, and is capable of; and what it asks of workers.
const (
	protocolVersion      = 1
	capableOfCheckpoints = "checkpoints"
	capableOfHandover    = "handover"
	capableOfMembership  = "membership"
	capableOfReclaim     = "reclaim"
)

// Connect implements WorkerService. One goroutine receives; one sends, while there is
// something to send: most workers have nothing to hear for seconds, and there are many. They
// can't be awaited, since only the return of this function ends their calls; they end right
// after.
func (s workerService) Connect(stream carillonv1.WorkerService_ConnectServer) error {
	ctx := stream.Context()
	first, err := receiveHello(stream)
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if err := mayBe(ctx, "hello.worker_id", hello.GetWorkerId()); err != nil {
		return err
	}
	w := newWorkerStream(core.WorkerKey{ID: hello.GetWorkerId(), Incarnation: hello.GetIncarnation()})
	defer s.members.forget(w)
	// The stream's own context is over when the worker goes, and the node must hear
	// of it all the same, also if it goes in the middle of its hello.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), disconnectWait)
		defer cancel()
		s.node.Disconnect(ctx, w.key, w)
	}()
	if err := s.join(ctx, w, first); err != nil {
		return err
	}
	go func() { w.Close(s.receiveSafely(ctx, stream, w)) }()
	w.handsOver = slices.Contains(hello.GetCapabilities(), capableOfHandover)
	return w.serve(ctx, stream, s.streamAge())
}

// streamAge is when a new stream is too old: not all of them at the same time.
func (s workerService) streamAge() time.Duration {
	return s.streamMaxAge - time.Duration(s.core.Random()*float64(s.streamMaxAge/10))
}

// receiveHello waits for the first message, for a bounded time.
func receiveHello(stream carillonv1.WorkerService_ConnectServer) (*carillonv1.ConnectRequest, error) {
	type first struct {
		req *carillonv1.ConnectRequest
		err error
	}
	got := make(chan first, 1)
	go func() {
		req, err := stream.Recv()
		got <- first{req, err}
	}()
	timer := time.NewTimer(helloTimeout)
	defer timer.Stop()
	select {
	case f := <-got:
		if f.err != nil {
			return nil, f.err
		}
		if f.req.GetHello() == nil {
			return nil, fail(codes.InvalidArgument, reasonHelloMissing, "hello: the first message of a stream must be a hello")
		}
		return f.req, checkHello(f.req.GetHello())
	case <-timer.C:
		return nil, fail(codes.DeadlineExceeded, reasonHelloMissing, fmt.Sprintf("hello: none came within %s", helloTimeout))
	}
}

func checkHello(h *carillonv1.Hello) error {
	var v violations
	checkWorker(&v, "hello.", h)
	v.check("hello.capacity", jobspec.Between(float64(h.GetCapacity()), 1, maxCapacity))
	v.check("hello.credit", jobspec.Between(float64(h.GetCredit()), 0, float64(h.GetCapacity())))
	v.check("hello.protocol_version", jobspec.Between(float64(h.GetProtocolVersion()), 0, math.MaxInt32))
	return v.err()
}

// register adds a worker's handlers to the catalog.
func (s workerService) register(ctx context.Context, h *carillonv1.Hello) ([]string, error) {
	names := make([]string, len(h.GetHandlers()))
	for i, r := range h.GetHandlers() {
		names[i] = r.GetName()
	}
	if err := s.catalog.register(ctx, names, s.now()); err != nil {
		return nil, s.toStatus(ctx, "register handlers", err)
	}
	return names, nil
}

// join registers the worker's handlers and its stream, and welcomes it.
func (s workerService) join(ctx context.Context, w *workerStream, first *carillonv1.ConnectRequest) error {
	if s.node.Granted() == 0 {
		return noProof()
	}
	h := first.GetHello()
	names, err := s.register(ctx, h)
	if err != nil {
		return err
	}
	held := s.tokens(h.GetHeld())
	first.Results = append(h.GetResults(), first.GetResults()...)
	report, err := s.report(first, w.key)
	if err != nil {
		return err
	}
	// The welcome is the first message: what the node sends from now on comes after.
	w.push(delivery{welcome: &carillonv1.Welcome{
		Node: s.nodeID, Lease: durationpb.New(s.core.Lease), HeartbeatInterval: durationpb.New(s.core.HeartbeatEvery),
		ProtocolVersion: min(max(h.GetProtocolVersion(), 1), protocolVersion), Capabilities: []string{capableOfCheckpoints, capableOfReclaim},
		Cluster: s.cluster, Granted: s.granted(),
	}})
	if slices.Contains(h.GetCapabilities(), capableOfMembership) {
		s.members.tell(w)
	}
	verdicts, err := s.node.Connect(ctx, engine.Hello{
		Worker: w.key, Handlers: names, Capacity: int(h.GetCapacity()), Credit: int(h.GetCredit()), Held: held, Report: report,
		Moves: slices.Contains(h.GetCapabilities(), capableOfReclaim),
	}, w)
	if err != nil {
		return s.toStatus(ctx, "connect worker", err)
	}
	for some := range slices.Chunk(attestations(h.GetHeld(), verdicts), maxAttestations) {
		w.push(delivery{attestations: some})
	}
	s.log.InfoContext(ctx, "worker connected", "worker", w.key.ID, "incarnation", w.key.Incarnation, "handlers", names, "held", len(held), "sdk", h.GetSdk())
	return nil
}

// granted is how long leases last from now, if that is shorter than usual.
func (s workerService) granted() *durationpb.Duration {
	if d := s.node.Granted(); d.Round(time.Millisecond) < s.core.Lease {
		return durationpb.New(d)
	}
	return nil
}

// receiveSafely makes a panic of the receiver the end of its stream.
func (s workerService) receiveSafely(ctx context.Context, stream carillonv1.WorkerService_ConnectServer, w *workerStream) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(ctx, carillonv1.WorkerService_Connect_FullMethodName, p)
		}
	}()
	return s.receive(ctx, stream, w)
}

// noProof is the end of a stream whose leases this node can't renew.
func noProof() error {
	return retriable(reasonNoProof, "this node has heard of nobody for too long to know what it owns")
}

// receive reads the worker's messages until its stream ends.
func (s workerService) receive(ctx context.Context, stream carillonv1.WorkerService_ConnectServer, w *workerStream) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if req.GetHello() != nil {
			return fail(codes.InvalidArgument, reasonMalformedRequest, "hello: only the first message may hold one")
		}
		if err := s.take(ctx, req, w); err != nil {
			return err
		}
		select {
		case <-w.closed: // the node may have judged already: nothing is acknowledged any more
			return w.status()
		default:
		}
		if hb := req.GetHeartbeat(); hb != nil {
			if s.node.Granted() == 0 {
				return noProof() // so that what it assigns later begins with a lease
			}
			w.push(delivery{heartbeat: &carillonv1.HeartbeatAck{Sequence: hb.GetSequence(), Lease: s.granted()}})
		}
	}
}

// take hands a message to the node; a mere heartbeat is left for it to find.
func (s workerService) take(ctx context.Context, req *carillonv1.ConnectRequest, w *workerStream) error {
	if onlyBeats(req) {
		w.heard.Store(true)
		return nil
	}
	report, err := s.report(req, w.key)
	if err != nil {
		return err
	}
	s.passOn(ctx, req.GetResults(), w)
	if err := s.node.Report(ctx, w.key, w, report); err != nil {
		if errors.Is(err, engine.ErrStopping) {
			return s.toStatus(ctx, "report", err)
		}
		return fail(codes.Aborted, reasonStreamReplaced, err.Error())
	}
	return nil
}

func onlyBeats(req *carillonv1.ConnectRequest) bool {
	return req.GetHeartbeat() != nil && len(req.GetStarted())+len(req.GetProgress())+len(req.GetResults())+len(req.GetHeld()) == 0 &&
		req.GetCredit() == 0 && req.GetReclaim() == 0 && !req.GetDraining()
}

// report maps a worker's message.
func (s workerService) report(req *carillonv1.ConnectRequest, key core.WorkerKey) (engine.Report, error) {
	r := engine.Report{Credit: int(req.GetCredit()), Reclaim: int(req.GetReclaim()), Draining: req.GetDraining()}
	if req.GetCredit() < 0 {
		return r, invalid("credit", reasonInvalidField, "must not be negative")
	}
	if req.GetReclaim() < 0 {
		return r, invalid("reclaim", reasonInvalidField, "must not be negative")
	}
	for _, t := range req.GetHeld() {
		held, err := token(t, s.shards)
		if err != nil {
			return r, invalid("held", reasonInvalidField, err.Error())
		}
		r.Held = append(r.Held, held)
	}
	add := func(field string, t *carillonv1.AttemptToken, event func(core.Token) core.Event) error {
		tok, err := token(t, s.shards)
		if err != nil {
			return invalid(field+".token", reasonInvalidField, err.Error())
		}
		r.Events = append(r.Events, engine.ShardEvent{Token: tok, Event: event(tok)})
		return nil
	}
	for _, m := range req.GetStarted() {
		if m.GetStartTime().CheckValid() != nil {
			continue // a worker without a usable clock; its result says no more
		}
		if err := add("started", m.GetToken(), func(t core.Token) core.Event {
			return core.Started{Worker: key, Token: t, At: instant(m.GetStartTime())}
		}); err != nil {
			return r, err
		}
	}
	for _, m := range req.GetProgress() {
		if err := checkNotes("progress", m); err != nil {
			return r, err
		}
		if err := add("progress", m.GetToken(), func(t core.Token) core.Event { return progressed(key, t, m) }); err != nil {
			return r, err
		}
	}
	for _, m := range req.GetResults() {
		if m.GetOutcome() < carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED || m.GetOutcome() > carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_CANCELLED ||
			m.GetOutcome() == carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_LOST {
			return r, invalid("results.outcome", reasonInvalidField, "must be SUCCEEDED, FAILED, TIMED_OUT, RELEASED or CANCELLED")
		}
		if err := checkNotes("results", m); err != nil {
			return r, err
		}
		if err := add("results", m.GetToken(), func(t core.Token) core.Event { return result(key, t, m) }); err != nil {
			return r, err
		}
	}
	return r, nil
}

// notes are what progress reports and results have in common.
type notes interface {
	GetCheckpoint() []byte
	GetLog() []byte
}

func checkNotes(field string, m notes) error {
	if n := len(m.GetCheckpoint()); n > job.MaxCheckpointBytes {
		return invalid(field+".checkpoint", reasonInvalidField, fmt.Sprintf("has %d bytes, more than %d", n, job.MaxCheckpointBytes))
	}
	return nil
}

func progressed(key core.WorkerKey, t core.Token, m *carillonv1.ProgressReport) core.Event {
	p := core.Progressed{Worker: key, Token: t, Sequence: m.GetSequence(), Checkpoint: m.Checkpoint}
	if m.Progress != nil {
		p.Progress = &core.Progress{Done: m.Progress.GetDone(), Total: m.Progress.GetTotal(), Note: job.CleanText([]byte(m.Progress.GetNote()), job.MaxNoteBytes)}
	}
	p.Log = newestLines(m.Log)
	return p
}

// newestLines returns the end of a log, as text; nil if there is none.
func newestLines(log []byte) *string {
	if log == nil {
		return nil
	}
	text := job.CleanText(log[max(0, len(log)-job.MaxLogBytes):], job.MaxLogBytes)
	return &text
}

func result(key core.WorkerKey, t core.Token, m *carillonv1.AttemptResult) core.Event {
	r := core.Result{
		Worker: key, Token: t, Outcome: job.Outcome(m.GetOutcome()), Document: []byte(m.GetResult().GetText()),
		Code: m.GetErrorCode(), Text: m.GetErrorMessage(), Permanent: m.GetPermanent(),
		Checkpoint: m.Checkpoint, Log: newestLines(m.Log),
	}
	if m.GetStartTime().CheckValid() == nil {
		r.StartedAt = instant(m.GetStartTime())
	}
	if d := m.GetRetryAfter(); d.CheckValid() == nil && d.AsDuration() > 0 {
		r.RetryAfter = duration(d)
	}
	return r
}

var errToken = errors.New("is not a token that a node gave out")

// token maps a token.
func token(t *carillonv1.AttemptToken, shards int) (core.Token, error) {
	uid, err := job.ParseUID(t.GetJobUid())
	if err != nil || t.GetShard() < 0 || int(t.GetShard()) >= shards || t.GetAttempt() < 1 {
		return core.Token{}, errToken
	}
	return core.Token{
		Shard: shard.ID(t.GetShard()), Key: job.SlotKey{FireTime: job.Instant(t.GetFireTimeUs()), UID: uid},
		Attempt: t.GetAttempt(), Epoch: shard.Epoch(t.GetEpoch()),
	}, nil
}

// tokens maps held attempts; one that can't be read is nobody's, and will be cancelled.
func (s workerService) tokens(held []*carillonv1.AttemptToken) []core.Token {
	out := make([]core.Token, len(held))
	for i, t := range held {
		out[i], _ = token(t, s.shards)
	}
	return out
}

func attestations(held []*carillonv1.AttemptToken, verdicts []engine.Attestation) []*carillonv1.Attestation {
	out := make([]*carillonv1.Attestation, len(verdicts))
	for i, v := range verdicts {
		out[i] = &carillonv1.Attestation{Token: held[i], Verdict: carillonv1.AttestationVerdict(v.Verdict), Epoch: int64(v.By)}
	}
	return out
}

func tokenMessage(t core.Token) *carillonv1.AttemptToken {
	return &carillonv1.AttemptToken{
		Shard: int32(t.Shard), JobUid: t.Key.UID.String(), FireTimeUs: int64(t.Key.FireTime), Attempt: t.Attempt, Epoch: int64(t.Epoch),
	}
}
