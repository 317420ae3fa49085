package engine_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	"github.com/carillon-scheduler/carillon/store/storefault"
)

// refusals plans that the next calls of a method fail, without effect.
func refusals(op storefault.Op, n int) storefault.Plan {
	return storefault.Next(op, storefault.Repeat(storefault.Fault{Before: true}, n)...)
}

// refuse lets the next commits fail.
func (r *rig) refuse(n int) { r.db.Use(refusals(storefault.Commit, n)) }

// stall makes the next commits fail, with one of them under way: whatever is asked
// for meanwhile gathers behind it.
func (r *rig) stall(id shard.ID) {
	r.t.Helper()
	r.refuse(3)
	filler := r.job("filler", cron("0 0 1 1 *"))
	filler.Shard = id
	go r.node.Create(r.t.Context(), filler)
	synctest.Wait()
}

// wantDone asserts that all slots of a job have succeeded.
func (r *rig) wantDone(j job.Job) {
	r.t.Helper()
	slots := r.slots(j.UID)
	if len(slots) == 0 {
		r.t.Errorf("%s has no slot", j.Name)
	}
	for at, s := range slots {
		if s.State != job.Succeeded {
			r.t.Errorf("the slot of %s at %s is %v with an idle worker", j.Name, at, s.State)
		}
	}
}

var now = job.Schedule{Kind: job.KindImmediate}

func TestOneRequestTwiceInOneBatchIsOneSlot(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		j := r.create(r.job("j", cron("0 0 1 1 *")))
		r.stall(j.Shard)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, _, err := r.node.Trigger(t.Context(), j, "req", "hash"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(r.slots(j.UID)); n != 1 {
			t.Errorf("%d slots of one request", n)
		}
	})
}

// A slot that was assigned in a batch, and then turned out not to exist, gives the
// worker's credit to the slot behind it.
func TestARefusedCreateReturnsItsCredit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		dup := r.create(r.job("dup", now))
		w := r.joinOf(1, job.OutcomeSucceeded)
		w.beat(3 * time.Second)
		r.stall(dup.Shard)
		go r.node.Create(t.Context(), r.job("dup", now))
		synctest.Wait()
		behind := r.job("behind", now)
		behind.Shard = dup.Shard
		behind = r.create(behind)
		w.beat(10 * time.Second)
		r.wantDone(behind)
	})
}

// A worker that comes before the first commits of a fresh node went through gets
// what waits for it.
func TestAWorkerBeforeTheFirstCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		j := r.create(r.job("j", now))
		r.stop()
		r.begin(refusals(storefault.Commit, 5))
		synctest.Wait()
		w := r.joinOf(1, job.OutcomeSucceeded)
		w.beat(10 * time.Second)
		r.wantDone(j)
	})
}

// A worker whose stream breaks while an assignment waits for its commit doesn't
// hold more than its capacity afterwards.
func TestAReconnectDoesNotInflateTheCredit(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.joinOf(1, job.OutcomeNone)
		r.refuse(3)
		go r.node.Create(t.Context(), r.job("a", now))
		synctest.Wait()
		w := r.joinOf(1, job.OutcomeNone)
		time.Sleep(time.Second)
		r.create(r.job("b", now))
		time.Sleep(time.Second)
		if n := len(w.got()); n != 1 {
			t.Errorf("a worker of capacity 1 holds %d attempts", n)
		}
	})
}

// A cancellation that the result overtook is answered by how the slot ended, and
// nothing waits for it at shutdown.
func TestACancellationThatRacesAResultIsAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		j := r.create(r.job("j", now))
		synctest.Wait()
		a := w.got()[0]
		running, err := r.db.SlotOf(t.Context(), shard.Proof{Shard: j.Shard, Epoch: 1}, a.Token.Key)
		r.must(err)
		w.outcome = job.OutcomeSucceeded
		r.must(w.report(a))
		began := time.Now()
		s, err := r.node.Cancel(t.Context(), running, "too late")
		if err == nil && s.State != job.Succeeded {
			t.Errorf("the cancelled slot is %v, %v", s.State, err)
		}
		r.stop()
		if d := time.Since(began); d > time.Second {
			t.Errorf("the answer and the shutdown took %s", d)
		}
	})
}

// After an outage that was longer than the timeout, a worker that reconnects keeps
// the attempt that it has just got.
func TestAReconnectAfterAnOutageKeepsTheAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.joinOf(1, job.OutcomeNone)
		r.refuse(25)
		j := r.job("a", now)
		j.Timeout, j.Retry.MaxAttempts = 5*time.Second, 1
		go r.node.Create(t.Context(), j)
		for i := 0; i < 60 && len(w.got()) == 0; i++ {
			w.beat(2 * time.Second)
		}
		if len(w.got()) != 1 {
			t.Fatal("not assigned")
		}
		r.joinOf(1, job.OutcomeNone, w.got()[0].Token)
		time.Sleep(time.Second)
		for _, s := range r.slots(j.UID) {
			if s.State != job.Running {
				t.Errorf("the slot is %v a second after it was sent", s.State)
			}
		}
	})
}

// A shard whose load fails is tried until it loads, and none waits for another.
func TestAFailedLoadIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		j := r.create(r.job("j", cron("* * * * * *")))
		r.stop()
		r.begin(refusals(storefault.Load, 2*shards+1))
		w := r.join(job.OutcomeSucceeded)
		w.beat(5 * time.Second)
		if st, err := r.node.Stats(t.Context()); err != nil || st.Owned != shards {
			t.Fatalf("%+v, %v", st, err)
		}
		r.wantSlots(j, time.Second, time.Now().Add(-2*time.Second), job.Succeeded)
	})
}

// failing is a coordinator that owns all shards, until it fails.
type failing struct {
	*solo.Coordinator
	cause error
}

func (f failing) Run(ctx context.Context, changes chan<- coordinator.Change) error {
	for id := range shards {
		changes <- coordinator.Change{Shard: shard.ID(id), Kind: coordinator.Take, Rev: 1}
	}
	time.Sleep(200 * time.Millisecond)
	return f.cause
}

// A coordinator's error ends the node, however much is asked of it.
func TestACoordinatorsErrorEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "c.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.InitShards(t.Context(), shards); err != nil {
			t.Fatal(err)
		}
		cfg := engine.DefaultConfig("test", shards)
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
		cause := errors.New("etcd is gone")
		node := engine.New(cfg, db, failing{solo.New("test", shards, 1), cause})

		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		r := &rig{t: t}
		for g := range 20 {
			j := r.job("j"+string(rune('a'+g)), now)
			callers.Go(func() {
				for ctx.Err() == nil {
					j.UID[1]++
					callCtx, done := context.WithTimeout(ctx, time.Second)
					_, _, _ = node.Create(callCtx, j) // some come too late
					done()
					time.Sleep(time.Millisecond)
				}
			})
		}
		if err := node.Run(t.Context()); !errors.Is(err, cause) {
			t.Errorf("Run: %v", err)
		}
		cancel()
		callers.Wait()
	})
}

// A shard that makes up for a long downtime always has a batch under way. What it
// reads must not wait for the end of that: jobs of one fire time beyond the window,
// inboxes, the backlog.
func TestALongGapHoldsUpNoReads(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.join(job.OutcomeSucceeded)
		busy := r.job("busy", cron("* * * * * *"))
		busy.Shard = 1
		r.create(busy)
		soon := r.job("soon", job.Schedule{Kind: job.KindOnce, At: job.At(time.Now().Add(time.Hour + time.Minute).Truncate(time.Second))})
		soon.Shard = 1
		r.create(soon)
		r.stop()
		time.Sleep(time.Hour)
		r.set = func(c *core.Config) { c.GapChunk = 20 }
		r.begin(func(op storefault.Op) (f storefault.Fault) {
			if op == storefault.Commit {
				f.Delay = time.Second
			}
			return f
		})
		w := r.join(job.OutcomeSucceeded)
		w.beat(90 * time.Second)
		gaps, err := r.db.GapsOf(t.Context(), 1)
		r.must(err)
		if len(gaps) == 0 {
			t.Fatal("the gap is closed: the test shows nothing")
		}
		r.wantDone(soon)
	})
}
