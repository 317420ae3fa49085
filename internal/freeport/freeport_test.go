package freeport

import (
	"net"
	"testing"
)

// A node could not start, for its port had become that of another program's connection.
func TestConnectionsTakeNoReservedPort(t *testing.T) {
	const ports, connections = 500, 2000
	reserved := map[string]bool{}
	for range ports {
		address := For(t)
		if reserved[address] {
			t.Fatalf("%s is reserved twice", address)
		}
		reserved[address] = true
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range connections {
		out, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		out.Close()
		if reserved[out.LocalAddr().String()] {
			t.Fatalf("a connection has the reserved port %s", out.LocalAddr())
		}
	}
}

func TestListenersWithoutANumberTakeNoReservedPort(t *testing.T) {
	reserved := map[string]bool{}
	for range 500 {
		reserved[For(t)] = true
	}
	for range 500 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if reserved[l.Addr().String()] {
			t.Fatalf("a listener has the reserved port %s", l.Addr())
		}
	}
}

// A program may listen, be talked to, end with connections that are open, and listen again.
func TestAProgramListensAgain(t *testing.T) {
	address := For(t)
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Fatal("a port that nobody listens at took a connection")
	}
	for range 3 {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Close(); err != nil { // the side that closes first keeps the port for a while
			t.Fatal(err)
		}
		if second, err := net.Listen("tcp", address); err == nil {
			second.Close()
			t.Error("two programs listen at one port")
		}
		l.Close()
	}
}
