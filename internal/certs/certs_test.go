package certs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/carillon-scheduler/carillon/internal/certs"
	"github.com/carillon-scheduler/carillon/internal/certs/authority"
)

// site is an authority with what it has issued.
type site struct {
	*authority.Authority
	t   *testing.T
	dir string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	if err := authority.Init(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	a, err := authority.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &site{a, t, dir}
}

func (s *site) ca() string { return filepath.Join(s.dir, authority.CertFile) }

func (s *site) issue(name string, id certs.Identity, hosts ...string) certs.Files {
	s.t.Helper()
	out, err := s.Issue(authority.Request{Name: name, Identity: id, Hosts: hosts, Life: time.Hour}, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	return certs.Files{Cert: out.Cert, Key: out.Key, CA: s.ca()}
}

func (s *site) node(name string) certs.Files {
	return s.issue(name, certs.Identity{Kind: certs.Node, Name: name}, "127.0.0.1", "localhost")
}

func open(t *testing.T, files certs.Files) *certs.Source {
	t.Helper()
	s, err := certs.Open(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// whoIs answers health checks with who the caller is, as its error's text.
type whoIs struct {
	grpc_health_v1.UnimplementedHealthServer
	seen chan string
}

func (w whoIs) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	id, err := certs.Peer(ctx)
	if err != nil {
		w.seen <- err.Error()
	} else {
		w.seen <- id.String()
	}
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

// serve serves with a source; the channel says who calls.
func serve(t *testing.T, s *certs.Source, clients tls.ClientAuthType) (string, chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, w := grpc.NewServer(grpc.Creds(credentials.NewTLS(s.Server(clients)))), whoIs{seen: make(chan string, 1)}
	grpc_health_v1.RegisterHealthServer(g, w)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		<-ended
	})
	return l.Addr().String(), w.seen
}

// call makes one call on a connection of its own.
func call(t *testing.T, address string, opts ...grpc.DialOption) error {
	t.Helper()
	conn, err := grpc.NewClient(address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// Who calls is known by what was verified, over real connections.
func TestPeers(t *testing.T) {
	t.Parallel()
	ours, theirs := newSite(t), newSite(t)
	worker := ours.issue("w", certs.Identity{Kind: certs.Worker, Name: "w:1"})
	foreign := theirs.issue("w", certs.Identity{Kind: certs.Worker, Name: "w:1"})
	foreign.CA = ours.ca()
	server := open(t, ours.node("n1"))
	asked, seenAsked := serve(t, server, tls.VerifyClientCertIfGiven)
	required, seenRequired := serve(t, server, tls.RequireAndVerifyClientCert)
	for what, c := range map[string]struct {
		files             certs.Files
		name              string
		asked, required   string // who calls; empty: refused
		askedErr, reqiErr string
	}{
		"a worker":                         {files: worker, asked: "carillon://worker/w:1", required: "carillon://worker/w:1"},
		"a node":                           {files: ours.node("n2"), asked: "carillon://node/n2", required: "carillon://node/n2"},
		"a person":                         {files: ours.issue("ann", certs.Identity{}), asked: "nobody", required: "nobody"},
		"no certificate":                   {files: certs.Files{CA: ours.ca()}, asked: "nobody"},
		"a certificate of another site":    {files: foreign},
		"trusts another site":              {files: certs.Files{Cert: worker.Cert, Key: worker.Key, CA: theirs.ca()}},
		"dials a name that isn't n1's":     {files: worker, name: "elsewhere.example"},
		"dials a name that is n1's, by it": {files: worker, name: "localhost", asked: "carillon://worker/w:1", required: "carillon://worker/w:1"},
	} {
		creds := grpc.WithTransportCredentials(open(t, c.files).Transport(c.name))
		for _, kind := range []struct {
			address, want string
			seen          chan string
		}{{asked, c.asked, seenAsked}, {required, c.required, seenRequired}} {
			err := call(t, kind.address, creds)
			switch {
			case kind.want == "" && err == nil:
				t.Errorf("%s: is let in as %s", what, <-kind.seen)
			case kind.want != "" && err != nil:
				t.Errorf("%s: %v", what, err)
			case err == nil:
				if got := <-kind.seen; got != kind.want {
					t.Errorf("%s: is %s, want %s", what, got, kind.want)
				}
			}
		}
	}
	if err := call(t, required, open(t, ours.node("n3")).Peers()); err != nil || <-seenRequired != "carillon://node/n3" {
		t.Errorf("a node calls another one: %v", err)
	}
	if err := call(t, required, (*certs.Source)(nil).Peers()); err == nil {
		t.Error("a node without TLS is let in")
	}
}

// A certificate that was replaced is shown to the next connection, and one that can't be used is
// not; the log says so once. What the authorities vouch for follows, too.
func TestFilesThatChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	files := s.node("n1")
	var logs bytes.Buffer
	source, err := certs.Open(files, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	source.SetClock(func() time.Time { return now })
	address, _ := serve(t, source, tls.RequireAndVerifyClientCert)
	worker := s.issue("w", certs.Identity{Kind: certs.Worker, Name: "w"})
	pair, err := tls.LoadX509KeyPair(worker.Cert, worker.Key)
	if err != nil {
		t.Fatal(err)
	}
	// serial is of the certificate that a new connection sees; any authority does.
	serial := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	later := func() { now = now.Add(time.Second) }
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	first := serial()
	s.node("n1")
	if serial() != first {
		t.Error("the files are looked at more than once a second")
	}
	later()
	second := serial()
	if second == first {
		t.Error("the new certificate isn't shown")
	}
	// A key that doesn't fit, as between two renames; the old one goes on, and the log says it once.
	other := s.issue("other", certs.Identity{}, "localhost")
	rename(files.Key, files.Key+".old")
	rename(other.Key, files.Key)
	logs.Reset()
	for range 3 {
		later()
		if serial() != second {
			t.Error("a key that doesn't fit is used")
		}
	}
	if got := strings.Count(logs.String(), "can't be used"); got != 1 || !strings.Contains(logs.String(), files.Key) {
		t.Errorf("logged %d times: %s", got, &logs)
	}
	rename(files.Key+".old", files.Key)
	later()
	if serial() != second || !strings.Contains(logs.String(), "were read again") {
		t.Errorf("it isn't well again: %s", &logs)
	}
	// A file that is gone.
	rename(files.Cert, files.Cert+".old")
	later()
	if serial() != second {
		t.Error("a file that is gone changes something")
	}
	rename(files.Cert+".old", files.Cert)
	later()
	serial()
	// Another authority: the worker's certificate is worth nothing any more.
	theirs := newSite(t)
	rename(theirs.ca(), files.CA)
	later()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}})
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the client hears of it after the handshake
	}
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client of an authority that isn't trusted any more: %v", err)
	}
}

func TestFilesThatCantBeUsed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	files := s.node("n1")
	garbage := filepath.Join(s.dir, "garbage")
	text, err := os.ReadFile(s.ca())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(garbage, append(text, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, f := range map[string]certs.Files{
		"need each other":      {Cert: files.Cert},
		"/nowhere":             {Cert: "/nowhere", Key: files.Key},
		"with the key":         {Cert: files.Cert, Key: filepath.Join(s.dir, authority.KeyFile)},
		"holds no certificate": {CA: files.Key},
		garbage:                {CA: garbage},
	} {
		if _, err := certs.Open(f, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %s", f, err, says)
		}
	}
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]string{
		"":                     "nobody",
		"spiffe://site/worker": "nobody",
		"carillon://node/n1":   "carillon://node/n1",
		"spiffe://site/x CARILLON://worker/a.b:c-d_e": "carillon://worker/a.b:c-d_e",
		"carillon://node/n1 carillon://worker/w":      "more than one",
		"carillon://node/n1 carillon://node/n1":       "more than one",
		"carillon://node":                             "neither",
		"carillon://node/":                            "neither",
		"carillon://node/a/b":                         "neither",
		"carillon://Node/a":                           "neither",
		"carillon://person/ann":                       "neither",
		"carillon://x@node/a":                         "neither",
		"carillon://node/a?b":                         "neither",
		"carillon://node/a#b":                         "neither",
		"carillon:node/a":                             "neither",
	} {
		cert := &x509.Certificate{}
		for _, name := range strings.Fields(names) {
			u, err := url.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			cert.URIs = append(cert.URIs, u)
		}
		id, err := certs.Identify(cert)
		got := id.String()
		if err != nil {
			got = err.Error()
		}
		if err != nil && id != (certs.Identity{}) || !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", names, got, want)
		}
	}
}

func TestReadSettings(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"":                                       "plain",
		"CARILLON_TLS=off":                       "plain",
		"CARILLON_TLS=on":                        "tls",
		"CARILLON_TLS_NAME=x":                    "tls",
		"CARILLON_TLS=yes":                       `--CARILLON_TLS must be on or off, is "yes"`,
		"CARILLON_TLS=off CARILLON_TLS_CA=x":     "--CARILLON_TLS is off, but --CARILLON_TLS_CA is set",
		"CARILLON_TLS_CERT=x":                    "--CARILLON_TLS_CERT and --CARILLON_TLS_KEY need each other",
		"CARILLON_TLS_CERT=x CARILLON_TLS_KEY=y": "tls",
	} {
		values := map[string]string{}
		for _, pair := range strings.Fields(set) {
			name, value, _ := strings.Cut(pair, "=")
			values[name] = value
		}
		s, err := certs.ReadSettings(func(name string) (string, string) { return values[name], "--" + name })
		got := "plain"
		switch {
		case err != nil:
			got = err.Error()
		case s != nil:
			got = "tls"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", set, got, want)
		}
	}
}
