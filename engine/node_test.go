package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	"github.com/carillon-scheduler/carillon/store/storefault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const shards = 4

// rig is a node on a database, in the time of a synctest bubble.
type rig struct {
	t    *testing.T
	path string
	db   *storefault.Store
	wrap func(store.Store) store.Store // what the node gets instead of db
	set  func(*core.Config)
	time *hands // nil: the clocks are right
	node *engine.Node
	stop func()
	uids byte
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "carillon.db")}
	r.start()
	return r
}

// start runs a node, after a stop on what it left, and waits until it has loaded
// all shards.
func (r *rig) start() {
	r.t.Helper()
	r.begin(nil)
	time.Sleep(time.Second) // of the bubble
	if st, err := r.node.Stats(r.t.Context()); err != nil || st.Owned != shards {
		r.t.Fatalf("%+v, %v after a second", st, err)
	}
}

// begin is start with a store that fails by a plan, and without the wait.
func (r *rig) begin(plan storefault.Plan) {
	r.t.Helper()
	db, err := sqlite.Open(r.t.Context(), r.path)
	r.must(err)
	_, err = db.InitShards(r.t.Context(), shards)
	r.must(err)
	rev, err := db.NextRevision(r.t.Context())
	r.must(err)
	r.db = storefault.Wrap(db, plan)
	cfg := engine.DefaultConfig("test", shards)
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	st := store.Store(r.db)
	if r.wrap != nil {
		st = r.wrap(st)
	}
	if r.set != nil {
		r.set(&cfg.Core)
	}
	if r.time != nil {
		cfg.Clock, st = r.time, misled{st, r.time}
	}
	r.node = engine.New(cfg, st, solo.New("test", shards, rev))
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- r.node.Run(ctx) }()
	r.stop = func() {
		cancel()
		r.must(<-end)
		r.must(db.Close())
		r.stop = func() {}
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) job(name string, s job.Schedule) job.Job {
	r.uids++
	if s.Kind.Recurring() {
		s.Dialect = schedule.DialectVersion
	}
	return job.Job{UID: job.UID{0: 1, 15: r.uids}, Shard: shard.Of("default", name, shards), Namespace: "default", Name: name, Handler: "h",
		Schedule: s, Retry: job.DefaultRetryPolicy, Timeout: time.Minute, RequestHash: name}
}

func cron(expr string) job.Schedule { return job.Schedule{Kind: job.KindCron, Cron: expr} }

func (r *rig) create(j job.Job) job.Job {
	r.t.Helper()
	stored, existing, err := r.node.Create(r.t.Context(), j)
	r.must(err)
	if existing != nil {
		r.t.Fatalf("%s exists", j.Name)
	}
	return *stored
}

// slots lists all slots of a job's namespace by fire time.
func (r *rig) slots(uid job.UID) map[job.Instant]job.Slot {
	r.t.Helper()
	out, p := map[job.Instant]job.Slot{}, store.SlotsPage{Namespace: "default", Limit: 1000}
	for {
		page, next, err := r.db.Slots(r.t.Context(), p)
		r.must(err)
		for _, s := range page {
			if s.Slot.Key.UID == uid {
				out[s.Slot.Key.FireTime] = s.Slot
			}
		}
		if next == (store.SlotCursor{}) {
			return out
		}
		p.Before = next
	}
}

// wantSlots asserts that a job has exactly the slots of a grid.
func (r *rig) wantSlots(j job.Job, every time.Duration, until time.Time, state job.State) {
	r.t.Helper()
	slots := r.slots(j.UID)
	n := 0
	for at := j.EffectiveFrom.Time().Truncate(every).Add(every); !at.After(until); at = at.Add(every) {
		n++
		if s, ok := slots[job.At(at)]; !ok || s.State != state {
			r.t.Fatalf("slot %d at %s: %v, %v; want %v", n, at, ok, s.State, state)
		}
	}
	for at := range slots {
		if at <= job.At(until) {
			n--
		}
	}
	if n != 0 {
		r.t.Fatalf("%s has %d slots too many", j.Name, -n)
	}
}

// stream is a worker that ends every attempt at once, by its outcome.
type stream struct {
	node    *engine.Node
	key     core.WorkerKey
	outcome job.Outcome // none: it holds what it gets
	slow    atomic.Bool // it doesn't read
	heard   atomic.Bool // a heartbeat came that took no turn
	given   func()      // is told of each attempt; nil: nobody is

	mu       sync.Mutex
	assigned []core.Assign
	stops    []core.Stop
	acks     []core.Ack
	owned    []core.Owned
	disowned []core.Disowned
	wanted   []int // what it was told, in order
	returned []int // credit that it got back, in order
	closed   bool
}

func (r *rig) join(outcome job.Outcome, held ...core.Token) *stream {
	r.t.Helper()
	return r.joinOf(1000, outcome, held...)
}

// joinOf is join of a worker of a capacity.
func (r *rig) joinOf(capacity int, outcome job.Outcome, held ...core.Token) *stream {
	r.t.Helper()
	w := &stream{node: r.node, key: core.WorkerKey{ID: "w", Incarnation: "1"}, outcome: outcome}
	_, err := r.node.Connect(r.t.Context(), engine.Hello{Worker: w.key, Handlers: []string{"h"}, Capacity: capacity, Credit: capacity - len(held), Held: held, Moves: true}, w)
	r.must(err)
	return w
}

func (w *stream) Deliver(messages []core.Message) bool {
	if w.slow.Load() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range messages {
		switch m := m.(type) {
		case core.Assign:
			w.assigned = append(w.assigned, m)
			if w.given != nil {
				w.given()
			}
			if w.outcome != job.OutcomeNone {
				go w.report(m)
			}
		case core.Stop:
			w.stops = append(w.stops, m)
		case core.Ack:
			w.acks = append(w.acks, m)
		case core.Owned:
			w.owned = append(w.owned, m)
		case core.Disowned:
			w.disowned = append(w.disowned, m)
		case core.Wanted:
			w.wanted = append(w.wanted, m.Slots)
		case core.Reclaimed:
			w.returned = append(w.returned, m.Credit)
		}
	}
	return true
}

func (w *stream) Heard() bool { return w.heard.Swap(false) }

func (w *stream) Drain() {}
func (w *stream) Close(error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// report ends an attempt. An error means that the stream is no longer the
// worker's, as some tests want it.
func (w *stream) report(a core.Assign) error {
	return w.node.Report(context.Background(), w.key, w, engine.Report{Credit: 1, Events: []engine.ShardEvent{{Token: a.Token,
		Event: core.Result{Worker: w.key, Token: a.Token, Outcome: w.outcome, StartedAt: job.At(time.Now())}}}})
}

// beat keeps the lease for a while.
func (w *stream) beat(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(2 * time.Second)
		if w.node.Report(context.Background(), w.key, w, engine.Report{}) != nil {
			return
		}
	}
}

func (w *stream) got() []core.Assign {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]core.Assign(nil), w.assigned...)
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		test(t, r)
	})
}

func TestAnHourOfAMinutelyJob(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeSucceeded)
		j := r.create(r.job("j", cron("* * * * *")))
		w.beat(time.Hour + 5*time.Second)
		r.wantSlots(j, time.Minute, time.Now(), job.Succeeded)
		for at, s := range r.slots(j.UID) {
			if late := s.StartedAt.Sub(at); late < 0 || late > 2*time.Second {
				t.Errorf("the slot of %s started %s late", at, late)
			}
		}
	})
}

// B43, B45, B48, B56, B64: whatever was missed while nobody scheduled is made up
// for, each occurrence once, and the live ones go on.
func TestDowntimes(t *testing.T) {
	for name, c := range map[string]struct {
		expr  string
		every time.Duration
		down  time.Duration
	}{
		"four minutes of a minutely job":      {"* * * * *", time.Minute, 4 * time.Minute},
		"150 minutes of a minutely job":       {"* * * * *", time.Minute, 150 * time.Minute},
		"a day of a job of every 5 minutes":   {"*/5 * * * *", 5 * time.Minute, 24 * time.Hour},
		"six minutes around an hourly job":    {"0 * * * *", time.Hour, 66 * time.Minute},
		"ten minutes of a job of each second": {"* * * * * *", time.Second, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				j := r.create(r.job("j", cron(c.expr)))
				r.stop()
				time.Sleep(c.down)
				r.start()
				w := r.join(job.OutcomeSucceeded)
				w.beat(2*c.every + 10*time.Second)
				r.wantSlots(j, c.every, time.Now().Add(-2*time.Second).Truncate(time.Second), job.Succeeded)
			})
		})
	}
}

// While the database can't be reached nothing is acknowledged; what was asked for
// meanwhile is done once it is back, once.
func TestCommitsAreRepeatedUntilTheirFateIsKnown(t *testing.T) {
	for name, faults := range map[string][]storefault.Fault{
		"without effect":        storefault.Repeat(storefault.Fault{Before: true}, 5),
		"with effect":           {{After: true}},
		"with effect, for long": storefault.Repeat(storefault.Fault{After: true}, 5),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				w := r.join(job.OutcomeSucceeded)
				r.db.Use(storefault.Next(storefault.Commit, faults...))
				j := r.create(r.job("now", job.Schedule{Kind: job.KindImmediate}))
				every := r.create(r.job("every", cron("* * * * * *")))
				w.beat(10 * time.Second)
				if slots := r.slots(j.UID); len(slots) != 1 {
					t.Errorf("the immediate job has %d slots", len(slots))
				}
				for _, a := range w.got() {
					if a.Token.Attempt != 1 {
						t.Errorf("attempt %d of %v", a.Token.Attempt, a.Token.Key)
					}
				}
				r.wantSlots(every, time.Second, time.Now().Add(-time.Second), job.Succeeded)
				if r.node.Degraded() {
					t.Error("the node still thinks that its database is gone")
				}
			})
		})
	}
}

// Another owner takes one shard: this node drops it, writes nothing to it, and
// goes on with the others.
func TestALostFenceDropsOneShard(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeSucceeded)
		var jobs []job.Job
		for i := range 12 {
			jobs = append(jobs, r.create(r.job(fmt.Sprintf("j%d", i), cron("* * * * * *"))))
		}
		w.beat(3 * time.Second)
		lost := jobs[0].Shard
		_, err := r.db.TakeOver(t.Context(), store.Claim{Shard: lost, Node: "rival", Gen: 0, Rev: 1 << 40})
		r.must(err)
		before := len(r.slots(jobs[0].UID))
		w.beat(5 * time.Second)
		if st, err := r.node.Stats(t.Context()); err != nil || st.Owned != shards-1 {
			t.Errorf("%+v, %v; want one shard less", st, err)
		}
		for _, j := range jobs {
			if n := len(r.slots(j.UID)); (j.Shard == lost) != (n == before) {
				t.Errorf("%s in shard %d has %d slots, had %d when shard %d was lost", j.Name, j.Shard, n, before, lost)
			}
		}
		// A job of the lost shard is still accepted: it waits for the new owner.
		name := "later"
		for i := 0; shard.Of("default", name, shards) != lost; i++ {
			name = fmt.Sprintf("later%d", i)
		}
		later := r.job(name, cron("* * * * *"))
		if _, _, err := r.node.Create(t.Context(), later); !errors.Is(err, engine.ErrNotOwned) {
			t.Errorf("a create in the lost shard: %v", err)
		}
		_, _, err = r.node.CreateByInbox(t.Context(), later)
		r.must(err)
		if ids, err := r.db.InboxShards(t.Context()); err != nil || len(ids) != 1 || ids[0] != lost {
			t.Errorf("inboxes %v, %v; want that of shard %d", ids, err, lost)
		}
		if _, err := r.node.Delete(t.Context(), jobs[0]); !errors.Is(err, engine.ErrNotOwned) {
			t.Errorf("a delete in the lost shard: %v", err)
		}
	})
}

// One job whose rows the database refuses stops nobody else.
func TestAPoisonRowIsSetAside(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		good := r.create(r.job("good", cron("* * * * * *")))
		poison := r.job("poison", cron("* * * * * *"))
		poison.Params = make([]byte, 8<<20)
		_, _, err := r.node.Create(t.Context(), poison)
		var refused *store.RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("the create of the poison job: %v", err)
		}
		time.Sleep(5 * time.Second)
		r.wantSlots(good, time.Second, time.Now().Add(-time.Second), job.Ready)
	})
}

func TestALeaseEndsOnlyWithoutHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		j := r.create(r.job("j", job.Schedule{Kind: job.KindImmediate}))
		w.beat(45 * time.Second)
		if n := len(w.got()); n != 1 {
			t.Fatalf("%d attempts in 45 s of heartbeats", n)
		}
		time.Sleep(11 * time.Second)
		for _, s := range r.slots(j.UID) {
			if s.State != job.Ready || s.Outcome != job.OutcomeLeaseLost || s.Failures != 1 {
				t.Errorf("11 s after the last heartbeat: %+v", s)
			}
		}
		if !w.closed {
			t.Error("the stream of the silent worker is open")
		}
		if err := w.report(w.got()[0]); err == nil {
			t.Error("the silent worker's old stream is still taken")
		}
	})
}

// B80: heartbeats go on, the handler never returns.
func TestATimeoutNeedsNoWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		j := r.job("j", job.Schedule{Kind: job.KindImmediate})
		j.Timeout = 5 * time.Second
		r.create(j)
		w.beat(10 * time.Second)
		got := w.got()
		if len(got) != 2 || got[1].Token.Attempt != 2 || got[1].Failures != 1 {
			t.Fatalf("assigned %+v", got)
		}
		if len(w.stops) != 1 || w.stops[0].Reason != core.StopTimedOut {
			t.Errorf("told to stop %+v", w.stops)
		}
	})
}

// A node that stops lets running attempts end; those that don't are the next
// owner's, and burn no attempt if their worker comes back with them.
func TestAStopBurnsNoAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		ends, stays := r.create(r.job("ends", job.Schedule{Kind: job.KindImmediate})), r.create(r.job("stays", job.Schedule{Kind: job.KindImmediate}))
		synctest.Wait()
		var held core.Token
		w.outcome = job.OutcomeSucceeded
		for _, a := range w.got() {
			if a.Token.Key.UID == stays.UID {
				held = a.Token
			} else {
				go func() {
					time.Sleep(2 * time.Second)
					w.report(a)
				}()
			}
		}
		r.stop()
		r.start()
		for _, s := range r.slots(ends.UID) {
			if s.State != job.Succeeded {
				t.Errorf("the attempt that ended during the drain: %v", s.State)
			}
		}
		w = r.join(job.OutcomeNone, held)
		w.beat(15 * time.Second)
		for _, s := range r.slots(stays.UID) {
			if s.State != job.Running || s.Attempt != 1 {
				t.Errorf("the attempt that went on: %+v", s)
			}
		}
		w.outcome = job.OutcomeSucceeded
		r.must(w.report(core.Assign{Token: held}))
		synctest.Wait()
		for _, s := range r.slots(stays.UID) {
			if s.State != job.Succeeded || s.Attempt != 1 {
				t.Errorf("in the end: %+v", s)
			}
		}
	})
}

// A worker that doesn't read is cut off; its work goes to others, and no failure
// is counted.
func TestAWorkerThatDoesNotReadIsCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		w.slow.Store(true)
		j := r.create(r.job("j", job.Schedule{Kind: job.KindImmediate}))
		synctest.Wait()
		for _, s := range r.slots(j.UID) {
			if s.State != job.Ready || s.Failures != 0 {
				t.Errorf("slot %+v", s)
			}
		}
		if !w.closed {
			t.Error("its stream is open")
		}
	})
}

func TestCallsAfterTheStop(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.stop()
		if _, _, err := r.node.Create(t.Context(), r.job("j", cron("* * * * *"))); !errors.Is(err, engine.ErrStopping) {
			t.Errorf("a create: %v", err)
		}
		if _, err := r.node.Stats(t.Context()); !errors.Is(err, engine.ErrStopping) {
			t.Errorf("stats: %v", err)
		}
		if err := r.node.Run(t.Context()); err == nil {
			t.Error("a node ran twice")
		}
	})
}

// The owner dies between a claim and its word. The worker comes to the next one before that
// has loaded the shard, and gets the very same attempt, at once; its credit is used up by it.
func TestAClaimWhoseWordWasLostIsSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.joinOf(2, job.OutcomeNone)
		first := r.create(r.job("first", job.Schedule{Kind: job.KindImmediate}))
		time.Sleep(time.Second)
		r.stop()
		r.begin(nil)
		w := r.joinOf(2, job.OutcomeNone)
		time.Sleep(time.Second)
		if got := w.got(); len(got) != 1 || got[0].Token.Key.UID != first.UID || got[0].Token.Attempt != 1 {
			t.Fatalf("it got %+v", got)
		}
		for i := range 3 {
			r.create(r.job(fmt.Sprint("next-", i), job.Schedule{Kind: job.KindImmediate}))
		}
		time.Sleep(time.Second)
		if got := w.got(); len(got) != 2 {
			t.Errorf("a worker with two places got %d attempts", len(got))
		}
	})
}
