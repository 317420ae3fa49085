//go:build !linux

package site

import (
	"context"
	"errors"
	"net"
)

// Network has no counterpart here.
type Network struct{}

// ErrNoNetwork says that namespaces can't be made here.
var ErrNoNetwork = errors.New("only root may make network namespaces")

func newNetwork([]string) (*Network, error) { return nil, ErrNoNetwork }

func (*Network) in(string, func() error) error { return ErrNoNetwork }

// Address is that of a party.
func (*Network) Address(string) string { return "" }

// Dial connects from the hub.
func (*Network) Dial(context.Context, string, string) (net.Conn, error) { return nil, ErrNoNetwork }

// Cut lets nothing pass any more from one party to another.
func (*Network) Cut(_, _ string) error { return ErrNoNetwork }

// Heal lets it pass again.
func (*Network) Heal(_, _ string) error { return ErrNoNetwork }

func (*Network) close() error { return nil }
