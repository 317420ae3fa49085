package workersdk

import (
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
	closing         // the stream is being closed
	over
)

const (
	stopGrace  = time.Second
	ackGrace   = 2 * time.Second
	closeGrace = 500 * time.Millisecond
)

// enter begins a phase that lasts at most d.
func (l *loop) enter(p phase, d time.Duration) {
	if p == closing && l.next != nil {
		l.next.close(errEnough)
	}
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

// abort shuts down without a node.
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
		if l.session == nil || late {
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
	case waiting == 0:
		l.enter(closing, closeGrace)
	case late:
		l.log.Warn("results were not acknowledged before the end", "results", waiting)
		l.enter(closing, closeGrace)
	default:
		return
	}
	if s := l.session; s != nil && s.welcomedAt.IsZero() {
		s.close(errEnough)
	}
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
