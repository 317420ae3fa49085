package workersdk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		room    int
		demands []int
		want    string
	}{
		{100, []int{0}, "[100]"},
		{100, []int{500, 0, 0}, "[100 0 0]"},
		{100, []int{500, 500, 500}, "[34 33 33]"},
		{100, []int{500, 10, 0}, "[90 10 0]"},
		{100, []int{40, 10, 20}, "[50 20 30]"},
		{1, []int{0, 0, 5}, "[0 0 1]"},
		{1, []int{0, 0, 0}, "[1 0 0]"},
		{2, []int{3, 3, 3}, "[1 1 0]"},
		{0, []int{3, 0}, "[0 0]"},
	} {
		nodes := make([]claim, len(c.demands))
		for i, d := range c.demands {
			nodes[i] = claim{link: &link{}, demand: d}
		}
		split(c.room, nodes)
		got := []int{}
		for _, n := range nodes {
			got = append(got, n.target)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%d over %v: %v, want %s", c.room, c.demands, got, c.want)
		}
	}
}

// counted counts the handlers that run.
type counted struct {
	now, most atomic.Int64
	lasts     func() time.Duration
}

func (c *counted) handle(ctx context.Context, _ *Task[any]) error {
	c.most.Store(max(c.most.Load(), c.now.Add(1)))
	defer c.now.Add(-1)
	select {
	case <-time.After(c.lasts()):
	case <-ctx.Done():
	}
	return nil
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// holding is how many attempts of a node run.
func (n *node) holding() int {
	s := n.stream()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holding
}

func TestCreditGoesWhereTheWorkIs(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f *fleet) {
		c := &counted{lasts: always(10 * time.Second)}
		f.run("passthrough:///n1", c.handle, Capacity(100))
		busy := f.nodes[1]
		waiting := 1000
		for range 10 { // a second
			waiting = f.offer(busy, waiting)
			pass(100 * time.Millisecond)
		}
		if c.now.Load() != 100 || busy.holding() != 100 {
			t.Fatalf("%d of 100 run at the busy node", busy.holding())
		}
		// Then all three are busy.
		for range 300 {
			for _, n := range f.nodes {
				f.offer(n, 1000)
			}
			pass(100 * time.Millisecond)
		}
		for _, n := range f.nodes {
			if h := n.holding(); h < 33 || h > 34 {
				t.Errorf("%s has %d of 100", n.name, h)
			}
		}
		// And then none: the rest is spread.
		for range 3 {
			for _, n := range f.nodes {
				f.offer(n, 0)
			}
			pass(10 * time.Second)
		}
		for _, n := range f.nodes {
			if h := n.inHand(); h < 33 || h > 34 {
				t.Errorf("%s has %d of 100 in hand", n.name, h)
			}
		}
		if c.most.Load() > 100 {
			t.Errorf("%d ran at the same time", c.most.Load())
		}
	})
}

// The one credit of a worker goes where work is, and round if it is everywhere.
func TestCapacityOfOne(t *testing.T) {
	inFleet(t, 3, func(t *testing.T, f *fleet) {
		c := &counted{lasts: always(50 * time.Millisecond)}
		f.run("passthrough:///n1", c.handle, Capacity(1))
		for _, n := range f.nodes {
			for i := 0; i < 10 && len(n.stream().results()) == 0; i++ {
				f.offer(n, 1-len(n.stream().results()))
				pass(100 * time.Millisecond)
			}
			n.stream().onlyResult()
			f.offer(n, 0)
		}
		for range 300 {
			for _, n := range f.nodes {
				f.offer(n, 1000)
			}
			pass(20 * time.Millisecond)
		}
		for _, n := range f.nodes {
			if done := len(n.stream().results()); done < 20 {
				t.Errorf("%s had %d of %d", n.name, done, 6000/50)
			}
		}
		if c.most.Load() != 1 {
			t.Errorf("%d ran at the same time", c.most.Load())
		}
	})
}

// Whatever waits where, however late nodes answer, whichever stream breaks: what runs and what
// nodes have in hand is never more than the capacity, and in the end all of it is there.
func TestCreditIsNeverMoreThanTheCapacity(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inFleet(t, 3, func(t *testing.T, f *fleet) { randomDemands(t, f, rand.New(rand.NewPCG(seed, 8))) })
		})
	}
}

func randomDemands(t *testing.T, f *fleet, r *rand.Rand) {
	capacity := 1 + r.IntN(40)
	c := &counted{}
	c.lasts = func() time.Duration { return time.Duration(10+c.now.Load()*13%400) * time.Millisecond }
	w := f.run("passthrough:///n1", c.handle, Capacity(capacity))
	check := func(what string) {
		t.Helper()
		pass(0)
		together := int(c.now.Load())
		for _, n := range f.inHand() {
			together += n
		}
		if together > capacity {
			t.Fatalf("after %s %d run and %v are in hand, of %d", what, c.now.Load(), f.inHand(), capacity)
		}
	}
	for range 150 {
		n := f.nodes[r.IntN(3)]
		s := n.live()
		what := "time"
		switch kind := r.IntN(12); {
		case s == nil:
		case kind < 4:
			what = "work"
			f.offer(n, r.IntN(2*capacity+1))
		case kind < 6:
			what = "demand"
			s.send(&carillonv1.ConnectResponse{Wanted: proto.Int32(int32(r.IntN(3 * capacity)))})
		case kind == 6:
			what = "a late answer"
			n.set(func(n *node) { n.slow = true })
		case kind < 9:
			what = "an answer"
			n.set(func(n *node) { n.slow = false })
			answerReclaim(s)
		case kind == 9:
			what = "a broken stream"
			s.close(errGone)
		case kind == 10 && r.IntN(3) == 0:
			what = "a hand-over"
			s.send(&carillonv1.ConnectResponse{Reconnect: true})
		}
		check(what)
		pass(time.Duration(r.IntN(120)) * time.Millisecond)
		check("a while after " + what)
	}
	for _, n := range f.nodes {
		n.set(func(n *node) { n.slow = false })
		if s := n.live(); s != nil {
			answerReclaim(s)
		}
	}
	pass(10 * time.Second)
	for _, n := range f.nodes {
		f.offer(n, 0)
	}
	pass(time.Second)
	sum := 0
	for _, n := range f.nodes {
		sum += n.inHand()
		for _, s := range n.streams {
			for _, res := range s.results() {
				if res.GetErrorCode() == codeOverCapacity {
					t.Error("an attempt was handed back")
				}
			}
		}
	}
	if sum != capacity || c.most.Load() > int64(capacity) {
		t.Errorf("%d of %d are in hand in the end, %d ran", sum, capacity, c.most.Load())
	}
	w.end()
}

// answerReclaim answers what a slow node didn't.
func answerReclaim(s *nodeStream) {
	s.mu.Lock()
	var m *carillonv1.ConnectResponse
	if s.asked > 0 {
		m = &carillonv1.ConnectResponse{Reclaimed: s.giveBack()}
	}
	s.mu.Unlock()
	if m != nil {
		s.send(m)
	}
}

// Credit that was used up can't be taken back, and an owner may send again what an earlier
// stream had paid for: the accounts of both sides stay the same.
func TestCreditThatIsOwed(t *testing.T) {
	c := &credit{}
	c.grant(3)
	for range 5 {
		c.used()
	}
	if c.granted != -2 || c.inHand() != 0 {
		t.Errorf("%+v", c)
	}
	c.grant(1)
	if c.granted != 1 || c.give != 6 {
		t.Errorf("%+v", c)
	}
	now := time.Now()
	c.reclaims = true
	if !c.mayReclaim(now) {
		t.Error("it may not be asked")
	}
	c.reclaim(1)
	c.used()
	c.returned(0, now)
	if c.granted != 0 || c.taking != 0 || c.mayReclaim(now) || !c.mayReclaim(now.Add(reclaimPause)) {
		t.Errorf("%+v", c)
	}
	c.returned(7, now) // unasked
	if c.granted != 0 {
		t.Errorf("%+v", c)
	}
}
