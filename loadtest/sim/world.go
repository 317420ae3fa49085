package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
	"github.com/carillon-scheduler/carillon/loadtest/sim/model"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simetcd"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
	"github.com/carillon-scheduler/carillon/store"
)

// world is one run: a cluster in a bubble of time of its own, and what is known of it from elsewhere.
type world struct {
	seed    uint64
	dice    dice.Dice
	verbose bool // the log of the processes is in the trace, too
	shape

	tracer   *tracer
	net      *simnet.Network
	etcd     *simetcd.Etcd
	database *database
	nodes    []*node
	hosts    []*host // of workers
	clients  []*client
	history  *history
	gaps     bell
	healed   atomic.Bool   // no faults any more
	skewed   time.Duration // how far the database's clock is off at most

	mu       sync.Mutex // guards what follows
	ledger   checker.Ledger
	effects  []checker.Effect
	names    map[job.UID]string
	uids     map[string]job.UID // by their texts
	coverage map[string]int
	faults   []string // that are wrong, whoever finds them
	ending   []*life  // told to end, and not awaited yet
	randoms  map[string]uint64
	ended    map[job.UID]job.Instant
	rows     map[slotName]job.Slot // in the end
	pruned   []job.UID
}

// shape is how large a world is, and how its processes are set up.
type shape struct {
	shards    int
	retention time.Duration // zero: as usual
	bounds    bounds
}

// bounds are those of what a shard keeps in memory: small ones, so that all that goes on at a bound
// happens.
type bounds struct {
	ready, chunk, page, once, line int
	window, lag                    time.Duration
}

func newWorld(seed uint64, verbose bool) *world {
	d := dice.New(seed)
	w := &world{
		seed: seed, dice: d, verbose: verbose, tracer: &tracer{began: time.Now()}, net: simnet.New(d.For("network")),
		names: map[job.UID]string{}, uids: map[string]job.UID{}, coverage: map[string]int{}, randoms: map[string]uint64{}, ended: map[job.UID]job.Instant{}, rows: map[slotName]job.Slot{},
	}
	w.shape = newShape(d.For("shape"))
	w.history = newHistory(w)
	w.etcd = simetcd.New(w.net, d.For("etcd"))
	w.database = newDatabase(w)
	w.database.kept = model.New(w.database.now)
	for i := range dice.Pick(d.For("nodes"), 3, 3, 3, 3, 4, 4, 5) {
		name := fmt.Sprintf("node-%d", i+1)
		w.nodes = append(w.nodes, &node{w: w, name: name, clock: &hostClock{}, gen: 1})
	}
	for i := range dice.Pick(d.For("workers"), 2, 2, 3) {
		h := &host{w: w, name: fmt.Sprintf("worker-%d", i+1), capacity: 1 + d.For("capacity").At(uint64(i)).N(6), handlers: []string{"usual"}}
		if i > 0 {
			h.handlers = append(h.handlers, "rough")
		}
		w.hosts = append(w.hosts, h)
	}
	return w
}

func newShape(d dice.Dice) shape {
	s := shape{
		shards: 2 + d.For("shards").N(3),
		bounds: bounds{
			ready: 2 + d.For("ready").N(12), chunk: 1 + d.For("chunk").N(20)/dice.Pick(d.For("little"), 1, 8), page: 2 + d.For("page").N(10), once: 2 + d.For("once").N(6), line: 1 + d.For("line").N(6),
			window: d.For("window").Between(15*time.Second, time.Minute), lag: d.For("lag").Between(5*time.Second, 30*time.Second),
		},
	}
	if d.For("retains").Chance(0.5) {
		s.retention = d.For("retention").Between(30*time.Second, 3*time.Minute)
	}
	return s
}

// engineConfig is that of a node.
func (w *world) engineConfig(name string) engine.Config {
	cfg := engine.DefaultConfig(name, w.shards)
	c := &cfg.Core
	c.Random = func() float64 { return w.random(name) }
	c.ReadyLimit, c.GapChunk, c.PageLimit, c.OnceLimit, c.LineLimit = w.bounds.ready, w.bounds.chunk, w.bounds.page, w.bounds.once, w.bounds.line
	c.OnceWindow, c.OpenFromLag, c.OpenFromEvery = w.bounds.window, w.bounds.lag, 5*time.Second
	c.StalledAfter, c.UnservedAhead = 20*time.Second, 20*time.Second
	if w.retention > 0 {
		c.Retention, c.DeadRetention, c.EventRetention, c.NameRetention = w.retention, 2*w.retention, 2*w.retention, w.retention
		c.PassEvery, c.FullPassEvery = 5*time.Second, 30*time.Second
	}
	cfg.DrainTimeout = 2 * time.Second
	return cfg
}

// random is the next choice of a process that asks for one after the other.
func (w *world) random(who string) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.randoms[who]++
	return w.dice.For("random").For(who).At(w.randoms[who]).Float()
}

func (w *world) calm() bool { return w.healed.Load() }

// trace notes what happened.
func (w *world) trace(who, format string, args ...any) {
	w.tracer.add(who, fmt.Sprintf(format, args...))
}

// covered counts that something happened that a batch of runs must have seen.
func (w *world) covered(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.coverage[what]++
}

// wrong notes a fault that was found.
func (w *world) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.trace("WRONG", "%s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, text)
}

func (w *world) effect(e checker.Effect) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects = append(w.effects, e)
}

// lingering notes a life that was told to end.
func (w *world) lingering(l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = append(w.ending, l)
}

// named notes the name of a job.
func (w *world) named(j *job.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[j.UID], w.uids[j.UID.String()] = j.Name, j.UID
}

// uidOf reads the uid out of a task's key.
func (w *world) uidOf(key string) job.UID {
	text, _, _ := strings.Cut(key, "/")
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uids[text]
}

// slotText names a slot for people.
func (w *world) slotText(k job.SlotKey) string {
	w.mu.Lock()
	name := w.names[k.UID]
	w.mu.Unlock()
	return name + "@" + w.clockText(k.FireTime)
}

// clockText is an instant as the time since the run began.
func (w *world) clockText(at job.Instant) string {
	since := at.Sub(job.At(w.tracer.began))
	return fmt.Sprintf("%.6gs", since.Seconds())
}

func shortJob(resource string) string { return resource[strings.LastIndexByte(resource, '/')+1:] }

// observer counts what a node says that happened.
type observer struct {
	engine.Observer
	w   *world
	who string
}

// Observe implements engine.Observer.
func (o *observer) Observe(e core.Observation) {
	switch e.Kind {
	case core.SlotMade:
		o.w.covered("made " + triggerNames[e.Trigger])
	case core.AttemptEnded:
		o.w.covered("attempt " + e.Outcome.String())
	case core.SlotFinished:
		o.w.covered("slot " + e.State.String())
	case core.ResultRefused:
		o.w.covered("result refused")
	case core.ObjectiveMissed:
		o.w.covered("objective missed")
	case core.HandlerStalled:
		o.w.covered("handler stalled")
	case core.HandlerUnserved:
		o.w.covered("handler unserved")
	case core.CancelConfirmed:
		o.w.covered("cancel confirmed")
	case core.CancelIgnored:
		o.w.covered("cancel ignored")
	case core.RunTooLong:
		o.w.covered("run too long")
	}
	o.Observer.Observe(e)
}

var triggerNames = map[job.Trigger]string{
	job.TriggerSchedule: "by schedule", job.TriggerImmediate: "immediately", job.TriggerManual: "by hand", job.TriggerBackfill: "by backfill",
}

// FenceLost implements engine.Observer.
func (o *observer) FenceLost() {
	o.w.covered("fence lost")
	o.w.trace(o.who, "has lost a shard to another owner")
	o.Observer.FenceLost()
}

// LeaseExpired implements engine.Observer.
func (o *observer) LeaseExpired() {
	o.w.covered("worker's lease expired")
	o.Observer.LeaseExpired()
}

// committed notes what a batch wrote.
func (w *world) committed(p *simnet.Process, b *store.Batch, out store.Outcome, err error) {
	for i := range b.Shards {
		for j := range b.Shards[i].Creates {
			w.named(&b.Shards[i].Creates[j].Job)
		}
	}
	if err != nil {
		w.trace(p.ID, "commit: %v", err)
		return
	}
	w.kept(b, out)
	for i := range b.Shards {
		s := &b.Shards[i]
		text := w.batchText(s, &out.Shards[i])
		if text != "" {
			w.trace(p.ID, "commit shard %d epoch %d:%s", s.Proof.Shard, s.Proof.Epoch, text)
		}
	}
}

// kept notes what the verdict must know of a batch that was written: which budgets began anew, and
// which jobs are gone, since it was time.
func (w *world) kept(b *store.Batch, out store.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range b.Shards {
		s := &b.Shards[i]
		for j := range s.Updates {
			u := &s.Updates[j]
			if _, stood := out.Shards[i].Slots[u.Slot.Key]; !stood && u.FromState == job.Dead && (u.Slot.State == job.Ready || u.Slot.State == job.Running) {
				w.ledger.Redriven = append(w.ledger.Redriven, u.Slot.Key)
			}
		}
		for _, e := range s.Ends {
			w.ended[e.UID] = e.EndedAt
		}
		w.pruned = append(w.pruned, s.JobPrunes...)
		for _, uid := range s.JobPrunes {
			if at := w.ended[uid]; at == 0 || b.Now.Sub(at) < w.retention {
				w.faults = append(w.faults, fmt.Sprintf("job %s was pruned at %s, and ended at %s", w.names[uid], w.clockText(b.Now), w.clockText(at)))
			}
		}
	}
}

// batchText says what a batch wrote of one shard; nothing of what each second brings.
func (w *world) batchText(s *store.ShardBatch, out *store.ShardOutcome) string {
	var b strings.Builder
	for i := range s.Creates {
		fmt.Fprintf(&b, " +job %s", s.Creates[i].Job.Name)
		if _, stood := out.Creates[s.Creates[i].Job.UID]; stood {
			b.WriteString(" (not written)")
		}
	}
	slot := func(kind string, row *job.Slot) {
		fmt.Fprintf(&b, " %s%s %s #%d", kind, w.slotText(row.Key), row.State, row.Attempt)
		if row.State == job.Running {
			b.WriteString(" " + row.Worker)
		}
		if _, stood := out.Slots[row.Key]; stood {
			w.covered("a row stood in the way")
			b.WriteString(" (not written)")
		} else {
			w.covered("transition " + kind + row.State.String())
		}
	}
	for i := range s.Slots {
		slot("+", &s.Slots[i])
	}
	for i := range s.Updates {
		slot("→", &s.Updates[i].Slot)
	}
	claim := func(row *job.Slot, from int32) {
		if _, stood := out.Slots[row.Key]; !stood && row.State == job.Running && row.Attempt != from {
			w.history.claimed(row.Worker, row)
		}
	}
	for i := range s.Creates {
		if _, stood := out.Creates[s.Creates[i].Job.UID]; !stood {
			for j := range s.Creates[i].Slots {
				claim(&s.Creates[i].Slots[j], 0)
			}
		}
	}
	for i := range s.Slots {
		claim(&s.Slots[i], 0)
	}
	for i := range s.Updates {
		claim(&s.Updates[i].Slot, s.Updates[i].FromAttempt)
	}
	count := func(n int, what string) {
		if n > 0 {
			w.covered("rows: " + what)
			fmt.Fprintf(&b, " %d %s", n, what)
		}
	}
	count(len(s.Ends), "jobs ended")
	count(len(s.Quarantines), "jobs set aside")
	count(len(s.Requests), "requests")
	count(len(s.Lates), "late results")
	count(len(s.DeadPuts), "dead letters")
	count(len(s.DeadDels), "dead letters taken back")
	count(len(s.GapPuts), "gaps made")
	count(len(s.GapMoves), "gaps moved")
	count(len(s.GapChanges), "gaps changed")
	count(len(s.Skips), "ranges left out")
	count(len(s.InboxDels), "jobs drained")
	count(len(s.SlotPrunes), "slots pruned")
	count(len(s.JobPrunes), "jobs pruned")
	count(len(s.BacklogPuts), "rows of the backlog")
	if s.GiveUp {
		w.covered("shard given up")
		b.WriteString(" gives up")
	}
	if b.Len() > 0 && s.Watermark != 0 {
		fmt.Fprintf(&b, ", up to %s", w.clockText(s.Watermark))
	}
	return b.String()
}

// submitted notes what came into an inbox.
func (w *world) submitted(p *simnet.Process, jobs []job.Job, stored bool, err error) {
	for i := range jobs {
		w.named(&jobs[i])
	}
	if stored {
		w.covered("job by the inbox")
	}
	w.trace(p.ID, "inbox: %d jobs, stored %v, %v", len(jobs), stored, err)
}

// audits reads all shards.
func (w *world) audits() []store.Audit {
	all, err := checker.Read(context.Background(), w.database.kept, w.shards)
	if err != nil {
		w.wrong("the shards can't be read: %v", err)
	}
	return all
}
