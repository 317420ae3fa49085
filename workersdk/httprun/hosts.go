package httprun

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// blockedError says why a request may not go where it wants to.
type blockedError struct{ text string }

func (e *blockedError) Error() string { return e.text }

func blocked(format string, args ...any) error { return &blockedError{fmt.Sprintf(format, args...)} }

// hostRule is one entry of the list of allowed hosts.
type hostRule struct {
	host string // "" with any
	any  bool   // every host
	sub  bool   // the names below host, and not host itself
	port string // "": the scheme's own; "*": every port
}

// parseHostRule reads HOST, *.HOST or *, each with :PORT or :* if it is to be another port
// than the scheme's own.
func parseHostRule(s string) (r hostRule, err error) {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
		if port != "*" && !isPort(port) {
			return r, fmt.Errorf("the host %q has no port of 1 to 65535 or * after its colon; an IPv6 address stands in brackets", s)
		}
	}
	r.port = port
	if host == "*" {
		r.any = true
		return r, nil
	}
	host, r.sub = strings.CutPrefix(host, "*.")
	if r.host, err = canonicalHost(strings.Trim(host, "[]")); err != nil {
		return r, fmt.Errorf("the host %q %w", s, err)
	}
	if r.sub && isAddress(r.host) {
		return r, fmt.Errorf("the host %q says *. before an address, which has none below it", s)
	}
	return r, nil
}

func (r hostRule) allows(scheme, host, port string) bool {
	switch r.port {
	case "":
		if port != defaultPorts[scheme] {
			return false
		}
	case "*":
	default:
		if port != r.port {
			return false
		}
	}
	if r.sub {
		return !isAddress(host) && strings.HasSuffix(host, "."+r.host)
	}
	return r.any || host == r.host
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '+' && s[0] != '0'
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// canonicalHost writes a host in the one form in which hosts are compared: a name in lower
// case and without a dot at its end, or an address.
func canonicalHost(host string) (string, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return "", errors.New("must not have a zone")
		}
		return a.String(), nil
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	const maxName = 253
	if host == "" || len(host) > maxName {
		return "", fmt.Errorf("must have 1 to %d characters", maxName)
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" {
			return "", errors.New("must not have an empty part")
		}
		for _, c := range label {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", fmt.Errorf("must not hold %q; write other scripts in Punycode, xn--…", c)
			}
		}
	}
	return host, nil
}

// checkURL holds a URL against the first gate, and brings its host into the one form.
func (s *Sender) checkURL(u *url.URL) error {
	if _, ok := defaultPorts[u.Scheme]; !ok || u.Opaque != "" || u.Host == "" {
		return errors.New("must be http://HOST… or https://HOST…")
	}
	if u.User != nil {
		return errors.New("must not hold a user or a password: use a header")
	}
	host, err := canonicalHost(u.Hostname())
	if err != nil {
		return fmt.Errorf("the host %w", err)
	}
	port := u.Port()
	if port == "" {
		port = defaultPorts[u.Scheme]
	} else if !isPort(port) {
		return fmt.Errorf("the port must be 1 to 65535, is %q", port)
	}
	if !slices.ContainsFunc(s.hosts, func(r hostRule) bool { return r.allows(u.Scheme, host, port) }) {
		return blocked("the worker doesn't allow the host %s with port %s", host, port)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if why := s.addresses.why(a); why != "" {
			return blocked("the worker doesn't allow the address %s: it is %s", a, why)
		}
	}
	u.Host = net.JoinHostPort(host, port)
	if port == defaultPorts[u.Scheme] {
		u.Host = strings.TrimSuffix(u.Host, ":"+port)
	}
	return nil
}
