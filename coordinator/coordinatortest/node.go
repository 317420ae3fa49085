package coordinatortest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// Node does what a coordinator says, against a Database, as an engine's node does.
type Node struct {
	Name  string
	Coord coordinator.Cluster
	db    *Database
	stop  func()

	mu    sync.Mutex
	owned map[shard.ID]int64 // with their epochs
	revs  map[shard.ID]int64 // of the latest changes
	gone  map[coordinator.Kind]int
	ill   bool // its way to the database fails
	off   bool // its clock is off
	began time.Time
	bad   time.Time
}

// commitEvery is the pause between two commits of a node.
const commitEvery = 20 * time.Millisecond

// Start runs a node until stop, or the test's end.
func Start(t *testing.T, name string, coord coordinator.Cluster, db *Database) *Node {
	n := &Node{Name: name, Coord: coord, db: db, owned: map[shard.ID]int64{}, revs: map[shard.ID]int64{}, gone: map[coordinator.Kind]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	changes := make(chan coordinator.Change)
	var all sync.WaitGroup
	all.Go(func() {
		if err := coord.Run(ctx, changes); err != nil {
			t.Errorf("node %s: %v", name, err)
		}
	})
	all.Go(func() { n.run(ctx, changes) })
	n.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(n.stop)
	return n
}

func (n *Node) run(ctx context.Context, changes <-chan coordinator.Change) {
	tick := time.NewTicker(commitEvery)
	defer tick.Stop()
	for {
		select {
		case c := <-changes:
			n.change(c)
		case <-tick.C:
			n.commitAll()
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) change(c coordinator.Change) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone[c.Kind]++
	n.revs[c.Shard] = c.Rev
	epoch, owned := n.owned[c.Shard]
	var err error
	switch {
	case c.Kind == coordinator.Drop || c.Kind == coordinator.GiveUp && !owned:
		n.release(c.Shard)
		return
	case c.Kind == coordinator.GiveUp:
		if err := n.reach(func() error { return n.db.commit(c.Shard, epoch, true) }); !errors.Is(err, errDown) {
			n.release(c.Shard)
		}
		return
	case c.Kind == coordinator.Keep && owned:
		err = n.reach(func() error { return n.db.renew(n.Name, epoch, c) })
	default:
		err = n.reach(func() (err error) {
			epoch, err = n.db.takeOver(n.Name, c)
			return err
		})
		if err == nil {
			n.owned[c.Shard] = epoch
		}
	}
	if errors.Is(err, errFenced) || errors.Is(err, errSuperseded) {
		n.release(c.Shard)
	}
}

// reach makes a call of the database, unless the node can't reach it.
func (n *Node) reach(call func() error) error {
	if n.ill {
		return errDown
	}
	return call()
}

func (n *Node) release(id shard.ID) {
	delete(n.owned, id)
	n.Coord.Released(id, n.revs[id])
}

// commitAll proves that the node owns its shards, and tells the coordinator how that went.
func (n *Node) commitAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	began, down := time.Now(), n.ill
	for id, epoch := range n.owned {
		err := n.reach(func() error { return n.db.commit(id, epoch, false) })
		if errors.Is(err, errFenced) {
			n.release(id)
		}
		down = down || errors.Is(err, errDown)
	}
	switch {
	case down && n.bad.IsZero():
		n.bad = began
	case !down:
		n.bad = time.Time{}
		if len(n.owned) > 0 {
			n.began = began
		}
	}
	h := coordinator.Health{Begun: n.began, Took: time.Since(began), Failing: n.bad, Off: n.off}
	if n.off {
		h.Skew = time.Minute
	}
	n.Coord.Report(h)
}

// End ends the node, as a process that is asked to end: its session ends with it.
func (n *Node) End() { n.stop() }

// Ill cuts the node from its database, or ends that.
func (n *Node) Ill(ill bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ill = ill
}

// Off sets the node's clock wrong, or right.
func (n *Node) Off(off bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.off = off
}

// Count returns how many shards the node believes to own.
func (n *Node) Count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.owned)
}

// owns reports whether the node believes to own a shard.
func (n *Node) owns(id shard.ID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, owns := n.owned[id]
	return owns
}

// told returns how often the node was told something.
func (n *Node) told(kind coordinator.Kind) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gone[kind]
}
