// Package simnet is a network in memory, for processes that are parts of one simulation.
//
// What is sent arrives after a delay, in order, on connections as those of TCP: a cut link holds
// it up until the link is whole again, the death of a process resets its connections, and a frozen
// process neither reads nor writes, while what is sent to it is kept. All delays are chosen by
// dice; all that is sent on a connection at one instant arrives at one instant, so that it makes no
// difference in which pieces it was written.
//
// It is made to run within a bubble of testing/synctest, by whose time it goes.
package simnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
)

// Delays of the network.
const (
	minDelay, maxDelay = 100 * time.Microsecond, 2 * time.Millisecond
	// after a link is whole again, what it held up is sent anew
	minResend, maxResend = 50 * time.Millisecond, time.Second
)

// Network connects processes by their names.
type Network struct {
	dice dice.Dice

	mu        sync.Mutex
	links     map[link]*state      // guarded by mu
	listeners map[string]*Listener // by address; guarded by mu
}

// link is one direction between two hosts.
type link struct{ from, to string }

type state struct {
	cut     bool
	whole   chan struct{} // closed once it isn't cut any more; nil: it isn't
	slow    time.Duration // more than the usual delay
	dials   uint64
	stalled []*wire // hold something up
}

// New returns a network without hosts.
func New(d dice.Dice) *Network {
	return &Network{dice: d, links: map[link]*state{}, listeners: map[string]*Listener{}}
}

// link returns the state of a link. The caller holds mu.
func (n *Network) link(from, to string) *state {
	s := n.links[link{from, to}]
	if s == nil {
		s = &state{}
		n.links[link{from, to}] = s
	}
	return s
}

// Cut cuts one direction between two hosts.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.link(from, to); !s.cut {
		s.cut, s.whole = true, make(chan struct{})
	}
}

// Heal makes one direction whole again. What was held up is sent anew.
func (n *Network) Heal(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.link(from, to)
	if !s.cut {
		return
	}
	s.cut = false
	close(s.whole)
	for _, w := range s.stalled {
		time.AfterFunc(w.dice.For("resend").At(uint64(time.Now().UnixNano())).Between(minResend, maxResend), w.arrive)
	}
	s.stalled = nil
}

// Slow adds a delay to one direction.
func (n *Network) Slow(from, to string, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(from, to).slow = by
}

// IsCut reports whether a direction is cut, and returns what is closed when that ends.
func (n *Network) IsCut(from, to string) (whole <-chan struct{}, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.link(from, to)
	return s.whole, s.cut
}

// Delay chooses how long one message takes over a link.
func (n *Network) Delay(from, to string, d dice.Dice) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.delay(from, to, d)
}

func (n *Network) delay(from, to string, d dice.Dice) time.Duration {
	slow := n.link(from, to).slow
	return d.Between(minDelay, maxDelay) + d.For("slow").Between(slow/2, slow)
}

// stall notes that a wire holds something up because its link is cut; false: it isn't.
func (n *Network) stall(w *wire) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.link(w.from.Name, w.to.Name)
	if s.cut && !slices.Contains(s.stalled, w) {
		s.stalled = append(s.stalled, w)
	}
	return s.cut
}

// Listener takes connections at an address.
type Listener struct {
	net     *Network
	process *Process
	address string
	backlog chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// maxBacklog is how many connections wait to be accepted.
const maxBacklog = 256

// Listen has a process listen at an address, host:port. What listened there before must have
// ended.
func (n *Network) Listen(p *Process, address string) (*Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("listen at %s: the address is in use", address)
	}
	l := &Listener{net: n, process: p, address: address, backlog: make(chan net.Conn, maxBacklog), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		l.process.Gate("accept at " + l.address)
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.listeners, l.address)
		l.net.mu.Unlock()
		close(l.closed)
	})
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return addr(l.address) }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

var errRefused = errors.New("connection refused")

// Dial connects a process to an address. Over a cut link it waits until that is whole, or ctx ends.
func (n *Network) Dial(ctx context.Context, p *Process, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	s := n.link(p.Name, host)
	s.dials++
	d := n.dice.For("dial").For(p.Name).For(host).At(s.dials)
	id := fmt.Sprintf("%s>%s#%d", p.Name, host, s.dials)
	n.mu.Unlock()
	for _, way := range []link{{p.Name, host}, {host, p.Name}} { // a packet there, and one back
		if err := n.Cross(ctx, p, way.from, way.to, d); err != nil {
			return nil, err
		}
		d = d.For("back")
	}
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil || l.process.Dead() {
		return nil, errRefused
	}
	near, far := n.connect(id, p, l.process)
	select {
	case l.backlog <- far:
	default:
		near.reset(errRefused)
		return nil, errRefused
	}
	return near, nil
}

// Cross takes a message of a process, or one to it, over a link, and waits until it is there: over a
// cut one until that is whole. It fails once ctx or the process ends.
func (n *Network) Cross(ctx context.Context, p *Process, from, to string, d dice.Dice) error {
	timer := time.NewTimer(n.Delay(from, to, d))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.Ended():
			return errDied
		case <-ctx.Done():
			return ctx.Err()
		}
		whole, cut := n.IsCut(from, to)
		if !cut {
			p.Gate(from + to + strconv.FormatUint(uint64(d), 16))
			return nil
		}
		select {
		case <-whole:
			timer.Reset(d.For("resend").Between(minResend, maxResend))
		case <-p.Ended():
			return errDied
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
