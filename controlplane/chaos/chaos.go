// Package chaos treats workers badly, so that people see whether their handlers can bear what a
// cluster may do to them. It stands between workers and a node, as an interceptor of the node's
// gRPC server, and does only what is allowed:
//
//	a second delivery   a success is told as handed back: its result was lost on the way, and the
//	                    work is done again, by the next attempt with a higher fence
//	a lost answer       a result is stored, and its worker isn't told: it reports it again
//	a late cancel       an attempt hears up to three seconds later that it must stop
//
// What befalls an attempt follows from the seed, the slot and the number of the attempt alone:
// a run with the same seed, jobs and times is the same again.
package chaos

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Config says how much of each there is, in shares from 0 to 1.
type Config struct {
	Seed uint64
	// Twice is the share of slots whose first success is delivered a second time.
	Twice float64
	// LostAnswers is the share of results whose first answer is lost.
	LostAnswers float64
	// LateCancels is the share of cancels that come late.
	LateCancels float64
}

// Default returns a mix for a seed.
func Default(seed uint64) Config {
	return Config{Seed: seed, Twice: 0.5, LostAnswers: 0.25, LateCancels: 0.5}
}

// Chaos treats workers badly. It may be used by many goroutines.
type Chaos struct {
	cfg Config

	mu       sync.Mutex // guards what follows
	slots    map[slot]*tracked
	lost     map[attempt]bool
	handlers map[string]*Count
}

// maxTracked bounds what is remembered. Beyond it nothing more is delivered twice.
const maxTracked = 100_000

// maxLate is how late a cancel comes at most.
const maxLate = 3 * time.Second

// slot names a slot; attempt one of its attempts.
type (
	slot struct {
		job  string
		fire int64
	}
	attempt struct {
		slot
		number int32
	}
)

// tracked is a slot of which attempts were handed out.
type tracked struct {
	name, handler string
	first         int32 // the attempt whose success was told otherwise; 0: none was
}

// Count is what befell a handler.
type Count struct {
	Handler string
	// Attempts that were handed out.
	Attempts int
	// Doubled are slots that were delivered a second time; Failed of them failed then.
	Doubled, Failed int
	// LostAnswers and LateCancels, as above.
	LostAnswers, LateCancels int
}

// New returns a Chaos.
func New(cfg Config) *Chaos {
	return &Chaos{cfg: cfg, slots: map[slot]*tracked{}, lost: map[attempt]bool{}, handlers: map[string]*Count{}}
}

func of(t *carillonv1.AttemptToken) attempt {
	return attempt{slot{t.GetJobUid(), t.GetFireTimeUs()}, t.GetAttempt()}
}

// chance draws a number from 0 to 1 for one kind of fault of one attempt.
func (c *Chaos) chance(kind string, t *tracked, a attempt) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.cfg.Seed, kind, t.name, a.number) // a hash never fails
	// Its low bits differ more between neighbours than the high ones.
	return float64(h.Sum64()%1_000_003) / 1_000_003
}

// Stream is an interceptor of the workers' streams.
func (c *Chaos) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.FullMethod != carillonv1.WorkerService_Connect_FullMethodName {
		return handler(srv, stream)
	}
	s := &badStream{ServerStream: stream, chaos: c, over: make(chan struct{})}
	defer s.end()
	return handler(srv, s)
}

// Unary is an interceptor of the workers' calls.
func (c *Chaos) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if m, ok := req.(*carillonv1.FinishRequest); ok {
		c.results(m.GetResults())
	}
	resp, err := handler(ctx, req)
	switch m := resp.(type) {
	case *carillonv1.PollResponse:
		c.assigned(m.GetAssignments())
	case *carillonv1.FinishResponse:
		c.answered(m.GetAcks())
	}
	return resp, err
}

// badStream is a stream on which things happen.
type badStream struct {
	grpc.ServerStream
	chaos *Chaos
	send  sync.Mutex
	late  sync.WaitGroup
	over  chan struct{}

	mu    sync.Mutex
	ended bool // guarded by mu: nothing is sent later any more
}

// end drops what was to be sent later. A sender may still be at work.
func (s *badStream) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	close(s.over)
	s.late.Wait()
}

// RecvMsg implements grpc.ServerStream.
func (s *badStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if req, ok := m.(*carillonv1.ConnectRequest); ok {
		s.chaos.results(req.GetHello().GetResults())
		s.chaos.results(req.GetResults())
	}
	return nil
}

// SendMsg implements grpc.ServerStream.
func (s *badStream) SendMsg(m any) error {
	if resp, ok := m.(*carillonv1.ConnectResponse); ok {
		s.chaos.assigned(resp.GetAssignments())
		resp.ResultAcks = slices.DeleteFunc(resp.GetResultAcks(), s.chaos.losesAnswer)
		resp.Cancellations = slices.DeleteFunc(resp.GetCancellations(), s.delay)
	}
	s.send.Lock()
	defer s.send.Unlock()
	return s.ServerStream.SendMsg(m)
}

// delay sends a cancel later, if that is to be.
func (s *badStream) delay(m *carillonv1.Cancellation) bool {
	late, delayed := s.chaos.lateness(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !delayed || s.ended {
		return false
	}
	s.late.Go(func() {
		select {
		case <-time.After(late):
		case <-s.over:
			return
		}
		s.send.Lock()
		defer s.send.Unlock()
		// A stream that has ended has no attempt left to stop.
		_ = s.ServerStream.SendMsg(&carillonv1.ConnectResponse{Cancellations: []*carillonv1.Cancellation{m}})
	})
	return true
}

// assigned counts, and learns the handlers of slots.
func (c *Chaos) assigned(all []*carillonv1.Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range all {
		c.count(m.GetHandler()).Attempts++
		if k := of(m.GetToken()).slot; c.slots[k] == nil && len(c.slots) < maxTracked {
			c.slots[k] = &tracked{name: m.GetSlot(), handler: m.GetHandler()}
		}
	}
}

func (c *Chaos) count(handler string) *Count {
	n := c.handlers[handler]
	if n == nil {
		n = &Count{Handler: handler}
		c.handlers[handler] = n
	}
	return n
}

// results tells some successes otherwise, each time that they are reported.
func (c *Chaos) results(all []*carillonv1.AttemptResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range all {
		a := of(r.GetToken())
		d := c.slots[a.slot]
		if d == nil {
			continue
		}
		succeeded := r.GetOutcome() == carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED
		switch {
		case d.first == 0 && succeeded && c.chance("twice", d, a) < c.cfg.Twice:
			d.first = a.number
			c.count(d.handler).Doubled++
		case d.first != 0 && d.first < a.number:
			if o := r.GetOutcome(); o == carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED || o == carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_TIMED_OUT {
				c.count(d.handler).Failed++
			}
			delete(c.slots, a.slot)
		}
		if succeeded && d.first == a.number {
			r.Outcome, r.Result = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED, nil
			r.ErrorCode, r.ErrorMessage = "chaos", []byte("the handler succeeded, and its result was lost: it is delivered a second time")
		}
	}
}

// losesAnswer reports whether an answer is lost, which it is once at the most.
func (c *Chaos) losesAnswer(m *carillonv1.ResultAck) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := of(m.GetToken())
	d := c.slots[a.slot]
	if c.lost[a] || d == nil || c.chance("lost", d, a) >= c.cfg.LostAnswers || len(c.lost) >= maxTracked {
		delete(c.lost, a)
		if d != nil && d.first == 0 {
			delete(c.slots, a.slot) // it is over, or comes again
		}
		return false
	}
	c.lost[a] = true
	c.count(d.handler).LostAnswers++
	return true
}

// answered forgets slots of calls whose results were taken.
func (c *Chaos) answered(all []*carillonv1.ResultAck) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range all {
		if k := of(m.GetToken()).slot; c.slots[k] != nil && c.slots[k].first == 0 && m.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_UNSPECIFIED {
			delete(c.slots, k)
		}
	}
}

func (c *Chaos) lateness(m *carillonv1.Cancellation) (late time.Duration, delayed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := of(m.GetToken())
	d := c.slots[a.slot]
	if d == nil || c.chance("late", d, a) >= c.cfg.LateCancels {
		return 0, false
	}
	c.count(d.handler).LateCancels++
	return time.Duration(c.chance("by", d, a) * float64(maxLate)), true
}

// Counts returns what befell each handler so far, by name.
func (c *Chaos) Counts() []Count {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Count, 0, len(c.handlers))
	for _, n := range c.handlers {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b Count) int { return cmp.Compare(a.Handler, b.Handler) })
	return out
}

// WriteReport writes what befell each handler, for people.
func (c *Chaos) WriteReport(w io.Writer) error {
	counts := c.Counts()
	fmt.Fprintf(w, "chaos with seed %d\n", c.cfg.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HANDLER\tATTEMPTS\tDELIVERED TWICE\tFAILED THEN\tLOST ANSWERS\tLATE CANCELS")
	for _, n := range counts {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", n.Handler, n.Attempts, n.Doubled, n.Failed, n.LostAnswers, n.LateCancels)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range counts {
		if n.Failed > 0 {
			fmt.Fprintf(w, "%s failed when its work was done a second time: guard its effects with the key and the fence, or with the package once\n", n.Handler)
		}
	}
	_, err := fmt.Fprintln(w, "A handler that is delivered twice and doesn't fail may still do its work twice: count its effects.")
	return err
}
