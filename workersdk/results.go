package workersdk

import (
	"time"

	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of what waits for the node's acknowledgement. Beyond them the worker takes
// no new work: a node that stores nothing must not fill its memory.
const (
	maxUnacked      = 10_000
	maxUnackedBytes = 64 << 20
)

// results is what attempts came to and the node has not acknowledged.
type results struct {
	waiting map[key]*pending
	bytes   int
}

// pending is one result. The message itself never changes: a sender may read it.
type pending struct {
	key    key
	result *carillonv1.AttemptResult
	size   int
	done   bool
	sentAt time.Time // or was to be sent
	hello  *session  // the last one whose hello listed it
}

func (r *results) add(k key, m *carillonv1.AttemptResult) *pending {
	p := &pending{key: k, result: m, size: proto.Size(m)}
	if old := r.waiting[k]; old != nil {
		r.forget(old)
	}
	r.waiting[k] = p
	r.bytes += p.size
	return p
}

// acknowledged forgets a result and returns it, or nil.
func (r *results) acknowledged(k key) *carillonv1.AttemptResult {
	p := r.waiting[k]
	if p == nil {
		return nil
	}
	r.forget(p)
	return p.result
}

func (r *results) forget(p *pending) {
	p.done = true
	delete(r.waiting, p.key)
	r.bytes -= p.size
}

// addResult keeps a result until it is acknowledged, and sends it to its shard's owner. While
// none is known it waits for one.
func (l *loop) addResult(k key, m *carillonv1.AttemptResult) {
	p := l.results.add(k, m)
	p.sentAt = time.Now()
	if s := l.ownerOf(k.shard); s != nil {
		s.send(p, p.sentAt)
	}
}

// sendAgain offers what wasn't acknowledged for half a lease to all nodes: whoever owns the shard by
// now answers, and the others pass over it.
func (l *loop) sendAgain(now time.Time) {
	for _, p := range l.results.waiting {
		if now.Sub(p.sentAt) < l.lease/2 {
			continue
		}
		for _, k := range l.links {
			if k.session.up() {
				k.session.send(p, now)
			}
		}
	}
}

// send puts a result into the next message.
func (s *session) send(p *pending, now time.Time) {
	p.sentAt = now
	s.results = append(s.results, p)
}

// takeResults moves results into a message as far as its budget goes.
func (s *session) takeResults(b *budget, now time.Time) []*carillonv1.AttemptResult {
	var out []*carillonv1.AttemptResult
	for len(s.results) > 0 {
		p := s.results[0]
		if !p.done {
			if !b.spend(p.size) {
				break
			}
			out = append(out, p.result)
		}
		p.sentAt = now
		s.results = s.results[1:]
	}
	return out
}

// full reports whether more must not be begun.
func (r *results) full() bool { return len(r.waiting) >= maxUnacked || r.bytes >= maxUnackedBytes }

// budget bounds one message: the node takes at most a few MiB at once, and a small
// message doesn't hold up the heartbeat behind it.
type budget struct{ bytes, items int }

const (
	maxMessageBytes = 1 << 20
	maxMessageItems = 1000
)

func newBudget() *budget { return &budget{maxMessageBytes, maxMessageItems} }

// spend reports whether an item still fits. The first one always does.
func (b *budget) spend(size int) bool {
	if b.items != maxMessageItems && (b.items == 0 || size > b.bytes) {
		return false
	}
	b.items--
	b.bytes -= size
	return true
}
