package workersdk

import (
	"slices"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// phase is where the worker stands on its way out.
//
//	serving ──ctx ends──▶ finishing ──grace──▶ stopping ──1 s──▶ flushing ──▶ closing ──▶ over
//	                          └───── nothing runs ─────┴──────────▲   └ acknowledged, or 2 s
//
// A refusal for good goes to stopping at once, and from there to over.
type phase int8

const (
	serving   phase = iota
	finishing       // running handlers go on undisturbed
	stopping        // their contexts have ended
	flushing        // nothing runs; results wait for their acknowledgements
	closing         // the streams are being closed
	over
)

const (
	stopGrace  = time.Second
	ackGrace   = 2 * time.Second
	closeGrace = 500 * time.Millisecond
)

// enter begins a phase that lasts at most d.
func (l *loop) enter(p phase, d time.Duration) {
	l.phase = p
	l.phaseBy = time.Now().Add(d)
}

// beginShutdown takes no more work and hands back what has not begun.
func (l *loop) beginShutdown() {
	if l.phase != serving {
		return
	}
	l.log.Info("stopping", "running", len(l.attempts), "grace", l.w.cfg.grace)
	l.enter(finishing, l.w.cfg.grace)
	for _, a := range l.attempts {
		if a.state == waiting {
			l.stop(a, ErrShutdown, unjudged)
		}
	}
}

// abort shuts down after a refusal.
func (l *loop) abort() {
	l.enter(stopping, stopGrace)
	l.stopAll()
}

func (l *loop) stopAll() {
	for _, a := range l.attempts {
		l.stop(a, ErrShutdown, unjudged)
	}
}

// advance goes through the phases whose time is over.
func (l *loop) advance(now time.Time) {
	for {
		before := l.phase
		if l.step(now); l.phase == before {
			return
		}
	}
}

func (l *loop) step(now time.Time) {
	late := !now.Before(l.phaseBy)
	switch l.phase {
	case finishing:
		if l.allEnded() {
			l.enter(flushing, ackGrace)
		} else if late {
			l.enter(stopping, stopGrace)
			l.stopAll()
		}
	case stopping:
		if late {
			l.leaveBehind()
		}
		if l.allEnded() {
			l.enter(flushing, ackGrace)
		}
	case flushing:
		l.finishFlushing(late)
	case closing:
		if !l.connected() || late {
			l.phase = over
		}
	}
}

// allEnded reports whether no handler's result is still awaited.
func (l *loop) allEnded() bool { return len(l.attempts) == l.reported }

func (l *loop) finishFlushing(late bool) {
	waiting := len(l.results.waiting)
	switch {
	case l.failure != nil:
		l.phase = over
	case waiting == 0 && (late || l.parted()):
		l.enter(closing, closeGrace)
	case late:
		l.log.Warn("results were not acknowledged before the end", "results", waiting)
		l.enter(closing, closeGrace)
	default:
		return
	}
	for _, k := range l.links {
		for _, s := range []*session{k.session, k.next} {
			if s != nil && (s == k.next || !s.up()) {
				s.close(errEnough)
			}
		}
	}
}

// parted reports whether all nodes have said that no assignment is on its way any more: one that
// came after the end would cost its slot a lease.
func (l *loop) parted() bool {
	return !slices.ContainsFunc(l.links, func(k *link) bool {
		s := k.session
		return s.up() && s.reclaims && (!s.drainTold || s.parting > 0)
	})
}

// connected reports whether a stream is open.
func (l *loop) connected() bool {
	return slices.ContainsFunc(l.links, func(k *link) bool { return k.session != nil })
}

// leaveBehind hands back the attempts of handlers that ignore their contexts.
func (l *loop) leaveBehind() {
	for _, a := range l.attempts {
		if a.state != running {
			continue
		}
		a.logger.Error("a handler ignores its context and is left behind")
		l.giveUp(a, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED, codeShutdown, "the worker stopped and the handler ignored the end of its context")
	}
}
