package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of workers that ask by single calls.
const (
	maxPolled    = 1000
	maxPollWait  = 20 * time.Second
	maxExtended  = 10_000
	maxFinished  = 1000
	endPollWait  = 5 * time.Second
	maxFinishing = 10 * time.Second // then the caller asks again: what is stored stays stored
)

// poll is a Poll of this node's own work.
func (s workerService) poll(ctx context.Context, req *carillonv1.PollRequest) (*carillonv1.PollResponse, error) {
	h, wait, err := pollHello(req)
	if err != nil {
		return nil, err
	}
	names, err := s.register(ctx, h)
	if err != nil {
		return nil, err
	}
	key, stream := core.WorkerKey{ID: h.GetWorkerId(), Incarnation: h.GetIncarnation()}, newPollStream()
	// Also if the caller has gone, or gave up while the node answered: what was claimed for it
	// must not wait for a lease's end.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxPollWait+endPollWait)
	defer cancel()
	defer func() {
		stream.giveUp()
		_ = s.node.EndPoll(ending, key, stream, stream.holds) // it has ended, but for a failure on the way
	}()
	verdicts, err := s.node.Poll(ctx, engine.Hello{
		Worker: key, Handlers: names, Capacity: int(h.GetCapacity()), Credit: int(h.GetCredit()), Held: s.tokens(h.GetHeld()),
	}, stream)
	if err != nil {
		return nil, s.toStatus(ctx, "poll", err)
	}
	stream.await(ctx, wait)
	if err := ctx.Err(); err != nil {
		return nil, s.toStatus(ctx, "poll", err)
	}
	end, cancelEnd := context.WithTimeout(ending, endPollWait)
	defer cancelEnd()
	switch err := s.node.EndPoll(end, key, stream, stream.holds); {
	case errors.Is(err, engine.ErrReplaced):
		return nil, stream.replaced(err)
	case err != nil:
		return nil, s.toStatus(ctx, "poll", err)
	}
	return &carillonv1.PollResponse{
		Node: s.nodeID, Lease: durationpb.New(s.node.Granted()), HeartbeatInterval: durationpb.New(s.core.HeartbeatEvery),
		Attestations: attestations(h.GetHeld(), verdicts), Assignments: stream.taken(),
	}, nil
}

// pollHello makes a hello of a Poll, so that both are held to the same rules.
func pollHello(req *carillonv1.PollRequest) (h *carillonv1.Hello, wait time.Duration, err error) {
	n := max(req.GetMaxAttempts(), 1)
	if wait = maxPollWait; req.GetWait() != nil {
		wait = req.GetWait().AsDuration()
	}
	h = &carillonv1.Hello{
		WorkerId: req.GetWorkerId(), Incarnation: req.GetIncarnation(), Held: req.GetHeld(), Sdk: req.GetSdk(),
		Capacity: min(n, maxPolled), Credit: min(n, maxPolled),
	}
	for _, name := range req.GetHandlers() {
		h.Handlers = append(h.Handlers, &carillonv1.HandlerRegistration{Name: name})
	}
	var v violations
	checkWorker(&v, "", h)
	v.check("max_attempts", jobspec.Between(float64(req.GetMaxAttempts()), 0, maxPolled))
	v.check("wait", jobspec.Between(wait.Seconds(), 0, maxPollWait.Seconds()))
	if err := req.GetWait().CheckValid(); req.GetWait() != nil && err != nil {
		v.add("wait", reasonInvalidField, err.Error())
	}
	return h, wait, v.err()
}

// pollStream gathers what comes for one Poll, up to the size of a message.
type pollStream struct {
	arrived chan struct{} // has room for one
	closed  chan struct{}

	mu          sync.Mutex // guards what follows
	assignments []*carillonv1.Assignment
	tokens      map[core.Token]bool
	bytes       int
	gone        bool // nobody waits for the answer
	reason      error
}

var _ engine.Stream = (*pollStream)(nil)

func newPollStream() *pollStream {
	return &pollStream{arrived: make(chan struct{}, 1), closed: make(chan struct{}), tokens: map[core.Token]bool{}}
}

// Deliver implements engine.Stream. What isn't an assignment is told by the next Extend; an
// assignment that doesn't fit any more is given back when the Poll ends.
func (p *pollStream) Deliver(messages []core.Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	resp := &carillonv1.ConnectResponse{}
	for _, m := range messages {
		if a, ok := m.(core.Assign); ok && p.bytes < maxResponseBytes {
			p.bytes += addMessage(resp, m)
			p.tokens[a.Token] = true
		}
	}
	p.assignments = append(p.assignments, resp.GetAssignments()...)
	if len(p.assignments) > 0 {
		select {
		case p.arrived <- struct{}{}:
		default:
		}
	}
	return true
}

// holds reports whether an attempt is in the answer.
func (p *pollStream) holds(t core.Token) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tokens[t] && !p.gone
}

// giveUp says that there is no answer, if none has been given yet.
func (p *pollStream) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
}

// Heard implements engine.Stream: a call that waits says nothing.
func (p *pollStream) Heard() bool { return false }

// Drain implements engine.Stream: the caller asks elsewhere.
func (p *pollStream) Drain() { p.Close(engine.ErrStopping) }

// Close implements engine.Stream.
func (p *pollStream) Close(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == nil {
		p.reason = reason
		close(p.closed)
	}
}

// await waits for the first assignment.
func (p *pollStream) await(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-p.arrived:
	case <-p.closed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// taken returns what came.
func (p *pollStream) taken() []*carillonv1.Assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.assignments
}

// replaced is the answer to a call that another one overtook, or that the node's stop ended.
func (p *pollStream) replaced(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != nil {
		err = p.reason
	}
	if errors.Is(err, engine.ErrStopping) {
		return fail(codes.Unavailable, reasonStreamReplaced, err.Error())
	}
	return fail(codes.Aborted, reasonStreamReplaced, err.Error())
}

// checkExtend refuses an Extend that can't be read, or of a worker that the caller isn't.
func checkExtend(ctx context.Context, req *carillonv1.ExtendRequest) error {
	var v violations
	checkKey(&v, "", req.GetWorkerId(), req.GetIncarnation())
	v.check("held", jobspec.Between(float64(len(req.GetHeld())), 0, maxExtended))
	if err := v.err(); err != nil {
		return err
	}
	return mayBe(ctx, "worker_id", req.GetWorkerId())
}

// checkFinish refuses a Finish likewise.
func checkFinish(ctx context.Context, req *carillonv1.FinishRequest) error {
	var v violations
	checkKey(&v, "", req.GetWorkerId(), req.GetIncarnation())
	v.check("results", jobspec.Between(float64(len(req.GetResults())), 1, maxFinished))
	if err := v.err(); err != nil {
		return err
	}
	return mayBe(ctx, "worker_id", req.GetWorkerId())
}

// extend is an Extend of what this node can judge.
func (s workerService) extend(ctx context.Context, req *carillonv1.ExtendRequest) (*carillonv1.ExtendResponse, error) {
	key := core.WorkerKey{ID: req.GetWorkerId(), Incarnation: req.GetIncarnation()}
	report, err := s.report(&carillonv1.ConnectRequest{Started: req.GetStarted(), Progress: req.GetProgress()}, key)
	if err != nil {
		return nil, err
	}
	out, err := s.node.Extend(ctx, key, s.tokens(req.GetHeld()), report.Events)
	if errors.Is(err, engine.ErrHasStream) {
		return nil, fail(codes.FailedPrecondition, reasonStreamReplaced, "worker_id: "+err.Error())
	}
	if err != nil {
		return nil, s.toStatus(ctx, "extend", err)
	}
	resp := &carillonv1.ExtendResponse{Attestations: attestations(req.GetHeld(), out.Verdicts), Lease: durationpb.New(s.node.Granted())}
	for _, m := range out.Noted {
		resp.ProgressAcks = append(resp.ProgressAcks, progressAck(m))
	}
	return resp, nil
}

// finish is a Finish of what this node can judge.
func (s workerService) finish(ctx context.Context, req *carillonv1.FinishRequest) (*carillonv1.FinishResponse, error) {
	key := core.WorkerKey{ID: req.GetWorkerId(), Incarnation: req.GetIncarnation()}
	report, err := s.report(&carillonv1.ConnectRequest{Results: req.GetResults()}, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxFinishing)
	defer cancel()
	acks, err := s.node.Finish(ctx, key, report.Events)
	if err != nil {
		return nil, s.toStatus(ctx, "finish", err)
	}
	resp := &carillonv1.FinishResponse{}
	for i, ack := range acks {
		if ack != nil {
			resp.Acks = append(resp.Acks, resultAck(*ack))
		} else {
			resp.Acks = append(resp.Acks, &carillonv1.ResultAck{Token: req.GetResults()[i].GetToken(), Message: sendAgain})
		}
	}
	return resp, nil
}

// sendAgain tells of a result that could not be judged.
const sendAgain = "it could not be told in time what becomes of it; send it again"

// checkKey checks who calls.
func checkKey(v *violations, prefix, id, incarnation string) {
	v.check(prefix+"worker_id", job.CheckWorkerID(id))
	v.check(prefix+"incarnation", job.CheckWorkerID(incarnation))
}

// checkWorker checks what hellos and Polls have in common.
func checkWorker(v *violations, prefix string, h *carillonv1.Hello) {
	checkKey(v, prefix, h.GetWorkerId(), h.GetIncarnation())
	v.check(prefix+"handlers", jobspec.Between(float64(len(h.GetHandlers())), 1, maxHandlers))
	v.check(prefix+"held", jobspec.Between(float64(len(h.GetHeld())), 0, maxHeld))
	seen := map[string]bool{}
	for i, r := range h.GetHandlers() {
		field := fmt.Sprintf("%shandlers[%d]", prefix, i)
		if prefix != "" {
			field += ".name"
		}
		v.check(field, job.CheckName(r.GetName()))
		if seen[r.GetName()] {
			v.add(field, reasonInvalidField, "is registered twice")
		}
		seen[r.GetName()] = true
	}
}
