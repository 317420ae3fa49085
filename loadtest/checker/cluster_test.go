package checker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	"github.com/carillon-scheduler/carillon/store/storefault"
)

const shards = 4

// random is a source that goroutines may share.
type random struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (r *random) IntN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rnd.IntN(n)
}

// cluster is a node on a database, in the time of a synctest bubble, and what is known
// of both from elsewhere.
type cluster struct {
	t    *testing.T
	path string
	rnd  *random
	db   *sqlite.DB
	stop func()
	made int
	live map[string]job.Job
	seen map[string]int
	calm atomic.Bool // no faults any more

	mu      sync.Mutex // guards what follows
	node    *engine.Node
	ledger  checker.Ledger
	effects []checker.Effect
}

// flaky plans that commits fail at random, with or without effect.
func (c *cluster) flaky(op storefault.Op) storefault.Fault {
	if op != storefault.Commit || c.calm.Load() {
		return storefault.Fault{}
	}
	fate := c.rnd.IntN(20)
	return storefault.Fault{Before: fate == 0, After: fate == 1}
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// sleep lets up to d pass.
func (c *cluster) sleep(d time.Duration) {
	time.Sleep(time.Duration(c.rnd.IntN(int(d/time.Millisecond))) * time.Millisecond)
}

// start runs a node with tight bounds on what is stored.
func (c *cluster) start() {
	db, err := sqlite.Open(c.t.Context(), c.path)
	c.must(err)
	_, err = db.InitShards(c.t.Context(), shards)
	c.must(err)
	rev, err := db.NextRevision(c.t.Context())
	c.must(err)
	cfg := engine.DefaultConfig("node", shards)
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	cfg.Core.ReadyLimit = 2 + c.rnd.IntN(12)
	cfg.Core.GapChunk, cfg.Core.PageLimit = 1+c.rnd.IntN(20), 2+c.rnd.IntN(10)
	cfg.Core.OnceWindow, cfg.Core.OpenFromLag, cfg.Core.OpenFromEvery = 20*time.Second, 10*time.Second, time.Second
	cfg.DrainTimeout = time.Second
	node := engine.New(cfg, storefault.Wrap(db, c.flaky), solo.New("test", shards, rev))
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- node.Run(ctx) }()
	c.mu.Lock()
	c.db, c.node = db, node
	c.mu.Unlock()
	c.stop = func() {
		cancel()
		c.must(<-end)
		c.must(db.Close())
	}
}

// kill makes whatever the node still writes too late, and ends it.
func (c *cluster) kill() {
	rev, err := c.db.NextRevision(c.t.Context())
	c.must(err)
	for id := range shard.ID(shards) {
		_, err := c.db.TakeOver(c.t.Context(), store.Claim{Shard: id, Node: "ghost", Rev: rev})
		c.must(err)
	}
	c.stop()
}

// act lets one thing happen.
func (c *cluster) act() {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
	defer cancel()
	switch n := c.rnd.IntN(100); {
	case n < 45:
		c.create(ctx)
	case n < 55:
		c.delete(ctx)
	case n < 65:
		c.trigger(ctx)
	case n < 75:
		c.cancel(ctx)
	case n < 85:
		c.stop()
		c.sleep(time.Minute)
		c.start()
	case n < 92:
		c.kill()
		c.sleep(10 * time.Second)
		c.start()
	}
}

// planned adds to a recurring schedule all that one may have, close enough to happen.
func (c *cluster) planned(s job.Schedule, now job.Instant) job.Schedule {
	seconds := func(most int) time.Duration { return time.Duration(c.rnd.IntN(most)) * time.Second }
	s.Spread, s.Offset = 10*time.Second, seconds(10)
	s.Start = now.Add(seconds(40))
	s.End = s.Start.Add(time.Minute + seconds(100))
	s.MaxOccurrences = int32(c.rnd.IntN(40)) // 0: without
	off := s.Start.Add(seconds(20))
	item := off.Time().Format(time.RFC3339) + "/" + off.Add(time.Second+seconds(20)).Time().Format(time.RFC3339)
	made, err := schedule.NewCalendar("off", 1, []string{item})
	if err != nil {
		c.t.Fatal(err)
	}
	s.Calendars = schedule.Exclude([]*schedule.Calendar{made}).String()
	if err := s.Count(now.Add(seconds(20) - 10*time.Second)); err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *cluster) create(ctx context.Context) {
	c.made++
	now := job.AtSecond(time.Now().Unix())
	cron := func(expr string) job.Schedule {
		return job.Schedule{Kind: job.KindCron, Cron: expr, Dialect: schedule.DialectVersion}
	}
	all := []job.Schedule{cron("* * * * * *"), cron("*/7 * * * * *"), cron("* * * * *"), {Kind: job.KindImmediate},
		{Kind: job.KindInterval, Every: 3 * time.Second, Anchor: now, Dialect: schedule.DialectVersion},
		{Kind: job.KindOnce, At: now.Add(time.Duration(c.rnd.IntN(90)-30) * time.Second)}, c.planned(cron("*/2 * * * * *"), now)}
	j := job.Job{UID: job.UID{0: 1, 14: byte(c.made >> 8), 15: byte(c.made)}, Namespace: "default", Name: fmt.Sprintf("j%d", c.rnd.IntN(c.made)),
		Handler: "h", Schedule: all[c.rnd.IntN(len(all))], Timeout: 5 * time.Second,
		Retry: job.RetryPolicy{MaxAttempts: int32(1 + c.rnd.IntN(4)), InitialBackoff: time.Second, MaxBackoff: 5 * time.Second, Factor: 2}}
	j.Policies = c.somePolicies()
	j.Shard, j.RequestHash = shard.Of(j.Namespace, j.Name, shards), j.Hash()
	stored, existing, err := c.node.Create(ctx, j)
	c.mu.Lock()
	defer c.mu.Unlock()
	var refused *store.RefusedError
	switch {
	case existing != nil, errors.As(err, &refused):
		c.ledger.Refused = append(c.ledger.Refused, j.UID)
	case err == nil:
		c.ledger.Acked = append(c.ledger.Acked, j.UID)
		c.live[j.Name] = *stored
	}
}

// somePolicies returns policies of which a few say something, close enough to happen.
func (c *cluster) somePolicies() (p job.Policies) {
	seconds := func(most int) time.Duration { return time.Duration(1+c.rnd.IntN(most)) * time.Second }
	if c.rnd.IntN(3) == 0 {
		p.StartDeadline = seconds(30)
		p.TotalDeadline = p.StartDeadline + seconds(60)
	}
	if c.rnd.IntN(3) == 0 {
		p.CatchUp = []job.CatchUp{{Mode: job.CatchUpLatest}, {Mode: job.CatchUpNone}, {MaxCount: int32(1 + c.rnd.IntN(5))}, {MaxAge: seconds(20)}}[c.rnd.IntN(4)]
	}
	if c.rnd.IntN(2) == 0 {
		p.Overlap = []job.Overlap{{MaxRunning: int32(1 + c.rnd.IntN(3))}, {Mode: job.OverlapQueue}, {Mode: job.OverlapSkip}, {Mode: job.OverlapReplace}}[c.rnd.IntN(4)]
	}
	if c.rnd.IntN(3) == 0 {
		p.Priority = int32(c.rnd.IntN(5) - 2)
		p.StartWithin, p.FinishWithin = seconds(5), seconds(30)
		p.OnDeadLetter = "h"
	}
	return p
}

// anyJob picks a job that may live.
func (c *cluster) anyJob() (job.Job, bool) {
	for range c.made {
		if j, ok := c.live[fmt.Sprintf("j%d", c.rnd.IntN(c.made))]; ok {
			return j, true
		}
	}
	return job.Job{}, false
}

func (c *cluster) delete(ctx context.Context) {
	if j, ok := c.anyJob(); ok {
		if _, err := c.node.Delete(ctx, j); err == nil {
			delete(c.live, j.Name)
		}
	}
}

func (c *cluster) trigger(ctx context.Context) {
	if j, ok := c.anyJob(); ok {
		_, _, _ = c.node.Trigger(ctx, j, fmt.Sprintf("r%d", c.rnd.IntN(30)), j.Name) // it may be refused
	}
}

func (c *cluster) cancel(ctx context.Context) {
	open := store.SlotFilter{States: []job.State{job.Ready, job.Running}}
	slots, _, err := c.db.Slots(ctx, store.SlotsPage{Namespace: "default", Filter: open, Limit: 3})
	c.must(err)
	for _, s := range slots {
		_, _ = c.node.Cancel(ctx, s, "test") // it may be over
	}
}

// worker is a process that runs handlers, badly.
type worker struct {
	c   *cluster
	end chan struct{}
	all sync.WaitGroup // of what runs

	mu    sync.Mutex // guards what follows
	key   core.WorkerKey
	node  *engine.Node // that it is connected to
	held  map[core.Token]bool
	seen  map[core.Token]bool // in this life: what comes twice runs once
	lives int
}

const capacity = 8

func (c *cluster) work() *worker {
	w := &worker{c: c, end: make(chan struct{})}
	w.die()
	w.all.Go(w.beat)
	return w
}

func (w *worker) quit() {
	close(w.end)
	w.all.Wait()
}

// die begins a new life: what the last one held is lost, but may still run.
func (w *worker) die() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
	w.key, w.held, w.node = core.WorkerKey{ID: "w", Incarnation: fmt.Sprint(w.lives)}, map[core.Token]bool{}, nil
	w.seen = map[core.Token]bool{}
}

// beat sends heartbeats, now and then none for longer than the lease, and connects
// again where its stream was cut.
func (w *worker) beat() {
	for {
		pause := 2 * time.Second
		if !w.c.calm.Load() {
			switch w.c.rnd.IntN(20) {
			case 0:
				pause = 15 * time.Second
			case 1:
				w.die()
			}
		}
		w.report(nil, 0)
		select {
		case <-time.After(pause):
		case <-w.end:
			return
		}
	}
}

// report says something to the node, and connects first if it must.
func (w *worker) report(events []engine.ShardEvent, credit int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	node, key := w.connect(ctx)
	if node == nil {
		return false
	}
	if node.Report(ctx, key, w, engine.Report{Events: events, Credit: credit}) != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.node = nil
		return false
	}
	return true
}

func (w *worker) connect(ctx context.Context) (*engine.Node, core.WorkerKey) {
	w.c.mu.Lock()
	node := w.c.node
	w.c.mu.Unlock()
	w.mu.Lock()
	hello := engine.Hello{Worker: w.key, Handlers: []string{"h"}, Capacity: capacity, Credit: max(capacity-len(w.held), 0)}
	connected := w.node == node
	w.node = node
	for t := range w.held {
		hello.Held = append(hello.Held, t)
	}
	w.mu.Unlock()
	if connected {
		return node, hello.Worker
	}
	verdicts, err := node.Connect(ctx, hello, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.node = nil
		return nil, hello.Worker
	}
	for i, v := range verdicts {
		if v.Verdict == engine.VerdictCancel {
			delete(w.held, hello.Held[i])
		}
	}
	return node, hello.Worker
}

func (w *worker) Heard() bool { return false }
func (w *worker) Drain()      {}
func (w *worker) Close(error) {}

func (w *worker) Deliver(messages []core.Message) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range messages {
		switch m := m.(type) {
		case core.Assign:
			if w.seen[m.Token] {
				continue // sent again, since a hello was on its way
			}
			w.held[m.Token], w.seen[m.Token] = true, true
			w.all.Go(func() { w.run(m) })
		case core.Stop:
			delete(w.held, m.Token)
		case core.Ack:
			delete(w.held, m.Token)
		}
	}
	return true
}

// note writes down what a handler does.
func (w *worker) note(a core.Assign, kind checker.EffectKind) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.effects = append(w.c.effects, checker.Effect{Job: a.Token.Key.UID, Fire: a.Token.Key.FireTime, Attempt: a.Token.Attempt, Kind: kind, At: job.At(time.Now())})
}

// run is an attempt. It heeds no cancellation: a handler may do so.
func (w *worker) run(a core.Assign) {
	began := job.At(time.Now())
	w.note(a, checker.Began)
	result := core.Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeSucceeded, StartedAt: began}
	if !w.c.calm.Load() {
		w.c.sleep([]time.Duration{100, 2000, 12_000}[w.c.rnd.IntN(3)] * time.Millisecond)
		result.Outcome = []job.Outcome{job.OutcomeSucceeded, job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeReleased, job.OutcomeTimedOut}[w.c.rnd.IntN(5)]
		result.Permanent = w.c.rnd.IntN(10) == 0
	}
	if result.Outcome == job.OutcomeSucceeded {
		w.note(a, checker.Done)
	}
	for !w.report([]engine.ShardEvent{{Token: a.Token, Event: result}}, 1) || !w.settled(a.Token) {
		select {
		case <-time.After(time.Second):
		case <-w.end:
			return
		}
	}
}

// settled reports, after a moment, whether a result was acknowledged.
func (w *worker) settled(t core.Token) bool {
	time.Sleep(100 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.held[t]
}
