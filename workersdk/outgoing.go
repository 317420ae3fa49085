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
	for _, k := range l.links {
		l.flushTo(k.session)
		l.flushTo(k.next)
	}
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

// hello presents the worker. It lists all attempts, also those of other nodes' shards, and among
// them those whose results aren't acknowledged: what a hello doesn't list, and the worker should
// hold, the node sends again. Results beyond one message's bounds follow the welcome.
func (l *loop) hello(s *session, now time.Time) *carillonv1.Hello {
	s.helloAt = now
	h := &carillonv1.Hello{
		WorkerId: l.w.cfg.id, Incarnation: l.w.incarnation, Capacity: int32(l.w.cfg.capacity), Sdk: sdkVersion,
		ProtocolVersion: protocolVersion, Capabilities: []string{"handover", "membership", "reclaim"},
	}
	for _, name := range slices.Sorted(maps.Keys(l.w.handlers)) {
		h.Handlers = append(h.Handlers, &carillonv1.HandlerRegistration{Name: name})
	}
	for k, a := range l.attempts {
		if !a.held() {
			continue
		}
		h.Held = append(h.Held, k.token())
		if !l.concerns(s.link, k.shard) {
			continue
		}
		a.askedAt = now
		if !a.startedAt.IsZero() {
			s.started = append(s.started, a) // a new owner hasn't heard of it
		}
	}
	b := newBudget()
	for k, p := range l.results.waiting {
		h.Held = append(h.Held, k.token())
		if l.concerns(s.link, k.shard) && b.spend(p.size) {
			h.Results = append(h.Results, p.result)
			p.hello, p.sentAt = s, now
		}
	}
	// At most the capacity less all that is listed; the rest follows the welcome.
	s.granted = l.helloCredit(s.link, len(h.Held))
	h.Credit = int32(s.granted)
	return h
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
	m.Progress = s.takeProgress(b)
	m.Results = s.takeResults(b, now)
	if s.link.next == nil { // else the hello of the next stream has said it
		m.Started = s.takeStarted(b)
		m.Held = l.takeAsking(s, b)
		if l.phase == serving {
			m.Credit, m.Reclaim = int32(s.give), int32(s.take)
			s.give, s.take = 0, 0
		}
	}
	if l.phase != serving && !s.drainTold {
		s.drainTold = true
		m.Draining = true
		if s.reclaims {
			m.Reclaim, s.parting = 1, 1 // it takes back all by itself: the answer is what counts
			if s.taking > 0 && s.take == 0 {
				s.parting++ // an earlier question comes first
			}
			s.reclaim(int(m.Reclaim))
			s.give, s.take = 0, 0
		}
	}
	return m
}

// takeStarted leaves out what has a result meanwhile: that carries the instant too.
func (s *session) takeStarted(b *budget) []*carillonv1.Started {
	var out []*carillonv1.Started
	for len(s.started) > 0 {
		if a := s.started[0]; a.state == running {
			m := &carillonv1.Started{Token: a.key.token(), StartTime: timestamppb.New(a.startedAt)}
			if !b.spend(proto.Size(m)) {
				break
			}
			out = append(out, m)
		}
		s.started = s.started[1:]
	}
	return out
}

// takeAsking lists attempts whose shard has a new owner, for it to vouch for them.
func (l *loop) takeAsking(s *session, b *budget) []*carillonv1.AttemptToken {
	var out []*carillonv1.AttemptToken
	for len(s.asking) > 0 {
		k := s.asking[0]
		if a := l.attempts[k]; a != nil && a.held() {
			t := k.token()
			if !b.spend(proto.Size(t)) {
				break
			}
			out = append(out, t)
		}
		s.asking = s.asking[1:]
	}
	return out
}

func (s *session) takeProgress(b *budget) []*carillonv1.ProgressReport {
	n := 0
	for n < len(s.reports) && b.spend(proto.Size(s.reports[n])) {
		n++
	}
	out := s.reports[:n:n]
	s.reports = s.reports[n:]
	return out
}
