package site

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// answer serves echoes in a party's namespace.
func answer(t *testing.T, n *Network, name string) (address string) {
	t.Helper()
	var l net.Listener
	err := n.in(name, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(n.Address(name), "7"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with its connection
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// call connects from a party.
func call(t *testing.T, n *Network, from, address string) net.Conn {
	t.Helper()
	var c net.Conn
	err := n.in(from, func() (err error) {
		c, err = net.DialTimeout("tcp", address, 5*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// passes sends a byte and waits for its echo: what was sent while the link was cut comes before it.
func passes(t *testing.T, c net.Conn, sent byte, within time.Duration) bool {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte{sent}); err != nil {
		t.Fatal(err)
	}
	for got := make([]byte, 1); ; {
		if _, err := io.ReadFull(c, got); err != nil || got[0] == sent {
			return err == nil
		}
	}
}

func TestLinksAreCutAndHealed(t *testing.T) {
	n, err := newNetwork([]string{"a", "b", "c"})
	if errors.Is(err, ErrNoNetwork) {
		t.Skip(ErrNoNetwork)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	atB := answer(t, n, "b")
	ab, cb := call(t, n, "a", atB), call(t, n, "c", atB)
	for i, direction := range [][2]string{{"a", "b"}, {"b", "a"}} {
		if err := n.Cut(direction[0], direction[1]); err != nil {
			t.Fatal(err)
		}
		if passes(t, ab, byte(2*i), 300*time.Millisecond) {
			t.Errorf("%v is cut, and an echo comes back", direction)
		}
		if !passes(t, cb, byte(i), 5*time.Second) {
			t.Errorf("%v is cut, and c is, too", direction)
		}
		if err := n.Heal(direction[0], direction[1]); err != nil {
			t.Fatal(err)
		}
		if !passes(t, ab, byte(2*i+1), 10*time.Second) {
			t.Errorf("%v is healed, and nothing passes", direction)
		}
	}
	fromHub, err := n.Dial(context.Background(), "tcp", atB)
	if err != nil || !passes(t, fromHub, 0, 5*time.Second) {
		t.Errorf("the hub doesn't reach b: %v", err)
	}
	if err := n.Cut("a", "d"); err == nil {
		t.Error("there is no d")
	}
}
