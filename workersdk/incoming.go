package workersdk

import (
	"slices"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// received takes one message of the node.
func (l *loop) received(s *session, m *carillonv1.ConnectResponse) {
	if k := s.link; k.session != s && k.next != s || s.dropped {
		return // what it says is said again by the one that took its place
	}
	if w := m.GetWelcome(); w != nil && s.welcomedAt.IsZero() && !l.welcomed(s, w) {
		return
	}
	for _, o := range m.GetOwnerships() {
		l.current(s, o.GetShard(), o.GetEpoch())
	}
	if a := m.GetHeartbeatAck(); a != nil {
		l.heartbeatAcked(s, a)
	}
	for _, a := range m.GetAssignments() {
		s.used()
		l.assigned(s, a)
	}
	for _, a := range m.GetAttestations() {
		l.attested(s, a)
	}
	for _, a := range m.GetResultAcks() {
		l.resultAcked(s, a)
	}
	for _, a := range m.GetProgressAcks() {
		if at := l.attempts[keyOf(a.GetToken())]; at != nil && l.current(s, a.GetToken().GetShard(), a.GetEpoch()) {
			at.notes.acknowledged(a.GetSequence())
		}
	}
	for _, c := range m.GetCancellations() {
		l.cancelled(s, c)
	}
	if m.Reclaimed != nil {
		s.parting = max(0, s.parting-1)
		s.returned(int(m.GetReclaimed()), time.Now())
	}
	if m.Wanted != nil {
		s.wanted = min(max(int(m.GetWanted()), 0), l.w.cfg.capacity)
	}
	if m.GetReconnect() && !s.leaving && l.phase == serving {
		s.leaving = true
		close(s.leave)
	}
	if m.GetDraining() && !s.draining {
		s.draining = true
		l.log.Info("the node stops; it gets no more credit", "node", s.link.node)
	}
	l.follow(m.GetMembership())
}

// welcomed takes the answer to a hello. It returns false if the stream is of no use.
func (l *loop) welcomed(s *session, w *carillonv1.Welcome) bool {
	if !l.named(s, w.GetNode()) {
		return false
	}
	now, k := time.Now(), s.link
	if s == k.next {
		k.session.close(errHandedOver)
		k.session, k.next = s, nil
	}
	l.sawCluster(s, w.GetCluster())
	l.setLease(w.GetLease().AsDuration(), w.GetHeartbeatInterval().AsDuration())
	s.lease.renew(s.helloAt, l.shorter(w.GetGranted()))
	s.storesNotes, s.reclaims = slices.Contains(w.GetCapabilities(), "checkpoints"), slices.Contains(w.GetCapabilities(), "reclaim")
	s.welcomedAt, s.ackedAt, s.beatAt = now, now, now
	l.noteStores()
	for _, p := range l.results.waiting {
		if p.hello != s && l.concerns(k, p.key.shard) {
			s.send(p, now) // what went over an older stream since the hello may be lost
		}
	}
	l.log.Info("connected", "node", k.node, "lease", l.lease, "held", len(l.attempts)-l.reported, "unacknowledged", len(l.results.waiting))
	return true
}

// noteStores notes whether all nodes store what handlers leave: a shard may move between them.
func (l *loop) noteStores() {
	all, some := true, false
	for _, k := range l.links {
		if k.session.up() {
			all, some = all && k.session.storesNotes, true
		}
	}
	if some {
		l.storesNotes.Store(all)
	}
}

func (l *loop) heartbeatAcked(s *session, m *carillonv1.HeartbeatAck) {
	for len(s.beats) > 0 && s.beats[0].sequence <= m.GetSequence() {
		s.lease.renew(s.beats[0].at, l.shorter(m.GetLease()))
		s.ackedAt = time.Now()
		s.beats = s.beats[1:]
	}
}

// attested takes a node's word on an attempt. One that doesn't own the shard says nothing.
func (l *loop) attested(s *session, m *carillonv1.Attestation) {
	a := l.attempts[keyOf(m.GetToken())]
	switch m.GetVerdict() {
	case carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE, carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL:
	default:
		if a != nil && a.voucher == s {
			a.unvouch()
		}
		return
	}
	if !l.current(s, m.GetToken().GetShard(), m.GetEpoch()) || a == nil || !a.held() {
		return
	}
	if m.GetVerdict() == carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL {
		l.stop(a, ErrLeaseLost, takenBack)
		return
	}
	a.voucher = s
}

func (l *loop) resultAcked(s *session, m *carillonv1.ResultAck) {
	k := keyOf(m.GetToken())
	if !l.current(s, k.shard, m.GetEpoch()) {
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

func (l *loop) cancelled(s *session, m *carillonv1.Cancellation) {
	a := l.attempts[keyOf(m.GetToken())]
	if !l.current(s, m.GetToken().GetShard(), m.GetEpoch()) || a == nil {
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
