package etcd_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/coordinatortest"
	"github.com/carillon-scheduler/carillon/coordinator/etcd"
	"github.com/carillon-scheduler/carillon/coordinator/etcd/etcdtest"
)

const (
	shards = 32
	ttl    = 2 * time.Second
)

func quiet() *slog.Logger {
	if os.Getenv("CARILLON_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// harness has each node reach etcd by links of its own.
type harness struct {
	coordinatortest.Harness
	t       *testing.T
	servers *etcdtest.Cluster
	cluster string
	gen     int64
	ttl     time.Duration
	hold    atomic.Pointer[held] // nil: all questions to the database are answered at once
	links   map[string][]*etcdtest.Link
}

// held holds the database's answer to one node back.
type held struct {
	node  string
	until chan struct{}
}

func newHarness(t *testing.T, servers *etcdtest.Cluster, cluster string) *harness {
	h := &harness{t: t, servers: servers, cluster: cluster, ttl: ttl, links: map[string][]*etcdtest.Link{}}
	h.Harness = coordinatortest.Harness{Shards: shards, TTL: ttl, Join: h.join, Cut: h.cut}
	return h
}

func (h *harness) join(name string, db *coordinatortest.Database) coordinator.Cluster {
	h.t.Helper()
	links, endpoints := h.servers.Links()
	h.links[name] = append(h.links[name], links...)
	return etcd.New(etcd.ClientConfig{Endpoints: endpoints}, etcd.Config{
		Cluster: h.cluster, Node: name, Address: name + ":7070", Version: "test", Capacity: 100, Shards: shards, Gen: h.gen, TTL: h.ttl, Log: quiet(),
		Owners: func(context.Context) ([]etcd.Ownership, error) {
			if wait := h.hold.Load(); wait != nil && wait.node == name {
				<-wait.until
			}
			owners, err := db.Owners()
			var out []etcd.Ownership
			for _, o := range owners {
				out = append(out, etcd.Ownership(o))
			}
			return out, err
		},
	})
}

func (h *harness) cut(name string, cut bool) {
	for _, l := range h.links[name] {
		l.Cut(cut)
	}
}

func TestOneMember(t *testing.T) {
	suite(t, 1)
}

func TestThreeMembers(t *testing.T) {
	suite(t, 3)
}

// suite runs the suite on one etcd, where the tests' clusters don't see each other.
func suite(t *testing.T, members int) {
	servers := etcdtest.Start(t, members)
	var clusters atomic.Int64
	coordinatortest.Run(t, func(t *testing.T) coordinatortest.Harness {
		return newHarness(t, servers, fmt.Sprintf("c%d", clusters.Add(1))).Harness
	})
}

// rig is three nodes on an etcd of their own.
type rig struct {
	*harness
	t     *testing.T
	db    *coordinatortest.Database
	nodes []*coordinatortest.Node
}

func newRig(t *testing.T, members int) *rig {
	t.Parallel() // it mostly waits
	r := &rig{harness: newHarness(t, etcdtest.Start(t, members), "c"), t: t, db: coordinatortest.NewDatabase(shards)}
	r.servers.Do(func(ctx context.Context, client *clientv3.Client) error {
		for range 500 { // an etcd that is made anew doesn't come this far
			if _, err := client.Put(ctx, "/before", "x"); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		r.nodes = append(r.nodes, coordinatortest.Start(t, name, r.join(name, r.db), r.db))
	}
	r.fair()
	return r
}

func (r *rig) wait(what string, holds func() bool) {
	r.t.Helper()
	coordinatortest.Wait(r.t, what, 20*time.Second, holds)
}

func (r *rig) fair() {
	r.t.Helper()
	r.wait("fair parts", func() bool {
		for _, n := range r.nodes {
			if c := n.Count(); c < shards/3 || c > shards/3+1 || r.db.Owned()[n.Name] != c {
				return false
			}
		}
		return true
	})
}

// shardKey is the key of a shard.
func (r *rig) shardKey(id int) string { return fmt.Sprintf("/carillon/c/shards/%04d", id) }

func TestACompactionUnderALaggingWatch(t *testing.T) {
	r := newRig(t, 1)
	before := r.db.TakeOvers()
	r.cut("n1", true)
	r.servers.Do(func(ctx context.Context, client *clientv3.Client) error {
		for range 50 {
			if _, err := client.Put(ctx, "/carillon/c/other", "x"); err != nil {
				return err
			}
		}
		resp, err := client.Put(ctx, "/carillon/c/other", "x")
		if err != nil {
			return err
		}
		_, err = client.Compact(ctx, resp.Header.Revision)
		return err
	})
	r.cut("n1", false)
	if err := r.nodes[0].Coord.Pin(t.Context(), 0, "n1"); err != nil {
		t.Fatal(err)
	}
	r.wait("the node that lagged has seen the pin", func() bool { return r.nodes[1].Coord.Holders()[0].Node == "n1" })
	if n := r.db.TakeOvers() - before; n > 1+2*shards/3 {
		t.Errorf("%d take-overs", n)
	}
}

// An operator, or a fault of etcd, may end a lease or delete a key of a node that lives.
func TestAKeyThatIsLost(t *testing.T) {
	r := newRig(t, 1)
	before := r.db.TakeOvers()
	r.servers.Do(func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Delete(ctx, r.shardKey(3))
		return err
	})
	r.wait("the key is won again", func() bool {
		m, ok := r.nodes[0].Coord.Holder(3)
		owners, err := r.db.Owners()
		return ok && err == nil && m.Node == owners[3].Node && owners[3].Rev == r.nodes[0].Coord.Holders()[3].Rev
	})
	r.fair()
	if n := r.db.TakeOvers() - before; n > 1 { // another one may have been faster
		t.Errorf("%d take-overs after one key was lost", n)
	}
	r.servers.Do(func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.Get(ctx, "/carillon/c/members/n2")
		if err != nil {
			return err
		}
		_, err = client.Revoke(ctx, clientv3.LeaseID(resp.Kvs[0].Lease))
		return err
	})
	r.fair()
	r.wait("three members", func() bool { return len(r.nodes[0].Coord.Members()) == 3 })
}

// A node that has just come asks the database before it takes a shard, and does so at once: a
// shard that is handed to it must not wait for the next tick.
func TestANodeThatHasJustComeTakesShardsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t, etcdtest.Start(t, 1), "c")
	h.ttl = 30 * time.Second // it has just come for as long as the test lasts
	db := coordinatortest.NewDatabase(shards)
	first := coordinatortest.Start(t, "n0", h.join("n0", db), db)
	coordinatortest.Wait(t, "one node owns all", 20*time.Second, func() bool { return first.Count() == shards })
	second := coordinatortest.Start(t, "n1", h.join("n1", db), db)
	took := coordinatortest.Wait(t, "the second has its part", 20*time.Second, func() bool { return second.Count() == shards/2 })
	// Four at a time are on their way, 200 ms each; a tick for the first would be more than a second.
	if took > 1500*time.Millisecond {
		t.Errorf("it took %s until it had its part", took)
	}
}

func TestOneOfThreeMembersIsLost(t *testing.T) {
	r := newRig(t, 3)
	before := r.db.TakeOvers()
	for i := range 3 {
		r.servers.Stop(i)
		if err := r.nodes[0].Coord.Pin(t.Context(), 0, fmt.Sprintf("n%d", i)); err != nil {
			t.Errorf("without member %d: %v", i, err)
		}
		r.wait("a shard moves without member", func() bool { return r.nodes[1].Coord.Holders()[0].Node == fmt.Sprintf("n%d", i) })
		r.servers.Begin(i)
	}
	r.fair()
	if n := r.db.TakeOvers() - before; n > 3+3 {
		t.Errorf("%d take-overs, want those of three pins", n)
	}
}

func TestTheQuorumIsLost(t *testing.T) {
	r := newRig(t, 3)
	before := r.db.TakeOvers()
	r.servers.Stop(0)
	r.servers.Stop(1)
	r.wait("all say what is frozen", func() bool {
		for _, n := range r.nodes {
			if st := n.Coord.Status(); st.Connected || !strings.Contains(st.Problem, "no shard moves") {
				return false
			}
		}
		return true
	})
	for until := time.Now().Add(3 * ttl); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if silent := r.db.LongestSilence(); silent > time.Second {
			t.Fatalf("a shard had no commit for %s", silent)
		}
	}
	r.servers.Begin(0, 1)
	r.wait("all take part again", func() bool {
		for _, n := range r.nodes {
			if st := n.Coord.Status(); !st.Connected || !st.Session || st.Problem != "" || len(n.Coord.Members()) != 3 {
				return false
			}
		}
		return true
	})
	r.fair()
	if n := r.db.TakeOvers() - before; n > 0 {
		t.Errorf("%d take-overs after an outage that everybody survived", n)
	}
}

// A node that doesn't know yet that no claim can win seems to be the one for all shards. The others
// keep theirs all the same.
func TestNothingIsHandedOverThatNobodyCanTake(t *testing.T) {
	r := newRig(t, 1)
	h := &held{"n0", make(chan struct{})}
	r.hold.Store(h)
	r.servers.Wipe()
	r.wait("two know that no claim can win", func() bool {
		for _, n := range r.nodes[1:] {
			if st := n.Coord.Status(); !strings.Contains(st.Problem, "raise owner_gen") {
				return false
			}
		}
		return len(r.nodes[1].Coord.Members()) == 3
	})
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		for name, n := range r.db.Owned() {
			if name == "" && n > 0 {
				t.Fatalf("%d shards are nobody's", n)
			}
		}
	}
	close(h.until)
	r.wait("the third knows it, too", func() bool { return strings.Contains(r.nodes[0].Coord.Status().Problem, "raise owner_gen") })
}

func TestEtcdIsMadeAnew(t *testing.T) {
	r := newRig(t, 1)
	before := r.db.TakeOvers()
	r.servers.Wipe()
	r.wait("all say what is to be done", func() bool {
		for _, n := range r.nodes {
			if st := n.Coord.Status(); !strings.Contains(st.Problem, "raise owner_gen to 1") {
				return false
			}
		}
		return true
	})
	if n := r.db.TakeOvers() - before; n > 0 || r.db.LongestSilence() > time.Second {
		t.Errorf("%d take-overs, and no commit for %s", n, r.db.LongestSilence())
	}
	r.gen = 1
	for i, n := range r.nodes {
		n.End()
		r.nodes[i] = coordinatortest.Start(t, n.Name, r.join(n.Name, r.db), r.db)
		r.wait("it has shards", func() bool { return r.nodes[i].Count() > 0 })
	}
	r.fair()
	for _, n := range r.nodes {
		if st := n.Coord.Status(); st.Problem != "" {
			t.Errorf("%s: %s", n.Name, st.Problem)
		}
	}
	owners, err := r.db.Owners()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range owners {
		if o.Gen != 1 {
			t.Errorf("shard %d is owned under gen %d", o.Shard, o.Gen)
		}
	}
}
