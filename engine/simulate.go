package engine

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/job"
)

// workPoll is how often it is looked whether what is due is done.
const workPoll = time.Millisecond

// Advance sets a simulated clock ahead until it is a time, from one instant at which something
// is due to the next, each time once all is done that was due: also the attempts that workers
// run. What is due at the last instant is done, too. If ctx ends before, it returns how many
// attempts it waits for. One call at a time.
func (n *Node) Advance(ctx context.Context, c *clock.Simulated, until time.Time) (running int, err error) {
	for {
		next, busy, running, err := n.ahead(ctx)
		switch {
		case err != nil:
			return running, err
		case busy:
			select {
			case <-time.After(workPoll):
				continue
			case <-ctx.Done():
				return running, nil
			}
		case ctx.Err() != nil || !c.Wall().Before(until):
			return running, nil
		}
		to := next.Time()
		if now := c.Wall(); !to.After(now) {
			to = now.Add(time.Microsecond)
		}
		if to.After(until) {
			to = until
		}
		c.Set(to)
	}
}

// ahead says when something will be due next, and whether something is under way.
func (n *Node) ahead(ctx context.Context) (next job.Instant, busy bool, running int, err error) {
	type answer struct {
		next    job.Instant
		busy    bool
		running int
	}
	done := make(chan answer, 1)
	ctx = context.WithoutCancel(ctx) // an answer that was begun is waited for: it says what runs
	err = n.post(ctx, func(l *loop) {
		next, busy := l.ahead()
		done <- answer{next, busy, l.attended()}
	})
	if err != nil {
		return 0, false, 0, err
	}
	a, err := await(ctx, n, done)
	return a.next, a.busy, a.running, err
}

// ahead is asked in a turn whose time is the clock's.
func (l *loop) ahead() (next job.Instant, busy bool) {
	next = job.MaxInstant
	busy = l.inflight != nil || len(l.order) < l.cfg.Shards || len(l.unread)+l.reading > 0 || l.attended() > 0 || len(l.ending) > 0
	for _, id := range l.order {
		s := l.shards[id]
		wake := s.NextWake()
		busy = busy || s.HasPending() || wake <= l.now
		next = min(next, wake)
	}
	for id, w := range l.workers.All() {
		if l.streams[id] == nil {
			next = min(next, w.LeaseUntil)
		}
	}
	return next, busy
}

// keepConnected renews the leases of all workers that are connected, whatever the clock was set
// to: they live in real time.
func (l *loop) keepConnected() {
	for id, w := range l.workers.All() {
		if l.streams[id] != nil {
			w.LeaseUntil = l.now.Add(l.cfg.Core.Lease)
		}
	}
	l.renewUnary()
}

// attended is how many attempts run whose workers are connected, or have no stream.
func (l *loop) attended() int {
	n := 0
	for _, s := range l.shards {
		for worker, tokens := range s.Holders() {
			if sess := l.streams[worker.ID]; sess != nil && sess.key == worker || l.unary[worker] != nil {
				n += len(tokens)
			}
		}
	}
	return n
}
