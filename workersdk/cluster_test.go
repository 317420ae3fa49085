package workersdk

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func without(name string) func([]*carillonv1.Membership_Node) []*carillonv1.Membership_Node {
	return func(ms []*carillonv1.Membership_Node) []*carillonv1.Membership_Node {
		return slices.DeleteFunc(ms, func(m *carillonv1.Membership_Node) bool { return m.GetNode() == name })
	}
}

func TestAStreamToEachNode(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f *fleet) {
		f.run("passthrough:///n2", obey, Capacity(99))
		for _, n := range f.nodes {
			if n.count() != 1 || !slices.Contains(n.stream().hello.GetCapabilities(), "membership") {
				t.Errorf("%s has %d streams", n.name, n.count())
			}
		}
		if got := fmt.Sprint(f.inHand()); got != "[33 33 33]" {
			t.Errorf("the nodes have %s in hand", got)
		}
		f.add(3)
		f.tell()
		if pass(time.Second); f.nodes[3].count() != 1 || f.nodes[3].inHand() < 20 {
			t.Errorf("the new node has %d streams, and %d in hand", f.nodes[3].count(), f.nodes[3].inHand())
		}
		if pass(time.Minute); f.nodes[0].count() != 1 {
			t.Errorf("%d streams to the first node", f.nodes[0].count())
		}
	})
}

// A load balancer leads to any node. There is one stream to each all the same.
func TestThroughALoadBalancer(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f *fleet) {
		f.route("lb", f.nodes[2])
		f.run("passthrough:///down,passthrough:///lb", obey)
		for _, n := range f.nodes {
			if n.count() != 1 {
				t.Errorf("%s has %d streams", n.name, n.count())
			}
		}
		// When it breaks, the member's own address is used; nobody needs the balancer.
		f.route("lb", f.nodes[0])
		f.nodes[2].stream().close(errGone)
		pass(time.Second)
		if f.nodes[0].count() != 1 || f.nodes[2].count() != 2 {
			t.Errorf("%d streams to the first, %d to the third", f.nodes[0].count(), f.nodes[2].count())
		}
	})
}

// Members may be out of reach for a worker that the seeds let in.
func TestOnlyTheSeedsCanBeReached(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f *fleet) {
		f.route("lb", f.nodes[0])
		f.route("n1", nil)
		f.route("n2", nil)
		f.run("passthrough:///lb", obey, Capacity(10))
		if pass(time.Minute); f.nodes[0].count() != 1 || f.nodes[0].inHand() != 10 {
			t.Fatalf("%d streams, %d in hand", f.nodes[0].count(), f.nodes[0].inHand())
		}
		f.route("lb", f.nodes[1])
		f.nodes[0].stream().close(errGone)
		if pass(10 * time.Second); f.nodes[1].count() != 1 || f.nodes[1].inHand() != 10 {
			t.Errorf("%d streams, %d in hand of the second", f.nodes[1].count(), f.nodes[1].inHand())
		}
		f.route("n1", f.nodes[0])
		if pass(5 * time.Second); f.nodes[0].inHand() != 5 || f.nodes[1].inHand() != 5 {
			t.Errorf("in hand: %v", f.inHand())
		}
	})
}

func TestANodeThatCannotBeReached(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f *fleet) {
		f.route("n2", nil)
		f.run("passthrough:///n1", obey, Capacity(30))
		if got := fmt.Sprint(f.inHand()); got != "[15 0 15]" {
			t.Errorf("the nodes have %s in hand", got)
		}
		f.route("n2", f.nodes[1])
		pass(5 * time.Second)
		if got := fmt.Sprint(f.inHand()); got != "[10 10 10]" {
			t.Errorf("the nodes have %s in hand", got)
		}
		f.nodes[1].refuse(errGone)
		f.nodes[1].stream().close(errGone)
		if pass(time.Second); f.nodes[0].inHand()+f.nodes[2].inHand() != 30 {
			t.Errorf("in hand: %v", f.inHand())
		}
	})
}

// Attempts go on when their shard moves, under the new owner's word, and results go there.
func TestAShardMoves(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		release := make(chan struct{})
		var ended atomic.Int32
		f.run("passthrough:///n1", func(ctx context.Context, _ *Task[any]) error {
			select {
			case <-release:
			case <-ctx.Done():
				ended.Add(1)
			}
			return nil
		})
		a.stream().assign(f.next(a), f.next(a))
		f.move(0, b, 2)
		if asked := b.stream().held(); len(asked) != 2 {
			t.Fatalf("the new owner was asked about %v", asked)
		}
		if pass(time.Minute); ended.Load() != 0 {
			t.Fatal("a handler ended")
		}
		a.stream().send(&carillonv1.ConnectResponse{Cancellations: []*carillonv1.Cancellation{{Token: a.stream().heldOf(), Reason: carillonv1.CancellationReason_CANCELLATION_REASON_LEASE_LOST, Epoch: 1}}})
		close(release)
		if got, old := b.stream().results(), a.stream().results(); len(got) != 2 || len(old) != 0 || ended.Load() != 0 {
			t.Errorf("%d results at the new owner, %d at the old one; %d handlers ended", len(got), len(old), ended.Load())
		}
		if started := b.stream().startedOnes(); started != 2 {
			t.Errorf("the new owner heard of %d first lines", started)
		}
		if pass(time.Minute); len(b.stream().results()) != 2 {
			t.Error("results were sent again")
		}
	})
}

// heldOf returns a token of the stream's shard.
func (s *nodeStream) heldOf() *carillonv1.AttemptToken {
	t := testToken(1)
	t.Shard, t.Epoch = 0, 1
	return t
}

func (s *nodeStream) startedOnes() (n int) {
	for _, m := range s.messages() {
		n += len(m.GetStarted())
	}
	return n
}

// A result that the old owner didn't take goes to the new one as soon as that is known.
func TestResultsFollowTheirShard(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		f.run("passthrough:///n1", func(context.Context, *Task[any]) error { return nil })
		a.stream().set(func(s *nodeStream) { s.muteAcks = true })
		a.stream().assign(f.next(a))
		a.stream().onlyResult()
		f.move(0, b, 2)
		b.stream().onlyResult()
		if pass(time.Minute); len(a.stream().results())+len(b.stream().results()) != 2 {
			t.Error("it was sent again after its acknowledgement")
		}
	})
}

// While nobody is known to own the shard, a result is offered to all.
func TestResultsWithoutAnOwner(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		release := make(chan struct{})
		f.run("passthrough:///n1", func(context.Context, *Task[any]) error { <-release; return nil })
		a.stream().assign(f.next(a))
		f.route("n1", nil)
		a.stream().close(errGone)
		pass(100 * time.Millisecond)
		close(release)
		b.set(func(n *node) { n.shards[0] = 2 }) // and says nothing
		if pass(testLease/2 - time.Second); len(b.stream().results()) != 0 {
			t.Error("it came too early")
		}
		pass(2 * time.Second)
		want(t, b.stream().onlyResult(), succeeded, "")
	})
}

// An owner that never vouches for an attempt doesn't renew its lease, and neither does the one before.
func TestAMoveWithoutAWordOfTheNewOwner(t *testing.T) {
	inFleet(t, 2, func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		var ended time.Time
		f.run("passthrough:///n1", func(ctx context.Context, task *Task[any]) error {
			err := obey(ctx, task)
			ended = time.Now()
			return err
		})
		a.stream().assign(f.next(a))
		pass(10 * time.Second)
		b.set(func(n *node) { n.unsure = true })
		moved := time.Now()
		f.move(0, b, 2)
		pass(20 * time.Second)
		if took := ended.Sub(moved); ended.IsZero() || took > 9200*time.Millisecond || took < 5*time.Second {
			t.Errorf("its context ended after %v", took)
		}
	})
}

func TestANodeLeaves(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f *fleet) {
		release := make(chan struct{})
		f.run("passthrough:///n1", func(context.Context, *Task[any]) error { <-release; return nil }, Capacity(30))
		leaver := f.nodes[2]
		s := leaver.stream()
		s.assign(f.next(leaver))
		f.tell(without("n3"))
		if pass(time.Minute); s.isOver() || leaver.inHand() != 0 {
			t.Fatalf("the stream is over: %v; in hand %d", s.isOver(), leaver.inHand())
		}
		close(release)
		pass(time.Second)
		s.onlyResult()
		if !s.isOver() || leaver.count() != 1 || fmt.Sprint(f.inHand()) != "[15 15 0]" {
			t.Errorf("the stream is over: %v, %d streams; in hand %v", s.isOver(), leaver.count(), f.inHand())
		}
		f.tell()
		if pass(time.Second); leaver.count() != 2 {
			t.Errorf("%d streams after it came back", leaver.count())
		}
	})
}

// A node that is about to leave, as the list says or the node itself, gets no credit; what it has
// goes on.
func TestANodeDrains(t *testing.T) {
	for name, drain := range map[string]func(f *fleet, s *nodeStream){
		"by the list": func(f *fleet, _ *nodeStream) {
			f.tell(func(ms []*carillonv1.Membership_Node) []*carillonv1.Membership_Node { ms[0].Draining = true; return ms })
		},
		"by itself": func(_ *fleet, s *nodeStream) { s.send(&carillonv1.ConnectResponse{Draining: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, 2, func(t *testing.T, f *fleet) {
				release := make(chan struct{})
				f.run("passthrough:///n1", func(context.Context, *Task[any]) error { <-release; return nil }, Capacity(10))
				a, b := f.nodes[0], f.nodes[1]
				s := a.stream()
				s.assign(f.next(a))
				drain(f, s)
				if pass(time.Second); a.inHand() != 0 || b.inHand() != 9 || s.isOver() {
					t.Errorf("in hand: %v; over: %v", f.inHand(), s.isOver())
				}
				close(release)
				pass(time.Second)
				want(t, s.onlyResult(), succeeded, "")
				if a.inHand() != 0 || b.inHand() != 10 {
					t.Errorf("in hand: %v", f.inHand())
				}
			})
		})
	}
}

// Epochs of another cluster count for nothing, and what is held is asked about there.
func TestAnotherCluster(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.cluster, n.shards = "a", map[int32]int64{3: 99}
		w := n.dial()
		var cause atomic.Value
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			err := obey(ctx, task)
			cause.Store(err)
			return err
		})
		n.run(w)
		held := job(1, "h", "")
		held.Epoch = 99
		n.stream().assign(held)
		n.set(func(n *node) { n.cluster, n.shards[3], n.unsure = "b", 7, true })
		n.stream().close(errGone)
		pass(time.Second)
		fresh := n.stream()
		fresh.assign(within(job(2, "h", ""), time.Hour))
		if len(fresh.results()) != 0 {
			t.Errorf("an assignment of the new cluster was answered by %v", fresh.results())
		}
		if pass(9 * time.Second); cause.Load() != ErrLeaseLost {
			t.Errorf("what is held was ended by %v", cause.Load())
		}
	})
}

func TestShutdownOfThreeStreams(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f *fleet) {
		r := f.run("passthrough:///n1", func(context.Context, *Task[any]) error { time.Sleep(2 * time.Second); return nil })
		for _, n := range f.nodes {
			n.stream().assign(f.next(n))
		}
		if took := r.end(); took > 2200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		for _, n := range f.nodes {
			s := n.streams[0]
			want(t, s.onlyResult(), succeeded, "")
			drained := slices.ContainsFunc(s.messages(), func(m *carillonv1.ConnectRequest) bool { return m.GetDraining() })
			if !drained || !s.isOver() || n.count() != 1 {
				t.Errorf("%s was told: %v; its stream is over: %v", n.name, drained, s.isOver())
			}
		}
	})
}

// A node may grant less than the whole lease, when its own right to the shards may end before.
func TestShorterLeases(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var ended time.Time
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			err := obey(ctx, task)
			ended = time.Now()
			return err
		})
		n.run(w)
		s := n.stream()
		s.assign(within(job(1, "h", ""), time.Hour))
		pass(testInterval + time.Second) // one beat, which grants the whole lease
		s.set(func(s *nodeStream) { s.grants = durationpb.New(time.Second) })
		began := time.Now()
		pass(testLease)
		if took := ended.Sub(began); ended.IsZero() || took < 5*time.Second || took > 9*time.Second {
			t.Errorf("its context ended after %v", took)
		}
		if n.count() != 1 {
			t.Error("the stream was dropped")
		}
	})
}
