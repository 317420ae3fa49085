package workersdk

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	// openTimeout bounds the opening of a stream; welcomeTimeout the wait for the
	// answer to the hello.
	openTimeout    = 5 * time.Second
	welcomeTimeout = 5 * time.Second
)

// Reasons for which the worker itself drops a stream.
var (
	errNotOpened    = errors.New("the stream could not be opened in time")
	errNoWelcome    = errors.New("the hello was not answered in time")
	errNoAck        = errors.New("heartbeats were not answered")
	errFirstMessage = errors.New("the node's first message was no welcome")
	errEnough       = errors.New("the worker has stopped")
	errHandedOver   = errors.New("a new stream has taken its place")
	errRedundant    = errors.New("there is a stream to this node already")
	errOtherNode    = errors.New("another node answers at this node's address")
	errNotNeeded    = errors.New("the worker needs no stream to this node any more")
)

// stream is what the worker uses of the gRPC stream.
type stream = grpc.BidiStreamingClient[carillonv1.ConnectRequest, carillonv1.ConnectResponse]

// session is one stream. Its fields belong to the loop, but for out and drop.
type session struct {
	link  *link
	out   chan *carillonv1.ConnectRequest // one place, filled only when idle; nil ends the sending side
	drop  context.CancelCauseFunc
	leave chan struct{} // closed when a new stream is to be opened beside this one

	idle     bool
	dropped  bool
	halfDone bool // the sending side was ended
	leaving  bool // leave is closed

	helloAt, welcomedAt time.Time // zero: not yet
	beatAt, ackedAt     time.Time
	beats               []beat // sent and not acknowledged
	lastBeat            int64
	lease               lease // of the attempts that it vouches for
	draining            bool  // the node stops
	drainTold           bool
	parting             int  // answers to await since, after which the node sends nothing to run any more
	storesNotes         bool // the node does

	// What waits to be sent.
	results []*pending
	started []*attempt // first lines to tell; at most one entry per attempt and stream
	reports []*carillonv1.ProgressReport
	asking  []key // attempts for which the node is to vouch

	credit
}

type beat struct {
	sequence int64
	at       time.Time
}

// close drops the stream for a reason; what it held up is told by the next hello.
func (s *session) close(reason error) {
	if !s.dropped {
		s.dropped = true
		s.drop(reason)
	}
}

// up reports whether the node is there: it welcomed the worker, and the stream wasn't dropped.
func (s *session) up() bool { return s != nil && !s.dropped && !s.welcomedAt.IsZero() }

// streamEnd is how a stream ended.
type streamEnd struct {
	err             error
	welcomed, alive bool // alive: a heartbeat was acknowledged
}

// refused reports whether the hello itself was wrong: trying again is of no use.
func (e streamEnd) refused() bool {
	code := status.Code(e.err)
	return !e.welcomed && (code == codes.InvalidArgument || code == codes.FailedPrecondition)
}

// serve opens a stream at a target and receives until it ends. The loop closes leave when the
// stream is too old.
func (l *loop) serve(ctx context.Context, k *link, target string, leave chan struct{}) streamEnd {
	conn, err := l.w.newConn(target)
	if err != nil {
		return streamEnd{err: err}
	}
	// Closing a connection twice is all that can fail here.
	defer func() { _ = conn.Close() }()
	ctx, drop := context.WithCancelCause(ctx)
	defer drop(nil)
	opening := time.AfterFunc(openTimeout, func() { drop(errNotOpened) })
	st, err := carillonv1.NewWorkerServiceClient(conn).Connect(ctx)
	if !opening.Stop() && err == nil {
		err = errNotOpened
	}
	if err != nil {
		return streamEnd{err: dropReason(ctx, err)}
	}
	s := &session{link: k, out: make(chan *carillonv1.ConnectRequest, 1), drop: drop, leave: leave}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		l.send(ctx, s, st)
	}()
	l.post(func() { l.opened(s) })
	end := l.receive(s, st)
	end.err = dropReason(ctx, end.err)
	drop(nil)
	<-sent
	l.post(func() { l.closed(s) })
	return end
}

// dropReason tells why the worker itself ended a stream, if it did.
func dropReason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (l *loop) receive(s *session, st stream) (end streamEnd) {
	for {
		m, err := st.Recv()
		if err != nil {
			end.err = err
			return end
		}
		if !end.welcomed && m.GetWelcome() == nil {
			end.err = errFirstMessage
			return end
		}
		end.welcomed = true
		end.alive = end.alive || m.GetHeartbeatAck() != nil
		l.post(func() { l.received(s, m) })
	}
}

// send writes what the loop gives it, one message at a time.
func (l *loop) send(ctx context.Context, s *session, st stream) {
	for {
		select {
		case m := <-s.out:
			if m == nil {
				// The stream's end says whether that worked.
				_ = st.CloseSend()
				return
			}
			if err := st.Send(m); err != nil {
				return // the receiver learns why
			}
			l.post(func() { s.idle = true })
		case <-ctx.Done():
			return
		}
	}
}

// watch drops a stream that is silently dead.
func (l *loop) watch(s *session, now time.Time) {
	switch {
	case s == nil || s.dropped || s.helloAt.IsZero():
	case s.welcomedAt.IsZero():
		if now.Sub(s.helloAt) >= welcomeTimeout {
			s.close(errNoWelcome)
		}
	case len(s.beats) > 0 && now.Sub(s.beats[0].at) >= l.interval, now.Sub(s.ackedAt) >= 2*l.idleBeat():
		s.close(errNoAck) // the second, if not even a beat could be sent
	}
}
