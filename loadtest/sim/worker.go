package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/workersdk"
)

// host is one on which a worker runs, life after life.
type host struct {
	w        *world
	name     string
	capacity int
	handlers []string

	mu    sync.Mutex // guards what follows
	lives int
	life  *life
	newer bool
}

// start begins a life, unless there is one.
func (h *host) start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life != nil {
		return
	}
	h.lives++
	p := simnet.NewProcess(h.name, h.lives)
	ctx, stop := context.WithCancel(context.Background())
	l := &life{process: p, stop: stop, ended: make(chan struct{})}
	h.life = l
	h.w.trace(p.ID, "starts")
	newer := h.newer
	go func() {
		defer close(l.ended)
		if err := h.run(ctx, p, newer); err != nil && !p.Dead() {
			h.w.wrong("worker %s ended by itself: %v", p.ID, err)
		}
	}()
}

// kill ends the life at once. Its handlers can't be killed: they do nothing any more that anybody
// could tell.
func (h *host) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life == nil {
		return
	}
	h.life.process.Kill()
	h.life.stop()
	h.life = nil
}

func (h *host) terminate() (ended <-chan struct{}) {
	h.mu.Lock()
	l := h.life
	h.life = nil
	h.mu.Unlock()
	if l == nil {
		return closedChan()
	}
	l.stop()
	h.w.lingering(l)
	return l.ended
}

func (h *host) process() *simnet.Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life == nil {
		return nil
	}
	return h.life.process
}

func (h *host) run(ctx context.Context, p *simnet.Process, newer bool) error {
	seeds := ""
	for _, n := range h.w.nodes {
		seeds += targetOf(n.name) + ","
	}
	options := append(h.w.dialOptions(p), grpc.WithChainStreamInterceptor(h.w.watched(p, newer)))
	worker, err := workersdk.Dial(ctx, seeds, workersdk.ID(h.name), workersdk.Capacity(h.capacity), workersdk.ShutdownGrace(2*time.Second),
		workersdk.Logger(slog.New(&logger{w: h.w, who: p.ID})), workersdk.TLS(nil), workersdk.DialOptions(options...))
	if err != nil {
		return err
	}
	for _, name := range h.handlers {
		workersdk.Handle(worker, name, func(ctx context.Context, t *workersdk.Task[json.RawMessage]) error {
			return h.w.handle(ctx, p, t)
		})
	}
	err = worker.Run(ctx)
	h.w.trace(p.ID, "has ended")
	return err
}

var errWanted = errors.New("this attempt fails, as it should")

// handle is the one handler: what it does follows from the slot and the number of the attempt.
func (w *world) handle(ctx context.Context, p *simnet.Process, t *workersdk.Task[json.RawMessage]) error {
	p.Gate("begin " + t.Key())
	if p.Dead() {
		return nil
	}
	e := checker.Effect{Job: w.uidOf(t.Key()), Fire: job.At(t.FireTime()), Attempt: int32(t.Attempt()), Kind: checker.Began, At: job.At(time.Now())}
	name := shortJob(t.Job())
	w.effect(e)
	w.trace(p.ID, "runs %s@%s #%d", name, w.clockText(e.Fire), e.Attempt)
	d := w.dice.For("handler").For(name).At(uint64(e.Fire)).At(uint64(e.Attempt))
	err := w.behave(ctx, p, t, d)
	p.Gate("end " + t.Key())
	if p.Dead() {
		return nil
	}
	if err == nil {
		e.Kind, e.At = checker.Done, job.At(time.Now())
		w.effect(e)
	}
	w.trace(p.ID, "ends %s@%s #%d: %v", name, w.clockText(e.Fire), e.Attempt, err)
	return err
}

// behave does the work, well or badly.
func (w *world) behave(ctx context.Context, p *simnet.Process, t *workersdk.Task[json.RawMessage], d dice.Dice) error {
	work := d.For("work").Between(2*time.Millisecond, 400*time.Millisecond)
	way := d.For("way").Float()
	if w.calm() {
		way = 1
	}
	if t.Handler() == "rough" {
		way /= 3
	}
	switch {
	case way < 0.05: // slow, and reports what it does
		w.covered("handler slow")
		work = d.For("slow").Between(time.Second, 15*time.Second)
		for step := range 3 {
			if err := pause(ctx, work/3); err != nil {
				return err
			}
			t.Progress(int64(step), 3, "on the way")
			if err := t.SetCheckpoint([]byte(fmt.Sprint(step))); err != nil {
				return err
			}
		}
		return nil
	case way < 0.06: // stuck: it ignores its context
		w.covered("handler stuck")
		time.Sleep(d.For("stuck").Between(5*time.Second, 30*time.Second))
		return nil
	case way < 0.14:
		w.covered("handler fails")
		if err := pause(ctx, work); err != nil {
			return err
		}
		return errWanted
	case way < 0.155:
		w.covered("handler fails for good")
		return workersdk.Permanent(workersdk.Coded("no_use", errWanted))
	case way < 0.18:
		w.covered("handler fails and names a delay")
		return workersdk.RetryAfter(d.For("after").Between(0, 20*time.Second), errWanted)
	case way < 0.2:
		w.covered("handler panics")
		panic("this handler panics, as it should")
	}
	if err := pause(ctx, work); err != nil {
		return err
	}
	return t.SetResult(map[string]any{"by": p.ID})
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watched is an interceptor that notes what a worker is told and tells, and sends some of it twice.
func (w *world) watched(p *simnet.Process, newer bool) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := next(ctx, desc, conn, method, opts...)
		if err != nil || method != carillonv1.WorkerService_Connect_FullMethodName {
			return s, err
		}
		return &watchedStream{ClientStream: s, w: w, process: p, newer: newer}, nil
	}
}

type watchedStream struct {
	grpc.ClientStream
	w       *world
	process *simnet.Process
	newer   bool
	sent    uint64
}

// SendMsg implements grpc.ClientStream.
func (s *watchedStream) SendMsg(m any) error {
	req := m.(*carillonv1.ConnectRequest)
	for _, r := range req.GetResults() {
		s.w.history.reported(s.process.ID, r)
	}
	for _, r := range req.GetHello().GetResults() {
		s.w.history.reported(s.process.ID, r)
	}
	if s.newer {
		later(req)
	}
	if err := s.ClientStream.SendMsg(req); err != nil {
		return err
	}
	s.sent++
	d := s.w.dice.For("twice").For(s.process.ID).At(s.sent)
	if len(req.GetResults()) > 0 && !s.w.calm() && d.Chance(0.05) {
		s.w.covered("a result is sent twice")
		return s.ClientStream.SendMsg(&carillonv1.ConnectRequest{Results: req.GetResults()})
	}
	if s.newer && d.For("nothing").Chance(0.02) {
		s.w.covered("a message of a later version")
		nothing := &carillonv1.ConnectRequest{}
		later(nothing)
		return s.ClientStream.SendMsg(nothing)
	}
	return nil
}

// RecvMsg implements grpc.ClientStream.
func (s *watchedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	resp := m.(*carillonv1.ConnectResponse)
	for _, a := range resp.GetAssignments() {
		s.w.history.assigned(s.process.ID, a)
	}
	for _, a := range resp.GetResultAcks() {
		s.w.history.answered(s.process.ID, a)
	}
	if len(resp.GetAssignments()) > 0 && !s.w.calm() && s.w.dice.For("assigned twice").For(resp.GetAssignments()[0].GetSlot()).Chance(0.05) {
		s.w.covered("an assignment comes twice")
		resp.Assignments = append(resp.Assignments, resp.Assignments...)
	}
	return nil
}
