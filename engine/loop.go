package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// loop is the state of a node's one goroutine. Its fields belong to run, but for
// the channels.
type loop struct {
	node    *Node
	cfg     *Config
	shards  map[shard.ID]*core.Shard
	order   []shard.ID // of shards, ascending
	turn    int        // whose slots are dispatched first
	workers *core.Workers
	streams map[string]*session // by worker id
	unary   map[core.WorkerKey]*unary
	ending  []*session // polls that end once nothing is under way for them
	calls   map[uint64]call
	awaited map[awaited]chan<- core.Ack
	claims  map[shard.ID]store.Claim // under which this node took its shards
	loading map[shard.ID]*loading    // shards that are this node's, and not loaded yet
	reloads map[shard.ID]shard.Proof // shards that are to be loaded anew, and instead of which epoch
	leaving map[shard.ID]int64       // shards that are given up, with the revisions of the coordinator's word
	lastTag uint64
	outgo   map[*session][]core.Message

	commits   chan *group
	committed chan *group
	inflight  *group
	tries     int64 // commits that were sent again; the committer's
	reads     chan readJob
	unread    []readJob // wait for a reader: the loop itself never waits for one
	reading   int       // reads that a reader has
	retention retention
	loads     chan loadJob
	unloaded  []loadJob    // wait for the loader
	loaded    atomic.Int64 // jobs, by all loaders

	proof     *proof
	clock     clock.Clock
	alarmed   bool // the clocks disagree
	now       job.Instant
	leasesAt  job.Instant // when leases are looked at next
	wantedAt  job.Instant // when it is looked at what workers want, at the earliest
	inboxAt   job.Instant
	inboxBusy bool
	plannedAt job.Instant // when the loop meant to wake
	handing   bool        // the shards are being handed over, before the node drains
	draining  bool

	wantedSeen uint64 // of the registry's changes
}

// Times of the loop.
const (
	leaseCheckEvery = 250 * time.Millisecond
	maxSleep        = time.Second
	// reloadDelay keeps a shard that makes false steps from being loaded in a circle.
	reloadDelay = time.Second
	// maxRequestsPerTurn bounds how many requests are taken before timers and
	// commits get their turn.
	maxRequestsPerTurn = 256
)

func newLoop(n *Node) *loop {
	return &loop{
		node: n, cfg: &n.cfg, proof: &n.proof, clock: clock.New(n.cfg.Clock),
		shards: map[shard.ID]*core.Shard{}, workers: core.NewWorkers(), streams: map[string]*session{},
		unary: map[core.WorkerKey]*unary{}, awaited: map[awaited]chan<- core.Ack{},
		calls: map[uint64]call{}, claims: map[shard.ID]store.Claim{}, loading: map[shard.ID]*loading{}, reloads: map[shard.ID]shard.Proof{}, leaving: map[shard.ID]int64{}, outgo: map[*session][]core.Message{},
		commits: make(chan *group, 1), committed: make(chan *group, 1),
		reads: make(chan readJob), loads: make(chan loadJob),
	}
}

// run is the loop. It goes on after ctx has ended until what runs has ended or
// DrainTimeout is over.
func (l *loop) run(ctx, work context.Context) error {
	defer close(l.node.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	var deadline <-chan time.Time
	for {
		readers, read := l.nextRead()
		loader, load := l.nextLoad()
		select {
		case r := <-l.node.requests:
			l.wake()
			l.serve(r)
		case readers <- read:
			l.handedOut()
			continue
		case loader <- load:
			l.unloaded = l.unloaded[1:]
			continue
		case g := <-l.committed:
			l.wake()
			l.finishGroup(g)
		case <-timer.C:
			l.wake()
		case <-stop:
			l.wake()
			stop = nil
			grace := time.NewTimer(l.leave())
			defer grace.Stop()
			deadline = grace.C
		case <-deadline:
			if !l.handing {
				l.hangUp()
				return nil
			}
			l.wake()
			l.cfg.Log.Warn("not all shards were handed over in time", "shards", len(l.shards))
			deadline = time.After(l.drain())
		case <-work.Done():
			return work.Err()
		}
		l.turnOnce()
		// Those who could take the shards may end, too.
		if l.handing && (len(l.shards) == 0 || !l.node.coord.Leave()) {
			deadline = time.After(l.drain())
		}
		if l.draining && l.idle() {
			l.hangUp()
			return nil
		}
		timer.Reset(l.sleep())
	}
}

// handedOut notes that a reader took what nextRead offered.
func (l *loop) handedOut() {
	l.reading++
	if len(l.unread) > 0 {
		l.unread = l.unread[1:]
		return
	}
	r := &l.retention
	r.under, r.waiting = &r.waiting[0], r.waiting[1:]
}

// nextRead returns a channel only if there is something to read.
func (l *loop) nextRead() (chan<- readJob, readJob) {
	if len(l.unread) == 0 {
		if r := &l.retention; r.under == nil && len(r.waiting) > 0 {
			return l.reads, r.waiting[0]
		}
		return nil, readJob{}
	}
	return l.reads, l.unread[0]
}

// nextLoad returns a channel only if there is something to load.
func (l *loop) nextLoad() (chan<- loadJob, loadJob) {
	if len(l.unloaded) == 0 {
		return nil, loadJob{}
	}
	return l.loads, l.unloaded[0]
}

// wake notes the time. A loop that was stalled has not heard its workers: all of
// them get a new lease before anyone is judged.
func (l *loop) wake() {
	l.now = max(l.now, l.time())
	if _, simulated := l.cfg.Clock.(*clock.Simulated); simulated {
		l.keepConnected() // it was set ahead, and nothing stood still
		return
	}
	if l.plannedAt != 0 && l.now.Sub(l.plannedAt) > maxStall && !l.draining {
		l.cfg.Log.Warn("the loop stood still; all shards are loaded anew", "stalled_seconds", l.now.Sub(l.plannedAt).Seconds())
		l.reloadAll()
		return
	}
	if l.plannedAt != 0 && l.now.Sub(l.plannedAt) > l.cfg.Core.Lease/3 {
		l.cfg.Log.Warn("the loop was stalled; all leases are renewed", "stalled_seconds", l.now.Sub(l.plannedAt).Seconds())
		for _, w := range l.workers.All() {
			w.LeaseUntil = max(w.LeaseUntil, l.now.Add(l.cfg.Core.Lease))
		}
		l.renewUnary()
	}
}

// serve takes a request and those that wait behind it.
func (l *loop) serve(r request) {
	r(l)
	for range maxRequestsPerTurn {
		select {
		case r := <-l.node.requests:
			r(l)
		default:
			return
		}
	}
}

// turnOnce does all that is due.
func (l *loop) turnOnce() {
	l.expireLeases()
	l.askInboxes()
	for _, id := range l.order {
		if s := l.shards[id]; s != nil && s.NextWake() <= l.now {
			l.step(s, core.Tick{})
		}
	}
	l.dispatch()
	l.startReads() // before the group: a shard that fills a gap always has a batch under way
	l.startGroup()
	l.tellWanted()
	l.flush()
	l.endPolls()
}

// sleep returns how long nothing will be due.
func (l *loop) sleep() time.Duration {
	wake := l.now.Add(maxSleep)
	if l.inflight == nil { // else the commit's end wakes the loop, and nothing can leave before
		for _, id := range l.order {
			s := l.shards[id]
			wake = min(wake, s.NextWake())
			if s.HasPending() {
				wake = l.now // what came up while this turn's messages were delivered
			}
		}
	}
	if len(l.workers.All())+len(l.unary) > 0 {
		wake = min(wake, max(l.leasesAt, l.now))
	}
	if len(l.streams) > 0 && l.wantedSeen != l.workers.Changes() {
		wake = min(wake, max(l.wantedAt, l.now))
	}
	l.plannedAt = max(wake, l.now)
	// A clock that was set back must not make the loop sleep until the old time.
	return min(max(wake.Sub(l.time()), 0), maxSleep)
}

// step drives one shard, and takes what it has to say.
func (l *loop) step(s *core.Shard, e core.Event) {
	s.Step(l.now, e)
	l.collect(s)
	l.dropFaulty(s)
}

// dropFaulty has a shard loaded anew that made a false step.
func (l *loop) dropFaulty(s *core.Shard) {
	if err := s.Fault(); err != nil {
		l.cfg.Log.Error("a shard made a false step and is loaded anew", "shard", s.Proof().Shard, "error", err)
		l.reload(s.Proof().Shard, reloadDelay)
	}
}

// collect takes a shard's messages.
func (l *loop) collect(s *core.Shard) {
	for {
		messages := s.Messages()
		if len(messages) == 0 {
			return
		}
		for _, m := range messages {
			l.deliver(s, m)
		}
	}
}

// deliver hands a message on: to a call that waits, to the observer, or to a
// worker's stream.
func (l *loop) deliver(s *core.Shard, m core.Message) {
	switch m := m.(type) {
	case core.Reply:
		l.answer(m)
	case core.Observation:
		l.cfg.Observer.Observe(m)
	case core.Assign:
		m.By = s.Proof().Epoch
		// A worker that drains was told how much of its credit came back: nothing follows that.
		if w := l.workers.Get(m.Worker.ID); w != nil && w.Draining || !l.send(m.Worker, m) {
			s.Step(l.now, core.Undeliverable{Worker: m.Worker, Token: m.Token})
		}
	case core.Ack:
		m.By = s.Proof().Epoch
		l.acknowledge(m)
	case core.Noted:
		m.By = s.Proof().Epoch
		l.noted(m)
	case core.Stop:
		m.By = s.Proof().Epoch
		l.send(m.Worker, m)
	}
}

// send puts a message for a worker into this turn's delivery.
func (l *loop) send(key core.WorkerKey, m core.Message) bool {
	sess := l.streams[key.ID]
	if sess == nil || sess.key != key {
		return false
	}
	l.outgo[sess] = append(l.outgo[sess], m)
	if a, ok := m.(core.Assign); ok && sess.poll != nil {
		sess.poll.handed = append(sess.poll.handed, a.Token)
	}
	return true
}

// flush delivers what this turn has for each worker, at once.
func (l *loop) flush() {
	for sess, messages := range l.outgo {
		delete(l.outgo, sess)
		if !sess.stream.Deliver(messages) {
			l.cfg.Log.Warn("a worker's stream takes nothing any more: it has ended, or is read too slowly", "worker", sess.key.ID)
			l.disconnect(sess)
			l.undeliverable(messages)
		}
	}
}

// undeliverable takes back the assignments that a closed stream didn't take.
func (l *loop) undeliverable(messages []core.Message) {
	for _, m := range messages {
		if a, ok := m.(core.Assign); ok {
			if s := l.shards[a.Token.Shard]; s != nil {
				l.step(s, core.Undeliverable{Worker: a.Worker, Token: a.Token})
			}
		}
	}
}

// dispatch gives new credit to waiting slots, one for each shard in turn.
func (l *loop) dispatch() {
	for _, handler := range l.workers.Offered() {
		l.dispatchHandler(handler)
	}
}

func (l *loop) dispatchHandler(handler string) {
	for idle := 0; idle < len(l.order); {
		if _, free := l.workers.Serving(handler); free == 0 {
			return
		}
		l.turn = (l.turn + 1) % len(l.order)
		if s := l.shards[l.order[l.turn]]; s.Dispatch(handler) {
			idle = 0
		} else {
			idle++
		}
	}
}

// answer gives a reply to the call that waits for it.
func (l *loop) answer(r core.Reply) {
	if c, ok := l.calls[r.Tag]; ok {
		delete(l.calls, r.Tag)
		c.reply <- r // has room for its one reply
	}
}

// call is an API call that waits for a shard's reply.
type call struct {
	shard shard.ID
	reply chan core.Reply
}

// drop forgets a shard. Callers that wait for it get an error: whether what they asked for has
// happened is unknown. What its workers hold is asked about once a new state of the shard is
// loaded.
func (l *loop) drop(id shard.ID, reason error) {
	s := l.shards[id]
	if s == nil {
		return
	}
	s.Abandon()
	for worker, tokens := range s.Holders() {
		if sess := l.streams[worker.ID]; sess != nil && sess.key == worker {
			for _, t := range tokens {
				sess.unresolved[t] = struct{}{}
			}
		}
	}
	for tag, c := range l.calls {
		if c.shard == id {
			l.answer(core.Reply{Tag: tag, Err: reason})
		}
	}
	delete(l.shards, id)
	l.node.live[id].Store(false)
	l.reorder()
	l.cfg.Observer.ShardOwned(false)
}

func (l *loop) add(s *core.Shard) {
	id := s.Proof().Shard
	l.shards[id] = s
	l.node.live[id].Store(true)
	l.reorder()
	l.cfg.Observer.ShardOwned(true)
	told := l.loading[id]
	delete(l.loading, id)
	if told == nil || told.epoch != s.Proof().Epoch {
		l.announce(s.Proof())
	} else {
		l.apply(told.events) // a result may save work that an attestation would end
	}
	for _, sess := range l.streams {
		l.resolve(sess, s)
	}
}

// announce tells all workers that this node owns a shard.
func (l *loop) announce(p shard.Proof) {
	for _, sess := range l.streams {
		l.send(sess.key, core.Owned{Shard: p.Shard, Epoch: p.Epoch})
	}
}

// resolve attests what a worker presented before the shard was loaded, and sends it again what
// it should hold and did not present: the owner before may have died between the claim and
// its word.
func (l *loop) resolve(sess *session, s *core.Shard) {
	var asked []core.Token
	for t := range sess.unresolved {
		if t.Shard == s.Proof().Shard {
			asked = append(asked, t)
			delete(sess.unresolved, t)
		}
	}
	slices.SortFunc(asked, compareTokens)
	holds := make(map[job.SlotKey]int32, len(asked))
	for _, t := range asked {
		holds[t.Key] = t.Attempt
		l.answerHeld(sess, t)
	}
	if worker := l.workers.Get(sess.key.ID); worker != nil {
		l.workers.AddCredit(worker, -s.SendAgain(sess.key, holds))
		l.collect(s)
	}
}

func (l *loop) reorder() {
	l.order = make([]shard.ID, 0, len(l.shards)) // somebody may be going through the old one
	for id := range shard.ID(l.cfg.Shards) {
		if l.shards[id] != nil {
			l.order = append(l.order, id)
		}
	}
	l.turn = 0
}

// askInboxes looks for jobs that were accepted without their owner.
func (l *loop) askInboxes() {
	if l.inboxBusy || l.now < l.inboxAt || len(l.order) == 0 {
		return
	}
	l.inboxBusy, l.inboxAt = true, l.now.Add(l.cfg.InboxEvery)
	l.unread = append(l.unread, readJob{inboxes: true})
}

// leave begins the end, and returns how long its first part may take: the shards are handed
// over to other nodes, which fire what is due meanwhile; if there can't be any, the node drains
// at once.
func (l *loop) leave() time.Duration {
	if !l.node.coord.Leave() {
		return l.drain()
	}
	l.cfg.Log.Info("handing the shards over", "shards", len(l.shards), "running", l.running())
	l.handing = true
	return l.cfg.HandoverTimeout
}

// drain ends the node's part: no claims any more. What runs may end. It returns how long
// that may take.
func (l *loop) drain() time.Duration {
	l.cfg.Log.Info("draining", "running", l.running())
	l.handing, l.draining = false, true
	l.workers.Pause()
	for _, sess := range l.streams {
		sess.stream.Drain()
	}
	return l.cfg.DrainTimeout
}

func (l *loop) running() int {
	n := 0
	for _, s := range l.shards {
		n += s.Running()
	}
	return n
}

// idle reports whether nothing runs and everything is written.
func (l *loop) idle() bool {
	if l.inflight != nil || l.running() > 0 || len(l.calls) > 0 {
		return false
	}
	for _, s := range l.shards {
		if s.HasPending() {
			return false
		}
	}
	return true
}

// hangUp ends all streams and calls. The attempts that still run belong to the
// next owner; their workers keep them for as long as their leases last.
func (l *loop) hangUp() {
	if n := l.running(); n > 0 {
		l.cfg.Log.Info("attempts go on without this node", "running", n)
	}
	for tag := range l.calls {
		l.answer(core.Reply{Tag: tag, Err: ErrStopping})
	}
	for _, sess := range l.streams {
		sess.stream.Close(ErrStopping)
	}
}

// stats sums up the shards.
func (l *loop) stats() Stats {
	st := Stats{Workers: len(l.streams)}
	for _, id := range l.order {
		s := l.shards[id].Stats()
		st.Owned++
		st.Jobs += s.Jobs
		st.Ready += s.Ready
		st.Running += s.Running
		st.Backlog += s.Backlog
		st.Timers += s.Timers
		st.Gaps += s.Gaps
		if s.OldestReady != 0 && (st.OldestReady == 0 || s.OldestReady < st.OldestReady) {
			st.OldestReady = s.OldestReady
		}
	}
	return st
}

// Stats is a node in numbers.
type Stats struct {
	Owned, Jobs, Ready, Running, Backlog, Timers, Gaps, Workers int
	OldestReady                                                 job.Instant
}

var errReload = fmt.Errorf("the shard is being loaded anew: %w", store.ErrUnavailable)
