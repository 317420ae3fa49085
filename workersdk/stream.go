package workersdk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
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
	// Back-off between streams: a node that restarts is back within seconds, and
	// the lease lasts for ten.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 1500 * time.Millisecond // with its jitter about 2 s
)

// Reasons for which the worker itself drops a stream.
var (
	errNotOpened    = errors.New("the stream could not be opened in time")
	errNoWelcome    = errors.New("the hello was not answered in time")
	errNoAck        = errors.New("heartbeats were not answered")
	errAskAgain     = errors.New("the node could not vouch for a running attempt; asking again")
	errFirstMessage = errors.New("the node's first message was no welcome")
	errEnough       = errors.New("the worker has stopped")
	errHandedOver   = errors.New("a new stream has taken its place")
)

// stream is what the worker uses of the gRPC stream.
type stream = grpc.BidiStreamingClient[carillonv1.ConnectRequest, carillonv1.ConnectResponse]

// session is one stream. Its fields belong to the loop, but for out and drop.
type session struct {
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
	granted             int // credit that the node has and has not used
	drainTold           bool
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

// connect opens one stream after the other until ctx ends, or until a node refuses
// the worker for good. While a stream that is too old goes on, the next one is opened.
func (l *loop) connect(ctx context.Context) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = minBackoff, maxBackoff, 2
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		leave, ended := make(chan struct{}), make(chan streamEnd, 1)
		serving.Go(func() { ended <- l.serve(ctx, leave) })
		var end streamEnd
		select {
		case <-leave:
			continue
		case end = <-ended:
		}
		if ctx.Err() != nil {
			return
		}
		if end.refused() {
			l.post(func() { l.refusedForGood(end.err) })
			return
		}
		if end.alive {
			pause.Reset()
		}
		wait := pause.NextBackOff()
		l.log.Warn("the stream to the node ended; connecting again", "error", end.err, "after", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

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

// serve opens a stream and receives until it ends. It closes leave when the stream is too
// old.
func (l *loop) serve(ctx context.Context, leave chan struct{}) streamEnd {
	conn, err := l.w.newConn()
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
	s := &session{out: make(chan *carillonv1.ConnectRequest, 1), drop: drop, leave: leave}
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

func (l *loop) opened(s *session) {
	s.idle = true
	if l.session == nil {
		l.session = s
		return
	}
	l.next = s // it takes over once it is welcomed
}

func (l *loop) closed(s *session) {
	switch s {
	case l.next:
		l.next = nil
	case l.session:
		l.session, l.next = l.next, nil
		if l.session == nil {
			l.started, l.reports = nil, nil
		}
	}
}

func (l *loop) refusedForGood(err error) {
	l.failure = fmt.Errorf("the node refuses the worker: %w", err)
	l.abort()
}

// watch drops a stream that is silently dead, and one whose node must be asked again.
func (l *loop) watch(s *session, now time.Time) {
	switch {
	case s == nil || s.dropped || s.helloAt.IsZero():
	case s.welcomedAt.IsZero():
		if now.Sub(s.helloAt) >= welcomeTimeout {
			s.close(errNoWelcome)
		}
	case len(s.beats) > 0 && now.Sub(s.beats[0].at) >= l.interval, now.Sub(s.ackedAt) >= 2*l.idleBeat():
		s.close(errNoAck) // the second, if not even a beat could be sent
	case now.Sub(s.welcomedAt) >= l.interval && l.unsure():
		s.close(errAskAgain)
	}
}

// received takes one message of the node.
func (l *loop) received(s *session, m *carillonv1.ConnectResponse) {
	if l.session != s && l.next != s {
		return // what it says is said again by the one that took its place
	}
	if w := m.GetWelcome(); w != nil {
		l.welcomed(s, w)
	}
	for _, o := range m.GetOwnerships() {
		l.current(o.GetShard(), o.GetEpoch())
	}
	if a := m.GetHeartbeatAck(); a != nil {
		l.heartbeatAcked(s, a.GetSequence())
	}
	for _, a := range m.GetAttestations() {
		l.attested(a)
	}
	for _, a := range m.GetResultAcks() {
		l.resultAcked(a)
	}
	for _, a := range m.GetProgressAcks() {
		if at := l.attempts[keyOf(a.GetToken())]; at != nil && l.current(a.GetToken().GetShard(), a.GetEpoch()) {
			at.notes.acknowledged(a.GetSequence())
		}
	}
	for _, c := range m.GetCancellations() {
		l.cancelled(c)
	}
	for _, a := range m.GetAssignments() {
		s.granted = max(0, s.granted-1) // one that was not granted must not bring another
		l.assigned(a)
	}
	if m.GetReconnect() && !s.leaving && l.phase == serving {
		s.leaving = true
		close(s.leave)
	}
	if m.GetDraining() {
		l.log.Info("the node stops; the worker connects again when the stream ends")
	}
}

func (l *loop) welcomed(s *session, w *carillonv1.Welcome) {
	now := time.Now()
	if old := l.session; s == l.next {
		l.session, l.next = s, nil
		old.close(errHandedOver)
		l.results.requeue(now) // what went over the old one since the hello may be lost
	}
	if len(l.attempts)+len(l.results.waiting) == 0 {
		clear(l.epochs) // nothing depends on them, and the cluster may have been made anew
	}
	l.storesNotes.Store(slices.Contains(w.GetCapabilities(), "checkpoints"))
	l.setLease(w.GetLease().AsDuration(), w.GetHeartbeatInterval().AsDuration())
	l.leaseFrom = s.helloAt
	for _, a := range l.attempts {
		a.unsure = false // the attestations follow
	}
	s.welcomedAt, s.ackedAt, s.beatAt = now, now, now
	l.log.Info("connected", "node", w.GetNode(), "lease", l.lease, "held", len(l.attempts)-l.reported, "unacknowledged", len(l.results.waiting))
}

func (l *loop) heartbeatAcked(s *session, sequence int64) {
	for len(s.beats) > 0 && s.beats[0].sequence <= sequence {
		l.leaseFrom = s.beats[0].at
		s.ackedAt = time.Now()
		s.beats = s.beats[1:]
	}
}

func (l *loop) attested(m *carillonv1.Attestation) {
	a := l.attempts[keyOf(m.GetToken())]
	if !l.current(m.GetToken().GetShard(), m.GetEpoch()) || a == nil || !a.held() {
		return
	}
	switch m.GetVerdict() {
	case carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE:
		a.unsure = false
	case carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL:
		l.stop(a, ErrLeaseLost, takenBack)
	default:
		a.unsure = true
	}
}

func (l *loop) resultAcked(m *carillonv1.ResultAck) {
	k := keyOf(m.GetToken())
	if !l.current(k.shard, m.GetEpoch()) {
		return // it is sent again, and answered by the owner
	}
	r := l.results.acknowledged(k)
	if r == nil || m.GetVerdict() == carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED {
		return
	}
	level := l.log.Warn
	if r.GetOutcome() == carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_CANCELLED {
		level = l.log.Debug // the slot was final already
	}
	level("the node refused a result", "job", k.uid, "fire_time", time.UnixMicro(k.fireUS).UTC(), "attempt", k.attempt,
		"outcome", r.GetOutcome().String(), "verdict", m.GetVerdict().String(), "why", m.GetMessage())
}

func (l *loop) cancelled(m *carillonv1.Cancellation) {
	a := l.attempts[keyOf(m.GetToken())]
	if !l.current(m.GetToken().GetShard(), m.GetEpoch()) || a == nil {
		return
	}
	switch m.GetReason() {
	case carillonv1.CancellationReason_CANCELLATION_REASON_CANCELLED:
		l.stop(a, ErrCancelled, unjudged)
	case carillonv1.CancellationReason_CANCELLATION_REASON_TIMED_OUT:
		l.stop(a, ErrTimeout, declaredOver)
	default:
		l.stop(a, ErrLeaseLost, takenBack)
	}
}
