package etcdtest

import (
	"net"
	"sync"
	"testing"
)

// Link is a way to a member of etcd that can be cut: what was sent stays on it until it is
// healed, as behind a firewall that drops.
type Link struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	whole *sync.Cond
	cut   bool
	done  bool
	conns []net.Conn
}

// Links returns ways to all members, and their addresses.
func (c *Cluster) Links() (links []*Link, endpoints []string) {
	c.t.Helper()
	for _, target := range c.Endpoints() {
		l := newLink(c.t, target)
		links, endpoints = append(links, l), append(endpoints, l.listener.Addr().String())
	}
	return links, endpoints
}

func newLink(t *testing.T, target string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{listener: listener, target: target}
	l.whole = sync.NewCond(&l.mu)
	var all sync.WaitGroup
	all.Go(func() { l.accept(&all) })
	t.Cleanup(func() {
		l.end()
		all.Wait()
	})
	return l
}

// Cut cuts the link, or heals it.
func (l *Link) Cut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	l.whole.Broadcast()
}

func (l *Link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	_ = l.listener.Close() // nothing is lost by it
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.whole.Broadcast()
}

// pass waits until the link is whole, and reports whether it goes on.
func (l *Link) pass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cut && !l.done {
		l.whole.Wait()
	}
	return !l.done
}

func (l *Link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conns...)
	return !l.done
}

func (l *Link) accept(all *sync.WaitGroup) {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer in.Close()
			if !l.keep(in) || !l.pass() {
				return
			}
			out, err := net.Dial("tcp", l.target)
			if err != nil {
				return
			}
			defer out.Close()
			if !l.keep(out) {
				return
			}
			all.Go(func() { l.carry(out, in) })
			l.carry(in, out)
		})
	}
}

// carry copies what comes while the link is whole.
func (l *Link) carry(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !l.pass() {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
