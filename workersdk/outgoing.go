package workersdk

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// flush gives each idle sender one message of all that is to be said.
func (l *loop) flush() {
	l.flushTo(l.session)
	l.flushTo(l.next)
}

func (l *loop) flushTo(s *session) {
	if s == nil || !s.idle || s.dropped || s.halfDone {
		return
	}
	now := time.Now()
	var m *carillonv1.ConnectRequest
	switch {
	case s.helloAt.IsZero():
		m = &carillonv1.ConnectRequest{Hello: l.hello(s, now)}
	case s.welcomedAt.IsZero():
		return
	case l.phase == closing:
		s.halfDone = true
	default:
		if m = l.message(s, now); proto.Size(m) == 0 {
			return
		}
	}
	s.idle = false
	s.out <- m
}

// hello presents the worker. It lists attempts whose results aren't acknowledged
// among the held ones: what a hello doesn't list, and the worker should hold, the node
// sends again. Results beyond one message's bounds follow the welcome.
func (l *loop) hello(s *session, now time.Time) *carillonv1.Hello {
	s.helloAt = now
	l.freezeLeases()
	h := &carillonv1.Hello{
		WorkerId: l.w.cfg.id, Incarnation: l.w.incarnation, Capacity: int32(l.w.cfg.capacity), Sdk: sdkVersion,
		ProtocolVersion: protocolVersion, Capabilities: []string{"handover"},
	}
	for _, name := range slices.Sorted(maps.Keys(l.w.handlers)) {
		h.Handlers = append(h.Handlers, &carillonv1.HandlerRegistration{Name: name})
	}
	l.started, l.asking = nil, nil
	for k, a := range l.attempts {
		if !a.held() {
			continue
		}
		h.Held = append(h.Held, k.token())
		if !a.startedAt.IsZero() {
			l.started = append(l.started, a) // a new owner hasn't heard of it
		}
	}
	for k := range l.results.waiting {
		h.Held = append(h.Held, k.token())
	}
	l.results.requeue(now)
	h.Results = l.results.take(newBudget(), now)
	// At most the capacity less all that is listed; the rest follows the welcome.
	s.granted = max(0, min(l.creditDue(s), l.w.cfg.capacity-len(h.Held)))
	h.Credit = int32(s.granted)
	return h
}

// creditDue is how many more attempts the node may be granted: what the worker holds
// and what the node has in hand never exceed the capacity together.
func (l *loop) creditDue(s *session) int {
	if l.phase != serving || l.results.full() {
		return 0
	}
	return max(0, l.w.cfg.capacity-len(l.attempts)-s.granted)
}

// message builds what is to be said now; empty if nothing is.
func (l *loop) message(s *session, now time.Time) *carillonv1.ConnectRequest {
	m := &carillonv1.ConnectRequest{}
	if now.Sub(s.beatAt) >= l.beatEvery() {
		s.lastBeat++
		s.beatAt = now
		s.beats = append(s.beats, beat{s.lastBeat, now}) // bounded: two unanswered intervals end the stream
		m.Heartbeat = &carillonv1.Heartbeat{Sequence: s.lastBeat}
	}
	b := newBudget()
	m.Progress = l.takeProgress(b)
	m.Results = l.results.take(b, now)
	if l.next == nil { // else it is for the next stream, or its hello has said it
		m.Started = l.takeStarted(b)
		m.Held = l.takeAsking(b)
		credit := l.creditDue(s)
		s.granted += credit
		m.Credit = int32(credit)
	}
	if l.phase != serving && !s.drainTold {
		s.drainTold = true
		m.Draining = true
	}
	return m
}

// takeStarted leaves out what has a result meanwhile: that carries the instant too.
func (l *loop) takeStarted(b *budget) []*carillonv1.Started {
	var out []*carillonv1.Started
	for len(l.started) > 0 {
		if a := l.started[0]; a.state == running {
			m := &carillonv1.Started{Token: a.key.token(), StartTime: timestamppb.New(a.startedAt)}
			if !b.spend(proto.Size(m)) {
				break
			}
			out = append(out, m)
		}
		l.started = l.started[1:]
	}
	return out
}

// takeAsking lists attempts whose shard has a new owner, for it to vouch for them.
func (l *loop) takeAsking(b *budget) []*carillonv1.AttemptToken {
	var out []*carillonv1.AttemptToken
	for len(l.asking) > 0 {
		k := l.asking[0]
		if a := l.attempts[k]; a != nil && a.held() {
			t := k.token()
			if !b.spend(proto.Size(t)) {
				break
			}
			out = append(out, t)
		}
		l.asking = l.asking[1:]
	}
	return out
}

func (l *loop) takeProgress(b *budget) []*carillonv1.ProgressReport {
	n := 0
	for n < len(l.reports) && b.spend(proto.Size(l.reports[n])) {
		n++
	}
	out := l.reports[:n:n]
	l.reports = l.reports[n:]
	return out
}
