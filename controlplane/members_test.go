package controlplane_test

import (
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// directory is a list of nodes that a test changes.
type directory struct {
	*solo.Coordinator // for what nobody asks here

	mu      sync.Mutex
	members []coordinator.Member
	changed chan struct{}
}

func (d *directory) Members() []coordinator.Member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.members
}

func (d *directory) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

func (*directory) Status() coordinator.Status { return coordinator.Status{Kind: "scripted"} }

func (d *directory) set(members ...coordinator.Member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.members = members
	close(d.changed)
	d.changed = make(chan struct{})
}

func capable(id string, of ...string) *carillonv1.Hello {
	h := hello(id, "1")
	h.Capabilities = of
	return h
}

func members(w *rawWorker) []*carillonv1.Membership_Node {
	w.s.t.Helper()
	return next(w, "membership", func(m *carillonv1.ConnectResponse) [][]*carillonv1.Membership_Node {
		if m.GetMembership() == nil {
			return nil
		}
		return [][]*carillonv1.Membership_Node{m.GetMembership().GetMembers()}
	})
}

func TestWorkersAreToldOfTheMembers(t *testing.T) {
	d := &directory{Coordinator: solo.New("test", 8, 1), changed: make(chan struct{})}
	s := startAs(t, filepath.Join(t.TempDir(), "carillon.db"), func(cfg *controlplane.Config) { cfg.Cluster, cfg.ClusterID = d, "c-1" })
	d.set(coordinator.Member{Node: "test", Address: "a:1"}, coordinator.Member{Node: "nowhere"})
	w, old := s.connect(capable("w", "membership")), s.connect(hello("old", "1"))
	if welcome := next(w, "welcome", func(m *carillonv1.ConnectResponse) []*carillonv1.Welcome { return some(m.GetWelcome()) }); welcome.GetCluster() != "c-1" || welcome.GetGranted() != nil {
		t.Errorf("welcomed with %v", welcome)
	}
	if got := members(w); len(got) != 1 || got[0].GetNode() != "test" || got[0].GetAddress() != "a:1" {
		t.Errorf("told of %v", got)
	}
	d.set() // says nothing
	d.set(coordinator.Member{Node: "test", Address: "a:1", Draining: true}, coordinator.Member{Node: "other", Address: "b:1"})
	for got := members(w); len(got) != 2 || !got[0].GetDraining(); got = members(w) {
	}
	must(t, old.stream.Send(&carillonv1.ConnectRequest{Heartbeat: &carillonv1.Heartbeat{Sequence: 1}}))
	next(old, "acknowledgement", func(m *carillonv1.ConnectResponse) []*carillonv1.HeartbeatAck {
		if m.GetMembership() != nil {
			t.Error("a worker that can't follow members was told of them")
		}
		return some(m.GetHeartbeatAck())
	})
}

func some[T any](m *T) []*T {
	if m == nil {
		return nil
	}
	return []*T{m}
}

// Credit that was given back isn't used; what waits for it is told.
func TestCreditOverTheWire(t *testing.T) {
	s := newServer(t)
	w := s.connect(capable("w", "reclaim"))
	for _, want := range []int32{10, 0} {
		must(t, w.stream.Send(&carillonv1.ConnectRequest{Reclaim: 20}))
		if got := next(w, "answer", func(m *carillonv1.ConnectResponse) []*int32 { return some(m.Reclaimed) }); *got != want {
			t.Errorf("%d came back, want %d", *got, want)
		}
	}
	s.create(job("j", "h", scheduleNow()))
	if got := next(w, "demand", func(m *carillonv1.ConnectResponse) []*int32 { return some(m.Wanted) }); *got != 1 {
		t.Errorf("%d slots wait", *got)
	}
	must(t, w.stream.Send(&carillonv1.ConnectRequest{Credit: 1}))
	w.assignment()
	must(t, w.stream.Send(&carillonv1.ConnectRequest{Reclaim: -1}))
	if err := w.end(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("ended with %v", err)
	}
}
