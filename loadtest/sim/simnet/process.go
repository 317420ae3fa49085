package simnet

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
)

var errDied = errors.New("the process has died")

// Process is one life of a program of a name. It runs until it is killed; it may be frozen
// meanwhile.
type Process struct {
	Name string // of its host
	ID   string // of this life

	ended chan struct{} // closed when it dies

	mu     sync.Mutex
	dead   bool           // guarded by mu
	frozen chan struct{}  // closed when it thaws; nil: it isn't frozen; guarded by mu
	conns  map[*conn]bool // guarded by mu
}

// NewProcess begins a life: the nth of its name.
func NewProcess(name string, n int) *Process {
	return &Process{Name: name, ID: name + "." + strconv.Itoa(n), ended: make(chan struct{}), conns: map[*conn]bool{}}
}

// Ended is closed when the process dies.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Dead reports whether it has died.
func (p *Process) Dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// Gate waits while the process is frozen. Everything that a process does and that others, or its
// own state, can tell passes it. What waits there goes on one after the other, by what it is.
func (p *Process) Gate(what string) {
	for {
		p.mu.Lock()
		frozen := p.frozen
		p.mu.Unlock()
		if frozen == nil {
			return
		}
		select {
		case <-frozen:
			time.Sleep(dice.New(uint64(time.Now().UnixNano())).For(p.ID).For(what).Between(0, maxThaw))
		case <-p.ended:
			return
		}
	}
}

// maxThaw is how long it takes until all that a process was about to do goes on.
const maxThaw = 5 * time.Millisecond

// Frozen reports whether it is.
func (p *Process) Frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen != nil
}

// Freeze stops the process where it is.
func (p *Process) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil && !p.dead {
		p.frozen = make(chan struct{})
	}
}

// Thaw lets it go on.
func (p *Process) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// Kill ends the process. Its connections are reset: at once for itself, and for others as soon as they
// can hear of it.
func (p *Process) Kill() {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.dead = true
	close(p.ended)
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.conns = nil
	p.mu.Unlock()
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(a.out.id, b.out.id) })
	for _, c := range conns {
		c.reset(errDied)
	}
}

func (p *Process) hold(c *conn) (alive bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead {
		p.conns[c] = true
	}
	return !p.dead
}

func (p *Process) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
