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
	unsent  []*pending // in the order of their ends; acknowledged ones are passed over
	bytes   int
}

// pending is one result. The message itself never changes: a sender may read it.
type pending struct {
	key    key
	result *carillonv1.AttemptResult
	size   int
	queued bool
	done   bool
	sentAt time.Time
}

func (r *results) add(k key, m *carillonv1.AttemptResult) {
	p := &pending{key: k, result: m, size: proto.Size(m)}
	if old := r.waiting[k]; old != nil {
		r.forget(old)
	}
	r.waiting[k] = p
	r.bytes += p.size
	r.queue(p)
}

func (r *results) queue(p *pending) {
	p.queued = true
	r.unsent = append(r.unsent, p)
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

// requeue has everything sent again that was sent before then.
func (r *results) requeue(before time.Time) {
	for _, p := range r.waiting {
		if !p.queued && !p.sentAt.After(before) {
			r.queue(p)
		}
	}
}

// take moves results into a message as far as its budget goes.
func (r *results) take(b *budget, now time.Time) []*carillonv1.AttemptResult {
	var out []*carillonv1.AttemptResult
	for len(r.unsent) > 0 {
		p := r.unsent[0]
		if !p.done {
			if !b.spend(p.size) {
				break
			}
			out = append(out, p.result)
		}
		p.queued, p.sentAt = false, now
		r.unsent = r.unsent[1:]
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
