package simnet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
)

// conn is one end of a connection.
type conn struct {
	process *Process
	in, out *wire
	once    sync.Once
}

// connect makes both ends.
func (n *Network) connect(id string, p, q *Process) (near, far *conn) {
	there := &wire{net: n, id: id + ">", dice: n.dice.For(id).For("there"), from: p, to: q, ready: make(chan struct{}, 1)}
	back := &wire{net: n, id: id + "<", dice: n.dice.For(id).For("back"), from: q, to: p, ready: make(chan struct{}, 1)}
	near, far = &conn{process: p, in: back, out: there}, &conn{process: q, in: there, out: back}
	for _, c := range []*conn{near, far} {
		if !c.process.hold(c) {
			c.reset(errDied)
		}
	}
	return near, far
}

var errReset = errors.New("connection reset by peer")

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.process.Gate("write " + c.out.id)
	return c.out.send(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.process.release(c)
		c.in.fail(net.ErrClosed)
		c.out.end(io.EOF)
	})
	return nil
}

// reset ends the connection without care for what is under way.
func (c *conn) reset(err error) {
	c.once.Do(func() {
		c.process.release(c)
		c.in.fail(err)
		c.out.end(errReset)
	})
}

func (c *conn) LocalAddr() net.Addr  { return addr(c.process.Name + ":1") }
func (c *conn) RemoteAddr() net.Addr { return addr(c.in.from.Name + ":1") }

// SetDeadline implements net.Conn. Writes never wait.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.deadline = t
	c.in.wake()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// wire is one direction of a connection.
type wire struct {
	net      *Network
	id       string
	dice     dice.Dice
	from, to *Process
	ready    chan struct{} // has room for one: something has changed for the reader

	mu       sync.Mutex
	under    []*parcel // way, in order
	arrived  []byte
	failed   error     // for the reader: nothing more will come
	closed   bool      // for the writer
	deadline time.Time // of the reader
}

// parcel is what was sent at one instant.
type parcel struct {
	at, due time.Time // sent, and due to arrive
	data    []byte
	end     error // it is the last one, with this error for the reader
}

func (w *wire) send(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, errReset
	}
	p := w.parcel()
	p.data = append(p.data, b...)
	return len(b), nil
}

// end has the reader learn of the end, behind all that was sent.
func (w *wire) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		w.parcel().end = err
	}
}

// parcel returns the one of this instant. The caller holds mu.
func (w *wire) parcel() *parcel {
	now := time.Now()
	last := len(w.under) - 1
	if last >= 0 && w.under[last].at.Equal(now) {
		return w.under[last]
	}
	p := &parcel{at: now, due: now.Add(w.net.Delay(w.from.Name, w.to.Name, w.dice.At(uint64(now.UnixNano()))))}
	if last >= 0 && !p.due.After(w.under[last].due) {
		p.due = w.under[last].due.Add(1)
	}
	w.under = append(w.under, p)
	time.AfterFunc(p.due.Sub(now), w.arrive)
	return p
}

// arrive hands over what is due, unless the link is cut: then all that follows waits, too.
func (w *wire) arrive() {
	if w.net.stall(w) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for len(w.under) > 0 && !w.under[0].due.After(now) {
		p := w.under[0]
		w.under = w.under[1:]
		if w.failed == nil {
			w.arrived = append(w.arrived, p.data...)
			if p.end != nil {
				w.failed = p.end
			}
		}
	}
	if w.failed == errReset {
		w.arrived = nil
	}
	w.wake()
}

// fail ends the reader's side.
func (w *wire) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed, w.arrived = err, nil
	w.wake()
}

// wake tells the reader. The caller holds mu.
func (w *wire) wake() {
	select {
	case w.ready <- struct{}{}:
	default: // it knows
	}
}

func (w *wire) read(b []byte) (int, error) {
	for {
		w.to.Gate("read " + w.id)
		w.mu.Lock()
		n, err, deadline := copy(b, w.arrived), w.failed, w.deadline
		if w.arrived = w.arrived[n:]; len(w.arrived) == 0 {
			w.arrived = nil
		}
		w.mu.Unlock()
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		if deadline.IsZero() {
			<-w.ready
			continue
		}
		left := time.Until(deadline)
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		timer := time.NewTimer(left)
		select {
		case <-w.ready:
		case <-timer.C:
		}
		timer.Stop()
	}
}
