package workersdk

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Back-off between streams to a node: one that restarts is back within seconds, and
// the lease lasts for ten.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 1500 * time.Millisecond // with its jitter about 2 s
)

// link is what the worker has of one node: a stream, and another one after it broke. While one
// that is too old goes on, the next is opened beside it. Each link has its connector, a goroutine;
// all fields but targets belong to the loop.
type link struct {
	node    string                   // its name; empty until the first welcome
	address string                   // the member's; empty: it is reached by the seeds
	targets atomic.Pointer[[]string] // where the connector tries in turn
	cancel  context.CancelFunc       // ends the connector, and its streams

	session *session // nil between streams
	next    *session // opened beside it, and not welcomed yet

	member   bool // of the cluster, as far as is known
	draining bool // it is about to leave
	running  int  // attempts that its shards have here
	givenAt  int64
}

// reach sets where the node is looked for from now on.
func (k *link) reach(targets ...string) { k.targets.Store(&targets) }

// useful reports whether the node may get credit.
func (k *link) useful() bool {
	return k.session.up() && k.member && !k.draining && !k.session.draining
}

// connect opens one stream after the other until ctx ends. While a stream that is too old goes
// on, the next one is opened.
func (l *loop) connect(ctx context.Context, k *link) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier, pause.RandomizationFactor = minBackoff, maxBackoff, 2, 0
	jitter := l.w.jitter()
	var serving sync.WaitGroup
	defer serving.Wait()
	for tries := 0; ; tries++ {
		targets := *k.targets.Load()
		target := targets[tries%len(targets)]
		leave, ended := make(chan struct{}), make(chan streamEnd, 1)
		serving.Go(func() { ended <- l.serve(ctx, k, target, leave) })
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
			l.post(func() { l.refused(end.err) })
		}
		if end.alive {
			pause.Reset()
		}
		wait := time.Duration((0.5 + jitter.Float64()) * float64(pause.NextBackOff()))
		l.log.Warn("the stream to the node ended; connecting again", "target", target, "error", end.err, "after", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (l *loop) opened(s *session) {
	s.idle = true
	switch k := s.link; {
	case l.phase >= closing || !l.has(k):
		s.close(errNotNeeded)
	case k.session == nil:
		k.session = s
	default:
		k.next = s // it takes over once it is welcomed
	}
}

func (l *loop) closed(s *session) {
	s.dropped = true
	switch k := s.link; s {
	case k.next:
		k.next = nil
	case k.session:
		k.session, k.next = k.next, nil
	}
	l.noteStores()
}
