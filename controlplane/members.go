package controlplane

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/carillon-scheduler/carillon/coordinator"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// directory is what workers are told of coordinator.Directory. Its methods may be called by any
// goroutine, and don't block.
type directory interface {
	// Members returns the nodes as they are known now, this one among them. Workers are told of
	// those that have an address; if that is none, they go on with what they know.
	Members() []coordinator.Member
	// Changed returns a channel that is closed at the next change, or nil if there is none. What
	// Members returns after the call is at least as new as the channel.
	Changed() <-chan struct{}
	// Status tells as of which revision Members is, or was.
	Status() coordinator.Status
}

// directoryOf returns what tells of the nodes; nil if there is one node, whatever its address is:
// workers stay where they found it.
func directoryOf(c Cluster) directory {
	if c == nil || c.Status().Kind == "solo" {
		return nil
	}
	return c
}

// members tells workers' streams of the cluster's nodes.
type members struct {
	directory directory // nil: there is one node, and nothing to tell

	mu      sync.Mutex
	newest  *carillonv1.Membership     // guarded by mu; never changed, only replaced
	streams map[*workerStream]struct{} // guarded by mu: those that are to hear of changes
}

func newMembers(d directory) *members {
	return &members{directory: d, streams: map[*workerStream]struct{}{}}
}

// follow tells of every change until ctx ends.
func (m *members) follow(ctx context.Context) error {
	if m.directory == nil {
		return nil
	}
	for {
		changed := m.directory.Changed()
		st := m.directory.Status() // first: what Members tells is no older
		m.publish(membership(st, m.directory.Members()))
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *members) publish(newest *carillonv1.Membership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	same := slices.EqualFunc(newest.GetMembers(), m.newest.GetMembers(), func(a, b *carillonv1.Membership_Node) bool { return proto.Equal(a, b) })
	m.newest = newest
	if same || len(newest.GetMembers()) == 0 {
		return // their health changes every second
	}
	for w := range m.streams {
		w.push(delivery{membership: newest}) // a full stream is cut off by itself
	}
}

// tell has a stream told of the nodes now and at each change. Under the same lock as changes are
// told, so that it hears the newest last.
func (m *members) tell(w *workerStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams[w] = struct{}{}
	if len(m.newest.GetMembers()) > 0 {
		w.push(delivery{membership: m.newest})
	}
}

// forget tells a stream nothing more.
func (m *members) forget(w *workerStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, w)
}

// membership is what workers are told of the nodes. One that drains holds shards until the last of
// them has moved, and needs their credit.
func membership(st coordinator.Status, nodes []coordinator.Member) *carillonv1.Membership {
	out := &carillonv1.Membership{Generation: st.Gen, Revision: st.AsOf}
	for _, n := range nodes {
		if n.Address != "" {
			out.Members = append(out.Members, &carillonv1.Membership_Node{Node: n.Node, Address: n.Address, Draining: n.Draining && n.Shards == 0})
		}
	}
	return out
}
