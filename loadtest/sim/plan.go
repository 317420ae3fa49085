package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simetcd"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
)

// Times of a run.
const (
	runFor    = 10 * time.Minute
	faultsEnd = 440 * time.Second // by then everything is healed
	readAfter = 20 * time.Second  // before the end of the run: when clients ask for nothing more
)

// step is one thing that happens in a run. What steps there are, and what each of them does, follows
// from the seed; a run may be played with some of them only.
type step struct {
	at   time.Duration
	text string
	do   func()
}

// plan makes up the steps of a run, in order.
func (w *world) plan() []step {
	var steps []step
	d := w.dice.For("plan")
	for i := range 8 + d.For("faults").N(8) {
		f := d.For("fault").At(uint64(i))
		at := f.For("at").Between(10*time.Second, faultsEnd-30*time.Second)
		steps = append(steps, w.fault(f, at))
	}
	for i := range 70 + d.For("calls").N(40) {
		f := d.For("call").At(uint64(i))
		at := f.For("at").Between(time.Second, faultsEnd)
		if i < 12 {
			at = f.For("at").Between(time.Second, 20*time.Second) // there is something from the beginning
		}
		steps = append(steps, w.ask(f, at, i))
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return steps
}

// ask is a step in which a client asks for something.
func (w *world) ask(d dice.Dice, at time.Duration, n int) step {
	c := func() *client { return w.clients[0] }
	calls := []struct {
		weight int
		what   string
		do     func(ctx context.Context)
	}{
		{40, "create", func(ctx context.Context) { c().create(ctx, d, fmt.Sprintf("j%d", d.For("name").N(n+5))) }},
		{4, "create a batch", func(ctx context.Context) { c().createMany(ctx, d, fmt.Sprintf("b%d", n)) }},
		{4, "create by a stream", func(ctx context.Context) { c().createStream(ctx, d, fmt.Sprintf("s%d", n)) }},
		{8, "delete", func(ctx context.Context) { c().delete(ctx, d) }},
		{10, "run", func(ctx context.Context) { c().trigger(ctx, d) }},
		{6, "cancel", func(ctx context.Context) { c().cancel(ctx, d) }},
		{5, "redrive", func(ctx context.Context) { c().redrive(ctx, d) }},
		{2, "redrive all", func(ctx context.Context) { c().redriveAll(ctx, d) }},
		{3, "discard", func(ctx context.Context) { c().discard(ctx, d) }},
		{6, "backfill", func(ctx context.Context) { c().backfill(ctx, d) }},
		{3, "gap", func(ctx context.Context) { c().gap(ctx, d) }},
		{14, "explain", func(ctx context.Context) { c().explain(ctx, d) }},
		{3, "calendar", func(ctx context.Context) { c().calendar(ctx, d) }},
		{4, "operate", func(ctx context.Context) { c().operate(ctx, d) }},
	}
	sum := 0
	for _, c := range calls {
		sum += c.weight
	}
	left := d.For("what").N(sum)
	if n == 0 {
		left = sum - 5 // a calendar, before jobs need it
		at = 500 * time.Millisecond
	}
	for _, call := range calls {
		if left -= call.weight; left >= 0 {
			continue
		}
		return step{at, "ask: " + call.what, func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			call.do(ctx)
		}}
	}
	panic("unreachable")
}

// fault is a step in which something breaks, and is whole again after a while.
func (w *world) fault(d dice.Dice, at time.Duration) step {
	last := func(lo, hi time.Duration) time.Duration {
		return min(d.For("for").Between(lo, hi), faultsEnd-at)
	}
	n := w.nodes[d.For("node").N(len(w.nodes))]
	other := w.nodes[d.For("other").N(len(w.nodes))]
	h := w.hosts[d.For("worker").N(len(w.hosts))]
	breaks := func(long time.Duration, what string, do, undo func()) step {
		return step{at, fmt.Sprintf("fault: %s for %s", what, long.Round(time.Millisecond)), func() {
			do()
			time.Sleep(long)
			undo()
			w.trace("fault", "over: %s", what)
		}}
	}
	cut := func(long time.Duration, ways ...[2]string) step {
		var text []string
		for _, way := range ways {
			text = append(text, way[0]+"→"+way[1])
		}
		return breaks(long, "cut "+strings.Join(text, ", "), func() {
			for _, way := range ways {
				w.net.Cut(way[0], way[1])
			}
		}, func() {
			for _, way := range ways {
				w.net.Heal(way[0], way[1])
			}
		})
	}
	between := func(long time.Duration, a, b string) step {
		w.covered("fault cut " + family(a) + " and " + family(b))
		switch d.For("ways").N(3) {
		case 0:
			return cut(long, [2]string{a, b})
		case 1:
			return cut(long, [2]string{b, a})
		}
		return cut(long, [2]string{a, b}, [2]string{b, a})
	}
	freeze := func(long time.Duration, name string, process func() *simnet.Process) step {
		frozen := []*simnet.Process{} // it may have been told to end meanwhile, and another one runs
		return breaks(long, "freeze "+name, func() {
			if p := process(); p != nil {
				p.Freeze()
				frozen = append(frozen, p)
			}
		}, func() {
			for _, p := range frozen {
				p.Thaw()
			}
		})
	}
	second := time.Second
	kinds := []struct {
		weight int
		name   string
		make   func() step
	}{
		{10, "kill a node", func() step { return breaks(last(second, 40*second), "kill "+n.name, n.kill, n.start) }},
		{10, "freeze a node", func() step {
			return freeze(last(second, 25*second), n.name, n.process)
		}},
		{5, "stop a node", func() step {
			return breaks(last(second, 20*second), "stop "+n.name, func() { <-n.terminate() }, n.start)
		}},
		{3, "upgrade all nodes", func() step { return step{at, "fault: upgrade all nodes, one after the other", w.upgrade} }},
		{3, "kill all nodes", func() step {
			return breaks(last(5*second, 80*second), "kill all nodes", func() {
				for _, n := range w.nodes {
					n.kill()
				}
			}, func() {
				for _, n := range w.nodes {
					n.start()
				}
			})
		}},
		{7, "kill a worker", func() step { return breaks(last(second, 30*second), "kill "+h.name, h.kill, h.start) }},
		{4, "stop a worker", func() step {
			return breaks(last(second, 20*second), "stop "+h.name, func() { h.terminate() }, h.start)
		}},
		{6, "freeze a worker", func() step {
			return freeze(last(second, 30*second), h.name, h.process)
		}},
		{3, "no workers", func() step {
			return breaks(last(20*second, 60*second), "kill all workers", func() {
				for _, h := range w.hosts {
					h.kill()
				}
			}, func() {
				for _, h := range w.hosts {
					h.start()
				}
			})
		}},
		{8, "cut a node from etcd", func() step { return between(last(second, 40*second), n.name, simetcd.Host) }},
		{8, "cut a node from the database", func() step { return between(last(second, 40*second), n.name, databaseHost) }},
		{6, "cut a node from a worker", func() step { return between(last(second, 40*second), n.name, h.name) }},
		{4, "cut two nodes", func() step { return between(last(second, 40*second), n.name, other.name) }},
		{3, "cut a node from clients", func() step { return between(last(second, 20*second), n.name, "client") }},
		{3, "cut a node from all", func() step {
			var ways [][2]string
			for _, o := range w.parties() {
				if o != n.name {
					ways = append(ways, [2]string{n.name, o}, [2]string{o, n.name})
				}
			}
			return cut(last(5*second, 40*second), ways...)
		}},
		{4, "a slow link", func() step {
			to := dice.Pick(d.For("to"), databaseHost, simetcd.Host, h.name)
			by := d.For("by").Between(50*time.Millisecond, 1500*time.Millisecond)
			return breaks(last(5*second, 60*second), fmt.Sprintf("%s and %s %s apart", n.name, to, by.Round(time.Millisecond)), func() {
				w.net.Slow(n.name, to, by)
				w.net.Slow(to, n.name, by)
			}, func() {
				w.net.Slow(n.name, to, 0)
				w.net.Slow(to, n.name, 0)
			})
		}},
		{12, "an unreliable database", func() step {
			p := d.For("share").Between(50*time.Millisecond, 600*time.Millisecond).Seconds()
			return breaks(last(5*second, 50*second), fmt.Sprintf("the database loses or delays %.0f %% of what it is asked", 100*p), func() {
				w.database.set(func(d *database) { d.flaky = p })
			}, func() { w.database.set(func(d *database) { d.flaky = 0 }) })
		}},
		{5, "the database away", func() step {
			return breaks(last(second, 100*second), "the database is away", w.database.stop, w.database.start)
		}},
		{4, "a slow database", func() step {
			by := d.For("by").Between(100*time.Millisecond, 2500*time.Millisecond)
			return breaks(last(5*second, 40*second), fmt.Sprintf("the database takes %s longer", by.Round(time.Millisecond)), func() {
				w.database.set(func(d *database) { d.slow = by })
			}, func() { w.database.set(func(d *database) { d.slow = 0 }) })
		}},
		{5, "etcd away", func() step { return breaks(last(2*second, 70*second), "etcd is away", w.etcd.Stop, w.etcd.Start) }},
		{1, "etcd wiped", func() step { return step{at, "fault: etcd loses all", w.rebuild} }},
		{3, "etcd forgets its history", func() step {
			return step{at, "fault: etcd forgets its history", w.etcd.Compact}
		}},
		{4, "a lost lease", func() step {
			return step{at, "fault: etcd ends the lease of " + n.name, func() {
				for _, key := range w.etcd.Keys() {
					if strings.HasSuffix(key, "/members/"+n.name) {
						w.etcd.EndLease(key)
					}
				}
			}}
		}},
		{5, "a wrong clock", func() step {
			by := d.For("by").Between(-4*second, 4*second)
			if d.For("little").Chance(0.5) {
				by /= 12
			}
			w.skewed = max(w.skewed, min(by.Abs(), clock.UnfitSkew)) // a node that starts so goes by it, up to there
			return breaks(last(5*second, 60*second), fmt.Sprintf("the clock of %s is set by %s", n.name, by.Round(time.Millisecond)), func() { n.clock.step(by) }, func() { n.clock.set(0) })
		}},
		{2, "the database's clock is wrong", func() step {
			by := d.For("by").Between(-1500*time.Millisecond, 1500*time.Millisecond)
			w.skewed = max(w.skewed, by.Abs())
			return breaks(last(5*second, 40*second), fmt.Sprintf("the database's clock is set by %s", by.Round(time.Millisecond)), func() {
				w.database.set(func(d *database) { d.ahead = by })
			}, func() { w.database.set(func(d *database) { d.ahead = 0 }) })
		}},
	}
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	left := d.For("kind").N(sum)
	for _, k := range kinds {
		if left -= k.weight; left < 0 {
			s := k.make()
			do := s.do
			s.do = func() {
				w.covered("fault " + k.name)
				do()
			}
			return s
		}
	}
	panic("unreachable")
}

// family is what kind of party a host is.
func family(host string) string {
	kind, _, _ := strings.Cut(host, "-")
	return kind
}

// parties are all hosts but the clients.
func (w *world) parties() []string {
	all := []string{simetcd.Host, databaseHost}
	for _, n := range w.nodes {
		all = append(all, n.name)
	}
	for _, h := range w.hosts {
		all = append(all, h.name)
	}
	return all
}

// upgrade restarts all nodes, and then all workers, one after the other, as processes of a later version.
func (w *world) upgrade() {
	d := w.dice.For("upgrade")
	for i, n := range w.nodes {
		<-n.terminate()
		n.mu.Lock()
		n.newer = true
		n.mu.Unlock()
		n.start()
		time.Sleep(d.At(uint64(i)).Between(time.Second, 6*time.Second))
	}
	for _, h := range w.hosts {
		<-h.terminate()
		h.mu.Lock()
		h.newer = true
		h.mu.Unlock()
		h.start()
		time.Sleep(2 * time.Second)
	}
}

// rebuild loses what etcd holds. After a while an operator raises owner_gen on all nodes.
func (w *world) rebuild() {
	w.etcd.Wipe()
	time.Sleep(w.dice.For("rebuild").Between(5*time.Second, 25*time.Second))
	for _, n := range w.nodes {
		ended := n.terminate()
		<-ended
		n.gen++
		n.start()
	}
}
