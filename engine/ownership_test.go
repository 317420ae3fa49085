package engine_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	"github.com/carillon-scheduler/carillon/store/storefault"
)

// script is a coordinator that says what a test has it say.
type script struct {
	says     chan coordinator.Change
	released chan shard.ID
	leaving  chan struct{}

	mu     sync.Mutex
	others bool
	proven time.Time // zero: now
	health coordinator.Health
}

func newScript() *script {
	return &script{says: make(chan coordinator.Change), released: make(chan shard.ID, 100), leaving: make(chan struct{}, 1), others: true}
}

func (c *script) Run(ctx context.Context, changes chan<- coordinator.Change) error {
	for {
		select {
		case change := <-c.says:
			changes <- change
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *script) Released(id shard.ID, _ int64) { c.released <- id }

func (c *script) Report(h coordinator.Health) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health = h
}

func (c *script) lastHealth() coordinator.Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.health
}

func (c *script) Leave() bool {
	select {
	case c.leaving <- struct{}{}:
	default: // it has been told
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.others
}

func (c *script) Proven() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proven.IsZero() {
		return time.Now()
	}
	return c.proven
}

func (c *script) say(kind coordinator.Kind, id shard.ID, rev int64) {
	c.says <- coordinator.Change{Shard: id, Kind: kind, Rev: rev}
}

// pair is two nodes on one database.
type pair struct {
	t     *testing.T
	db    *storefault.Store
	coord [2]*script
	node  [2]*engine.Node
	stop  [2]func()
}

func inPair(t *testing.T, test func(t *testing.T, p *pair)) {
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "c.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.InitShards(t.Context(), shards); err != nil {
			t.Fatal(err)
		}
		p := &pair{t: t, db: storefault.Wrap(db, nil)}
		for i, id := range []string{"a", "b"} {
			cfg := engine.DefaultConfig(id, shards)
			cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
			p.coord[i] = newScript()
			p.node[i] = engine.New(cfg, p.db, p.coord[i])
			ctx, cancel := context.WithCancel(context.Background())
			end := make(chan error, 1)
			go func() { end <- p.node[i].Run(ctx) }()
			p.stop[i] = func() {
				cancel()
				if err := <-end; err != nil {
					t.Errorf("node %s: %v", id, err)
				}
				p.stop[i] = func() {}
			}
			defer func() { p.stop[i]() }()
		}
		defer func() { p.coord[0].others, p.coord[1].others = false, false }()
		for id := range shard.ID(shards) {
			p.coord[0].say(coordinator.Take, id, 1)
		}
		time.Sleep(time.Second)
		test(t, p)
	})
}

func (p *pair) create(node int, j job.Job) error {
	_, existing, err := p.node[node].Create(p.t.Context(), j)
	if existing != nil {
		p.t.Fatalf("%s exists", j.Name)
	}
	return err
}

func (p *pair) owned(node int) int {
	p.t.Helper()
	st, err := p.node[node].Stats(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return st.Owned
}

func (p *pair) wantReleased(node int, id shard.ID) {
	p.t.Helper()
	select {
	case got := <-p.coord[node].released:
		if got != id {
			p.t.Fatalf("shard %d was released, want %d", got, id)
		}
	case <-time.After(time.Minute):
		p.t.Fatalf("shard %d was never released", id)
	}
}

func TestAPlannedMoveLosesNothing(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		j := (&rig{t: t}).job("j", cron("* * * * * *"))
		if err := p.create(0, j); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		before, _ := p.db.Audit(t.Context(), j.Shard)
		for rev := int64(2); rev < 6; rev++ {
			from, to := int(rev%2), int(1-rev%2)
			began := time.Now()
			p.coord[from].say(coordinator.GiveUp, j.Shard, 0)
			p.wantReleased(from, j.Shard)
			p.coord[to].say(coordinator.Take, j.Shard, rev)
			synctest.Wait()
			if took := time.Since(began); took > 250*time.Millisecond {
				t.Errorf("the move took %s", took)
			}
			time.Sleep(2500 * time.Millisecond)
			if _, _, err := p.node[from].Trigger(t.Context(), j, "", ""); !errors.Is(err, engine.ErrNotOwned) {
				t.Errorf("the node before answers %v", err)
			}
			if _, _, err := p.node[to].Trigger(t.Context(), j, "", ""); err != nil {
				t.Errorf("the new owner answers %v", err)
			}
		}
		a, err := p.db.Audit(t.Context(), j.Shard)
		if err != nil {
			t.Fatal(err)
		}
		if want := before.Epoch + 8; a.Epoch != want || a.Owner != "a" {
			t.Errorf("epoch %d of %q, want %d of a: each move ends one and begins one", a.Epoch, a.Owner, want)
		}
		var fires []job.Instant
		for _, s := range a.Slots {
			if s.Key.UID == j.UID && s.Trigger != job.TriggerManual {
				fires = append(fires, s.Key.FireTime)
			}
		}
		for i := 1; i < len(fires); i++ {
			if fires[i]-fires[i-1] != job.Second {
				t.Errorf("between %s and %s slots are missing", fires[i-1], fires[i])
			}
		}
		if len(fires) < 12 {
			t.Errorf("%d slots in 13 s", len(fires))
		}
	})
}

func TestAShardThatIsWonAgainKeepsItsEpoch(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		before, _ := p.db.Audit(t.Context(), 1)
		p.coord[0].say(coordinator.Keep, 1, 7)
		synctest.Wait()
		a, _ := p.db.Audit(t.Context(), 1)
		if a.Epoch != before.Epoch || a.Rev != 7 || p.owned(0) != shards {
			t.Errorf("epoch %d under revision %d, %d shards; want %d under 7, %d", a.Epoch, a.Rev, p.owned(0), before.Epoch, shards)
		}
		// The database doesn't answer at first.
		p.db.Use(storefault.Next(storefault.Renew, storefault.Fault{Before: true}, storefault.Fault{After: true}))
		p.coord[0].say(coordinator.Keep, 1, 8)
		time.Sleep(5 * time.Second)
		if a, _ := p.db.Audit(t.Context(), 1); a.Epoch != before.Epoch || a.Rev != 8 {
			t.Errorf("epoch %d under revision %d after repeats; want %d under 8", a.Epoch, a.Rev, before.Epoch)
		}
		// An older claim changes nothing: nobody else has the shard.
		p.coord[0].say(coordinator.Keep, 1, 3)
		synctest.Wait()
		if a, _ := p.db.Audit(t.Context(), 1); a.Rev != 8 || p.owned(0) != shards {
			t.Errorf("revision %d, %d shards after an older claim", a.Rev, p.owned(0))
		}
		// Another node has it: the next word about it says so.
		p.coord[1].say(coordinator.Take, 1, 9)
		synctest.Wait()
		p.coord[0].say(coordinator.Keep, 1, 10)
		p.wantReleased(0, 1)
		// What isn't owned is taken over.
		p.coord[0].say(coordinator.Keep, 1, 11)
		time.Sleep(2 * time.Second)
		p.wantReleased(1, 1)
		if p.owned(0) != shards || p.owned(1) != 0 {
			t.Errorf("the nodes own %d and %d shards, want all and none", p.owned(0), p.owned(1))
		}
	})
}

func TestANodeHandsItsShardsOverBeforeItEnds(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		j := (&rig{t: t}).job("j", cron("* * * * * *"))
		if err := p.create(0, j); err != nil {
			t.Fatal(err)
		}
		go p.stop[0]()
		<-p.coord[0].leaving
		time.Sleep(3 * time.Second) // it goes on until they are taken
		for id := range shard.ID(shards) {
			p.coord[0].say(coordinator.GiveUp, id, 0)
			p.wantReleased(0, id)
			p.coord[1].say(coordinator.Take, id, 2)
		}
		synctest.Wait()
		if _, err := p.node[0].Stats(t.Context()); !errors.Is(err, engine.ErrStopping) {
			t.Errorf("a node without shards goes on: %v", err)
		}
		time.Sleep(2 * time.Second)
		a, _ := p.db.Audit(t.Context(), j.Shard)
		for i := 1; i < len(a.Slots); i++ {
			if a.Slots[i].Key.FireTime-a.Slots[i-1].Key.FireTime != job.Second {
				t.Errorf("between %s and %s slots are missing", a.Slots[i-1].Key.FireTime, a.Slots[i].Key.FireTime)
			}
		}
		if len(a.Slots) < 4 || p.owned(1) != shards {
			t.Errorf("%d slots, %d shards at the other node", len(a.Slots), p.owned(1))
		}
	})
}

// A shard that nobody takes away keeps no node from its end.
func TestANodeEndsThoughNobodyTakesItsShards(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		began := time.Now()
		p.stop[0]()
		if took := time.Since(began); took < 15*time.Second || took > 25*time.Second {
			t.Errorf("the end took %s", took)
		}
	})
}

// When all nodes are asked to end, none waits for another to take its shards.
func TestANodeEndsWhenTheOthersEndToo(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		began := time.Now()
		time.AfterFunc(2*time.Second, func() {
			p.coord[0].mu.Lock()
			defer p.coord[0].mu.Unlock()
			p.coord[0].others = false
		})
		p.stop[0]()
		if took := time.Since(began); took < 2*time.Second || took > 5*time.Second {
			t.Errorf("the end took %s", took)
		}
	})
}

func TestADroppedShardIsReleasedWithoutAWordToTheDatabase(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		before, _ := p.db.Audit(t.Context(), 2)
		p.db.Use(func(storefault.Op) storefault.Fault { return storefault.Fault{Before: true} })
		time.Sleep(7 * time.Second)
		h := p.coord[0].lastHealth()
		if h.Failing.IsZero() || time.Since(h.Begun) < 6*time.Second {
			t.Errorf("the coordinator was told %+v", h)
		}
		p.coord[0].say(coordinator.Drop, 2, 0)
		p.wantReleased(0, 2)
		if a, _ := p.db.Audit(t.Context(), 2); a.Epoch != before.Epoch {
			t.Errorf("epoch %d, want %d", a.Epoch, before.Epoch)
		}
		p.db.Use(nil)
		time.Sleep(3 * time.Second)
		if h := p.coord[0].lastHealth(); !h.Failing.IsZero() || time.Since(h.Begun) > 2*time.Second {
			t.Errorf("after the outage the coordinator was told %+v", h)
		}
	})
}

// While a shard is loaded, nobody but its new owner can renew the leases of its attempts; what
// becomes of them is decided once it is.
func TestAttemptsGoOnWhileTheirShardIsLoaded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		lives, ended := r.create(r.job("lives", job.Schedule{Kind: job.KindImmediate})), r.create(r.job("ends", job.Schedule{Kind: job.KindImmediate}))
		time.Sleep(time.Second)
		var tokens []core.Token
		for _, a := range w.got() {
			tokens = append(tokens, a.Token)
		}
		if len(tokens) != 2 {
			t.Fatalf("%d attempts run", len(tokens))
		}
		r.stop()
		r.begin(func(op storefault.Op) (f storefault.Fault) {
			if op == storefault.Load {
				f.Delay = 8 * time.Second
			}
			return f
		})
		time.Sleep(time.Second)
		again := &stream{node: r.node, key: w.key}
		stranger := core.Token{Shard: lives.Shard, Key: job.SlotKey{FireTime: 1, UID: lives.UID}, Attempt: 1, Epoch: 1}
		verdicts, err := r.node.Connect(t.Context(), engine.Hello{Worker: w.key, Handlers: []string{"h"}, Capacity: 10, Credit: 7, Held: append(tokens, stranger)}, again)
		r.must(err)
		for i, v := range verdicts {
			if v.Verdict != engine.VerdictContinue || v.By == 0 {
				t.Errorf("attempt %d, while its shard is loaded: %+v", i, v)
			}
		}
		for _, token := range tokens {
			if token.Key.UID == ended.UID {
				again.outcome = job.OutcomeSucceeded
				r.must(again.report(core.Assign{Token: token}))
			}
		}
		again.beat(20 * time.Second)
		if n := len(r.slots(ended.UID)); n != 1 || !all(r.slots(ended.UID), job.Succeeded) || !all(r.slots(lives.UID), job.Running) {
			t.Errorf("after the load: %v and %v", r.slots(ended.UID), r.slots(lives.UID))
		}
		for _, s := range again.stops { // also of what has ended, for which it had asked
			if s.Token.Key.UID == lives.UID && s.Token != stranger {
				t.Errorf("the attempt that lives was stopped: %+v", s)
			}
		}
		if len(again.acks) != 1 || !again.acks[0].Accepted || !slices.ContainsFunc(again.stops, func(s core.Stop) bool { return s.Token == stranger }) || len(again.got()) != 0 {
			t.Errorf("the worker was told %+v, %+v, and given %d attempts", again.acks, again.stops, len(again.got()))
		}
	})
}

func all(slots map[job.Instant]job.Slot, state job.State) bool {
	for _, s := range slots {
		if s.State != state || s.Attempt != 1 {
			return false
		}
	}
	return true
}

// A worker that never hears of the next owner must let its leases end.
func TestWorkersHearThatTheirNodeHasGivenAShardUp(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		w := &stream{node: p.node[0], key: core.WorkerKey{ID: "w", Incarnation: "1"}, outcome: job.OutcomeNone}
		if _, err := p.node[0].Connect(t.Context(), engine.Hello{Worker: w.key, Handlers: []string{"h"}, Capacity: 5, Credit: 5}, w); err != nil {
			t.Fatal(err)
		}
		j := (&rig{t: t}).job("j", job.Schedule{Kind: job.KindImmediate})
		if err := p.create(0, j); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(w.got()) != 1 || len(w.disowned) != 0 {
			t.Fatalf("%d attempts, disowned %v", len(w.got()), w.disowned)
		}
		p.coord[0].say(coordinator.GiveUp, j.Shard, 1)
		p.wantReleased(0, j.Shard)
		synctest.Wait()
		if len(w.disowned) != 1 || w.disowned[0].Token != w.got()[0].Token {
			t.Errorf("the worker was told %+v", w.disowned)
		}
	})
}

// A shard that goes waits for nothing: not for its load, nor for one that hangs.
func TestAShardGoesWhileItIsLoaded(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		hold := make(chan struct{})
		p.db.Use(func(op storefault.Op) (f storefault.Fault) {
			if op == storefault.Load {
				f.Hold = hold
			}
			return f
		})
		for id := range shard.ID(shards) {
			p.coord[1].say(coordinator.Take, id, 2)
		}
		time.Sleep(3 * time.Second)
		for range shards {
			<-p.coord[0].released // the other one has taken it
		}
		for i, kind := range []coordinator.Kind{coordinator.GiveUp, coordinator.Drop} {
			p.coord[1].say(kind, shard.ID(i), 2)
			p.wantReleased(1, shard.ID(i))
		}
		close(hold)
		time.Sleep(time.Second)
		if n := p.owned(1); n != shards-2 {
			t.Errorf("%d shards are owned, want %d", n, shards-2)
		}
	})
}

// How long leases last that a node grants follows from what it has heard.
func TestLeasesAreGrantedByProof(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		c, granted := p.coord[0], func(what string, least, most time.Duration) {
			t.Helper()
			if d := p.node[0].Granted(); d < least || d > most {
				t.Errorf("%s: leases last %s, want %s to %s", what, d, least, most)
			}
		}
		prove := func(at time.Time) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.proven = at
		}
		down := func(storefault.Op) storefault.Fault { return storefault.Fault{Before: true} }
		prove(time.Now().Add(-time.Hour))
		time.Sleep(5 * time.Second)
		granted("the coordinator is away", 8*time.Second, 10*time.Second)
		p.db.Use(down)
		prove(time.Time{})
		time.Sleep(20 * time.Second)
		granted("the database is away", 10*time.Second, 10*time.Second)
		c.say(coordinator.Keep, 1, 5)
		synctest.Wait()
		granted("and a shard was won again", 0, 0)
		p.db.Use(nil)
		time.Sleep(3 * time.Second)
		granted("all is well", 10*time.Second, 10*time.Second)
		p.db.Use(down)
		prove(time.Now().Add(-time.Second))
		time.Sleep(4 * time.Second)
		granted("both are away", 3*time.Second, 7*time.Second)
		time.Sleep(10 * time.Second)
		granted("both are away for long", 0, 0)
		p.db.Use(nil)
	})
}
