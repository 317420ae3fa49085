package workersdk

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Rhythm of the loop.
const (
	minTick = 10 * time.Millisecond
	maxTick = 100 * time.Millisecond
	// idleTick is that of a worker without work.
	idleTick = 300 * time.Millisecond
	// stuckGrace is how long after its timeout a handler may still return by itself.
	// The node waits for two seconds.
	stuckGrace = time.Second
	// maxEvents is how much may wait for the loop before senders of events wait; and
	// how many it takes before it looks at the clock and the stream again.
	maxEvents = 256
)

// loop is the worker's state. All fields belong to run's goroutine, but for the
// channels and what is set before it begins.
type loop struct {
	w          *Worker
	log        *slog.Logger
	newContext func(deadline time.Time) (context.Context, context.CancelCauseFunc, context.CancelFunc)
	events     chan func()
	ended      chan struct{}
	ticker     *time.Ticker
	paced      time.Duration // the ticker's pause

	links          []*link // one for each node, and one that looks for a node if there is none
	startConnector func(*link)
	seenAt         time.Time       // when a node was there last
	cluster        string          // its id, as far as it was told
	membersAsOf    [2]int64        // generation and revision of the newest list of nodes
	owners         map[int32]owner // of each shard
	gifts          int64           // counts those of credit

	lease, interval time.Duration // of the newest welcome; zero before the first

	attempts map[key]*attempt // all that take a place of the capacity
	reported int              // of attempts: those whose result is made
	results  results
	recent   recent

	storesNotes atomic.Bool // whether the nodes do; read by handlers

	phase   phase
	phaseBy time.Time // when the phase ends at the latest
	failure error     // a refusal for good
}

func newLoop(w *Worker) *loop {
	return &loop{
		w: w, log: w.cfg.log.With("worker", w.cfg.id),
		events: make(chan func(), maxEvents), ended: make(chan struct{}),
		attempts: map[key]*attempt{}, results: results{waiting: map[key]*pending{}}, owners: map[int32]owner{},
	}
}

// post hands an event to the loop; after the loop's end it is dropped.
func (l *loop) post(event func()) {
	select {
	case l.events <- event:
	case <-l.ended:
	}
}

// run is the loop. It ends when the shutdown that ctx's end begins is done, or once
// the node has refused the worker.
func (l *loop) run(ctx context.Context) error {
	defer close(l.ended)
	l.ticker = time.NewTicker(maxTick)
	defer l.ticker.Stop()
	stop := ctx.Done()
	l.seenAt = time.Now()
	l.open("", "", l.w.targets...)
	for l.phase != over {
		select {
		case event := <-l.events:
			event()
			l.drainEvents()
		case <-l.ticker.C:
			l.tick(time.Now())
		case <-stop:
			stop = nil
			l.beginShutdown()
		}
		l.advance(time.Now())
		l.balance()
		l.flush()
		l.pace()
	}
	return l.failure
}

func (l *loop) drainEvents() {
	for range maxEvents {
		select {
		case event := <-l.events:
			event()
		default:
			return
		}
	}
}

// tick does what depends on time.
func (l *loop) tick(now time.Time) {
	for _, k := range l.links {
		l.watch(k.session, now)
		l.watch(k.next, now)
	}
	l.seek(now)
	l.tidy()
	l.checkLeases(now)
	l.askAgain(now)
	l.checkTimeouts(now)
	l.collectProgress(now)
	l.sendAgain(now)
}

// assigned takes an assignment, which has used up one credit of its stream.
func (l *loop) assigned(s *session, m *carillonv1.Assignment) {
	a := l.newAttempt(m)
	if l.attempts[a.key] != nil || l.results.waiting[a.key] != nil || l.recent.holds(a.key) {
		if old := l.attempts[a.key]; l.current(s, a.key.shard, m.GetEpoch()) && old != nil && m.GetEpoch() != 0 && old.held() {
			old.voucher = s // sent twice, the second time by a new owner
		}
		return
	}
	switch {
	case !l.current(s, a.key.shard, cmp.Or(m.GetEpoch(), a.key.epoch)):
		l.refuse(a, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED, codeOldEpoch, "it came from a node that no longer owns the shard")
	case l.phase != serving:
		l.refuse(a, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED, codeShutdown, ErrShutdown.Error())
	case len(l.attempts) >= l.w.cfg.capacity:
		l.log.Warn("an attempt came beyond the capacity and was handed back", "slot", a.slot)
		l.refuse(a, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED, codeOverCapacity, "the worker was full")
	case a.handler == nil:
		l.refuse(a, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED, codeUnknownHandler, "the worker has no handler "+clean(m.GetHandler(), maxCodeBytes))
	case a.handler.full():
		l.hold(a, s)
		a.handler.waiting = append(a.handler.waiting, a)
	default:
		l.hold(a, s)
		l.start(a)
	}
}

// hold lets an attempt take a place of the capacity, under the lease of its stream.
func (l *loop) hold(a *attempt, s *session) {
	l.attempts[a.key] = a
	a.voucher, a.link = s, s.link
	a.link.running++
}

func (l *loop) newAttempt(m *carillonv1.Assignment) *attempt {
	a := &attempt{
		key: keyOf(m.GetToken()), handler: l.w.handlers[m.GetHandler()], slot: m.GetSlot(),
		params: []byte(m.GetParams().GetText()), trigger: triggerName(m.GetTrigger()), maxAttempts: int(m.GetMaxAttempts()),
		checkpoint: m.GetCheckpoint(),
	}
	if d := m.GetTimeout().AsDuration(); d > 0 {
		a.deadline = time.Now().Add(d)
	}
	a.logger = l.log.With("handler", m.GetHandler(), "slot", a.slot, "attempt", a.key.attempt)
	a.cfg = &l.w.cfg
	a.taskLogger, a.storesNotes = a.notes.logger(a.logger), l.storesNotes.Load
	return a
}

func triggerName(t carillonv1.SlotTrigger) string {
	switch t {
	case carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE:
		return "schedule"
	case carillonv1.SlotTrigger_SLOT_TRIGGER_IMMEDIATE:
		return "immediate"
	case carillonv1.SlotTrigger_SLOT_TRIGGER_MANUAL:
		return "manual"
	case carillonv1.SlotTrigger_SLOT_TRIGGER_BACKFILL:
		return "backfill"
	}
	return "unknown"
}

// refuse answers an assignment that is not taken.
func (l *loop) refuse(a *attempt, outcome carillonv1.AttemptOutcome, code, why string) {
	l.addResult(a.key, &carillonv1.AttemptResult{Token: a.key.token(), Outcome: outcome, ErrorCode: code, ErrorMessage: []byte(why)})
}

func (l *loop) start(a *attempt) {
	a.state = running
	a.handler.running++
	if own := time.Now().Add(a.handler.timeout); a.handler.timeout > 0 && (a.deadline.IsZero() || own.Before(a.deadline)) {
		a.deadline = own
	}
	ctx, cancel, release := l.newContext(a.deadline)
	a.cancel, a.release = cancel, release
	began := func(at time.Time, goroutine uint64) {
		l.post(func() {
			a.startedAt, a.goroutine = at, goroutine
			if s := l.ownerOf(a.key.shard); s != nil { // else the next hello tells it
				s.started = append(s.started, a)
			}
		})
	}
	// It ends by its event, which the shutdown awaits; only one that ignores its
	// context is left behind.
	go a.execute(ctx, began, func(e ending) { l.post(func() { l.returned(a, e) }) })
}

// returned takes a handler's return.
func (l *loop) returned(a *attempt, e ending) {
	a.release()
	if a.state == reported {
		a.logger.Warn("a handler that had been given up returned", "succeeded", e.failure == nil)
	} else if r := a.result(e); r != nil {
		l.addResult(a.key, r)
	}
	l.free(a)
	h := a.handler
	h.running--
	for !h.full() {
		next := h.next()
		if next == nil {
			break
		}
		l.start(next)
	}
}

// free gives back an attempt's place of the capacity.
func (l *loop) free(a *attempt) {
	if a.state == reported {
		l.reported--
	}
	a.state = gone
	a.link.running--
	delete(l.attempts, a.key)
	l.recent.add(a.key)
}

// giveUp makes a running attempt's result without waiting for its handler.
func (l *loop) giveUp(a *attempt, outcome carillonv1.AttemptOutcome, code, text string) {
	r := &carillonv1.AttemptResult{Token: a.key.token(), Outcome: outcome, ErrorCode: code, ErrorMessage: cut(text, maxErrorBytes)}
	if !a.startedAt.IsZero() {
		r.StartTime = timestamppb.New(a.startedAt)
	}
	a.notes.last(r)
	a.state = reported
	l.reported++
	if a.judged == unjudged {
		l.addResult(a.key, r)
	}
}

// stop ends an attempt for a cause: its context, or at once if it never began.
func (l *loop) stop(a *attempt, cause error, judged judgement) {
	a.judged = max(a.judged, judged)
	switch a.state {
	case waiting:
		if r := a.result(unstarted(cause)); r != nil {
			l.addResult(a.key, r)
		}
		l.free(a)
		a.handler.passOver()
	case running, reported:
		a.cancel(cause)
	}
}

// checkTimeouts ends what waits beyond its timeout, and reports handlers that go on
// beyond theirs.
func (l *loop) checkTimeouts(now time.Time) {
	var stuck []*attempt
	for _, a := range l.attempts {
		switch {
		case a.deadline.IsZero() || a.deadline.After(now):
		case a.state == waiting:
			l.stop(a, ErrTimeout, unjudged)
		case a.state == running && now.Sub(a.deadline) >= stuckGrace:
			stuck = append(stuck, a)
		}
	}
	if len(stuck) == 0 {
		return
	}
	dump := dumpGoroutines()
	for _, a := range stuck {
		text := "the handler ignored the end of its context; its stack can't be told"
		if stack := stackIn(dump, a.goroutine); stack != nil {
			text = "the handler ignored the end of its context; it is here:\n\n" + string(stack)
		}
		a.logger.Error("a handler is stuck; its place stays taken until it returns")
		l.giveUp(a, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_TIMED_OUT, codeStuck, text)
	}
}

// collectProgress takes the newest of what each handler says of itself, once the last
// reports are sent.
func (l *loop) collectProgress(now time.Time) {
	behind := map[*session]bool{nil: true}
	for _, k := range l.links {
		behind[k.session] = !k.session.up() || len(k.session.reports) > 0
	}
	for _, a := range l.attempts {
		if s := l.ownerOf(a.key.shard); a.state == running && a.judged == unjudged && !behind[s] {
			if r := a.notes.report(now, l.storesNotes.Load()); r != nil {
				r.Token = a.key.token()
				s.reports = append(s.reports, r)
			}
		}
	}
}
