// Package freeport keeps ports of loopback free for programs that are yet to listen there, and for
// as long as they are restarted.
//
// To listen at port 0, close and hand the number on is a race: until the program listens, the port
// may become that of an outgoing connection, or another listener's. A reserved port is bound all the
// while by a socket that doesn't listen. The kernel gives such a port to nobody who doesn't ask for
// it by number, refuses connections to it, and lets a program listen there that allows addresses to
// be used again (SO_REUSEADDR), as Go's listeners, etcd and PostgreSQL do.
package freeport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// Ports are reserved until they are closed. The zero value has none.
type Ports []socket

// Reserve reserves one more and returns its host and port. Errors are the system's.
func (p *Ports) Reserve() (string, error) {
	s, err := reserve()
	if err != nil {
		return "", fmt.Errorf("reserve a port: %w", err)
	}
	*p = append(*p, s)
	return s.address, nil
}

// Close gives all of them up. Programs that listen there go on. Closing twice is fine.
func (p *Ports) Close() error {
	var errs []error
	for _, s := range *p {
		errs = append(errs, s.close())
	}
	*p = nil
	return errors.Join(errs...)
}

// socket is bound, and doesn't listen.
type socket struct {
	fd      int
	address string
}

func reserve() (socket, error) {
	syscall.ForkLock.RLock() // as net does, where a socket can't be made closed for children at once
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return socket{}, os.NewSyscallError("socket", err)
	}
	s := socket{fd: fd}
	if err := s.bind(); err != nil {
		return socket{}, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *socket) bind() error {
	loopback := [4]byte{127, 0, 0, 1}
	if err := syscall.Bind(s.fd, &syscall.SockaddrInet4{Addr: loopback}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	// Only now: with it before, two reservations might be given the same port.
	if err := syscall.SetsockoptInt(s.fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	name, err := syscall.Getsockname(s.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	s.address = net.JoinHostPort(net.IP(loopback[:]).String(), strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	return nil
}

func (s *socket) close() error { return os.NewSyscallError("close", syscall.Close(s.fd)) }

// For is the address of a port that is reserved until a test ends.
func For(t interface {
	Helper()
	Fatal(...any)
	Error(...any)
	Cleanup(func())
}) string {
	t.Helper()
	var p Ports
	address, err := p.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return address
}
