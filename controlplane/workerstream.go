package controlplane

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// workerStream is a worker's stream, seen from the node.
type workerStream struct {
	key    core.WorkerKey
	heard  atomic.Bool
	more   chan struct{} // has room for one: something is queued
	closed chan struct{}
	once   sync.Once
	reason error // set before closed is

	mu    sync.Mutex
	queue []delivery // guarded by mu

	// handsOver says that the worker opens a new stream before it leaves this one.
	handsOver bool
}

var _ engine.Stream = (*workerStream)(nil)

// delivery is one thing to send.
type delivery struct {
	welcome      *carillonv1.Welcome
	heartbeat    *carillonv1.HeartbeatAck
	attestations []*carillonv1.Attestation
	messages     []core.Message
	draining     bool
	reconnect    bool
	membership   *carillonv1.Membership
	acks         []*carillonv1.ResultAck // of other nodes
}

func newWorkerStream(key core.WorkerKey) *workerStream {
	return &workerStream{key: key, more: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Deliver implements engine.Stream.
func (w *workerStream) Deliver(messages []core.Message) bool {
	select {
	case <-w.closed:
		return false
	default:
	}
	return w.push(delivery{messages: messages})
}

// Heard implements engine.Stream.
func (w *workerStream) Heard() bool { return w.heard.Swap(false) }

// Drain implements engine.Stream.
func (w *workerStream) Drain() { w.push(delivery{draining: true}) }

// Close implements engine.Stream. Closing twice is fine; the first reason counts.
func (w *workerStream) Close(reason error) {
	w.once.Do(func() {
		w.reason = reason
		close(w.closed)
	})
}

// push queues a delivery, or cuts off a worker that doesn't read.
func (w *workerStream) push(d delivery) bool {
	w.mu.Lock()
	full := len(w.queue) >= maxDeliveries
	if !full {
		w.queue = append(w.queue, d)
	}
	w.mu.Unlock()
	if full {
		w.Close(fail(codes.ResourceExhausted, reasonStreamReplaced, "the worker reads too slowly"))
		return false
	}
	select {
	case w.more <- struct{}{}:
	default: // it is known that there is something
	}
	return true
}

// sendQueued sends what is queued, and what comes meanwhile.
func (w *workerStream) sendQueued(stream carillonv1.WorkerService_ConnectServer) error {
	for {
		w.mu.Lock()
		queue := w.queue
		w.queue = nil // most workers have nothing in it for seconds
		w.mu.Unlock()
		if len(queue) == 0 {
			return nil
		}
		for _, d := range queue {
			if err := sendDelivery(stream, d); err != nil {
				return err
			}
		}
	}
}

// serve has sent what is queued until the stream ends, or is too old.
func (w *workerStream) serve(ctx context.Context, stream carillonv1.WorkerService_ConnectServer, maxAge time.Duration) error {
	age := time.NewTimer(maxAge)
	defer age.Stop()
	asked := false
	more, closed, sent := w.more, w.closed, make(chan error, 1)
	var late <-chan time.Time // a peer that reads nothing holds up the sender for ever
	for {
		select {
		case <-more:
			more = nil // one sender at a time
			go func() { sent <- w.sendQueued(stream) }()
		case err := <-sent:
			if err != nil {
				return err
			}
			if more = w.more; closed == nil && !w.queued() {
				return w.status()
			}
		case <-closed:
			closed = nil
			if more != nil && !w.queued() {
				return w.status()
			}
			timer := time.NewTimer(finishTimeout)
			defer timer.Stop()
			late = timer.C
		case <-late:
			return w.status()
		case <-age.C:
			if w.handsOver && !asked {
				asked = true
				age.Reset(reconnectGrace)
				w.push(delivery{reconnect: true})
			} else {
				w.Close(fail(codes.Unavailable, reasonStreamReplaced, "the stream is too old"))
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// queued reports whether something is.
func (w *workerStream) queued() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) > 0
}

// status is what the stream ends with, once it is closed.
func (w *workerStream) status() error {
	if w.reason == nil || errors.Is(w.reason, io.EOF) {
		return nil
	}
	if _, ok := status.FromError(w.reason); ok {
		return w.reason
	}
	return fail(codes.Unavailable, reasonStreamReplaced, w.reason.Error())
}

// sendDelivery sends a delivery in messages of bounded size.
func sendDelivery(stream carillonv1.WorkerService_ConnectServer, d delivery) error {
	resp := &carillonv1.ConnectResponse{Welcome: d.welcome, Attestations: d.attestations, Draining: d.draining, Reconnect: d.reconnect,
		HeartbeatAck: d.heartbeat, Membership: d.membership, ResultAcks: d.acks}
	size := 0
	for _, m := range d.messages {
		size += addMessage(resp, m)
		if size > maxResponseBytes {
			if err := stream.Send(resp); err != nil {
				return err
			}
			resp, size = &carillonv1.ConnectResponse{}, 0
		}
	}
	if proto.Size(resp) == 0 {
		return nil
	}
	return stream.Send(resp)
}

// addMessage maps a message into a response and returns about its size.
func addMessage(resp *carillonv1.ConnectResponse, m core.Message) int {
	const overhead = 128
	switch m := m.(type) {
	case core.Assign:
		resp.Assignments = append(resp.Assignments, assignment(m))
		return overhead + len(m.Work.Params) + len(m.Checkpoint) + len(m.Work.Name) + len(m.Work.Handler)
	case core.Ack:
		resp.ResultAcks = append(resp.ResultAcks, resultAck(m))
	case core.Continue:
		resp.Attestations = append(resp.Attestations, &carillonv1.Attestation{
			Token: tokenMessage(m.Token), Verdict: carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE, Epoch: int64(m.By),
		})
	case core.Disowned:
		resp.Attestations = append(resp.Attestations, &carillonv1.Attestation{
			Token: tokenMessage(m.Token), Verdict: carillonv1.AttestationVerdict_ATTESTATION_VERDICT_UNKNOWN,
		})
	case core.Noted:
		resp.ProgressAcks = append(resp.ProgressAcks, progressAck(m))
	case core.Owned:
		resp.Ownerships = append(resp.Ownerships, &carillonv1.Ownership{Shard: int32(m.Shard), Epoch: int64(m.Epoch)})
	case core.Reclaimed:
		resp.Reclaimed = proto.Int32(int32(m.Credit)) // one at a time: the next is asked for after the answer
	case core.Wanted:
		resp.Wanted = proto.Int32(int32(m.Slots))
	case core.Stop:
		resp.Cancellations = append(resp.Cancellations, &carillonv1.Cancellation{
			Token: tokenMessage(m.Token), Reason: carillonv1.CancellationReason(m.Reason), Epoch: int64(m.By),
		})
	}
	return overhead
}

func progressAck(m core.Noted) *carillonv1.ProgressAck {
	return &carillonv1.ProgressAck{Token: tokenMessage(m.Token), Sequence: m.Sequence, Epoch: int64(m.By)}
}

func resultAck(m core.Ack) *carillonv1.ResultAck {
	ack := &carillonv1.ResultAck{Token: tokenMessage(m.Token), Verdict: carillonv1.ResultVerdict_RESULT_VERDICT_STALE, Message: m.Why, Epoch: int64(m.By)}
	if m.Accepted {
		ack.Verdict = carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED
	}
	return ack
}

func assignment(m core.Assign) *carillonv1.Assignment {
	of := job.Job{Namespace: m.Work.Namespace, Name: m.Work.Name}
	return &carillonv1.Assignment{
		Token: tokenMessage(m.Token), Slot: of.SlotName(m.Token.Key.FireTime), Handler: m.Work.Handler, Params: document(m.Work.Params),
		Trigger: carillonv1.SlotTrigger(m.Trigger), FireTime: timestamp(m.Token.Key.FireTime), Timeout: durationpb.New(m.Work.Timeout),
		MaxAttempts: m.Work.MaxAttempts, Failures: m.Failures, Checkpoint: m.Checkpoint, Epoch: int64(m.By),
	}
}
