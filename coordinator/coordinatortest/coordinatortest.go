// Package coordinatortest defines what a correct coordinator is. Each adapter's test is one
// call of Run.
package coordinatortest

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// Harness makes coordinators of one cluster.
type Harness struct {
	Shards int
	// TTL is for how long a node that isn't heard keeps its shards; zero: there is one node.
	TTL time.Duration
	// Join makes the coordinator of a node.
	Join func(name string, db *Database) coordinator.Cluster
	// Cut cuts a node from what its coordinator needs, or heals that.
	Cut func(name string, cut bool)
}

// slack is added to what is bounded by design: the machine may be busy.
const slack = 10 * time.Second

// Run checks the coordinators that open makes: a new cluster at each call.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			h := open(t)
			test(t, &world{t: t, Harness: h, db: NewDatabase(h.Shards)})
		})
	}
	if open(t).TTL == 0 {
		return
	}
	for name, test := range testsOfMany {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			test(t, &world{t: t, Harness: h, db: NewDatabase(h.Shards)})
		})
	}
}

// world is a cluster under test.
type world struct {
	Harness
	t  *testing.T
	db *Database
}

func (w *world) start(name string) *Node {
	w.t.Helper()
	return Start(w.t, name, w.Join(name, w.db), w.db)
}

// three starts three nodes, and waits until each has its part.
func (w *world) three() (nodes [3]*Node) {
	w.t.Helper()
	for i := range nodes {
		nodes[i] = w.start(fmt.Sprintf("n%d", i))
	}
	w.fair(nodes[:]...)
	return nodes
}

// fair waits until the nodes own all shards in equal parts, and know it.
func (w *world) fair(nodes ...*Node) {
	w.t.Helper()
	low, high := w.Shards/len(nodes), (w.Shards+len(nodes)-1)/len(nodes)
	Wait(w.t, fmt.Sprintf("fair parts of %d nodes", len(nodes)), 2*w.TTL+slack, func() bool {
		owned := w.db.Owned()
		if owned[""] > 0 { // on its way
			return false
		}
		for _, n := range nodes {
			if o := owned[n.Name]; o < low || o > high || n.Count() != o {
				return false
			}
		}
		return true
	})
}

// shown waits until a directory shows as holders what the database says.
func (w *world) shown(n *Node) {
	w.t.Helper()
	Wait(w.t, "the directory of "+n.Name+" shows who holds what", slack, func() bool {
		owners, err := w.db.Owners()
		if err != nil {
			return false
		}
		for _, o := range owners {
			if m, ok := n.Coord.Holder(o.Shard); !ok || m.Node != o.Node || m.Address == "" {
				return false
			}
		}
		return true
	})
}

var tests = map[string]func(*testing.T, *world){
	// What is granted to workers is reckoned from there: one that isn't proven ends their attempts.
	"a node is proven from its first moment on": func(t *testing.T, w *world) {
		n := w.start("n0")
		for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if p := n.Coord.Proven(); time.Since(p) > slack {
				t.Fatalf("with %d shards, it was proven %s ago", n.Count(), time.Since(p))
			}
		}
		w.fair(n)
	},
	"one node owns everything, and shows it": func(t *testing.T, w *world) {
		n := w.start("n0")
		w.fair(n)
		w.shown(n)
		if m := n.Coord.Members(); len(m) != 1 || m[0].Node != "n0" || m[0].Shards != w.Shards {
			t.Errorf("members %+v", m)
		}
		if st := n.Coord.Status(); !st.Connected || !st.Session || st.Problem != "" {
			t.Errorf("status %+v", st)
		}
		if p := n.Coord.Proven(); time.Since(p) > slack {
			t.Errorf("proven %s ago", time.Since(p))
		}
		if _, ok := n.Coord.Holder(shard.ID(w.Shards)); ok {
			t.Error("a shard that isn't there has a holder")
		}
		for _, h := range n.Coord.Holders() {
			if h.Node != "n0" || h.Wanted != "n0" || h.Rev == 0 {
				t.Errorf("holder %+v", h)
			}
		}
	},
	"a node that ends and comes back owns everything again": func(t *testing.T, w *world) {
		for range 3 {
			n := w.start("n0")
			w.fair(n)
			n.End()
		}
	},
}

var testsOfMany = map[string]func(*testing.T, *world){
	"nodes that come and go have fair parts, and no more moves than must be": func(t *testing.T, w *world) {
		a := w.start("n0")
		w.fair(a)
		before := w.db.TakeOvers()
		b, c := w.start("n1"), w.start("n2")
		w.fair(a, b, c)
		if n, most := w.db.TakeOvers()-before, w.Shards*2/3+w.Shards/6; n > most {
			t.Errorf("%d shards moved from one node to three, want about %d", n, w.Shards*2/3)
		}
		for _, n := range []*Node{a, b, c} {
			w.shown(n)
		}
		before = w.db.TakeOvers()
		w.leave(b)
		w.fair(a, c)
		w.leave(c)
		w.fair(a)
		if n := w.db.TakeOvers() - before; n > w.Shards+2 {
			t.Errorf("%d shards moved from three nodes to one", n)
		}
	},
	"a node that leaves hands its shards over before it goes": func(t *testing.T, w *world) {
		nodes := w.three()
		worst := time.Duration(0)
		left := make(chan struct{})
		go func() {
			defer close(left)
			w.leave(nodes[1])
		}()
		for done := false; !done; {
			select {
			case <-left:
				done = true
			case <-time.After(commitEvery):
				worst = max(worst, w.db.LongestSilence())
			}
		}
		w.fair(nodes[0], nodes[2])
		if worst > w.TTL/2+slack/10 {
			t.Errorf("a shard had no owner for %s while a node left", worst)
		}
		if n := nodes[1].told(coordinator.GiveUp); n < w.Shards/3 {
			t.Errorf("the node was told %d times to give a shard up", n)
		}
		Wait(t, "the member is gone at once", w.TTL/2, func() bool { return len(nodes[0].Coord.Members()) == 2 })
	},
	"what a cut off node held is taken over in time, and it learns": func(t *testing.T, w *world) {
		nodes := w.three()
		w.Cut("n1", true)
		took := Wait(t, "others own everything", w.TTL+slack, func() bool { return w.db.Owned()["n1"] == 0 })
		t.Logf("taken over %s after the cut, TTL %s", took, w.TTL)
		if took < w.TTL/2 {
			t.Errorf("the shards were taken over after %s: a lease lasts %s", took, w.TTL)
		}
		w.fair(nodes[0], nodes[2])
		Wait(t, "the cut off node knows that it owns nothing", slack, func() bool { return nodes[1].Count() == 0 })
		Wait(t, "the cut off node says so", slack, func() bool {
			st := nodes[1].Coord.Status()
			return !st.Connected && st.Problem != ""
		})
		w.Cut("n1", false)
		w.fair(nodes[:]...)
	},
	"without any coordination everybody goes on, and nothing moves afterwards": func(t *testing.T, w *world) {
		nodes := w.three()
		before := w.db.TakeOvers()
		for _, n := range nodes {
			w.Cut(n.Name, true)
		}
		Wait(t, "all know it", 2*w.TTL+slack, func() bool {
			for _, n := range nodes {
				if n.Coord.Status().Connected {
					return false
				}
			}
			return true
		})
		// For longer than any lease lasts.
		until := time.Now().Add(2 * w.TTL)
		for time.Now().Before(until) {
			if silent := w.db.LongestSilence(); silent > slack/5 {
				t.Fatalf("a shard had no commit for %s", silent)
			}
			time.Sleep(commitEvery)
		}
		for _, n := range nodes {
			w.Cut(n.Name, false)
		}
		Wait(t, "all take part again", 2*w.TTL+slack, func() bool {
			for _, n := range nodes {
				if st := n.Coord.Status(); !st.Connected || !st.Session || len(n.Coord.Members()) != 3 {
					return false
				}
			}
			return true
		})
		w.fair(nodes[:]...)
		for _, n := range nodes {
			w.shown(n)
		}
		if n := w.db.TakeOvers() - before; n > 0 {
			t.Errorf("%d shards were taken over after an outage that everybody survived", n)
		}
	},
	"two processes of one name don't both take part": func(t *testing.T, w *world) {
		a := w.start("n0")
		w.fair(a)
		b := w.start("n0")
		Wait(t, "the second one says why", slack, func() bool { return b.Coord.Status().Problem != "" && !b.Coord.Status().Session })
		if a.Count() != w.Shards || b.Count() != 0 {
			t.Errorf("they own %d and %d shards", a.Count(), b.Count())
		}
		a.End()
		w.fair(b)
	},
	"a node that can't reach its database releases its shards": func(t *testing.T, w *world) {
		nodes := w.three()
		nodes[1].Ill(true)
		took := Wait(t, "others own everything", slack+slack, func() bool { return w.db.Owned()["n1"] == 0 })
		if took < 4*time.Second {
			t.Errorf("it released its shards after %s", took)
		}
		w.fair(nodes[0], nodes[2])
		if n := nodes[1].told(coordinator.Drop); n == 0 {
			t.Error("it was not told to drop its shards")
		}
		nodes[1].Ill(false)
		w.fair(nodes[:]...)
	},
	"if nobody can reach the database, nobody releases anything": func(t *testing.T, w *world) {
		nodes := w.three()
		before := w.db.TakeOvers()
		w.db.Down(true)
		time.Sleep(8 * time.Second) // longer than a node alone would wait
		for _, n := range nodes {
			if n.told(coordinator.Drop) > 0 || n.Count() < w.Shards/3 {
				t.Errorf("%s was told %d times to drop a shard, and owns %d", n.Name, n.told(coordinator.Drop), n.Count())
			}
		}
		w.db.Down(false)
		w.fair(nodes[:]...)
		if n := w.db.TakeOvers() - before; n > 0 {
			t.Errorf("%d shards were taken over", n)
		}
	},
	"a shard that can't be given up is dropped": func(t *testing.T, w *world) {
		nodes := w.three()
		nodes[1].Ill(true)
		for _, h := range nodes[0].Coord.Holders() { // its last batches are asked for before it is known that it fails
			if h.Node == "n1" {
				if err := nodes[0].Coord.Pin(t.Context(), h.Shard, "n0"); err != nil {
					t.Fatal(err)
				}
			}
		}
		Wait(t, "others own everything", slack+slack, func() bool { return w.db.Owned()["n1"] == 0 })
		nodes[1].Ill(false)
		Wait(t, "the node is fit again", slack, func() bool {
			for _, m := range nodes[0].Coord.Members() {
				if m.Node == "n1" {
					return !m.Unfit
				}
			}
			return false
		})
	},
	"a session proves nothing of shards that others hold": func(t *testing.T, w *world) {
		nodes := w.three()
		nodes[1].Ill(true) // else the database would tell it
		w.Cut("n1", true)
		cut := time.Now()
		Wait(t, "others own everything", 2*w.TTL+slack, func() bool { return w.db.Owned()["n1"] == 0 })
		w.Cut("n1", false)
		Wait(t, "it takes part again", 2*w.TTL+slack, func() bool {
			st := nodes[1].Coord.Status()
			return st.Session && st.Connected && len(nodes[0].Coord.Members()) == 3
		})
		for until := time.Now().Add(w.TTL); time.Now().Before(until) && nodes[1].Count() > 0; time.Sleep(commitEvery) {
			for _, h := range nodes[0].Coord.Holders() {
				owns := nodes[1].owns(h.Shard) // before it is looked what proves that
				if p := nodes[1].Coord.Proven(); owns && nodes[1].owns(h.Shard) && h.Node != "n1" && p.After(cut.Add(time.Second)) {
					t.Fatalf("it believes to own shard %d, which %s holds, and counts as proven %s after it was cut off", h.Shard, h.Node, p.Sub(cut))
				}
			}
		}
		nodes[1].Ill(false)
		w.fair(nodes[:]...)
	},
	"a node whose clock is off releases its shards": func(t *testing.T, w *world) {
		nodes := w.three()
		nodes[2].Off(true)
		w.fair(nodes[0], nodes[1])
		nodes[2].Off(false)
		w.fair(nodes[:]...)
	},
	"what operators ask for": func(t *testing.T, w *world) {
		nodes := w.three()
		ctx := t.Context()
		id := shard.ID(0)
		if err := nodes[0].Coord.Pin(ctx, id, "nobody"); err == nil {
			t.Error("a shard was pinned to a node that isn't there")
		}
		if err := nodes[0].Coord.Pin(ctx, shard.ID(w.Shards), "n0"); err == nil {
			t.Error("a shard was pinned that isn't there")
		}
		for _, name := range []string{"n0", "n1", "n2"} {
			if err := nodes[0].Coord.Pin(ctx, id, name); err != nil {
				t.Fatal(err)
			}
			Wait(t, "the shard is at "+name, slack, func() bool {
				m, _ := nodes[2].Coord.Holder(id)
				return m.Node == name && nodes[1].Coord.Holders()[id].Pinned
			})
		}
		if err := nodes[0].Coord.Pin(ctx, id, ""); err != nil {
			t.Fatal(err)
		}
		if err := nodes[0].Coord.Drain(ctx, "n1", true); err != nil {
			t.Fatal(err)
		}
		w.fair(nodes[0], nodes[2])
		if err := nodes[0].Coord.Drain(ctx, "nobody", true); err == nil {
			t.Error("a node was drained that isn't there")
		}
		if err := nodes[0].Coord.Drain(ctx, "n1", false); err != nil {
			t.Fatal(err)
		}
		w.fair(nodes[:]...)
	},
}

// leave ends a node as planned.
func (w *world) leave(n *Node) {
	if !n.Coord.Leave() {
		w.t.Errorf("%s would leave without a word", n.Name)
	}
	Wait(w.t, n.Name+" has handed everything over", slack, func() bool { return n.Count() == 0 && w.db.Owned()[n.Name] == 0 })
	n.End()
}
