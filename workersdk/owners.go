package workersdk

import "time"

// owner is who owns a shard: the node that showed the highest epoch of it.
type owner struct {
	epoch int64
	link  *link
}

// current reports whether a node may still speak for a shard: no higher epoch of it was seen.
// A node that shows a higher one is asked about all that the worker holds of the shard, and gets
// the shard's results. Nodes that tell no epoch are taken at their word.
func (l *loop) current(s *session, shard int32, epoch int64) bool {
	o := l.owners[shard]
	switch {
	case epoch == 0 || epoch == o.epoch && o.link == s.link:
		return true
	case epoch < o.epoch:
		l.log.Warn("a message of a node that no longer owns the shard was passed over", "node", s.link.node, "shard", shard, "epoch", epoch, "newest", o.epoch)
		return false
	}
	l.owners[shard] = owner{epoch, s.link}
	l.moved(s, shard)
	return true
}

// moved turns to a shard's new owner. Until it vouches for an attempt, that goes on under
// the lease that it had.
func (l *loop) moved(s *session, shard int32) {
	now := time.Now()
	for k, a := range l.attempts {
		if k.shard != shard {
			continue
		}
		a.link.running--
		a.link = s.link
		a.link.running++
		if !a.held() {
			continue
		}
		a.unvouch()
		s.ask(a, now)
		if !a.startedAt.IsZero() {
			s.started = append(s.started, a)
		}
	}
	for k, p := range l.results.waiting {
		if k.shard == shard {
			s.send(p, now)
		}
	}
}

// inherit gives a link what another one had of the same node.
func (l *loop) inherit(k, from *link) {
	for shard, o := range l.owners {
		if o.link == from {
			l.owners[shard] = owner{o.epoch, k}
		}
	}
	for _, a := range l.attempts {
		if a.link == from {
			a.link = k
		}
	}
	k.running, from.running = k.running+from.running, 0
}

// ownerOf returns the stream to a shard's owner, or nil.
func (l *loop) ownerOf(shard int32) *session {
	if o := l.owners[shard]; o.link != nil && o.link.session.up() {
		return o.link.session
	}
	return nil
}

// concerns reports whether a node is to hear what is said of a shard: it owns the shard, or
// nobody is there who does.
func (l *loop) concerns(k *link, shard int32) bool {
	return l.owners[shard].link == k || l.ownerOf(shard) == nil
}
