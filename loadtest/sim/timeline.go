package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simetcd"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
)

// timeline is what a picture of a run is drawn from: how each host was, again and again.
type timeline struct {
	looks  []look
	starts []time.Duration // of handlers
}

// look is how a host was at one time.
type look struct {
	at     time.Duration // since the run began
	who    string
	mark   mark
	shards []int // that it owns, as the database has it
}

// mark says how a host is; of two marks in one column the later one of this list is drawn.
type mark int8

const (
	whole mark = iota
	unreliable
	slow
	severed // from any other host, in any direction
	frozen
	dead
)

const marks = ".?s!~x"

// columnTime is the time in one column of the picture.
const columnTime = 6 * time.Second

// lookEvery is short enough that no fault is missed. It is at no round time, so that nothing else happens
// at the instant.
const lookEvery, firstLook = time.Second, 617_031_007 * time.Nanosecond

// watch looks at all hosts until the run is to be judged. It is a part of every run, whether
// anybody wants the picture or not.
func (w *world) watch() (done <-chan struct{}, t *timeline) {
	t = &timeline{}
	ended := make(chan struct{})
	workers := slices.Clone(w.hosts)
	go func() {
		defer close(ended)
		for at := firstLook; at < runFor-readAfter; at += lookEvery {
			time.Sleep(at - time.Since(w.tracer.began))
			w.look(t, at, workers)
		}
	}()
	return ended, t
}

func (w *world) look(t *timeline, at time.Duration, workers []*host) {
	owned := map[string][]int{}
	owners, _ := w.database.kept.Owners(context.Background()) // if it can't be read, that is found out otherwise
	for _, o := range owners {
		owned[o.Node] = append(owned[o.Node], int(o.Shard))
	}
	for _, n := range w.nodes {
		t.looks = append(t.looks, look{at, n.name, w.markOf(n.name, n.process()), owned[n.name]})
	}
	for _, h := range workers {
		t.looks = append(t.looks, look{at: at, who: h.name, mark: w.markOf(h.name, h.process())})
	}
	e := whole
	if !w.etcd.Serves() {
		e = dead
	}
	t.looks = append(t.looks, look{at: at, who: simetcd.Host, mark: e}, look{at: at, who: databaseHost, mark: w.database.mark()})
}

func (w *world) markOf(name string, p *simnet.Process) mark {
	switch {
	case p == nil:
		return dead
	case p.Frozen():
		return frozen
	}
	for _, other := range append(w.parties(), "client") {
		_, there := w.net.IsCut(name, other)
		_, back := w.net.IsCut(other, name)
		if there || back {
			return severed
		}
	}
	return whole
}

// mark says how the database is.
func (d *database) mark() mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.up != nil:
		return dead
	case d.slow > 0:
		return slow
	case d.flaky > 0:
		return unreliable
	}
	return whole
}

// started adds when handlers began.
func (t *timeline) started(w *world) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.effects {
		if e.Kind == checker.Began {
			t.starts = append(t.starts, e.At.Time().Sub(w.tracer.began))
		}
	}
}

// draw makes the picture: time goes from left to right.
func (t *timeline) draw() string {
	const columns = int(runFor / columnTime)
	var b strings.Builder
	b.WriteString("A column is 6 s: x dead or away, ~ frozen, ! cut from something, s slow, ? unreliable.\n" +
		"Digits are the shards a node owns; starts are those of handlers: 1 to 9, from ten on a, b, and so on.\n")
	row := func(name string, cells []byte) {
		fmt.Fprintf(&b, "%-10s %s\n", name, strings.TrimRight(string(cells), " "))
	}
	row("", ruler(columns))
	var names []string
	for _, l := range t.looks {
		if !slices.Contains(names, l.who) {
			names = append(names, l.who)
		}
	}
	for _, name := range names {
		cells, owned := t.host(name, columns)
		row(name, cells)
		for _, stacked := range owned {
			row("", stacked)
		}
	}
	row("starts", t.counts(columns))
	return b.String()
}

// ruler has the minutes.
func ruler(columns int) []byte {
	cells := []byte(strings.Repeat(" ", columns))
	for m := 0; m*int(time.Minute/columnTime) < columns; m++ {
		copy(cells[m*int(time.Minute/columnTime):], fmt.Sprintf("|%dm", m))
	}
	return cells
}

// host returns the row of a host, and below it rows with the shards that it owned.
func (t *timeline) host(name string, columns int) (cells []byte, owned [][]byte) {
	state, shards := make([]mark, columns), make([][]int, columns)
	cells = []byte(strings.Repeat(" ", columns))
	for _, l := range t.looks {
		c := int(l.at / columnTime)
		if l.who != name || c >= columns {
			continue
		}
		state[c] = max(state[c], l.mark)
		cells[c] = marks[state[c]]
		for _, s := range l.shards {
			if !slices.Contains(shards[c], s) {
				shards[c] = append(shards[c], s)
			}
		}
	}
	for c, all := range shards {
		slices.Sort(all)
		for i, s := range all {
			if i == len(owned) {
				owned = append(owned, []byte(strings.Repeat(" ", columns)))
			}
			owned[i][c] = '0' + byte(s%10)
		}
	}
	return cells, owned
}

// counts is the row with how many handlers began.
func (t *timeline) counts(columns int) []byte {
	n := make([]int, columns)
	for _, at := range t.starts {
		if c := int(at / columnTime); at >= 0 && c < columns {
			n[c]++
		}
	}
	cells := make([]byte, columns)
	for c, count := range n {
		switch {
		case count == 0:
			cells[c] = '.'
		case count < 10:
			cells[c] = '0' + byte(count)
		case count < 36:
			cells[c] = 'a' + byte(count-10)
		default:
			cells[c] = '+'
		}
	}
	return cells
}
