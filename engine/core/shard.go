package core

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/engine/wheel"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// Shard is the state machine of one shard under one epoch. Its methods must be
// called by one goroutine at a time.
type Shard struct {
	cfg     Config
	proof   shard.Proof
	workers *Workers

	now          job.Instant // of the latest step
	firedTo      job.Instant // everything up to it has its slot, in memory or in a gap
	watermark    job.Instant // the newest that a batch carried
	openFrom     job.Instant
	openFromSent job.Instant // what a batch carried of it
	opened       bool        // the gap of the time before the take-over is durable
	behind       bool        // too much waits to be written: nothing is fired
	leaving      bool        // nothing is fired and claimed any more
	last         bool        // the batch that ends the ownership was made

	wheel    *wheel.Wheel[timer]
	expired  []timer // reused
	jobs     jobTable
	slots    map[job.SlotKey]*slotState
	running  map[WorkerKey]map[*slotState]struct{}
	queues   map[string]*queue
	lanes    map[job.UID]*lane
	deep     map[job.UID]*lane // those of which slots wait in the backlog
	checks   checks
	watch    watch
	stops    stops
	slotRefs refTable[slotState]
	gaps     []*gapState
	once     onceWindow
	reads    readState
	retain   retention

	lastEnd    job.Instant // the latest end of a job: its name's next job begins after it
	lastUnique job.Instant // the newest fire time with microseconds
	eventSeq   int64
	markedAt   job.Instant // when the watermark was last carried
	movedAt    job.Instant // when openFrom was last moved

	pending     pending
	inflight    *Batch
	outbox      []Message   // may leave at once
	requestedAt job.Instant // of the slots that are made for a person
	refilling   bool        // slots come to their lines from the backlog, in their turn
	fault       error       // an impossible step: the shard must be loaded anew
}

// slotState is a slot in memory, and what the database holds of it.
type slotState struct {
	row job.Slot
	job *jobState
	ref uint32

	stored        bool // the database has a row
	inserting     bool // as soon as the batch under way is written, and unless it has another one
	storedState   job.State
	storedAttempt int32
	dirty         bool
	messages      []Message         // leave with the next write
	backlog       *store.BacklogKey // the row that the database has in the backlog
	displaced     bool              // leaves memory once written
	relist        bool              // whether it has a row in the backlog is not known
	listed        bool              // it was displaced, and its row in the backlog is written
	ended         []job.Attempt     // attempts that ended since, without ending the slot
	previous      *accepted         // the newest result that was accepted and did not end the slot

	timer    wheel.Timer
	check    wheel.Timer // its next deadline or objective
	touched  bool        // something else than its state or attempt is to be written
	lined    bool        // it waits for a place in its job's lane
	placed   bool        // it has one
	doomed   bool        // a newer slot takes its place once its attempt has ended
	queued   bool        // it is counted in its queue, and stands in the heap
	asleep   bool        // it is counted in its queue, and waits for its not-before
	unsent   bool        // claimed, but its worker doesn't know yet
	attested bool        // its worker is known to hold it
	until    job.Instant // its attempt's end, if it was sent so late that the row's deadline is too early
	started  job.Instant
	noted    job.Instant // when its notes were stored last
	reported int64       // the newest report of its attempt
}

// accepted names a result.
type accepted struct {
	worker  WorkerKey
	token   Token
	outcome job.Outcome
}

// timerKind says what a timer is for.
type timerKind uint8

const (
	timerFire    timerKind = iota + 1 // of a job: its next occurrence
	timerReady                        // of a slot: its not-before instant
	timerTimeout                      // of a slot: its attempt's end
	timerAttest                       // of a slot: nobody vouched for it
	timerCheck                        // of a slot: its next deadline or objective
)

// timer is what the wheel holds: a kind and an index, no pointer.
type timer struct {
	kind timerKind
	ref  uint32
}

// New builds a shard from what its take-over and its load returned. Nothing fires
// before the first batch is committed: it makes a gap of the time since the
// watermark.
func New(cfg Config, owned store.Owned, loaded store.Loaded, workers *Workers, now job.Instant) *Shard {
	s := &Shard{
		cfg: cfg, proof: owned.Proof, workers: workers,
		now: now, firedTo: max(now, owned.Watermark), watermark: owned.Watermark, openFrom: owned.OpenFrom, openFromSent: owned.OpenFrom,
		wheel:   wheel.New[timer](now.Milliseconds()),
		slots:   map[job.SlotKey]*slotState{},
		running: map[WorkerKey]map[*slotState]struct{}{}, queues: map[string]*queue{}, lanes: map[job.UID]*lane{}, deep: map[job.UID]*lane{},
		checks:  checks{at: job.MaxInstant},
		movedAt: now, lastUnique: now,
	}
	s.startRetention(owned.RetainedFrom)
	s.note(store.EventShardTaken, job.UID{}, 0, "epoch taken over")
	s.loadGaps(loaded.Gaps, owned.Watermark)
	for i := range loaded.Recurring {
		s.loadJob(&loaded.Recurring[i])
	}
	for _, c := range loaded.Backlog {
		if c.Fairness != "" {
			s.loadLane(c)
			continue
		}
		s.queue(c.Handler).tier(c.Priority).backlogStats = backlogStats{rows: c.Rows, wakeAt: c.WakeAt}
	}
	if loaded.CheckAt != 0 {
		s.checks.at = loaded.CheckAt
	}
	for i := range loaded.Claimed {
		s.adopt(loaded.Claimed[i].Slot, &loaded.Claimed[i].Job, true)
	}
	s.loadOpen(loaded.Open)
	s.once = onceWindow{to: lastKeyOf(s.firedTo)}
	s.pending.opening, s.reads.inboxWanted = true, true
	return s
}

// loadOpen takes up the open slots that aren't in the backlog: first those that run, and
// hold their jobs' places; then all that wait, before it is decided who is the first.
func (s *Shard) loadOpen(open []store.SlotOf) {
	s.refilling = true
	for _, state := range []job.State{job.Running, job.Ready} {
		for i := range open {
			if open[i].Slot.State == state {
				s.adopt(open[i].Slot, &open[i].Job, false)
			}
		}
	}
	s.refilling = false
	for _, uid := range slices.SortedFunc(maps.Keys(s.lanes), func(a, b job.UID) int { return bytes.Compare(a[:], b[:]) }) {
		s.advanceLane(s.lanes[uid])
	}
}

// CanRead reports whether every recurring job of a shard is of a dialect that this program
// knows. If one isn't, the shard is for a newer program: to leave the job out would be to
// lose its occurrences.
func CanRead(loaded store.Loaded) error {
	for i := range loaded.Recurring {
		j := &loaded.Recurring[i]
		if _, err := j.Schedule.Recurrence(); errors.Is(err, job.ErrDialect) && j.Quarantine == "" {
			return fmt.Errorf("job %s of %s: %w", j.Name, j.Namespace, err)
		}
	}
	return nil
}

// Proof returns the shard's proof of ownership.
func (s *Shard) Proof() shard.Proof { return s.proof }

// Live reports whether the shard fires.
func (s *Shard) Live() bool { return s.opened && !s.leaving }

// loadJob arms a recurring job, or sets it aside if its row can't be used.
func (s *Shard) loadJob(j *job.Job) {
	if j.Quarantine != "" {
		s.quarantine(j.UID, j.Quarantine)
		return
	}
	state, err := s.addJob(j)
	if err != nil {
		s.quarantine(j.UID, "its stored schedule can't be used: "+err.Error())
		return
	}
	state.live = state.endedAt == 0
	s.arm(state, max(s.firedTo, state.effectiveFrom))
}

// quarantine sets a job aside: it fires no more, and its slots stay as they are.
func (s *Shard) quarantine(uid job.UID, reason string) {
	reason = job.CleanText([]byte(reason), job.MaxErrorBytes)
	s.pending.rows.Quarantines = append(s.pending.rows.Quarantines, store.JobQuarantine{UID: uid, Reason: reason})
	s.note(store.EventJobQuarantined, uid, 0, reason)
	if j := s.jobs.get(uid); j != nil {
		j.live, j.aside = false, true
		s.wheel.Cancel(j.timer)
		s.dropJob(j)
	}
}

func (s *Shard) queue(handler string) *queue {
	q := s.queues[handler]
	if q == nil {
		q = &queue{node: s.workers.waitingOf(handler)}
		s.queues[handler] = q
	}
	return q
}

// note appends an event to the next batch.
func (s *Shard) note(kind store.EventKind, uid job.UID, fire job.Instant, detail string) {
	s.eventSeq++
	s.pending.rows.Events = append(s.pending.rows.Events,
		store.Event{Seq: s.eventSeq, At: s.now, Kind: kind, Job: uid, Fire: fire, Detail: detail})
}

// Event is something that happens to a shard.
type Event interface{ apply(s *Shard) }

// Tick is the event in which nothing happens but time.
type Tick struct{}

func (Tick) apply(*Shard) {}

// Step moves the shard to now, which fires what is due, and applies the event.
// Time never goes back: an earlier now counts as the latest one.
func (s *Shard) Step(now job.Instant, e Event) {
	s.now = max(s.now, now)
	if s.last { // nothing can be written any more
		if c, ok := e.(Committed); ok {
			c.apply(s)
		}
		return
	}
	s.advance()
	e.apply(s)
	s.advance() // what the event armed may be due already
	s.lookAround()
	s.overdueStops()
}

// Messages returns what may leave at once, and forgets it.
func (s *Shard) Messages() []Message {
	out := s.outbox
	s.outbox = nil
	return out
}

// advance fires everything that is due.
func (s *Shard) advance() {
	if !s.Live() {
		return
	}
	tick := s.now.Milliseconds()
	if job.Instant(tick*1000) > s.now {
		tick-- // the tick that has fully passed
	}
	const step = 1024
	s.behind = false
	for {
		if len(s.pending.dirty) >= s.cfg.PendingLimit {
			s.behind = true
			return
		}
		// What fires may arm a timer that is due, too: after a stall, a job's next
		// occurrence. So it is over only when nothing expires.
		s.expired, _ = s.wheel.Advance(tick, step, s.expired[:0])
		if len(s.expired) == 0 {
			break
		}
		for _, t := range s.expired {
			s.expire(t)
		}
	}
	s.firedTo = max(s.firedTo, job.Instant(tick*1000))
}

func (s *Shard) expire(t timer) {
	if t.kind == timerFire {
		if j := s.jobs.at(t.ref); j != nil {
			s.fire(j)
		}
		return
	}
	slot := s.slotRefs.items[t.ref]
	switch {
	case slot == nil:
	case t.kind == timerReady:
		s.queue(slot.job.spec.handler).leave(slot)
		s.enqueue(slot)
	case t.kind == timerTimeout:
		s.timeOut(slot)
	case t.kind == timerAttest:
		s.unattested(slot)
	case t.kind == timerCheck:
		s.check(slot)
	}
}

// NextWake returns when the shard wants to step if nothing else happens.
func (s *Shard) NextWake() job.Instant {
	if !s.Live() {
		return job.MaxInstant // the end of its first batch wakes it, or of its last ones
	}
	wake := min(s.markedAt.Add(s.cfg.WatermarkEvery), s.retainWake())
	if at, ok := s.wheel.Next(); ok && !s.behind {
		wake = min(wake, job.Instant(at)*1000)
	}
	return wake
}
