package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// Stream is a worker's connection, seen from the node.
type Stream interface {
	// Deliver takes messages for the worker. It never blocks: it returns false if
	// the worker reads too slowly, and the stream is of no use any more.
	Deliver(messages []core.Message) bool
	// Heard reports whether the worker said since the last call that it lives, and nothing
	// else: that isn't worth a turn of the loop.
	Heard() bool
	// Drain tells the worker that the node stops.
	Drain()
	// Close ends the stream.
	Close(reason error)
}

// session is a connected worker.
type session struct {
	key        core.WorkerKey
	stream     Stream
	unresolved map[core.Token]struct{} // held attempts of shards that aren't loaded here
	poll       *poll                   // nil: it is a stream
	moves      bool                    // it moves credit between nodes, and is told what is wanted
	wanted     int                     // what it was told last
}

// maxUnresolved bounds what a worker may ask about at the same time. Beyond it the answer is
// that of its next hello.
const maxUnresolved = 200_000

// Hello is what a worker presents.
type Hello struct {
	Worker   core.WorkerKey
	Handlers []string
	Capacity int
	Credit   int
	Held     []core.Token // what it runs
	Report   Report       // what it has to say at once: its results come before its credit
	Moves    bool         // it wants to be told of slots that wait for its credit
	polls    bool
}

// Verdict is what the node says of a held attempt.
type Verdict int8

// The verdicts.
const (
	VerdictContinue Verdict = iota + 1
	VerdictCancel
	VerdictUnknown
)

// Attestation is a verdict, and the epoch of the owner that gives it; zero with
// VerdictUnknown.
type Attestation struct {
	Verdict Verdict
	By      shard.Epoch
}

// Connect takes a worker's stream, in place of an older one. Attempts that the worker should
// hold, and doesn't list, are sent again; a new incarnation of the same worker loses what the
// old one held. It returns a verdict for each held attempt.
func (n *Node) Connect(ctx context.Context, h Hello, stream Stream) ([]Attestation, error) {
	done := make(chan []Attestation, 1)
	err := n.post(ctx, func(l *loop) {
		if l.draining || ctx.Err() != nil {
			done <- nil
			return
		}
		done <- l.connect(h, stream)
	})
	if err != nil {
		return nil, err
	}
	verdicts, err := await(ctx, n, done)
	if err == nil && verdicts == nil {
		return nil, ErrStopping
	}
	return verdicts, err
}

func (l *loop) connect(h Hello, stream Stream) []Attestation {
	l.replace(h.Worker)
	holds := make(map[job.SlotKey]int32, len(h.Held)+len(h.Report.Events))
	for _, t := range h.Held {
		holds[t.Key] = t.Attempt
	}
	for _, e := range h.Report.Events {
		holds[e.Token.Key] = e.Token.Attempt
	}
	sess := &session{key: h.Worker, stream: stream, moves: h.Moves, unresolved: map[core.Token]struct{}{}}
	if h.polls {
		sess.poll = &poll{until: l.now.Add(maxPoll)}
	}
	l.streams[h.Worker.ID] = sess
	// A result may save work that the credit would begin again: results come first.
	l.apply(h.Report.Events)
	// What it doesn't know of yet uses up credit that it still counts; also credit that it
	// is still to give, since it may list results among what it holds.
	credit := h.Credit - l.unsent(h.Worker) - l.sendAgain(h.Worker, holds)
	worker := l.workers.Join(h.Worker, h.Handlers, h.Capacity, credit, l.now.Add(l.cfg.Core.Lease))
	l.credit(worker, h.Report)
	verdicts := make([]Attestation, len(h.Held))
	for i, t := range h.Held {
		verdicts[i] = l.attest(h.Worker, t)
		l.askLater(sess, t)
	}
	if h.polls {
		l.extend(h.Worker, h.Held)
		return verdicts
	}
	for _, id := range l.order {
		l.send(h.Worker, core.Owned{Shard: id, Epoch: l.shards[id].Proof().Epoch})
	}
	for id, of := range l.loading {
		l.send(h.Worker, core.Owned{Shard: id, Epoch: of.epoch})
	}
	return verdicts
}

// replace ends the stream or call that a worker had, and what an older incarnation of it held.
func (l *loop) replace(worker core.WorkerKey) {
	delete(l.unary, worker)
	older := map[core.WorkerKey]bool{}
	for key := range l.unary {
		if key.ID == worker.ID {
			older[key] = true
		}
	}
	if old := l.workers.Get(worker.ID); old != nil && old.Key != worker {
		older[old.Key] = true
	}
	for _, key := range slices.SortedFunc(maps.Keys(older), compareWorkers) {
		delete(l.unary, key)
		l.lost(key, nil)
	}
	if old := l.streams[worker.ID]; old != nil {
		old.stream.Close(fmt.Errorf("worker %s connected again", worker.ID))
		delete(l.outgo, old)
	}
}

func (l *loop) unsent(worker core.WorkerKey) int {
	n := 0
	for _, s := range l.shards {
		n += s.Unsent(worker)
	}
	return n
}

// sendAgain has all shards send what a worker should hold and doesn't.
func (l *loop) sendAgain(worker core.WorkerKey, holds map[job.SlotKey]int32) (n int) {
	for _, id := range l.order {
		if s := l.shards[id]; s != nil {
			n += s.SendAgain(worker, holds)
			l.collect(s)
		}
	}
	return n
}

func (l *loop) attest(worker core.WorkerKey, t core.Token) Attestation {
	s := l.shards[t.Shard]
	switch {
	case s == nil && l.loading[t.Shard] != nil:
		return Attestation{VerdictContinue, l.loading[t.Shard].epoch}
	case s == nil:
		return Attestation{Verdict: VerdictUnknown}
	case s.Attest(worker, t):
		return Attestation{VerdictContinue, s.Proof().Epoch}
	}
	return Attestation{VerdictCancel, s.Proof().Epoch}
}

// lost tells all shards that a worker holds nothing any more but what is listed.
func (l *loop) lost(worker core.WorkerKey, holds map[job.SlotKey]int32) {
	for _, id := range l.order {
		if l.shards[id] == nil {
			continue // dropped in this very pass
		}
		l.step(l.shards[id], core.WorkerLost{Worker: worker, Holds: holds})
	}
}

// current returns a worker if this stream is still its newest.
func (l *loop) current(key core.WorkerKey, stream Stream) *core.Worker {
	if sess := l.streams[key.ID]; sess == nil || sess.stream != stream {
		return nil
	}
	return l.workers.Get(key.ID)
}

// Report is what one message of a worker says.
type Report struct {
	Events   []ShardEvent
	Held     []core.Token // what it asks about
	Credit   int
	Reclaim  int // credit that it wants back, at most
	Draining bool
}

// ShardEvent is an event for one shard.
type ShardEvent struct {
	Token core.Token
	Event core.Event
}

// Report takes a worker's message. It fails if the stream is no longer the
// worker's newest. A worker whose lease has ended is told by the verdict of its
// next hello, so its stream ends here.
func (n *Node) Report(ctx context.Context, key core.WorkerKey, stream Stream, r Report) error {
	done := make(chan error, 1)
	if err := n.post(ctx, func(l *loop) { done <- l.report(key, stream, r) }); err != nil {
		return err
	}
	err, waitErr := await(ctx, n, done)
	if waitErr != nil {
		return waitErr
	}
	return err
}

func (l *loop) report(key core.WorkerKey, stream Stream, r Report) error {
	worker := l.current(key, stream)
	if worker == nil {
		return fmt.Errorf("the stream of worker %s was replaced or its lease ended", key.ID)
	}
	// Any message proves that the worker lives.
	worker.LeaseUntil = l.now.Add(l.cfg.Core.Lease)
	l.apply(r.Events)
	for _, t := range r.Held {
		l.answerHeld(l.streams[key.ID], t)
	}
	l.credit(worker, r)
	return nil
}

// answerHeld says what becomes of an attempt that a worker asks about: at once, or when its
// shard is loaded here.
func (l *loop) answerHeld(sess *session, t core.Token) {
	switch a := l.attest(sess.key, t); a.Verdict {
	case VerdictContinue:
		if sess.poll != nil {
			l.unaryOf(sess.key).leases[t] = l.now.Add(l.cfg.Core.Lease)
		}
		l.send(sess.key, core.Continue{Worker: sess.key, Token: t, By: a.By})
	case VerdictCancel:
		l.send(sess.key, core.Stop{Worker: sess.key, Token: t, Reason: core.StopLeaseLost, By: a.By})
	}
	l.askLater(sess, t)
}

// askLater notes an attempt that can't be judged yet.
func (l *loop) askLater(sess *session, t core.Token) {
	if l.shards[t.Shard] == nil && len(sess.unresolved) < maxUnresolved {
		sess.unresolved[t] = struct{}{}
	}
}

// apply hands a worker's events to their shards. One without its shard here is for
// the next owner: the worker keeps it until it is acknowledged.
func (l *loop) apply(events []ShardEvent) {
	for _, e := range events {
		if s := l.shards[e.Token.Shard]; s != nil {
			l.step(s, e.Event)
		} else if told := l.loading[e.Token.Shard]; told != nil && len(told.events) < maxLoadingEvents {
			told.events = append(told.events, e)
		}
	}
}

// credit takes what a worker says of the work that it wants.
func (l *loop) credit(worker *core.Worker, r Report) {
	if r.Draining {
		worker.Draining = true
		l.workers.Silence(worker)
	} else if r.Credit > 0 && !worker.Draining {
		l.workers.AddCredit(worker, r.Credit)
	}
	if r.Reclaim > 0 {
		l.send(worker.Key, core.Reclaimed{Credit: l.workers.Reclaim(worker, r.Reclaim)})
	}
}

// wantedEvery is the least time between two looks at what workers want: often enough for them to
// move their credit within a second.
const wantedEvery = 100 * time.Millisecond

// tellWanted tells workers that gave too little credit how much work waits for them here: when
// some begins to wait or none does any more, and when it is twice or half of what they know.
func (l *loop) tellWanted() {
	if l.now < l.wantedAt || l.wantedSeen == l.workers.Changes() {
		return
	}
	l.wantedAt, l.wantedSeen = l.now.Add(wantedEvery), l.workers.Changes()
	for id, sess := range l.streams {
		worker := l.workers.Get(id)
		if !sess.moves || worker == nil {
			continue
		}
		if n := l.workers.Wanted(worker); worthTelling(n, sess.wanted) {
			sess.wanted = n
			l.send(sess.key, core.Wanted{Slots: n})
		}
	}
}

func worthTelling(wanted, told int) bool {
	if wanted == 0 || told == 0 {
		return wanted != told
	}
	return wanted >= 2*told || told >= 2*wanted
}

// Disconnect says that a stream is gone. That alone loses no lease: the worker
// may come back with what it holds.
func (n *Node) Disconnect(ctx context.Context, key core.WorkerKey, stream Stream) {
	// An error means that the loop has ended, and the session with it.
	_ = n.post(ctx, func(l *loop) {
		if sess := l.streams[key.ID]; sess != nil && sess.stream == stream {
			l.disconnect(sess)
		}
	})
}

func (l *loop) disconnect(sess *session) {
	sess.stream.Close(fmt.Errorf("the stream of worker %s ended", sess.key.ID))
	if l.streams[sess.key.ID] == sess {
		delete(l.streams, sess.key.ID)
		if worker := l.workers.Get(sess.key.ID); worker != nil {
			if sess.stream.Heard() { // it may have been answered
				worker.LeaseUntil = l.now.Add(l.cfg.Core.Lease)
			}
			l.workers.Silence(worker)
		}
	}
	messages := l.outgo[sess]
	delete(l.outgo, sess)
	l.undeliverable(messages)
}

// expireLeases takes the attempts of workers that were silent for too long.
func (l *loop) expireLeases() {
	if l.now < l.leasesAt {
		return
	}
	l.leasesAt = l.now.Add(leaseCheckEvery)
	for id, w := range l.workers.All() {
		if sess := l.streams[id]; sess != nil && sess.stream.Heard() {
			w.LeaseUntil = l.now.Add(l.cfg.Core.Lease)
		}
		if w.LeaseUntil > l.now {
			continue
		}
		if sess := l.streams[id]; sess != nil && sess.poll != nil {
			l.keepPoll(sess, w)
			continue
		}
		if sess := l.streams[id]; sess != nil {
			if l.disconnect(sess); w.LeaseUntil > l.now {
				continue // it was heard at the last moment
			}
		}
		l.expire(w)
	}
	l.expireUnary()
}

// expire takes from a worker what it holds, but for attempts that have leases of their own.
func (l *loop) expire(w *core.Worker) {
	l.workers.Remove(w.Key.ID)
	u := l.unary[w.Key]
	if u == nil {
		l.cfg.Log.Warn("a worker's lease ended", "worker", w.Key.ID, "incarnation", w.Key.Incarnation)
		l.cfg.Observer.LeaseExpired()
		l.lost(w.Key, nil)
		return
	}
	holds := make(map[job.SlotKey]int32, len(u.leases))
	for t := range u.leases {
		holds[t.Key] = t.Attempt
	}
	l.lost(w.Key, holds)
}
