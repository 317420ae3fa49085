package sim

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

// settings say how a seed is played.
type settings struct {
	keep    []int // of the steps, by their places; nil: all
	verbose bool  // with the log of the processes
	live    io.Writer
}

// result is what came of a run.
type result struct {
	Seed     uint64
	Wrong    []string       `json:",omitempty"`
	Digest   string         // of the trace
	Coverage map[string]int `json:",omitempty"`
	Steps    int
	lines    []line
	picture  string
}

// play plays one seed in a bubble of its own.
func play(t *testing.T, seed uint64, s settings) (r result) {
	cryptotest.SetGlobalRandom(t, seed)
	var w *world
	synctest.Test(t, func(t *testing.T) {
		chance(seed)
		w = newWorld(seed, s.verbose)
		w.tracer.live = s.live
		w.run(s.keep, &r)
		r.Seed = seed
		r.lines = w.tracer.sorted()
		r.Digest = fmt.Sprintf("%016x", digest(r.lines))
		r.Wrong, r.Coverage = w.faults, w.coverage
	})
	r.Wrong = append(r.Wrong, w.history.check(w.rows)...)
	return r
}

// run is the life of a world.
func (w *world) run(keep []int, r *result) {
	for _, n := range w.nodes {
		n.clock.set(w.dice.For("skew").For(n.name).Between(-200*time.Millisecond, 200*time.Millisecond))
		n.start()
	}
	for _, h := range w.hosts {
		h.start()
	}
	c, err := w.newClient("client")
	if err != nil {
		w.wrong("no client: %v", err)
		return
	}
	w.clients = append(w.clients, c)
	watched, seen := w.watch()
	steps := w.plan()
	r.Steps = len(steps)
	var under sync.WaitGroup
	for i, s := range steps {
		if keep != nil && !slices.Contains(keep, i) {
			continue
		}
		time.Sleep(s.at - time.Since(w.tracer.began))
		w.trace("step", "%d %s", i, s.text)
		under.Go(s.do)
	}
	time.Sleep(faultsEnd - time.Since(w.tracer.began))
	under.Wait()
	w.heal()
	time.Sleep(runFor - readAfter - time.Since(w.tracer.began))
	<-watched
	seen.started(w)
	r.picture = seen.draw()
	w.judge()
	w.end()
}

// heal makes everything whole.
func (w *world) heal() {
	w.trace("heal", "all faults are over")
	w.healed.Store(true)
	w.etcd.Start()
	w.database.start()
	w.database.set(func(d *database) { d.flaky, d.slow, d.ahead = 0, 0, 0 })
	all := append(w.parties(), "client")
	for _, a := range all {
		for _, b := range all {
			w.net.Heal(a, b)
			w.net.Slow(a, b, 0)
		}
	}
	for _, n := range w.nodes {
		n.clock.set(0)
		if p := n.process(); p != nil {
			p.Thaw()
		}
		n.start()
	}
	for _, h := range w.hosts {
		if p := h.process(); p != nil {
			p.Thaw()
		}
		h.start()
	}
	// What nobody has served until now is served, too.
	late := &host{w: w, name: fmt.Sprintf("worker-%d", len(w.hosts)+1), capacity: 20, handlers: []string{"nobody.serves", "usual", "rough"}}
	w.hosts = append(w.hosts, late)
	late.start()
}

// end ends all processes.
func (w *world) end() {
	var lives []*life
	for _, h := range w.hosts {
		if l := h.life; l != nil {
			lives = append(lives, l)
		}
		h.kill()
	}
	for _, n := range w.nodes {
		if l := n.life; l != nil {
			lives = append(lives, l)
		}
		n.kill()
	}
	for _, c := range w.clients {
		if err := c.close(); err != nil {
			w.wrong("the client was not closed: %v", err)
		}
	}
	w.mu.Lock()
	lives = append(lives, w.ending...)
	w.mu.Unlock()
	for _, l := range lives {
		<-l.ended
	}
}
