package workersdk

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// fleet is the nodes of a cluster, as far as a worker sees them. Node i+1 of n owns the shards
// that leave i when they are divided by n, of which there are as many as nodes, under epoch 1.
type fleet struct {
	t     *testing.T
	nodes []*node

	mu     sync.Mutex
	routes map[string]*node // guarded by mu: by address; nil leads nowhere
	serial int
}

func inFleet(t *testing.T, nodes int, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, routes: map[string]*node{}}
		for i := range nodes {
			f.add(int32(i))
		}
		f.tell()
		test(t, f)
	})
}

// add starts one more node, that owns a shard.
func (f *fleet) add(shard int32) *node {
	n := startNamed(f.t, fmt.Sprint("n", len(f.nodes)+1))
	n.shards = map[int32]int64{shard: 1}
	f.nodes = append(f.nodes, n)
	f.route(n.name, n)
	return n
}

// route has an address lead to a node, or nowhere.
func (f *fleet) route(address string, to *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes[address] = to
}

// tell makes all nodes but some the members, and says so over all streams.
func (f *fleet) tell(change ...func([]*carillonv1.Membership_Node) []*carillonv1.Membership_Node) {
	m := &carillonv1.Membership{}
	for _, n := range f.nodes {
		m.Members = append(m.Members, &carillonv1.Membership_Node{Node: n.name, Address: "passthrough:///" + n.name})
	}
	for _, c := range change {
		m.Members = c(m.Members)
	}
	synctest.Wait()
	for _, n := range f.nodes {
		n.set(func(n *node) { n.members = m })
		if s := n.live(); s != nil {
			s.send(&carillonv1.ConnectResponse{Membership: m})
		}
	}
	synctest.Wait()
}

func (f *fleet) run(target string, handle func(ctx context.Context, task *Task[any]) error, opts ...Option) *runningWorker {
	f.t.Helper()
	opts = append([]Option{ID("w1"), Logger(slog.New(slog.DiscardHandler)),
		DialOptions(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			f.mu.Lock()
			n := f.routes[address]
			f.mu.Unlock()
			if n == nil {
				return nil, errGone
			}
			return n.listener.DialContext(ctx)
		}))}, opts...)
	w, err := Dial(f.t.Context(), target, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	Handle(w, "h", handle)
	r := f.nodes[0].run(w)
	pass(time.Second)
	return r
}

// live returns the newest stream if it isn't over, or nil.
func (n *node) live() *nodeStream {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.streams) == 0 {
		return nil
	}
	s := n.streams[len(n.streams)-1]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	return s
}

// inHand is the credit that the node has.
func (n *node) inHand() int {
	synctest.Wait()
	s := n.live()
	if s == nil {
		return 0
	}
	credit, _ := s.accounts()
	return credit
}

func (f *fleet) inHand() (all []int) {
	for _, n := range f.nodes {
		all = append(all, n.inHand())
	}
	return all
}

// next makes an assignment of a shard that the node owns.
func (f *fleet) next(n *node) *carillonv1.Assignment {
	f.serial++
	a := within(job(f.serial, "h", ""), time.Hour)
	n.mu.Lock()
	defer n.mu.Unlock()
	for shard, epoch := range n.shards {
		a.Token.Shard, a.Token.Epoch, a.Epoch = shard, epoch, epoch
	}
	return a
}

// offer has a node assign what waits there as far as its credit goes, and tell of the rest. It
// returns how much that is.
func (f *fleet) offer(n *node, waiting int) int {
	s := n.live()
	if s == nil {
		return waiting
	}
	for ; waiting > 0; waiting-- {
		if credit, _ := s.accounts(); credit == 0 {
			break
		}
		s.assign(f.next(n))
	}
	s.send(&carillonv1.ConnectResponse{Wanted: proto.Int32(int32(waiting))})
	synctest.Wait()
	return waiting
}

// move gives a shard to another node.
func (f *fleet) move(shard int32, to *node, epoch int64) {
	synctest.Wait()
	for _, n := range f.nodes {
		n.set(func(n *node) { delete(n.shards, shard) })
	}
	to.set(func(n *node) { n.shards[shard] = epoch })
	to.live().send(&carillonv1.ConnectResponse{Ownerships: []*carillonv1.Ownership{{Shard: shard, Epoch: epoch}}})
	synctest.Wait()
}
