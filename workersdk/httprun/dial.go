package httprun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

const (
	// dialTimeout is for one address: a host with a dead one among several is still reached.
	dialTimeout = 5 * time.Second
	// maxAddresses is how many addresses of a host are tried.
	maxAddresses = 4
)

// dialer resolves a name once, and dials only what it has checked: a name that leads
// elsewhere a moment later changes nothing.
type dialer struct {
	addresses addresses
	lookup    func(ctx context.Context, network, host string) ([]netip.Addr, error)
	connect   func(ctx context.Context, network, address string) (net.Conn, error)
}

// DialContext connects to host:port.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	checked, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, a := range checked[:min(len(checked), maxAddresses)] {
		conn, err := d.connectTo(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil {
			return conn, nil
		}
		if failed = append(failed, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failed...)
}

// resolve returns the addresses of a host that may be dialled; it fails if there are none.
func (d *dialer) resolve(ctx context.Context, host string) (checked []netip.Addr, err error) {
	all := []netip.Addr{}
	if a, err := netip.ParseAddr(host); err == nil {
		all = append(all, a)
	} else if all, err = d.lookup(ctx, "ip", host); err != nil {
		return nil, err
	}
	refusal := error(&net.DNSError{Err: "has no address", Name: host, IsNotFound: true})
	for _, a := range all {
		if why := d.addresses.why(a); why != "" {
			refusal = blocked("the worker doesn't allow %s at the address %s: it is %s", host, a, why)
			continue
		}
		checked = append(checked, a.Unmap())
	}
	if len(checked) == 0 {
		return nil, refusal
	}
	return checked, nil
}

func (d *dialer) connectTo(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no connection within %s", dialTimeout))
	defer cancel()
	return d.connect(ctx, network, address)
}
