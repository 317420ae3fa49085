package httprun

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// Name is the handler's name in the catalog.
const Name = "http.request"

const (
	maxRedirects      = 5
	maxResponseHeader = 64 << 10
)

// Sender sends the requests of jobs. Make it with [New]; its [Sender.Handle] is the handler.
type Sender struct {
	hosts     []hostRule
	addresses addresses
	transport *http.Transport
}

type config struct {
	hosts, private []string
	proxy          string
	tls            *tls.Config
	dialer         dialer
}

// Option changes a sender.
type Option func(*config)

// AllowHosts says to which hosts requests may go; without any, New fails. A host is a name
// or an address, *.NAME for all names below it, or * for every host. It goes with the port of
// the URL's scheme, 80 or 443, unless a port is added: NAME:8443, or NAME:* for every port.
func AllowHosts(hosts ...string) Option {
	return func(c *config) { c.hosts = append(c.hosts, hosts...) }
}

// AllowPrivate says which addresses may be dialled although they are not public: ranges such
// as 10.1.0.0/16. Their hosts must be allowed as well.
func AllowPrivate(ranges ...string) Option {
	return func(c *config) { c.private = append(c.private, ranges...) }
}

// Proxy sends every request through a proxy, http://HOST:PORT or https://HOST:PORT. It
// resolves names in the worker's place, and must itself refuse addresses that are not public.
func Proxy(url string) Option { return func(c *config) { c.proxy = url } }

// TLS sets what is trusted, and the worker's own certificates: by default the system's
// authorities and none.
func TLS(t *tls.Config) Option { return func(c *config) { c.tls = t } }

// New makes a sender. It fails if an option can't be read or no host is allowed.
func New(opts ...Option) (*Sender, error) {
	c := config{dialer: dialer{lookup: net.DefaultResolver.LookupNetIP, connect: new(net.Dialer).DialContext}}
	for _, opt := range opts {
		opt(&c)
	}
	s := &Sender{}
	if len(c.hosts) == 0 {
		return nil, errors.New("no host is allowed")
	}
	for _, h := range c.hosts {
		rule, err := parseHostRule(h)
		if err != nil {
			return nil, err
		}
		s.hosts = append(s.hosts, rule)
	}
	for _, r := range c.private {
		prefix, err := netip.ParsePrefix(r)
		if err != nil {
			return nil, fmt.Errorf("the range %q must be written as 10.1.0.0/16: %w", r, err)
		}
		s.addresses.allowed = append(s.addresses.allowed, prefix.Masked())
	}
	c.dialer.addresses = s.addresses
	var err error
	s.transport, err = c.transport()
	return s, err
}

func (c *config) transport() (*http.Transport, error) {
	t := &http.Transport{
		DialContext: c.dialer.DialContext, TLSClientConfig: c.tls, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: 8, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: maxResponseHeader,
	}
	if c.proxy == "" {
		return t, nil
	}
	u, err := url.Parse(c.proxy)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the proxy must be http://HOST:PORT or https://HOST:PORT")
	}
	t.Proxy, t.DialContext = http.ProxyURL(u), c.dialer.connect
	return t, nil
}

// Close ends the connections that are kept for later requests.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Handle sends the request of an attempt.
func (s *Sender) Handle(ctx context.Context, t *worker.Task[Request]) error {
	if d := time.Duration(t.Args.Timeout); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d, &tooSlowError{d})
		defer cancel()
	}
	req, err := s.build(ctx, t)
	if err != nil {
		return failure(ctx, nil, err)
	}
	expected := expectation(t.Args.ExpectStatus)
	client := http.Client{Transport: s.transport, CheckRedirect: (&redirects{s, &t.Args, expected}).check}
	resp, err := client.Do(req)
	if err != nil {
		return failure(ctx, req, err)
	}
	defer resp.Body.Close()
	a, err := read(resp)
	if err != nil {
		return failure(ctx, req, err)
	}
	if !expected.holds(a.status) {
		return a.failure(req)
	}
	return t.SetResult(a.result(req))
}

// redirects decides which redirects of a request are followed.
type redirects struct {
	sender   *Sender
	asked    *Request
	expected expectation
}

// crossing are the headers of the user that go along to another host.
var crossing = []string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}

var errRedirects = fmt.Errorf("there were more than %d redirects", maxRedirects)

// check implements http.Client's CheckRedirect.
func (r *redirects) check(req *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	switch {
	case r.expected.holds(req.Response.StatusCode), req.Method != first.Method:
		return http.ErrUseLastResponse // what was wanted; or a POST that would become a GET
	case len(via) > maxRedirects:
		return errRedirects
	case last.URL.Scheme == "https" && req.URL.Scheme == "http":
		return blocked("a redirect from https to http is not followed")
	}
	if err := r.sender.checkURL(req.URL); err != nil {
		return blocked("a redirect is not followed: its URL: %v", err)
	}
	req.Header.Del("Referer") // it would tell the query
	if slices.ContainsFunc(slices.Concat(via[1:], []*http.Request{req}), func(hop *http.Request) bool { return origin(hop) != origin(first) }) {
		for name := range r.asked.Headers {
			if !slices.Contains(crossing, http.CanonicalHeaderKey(name)) {
				req.Header.Del(name)
			}
		}
	}
	return nil
}

// origin is where a request goes, in the form that checkURL left.
func origin(r *http.Request) string { return r.URL.Scheme + "://" + r.URL.Host }
