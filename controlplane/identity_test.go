package controlplane_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/certs"
	"github.com/carillon-scheduler/carillon/internal/certs/authority"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// tlsSite is a server with TLS, and who may call it.
type tlsSite struct {
	*server
	*authority.Authority
	dir string
}

func startTLS(t *testing.T, clients tls.ClientAuthType) *tlsSite {
	t.Helper()
	s := &tlsSite{dir: t.TempDir()}
	must(t, authority.Init(s.dir, time.Now()))
	a, err := authority.Open(s.dir)
	must(t, err)
	s.Authority = a
	source, err := certs.Open(s.issue(t, "n1", certs.Identity{Kind: certs.Node, Name: "n1"}, "127.0.0.1"), slog.New(slog.DiscardHandler))
	must(t, err)
	s.server = startAs(t, filepath.Join(t.TempDir(), "carillon.db"), func(c *controlplane.Config) { c.TLS, c.ClientCerts = source, clients })
	return s
}

func (s *tlsSite) issue(t *testing.T, name string, id certs.Identity, hosts ...string) certs.Files {
	t.Helper()
	out, err := s.Issue(authority.Request{Name: name, Identity: id, Hosts: hosts, Life: time.Hour}, time.Now())
	must(t, err)
	return certs.Files{Cert: out.Cert, Key: out.Key, CA: filepath.Join(s.dir, authority.CertFile)}
}

// as returns clients with the certificate of somebody, or with none.
func (s *tlsSite) as(files certs.Files) (carillonv1.WorkerServiceClient, *http.Client) {
	s.t.Helper()
	source, err := certs.Open(files, slog.New(slog.DiscardHandler))
	must(s.t, err)
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(source.Transport("")))
	must(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	text, err := os.ReadFile(files.CA)
	must(s.t, err)
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(text)
	if files.Cert != "" {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		must(s.t, err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}}
	s.t.Cleanup(client.CloseIdleConnections)
	return carillonv1.NewWorkerServiceClient(conn), client
}

// post makes a call over REST and returns its code and reason.
func (s *tlsSite) postAs(client *http.Client, path, body string, header http.Header) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	must(s.t, err)
	req.Header = header
	other := *s.server
	other.client = client
	code, text := other.send(req)
	if code == http.StatusOK {
		return code, ""
	}
	reason, _ := parseFailure(s.t, text).reason()
	return code, reason
}

// connect opens a stream as a worker, and returns how the node answers the hello.
func connect(ctx context.Context, c carillonv1.WorkerServiceClient, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	hello := &carillonv1.Hello{WorkerId: id, Incarnation: "1", Capacity: 1, Handlers: []*carillonv1.HandlerRegistration{{Name: "h"}}}
	if err := stream.Send(&carillonv1.ConnectRequest{Hello: hello}); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// A worker whose certificate names a worker is that worker only, by every call and over REST, too.
func TestAWorkerIsWhoItsCertificateSays(t *testing.T) {
	t.Parallel()
	s := startTLS(t, tls.VerifyClientCertIfGiven)
	for what, c := range map[string]struct {
		files  certs.Files
		id     string
		refuse bool
	}{
		"itself":            {s.issue(t, "w", certs.Identity{Kind: certs.Worker, Name: "w"}), "w", false},
		"somebody else":     {s.issue(t, "v", certs.Identity{Kind: certs.Worker, Name: "v"}), "w", true},
		"a node for others": {s.issue(t, "n2", certs.Identity{Kind: certs.Node, Name: "n2"}), "w", false},
		"one without names": {s.issue(t, "ann", certs.Identity{}), "w", false},
		"no certificate":    {certs.Files{CA: filepath.Join(s.dir, authority.CertFile)}, "w", false},
		"neither fish":      {s.issue(t, "odd", certs.Identity{Kind: "person", Name: "w"}), "w", true},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			grpcClient, httpClient := s.as(c.files)
			// What a client says of itself counts for nothing.
			ctx = metadata.AppendToOutgoingContext(ctx, "carillon-peer-uri", "carillon://worker/"+c.id)
			calls := map[string]func() error{
				"Connect": func() error { return connect(ctx, grpcClient, c.id) },
				"Poll": func() error {
					_, err := grpcClient.Poll(ctx, &carillonv1.PollRequest{WorkerId: c.id, Incarnation: "2", Wait: durationpb.New(0), MaxAttempts: 1,
						Handlers: []string{"h"}})
					return err
				},
				"Extend": func() error {
					_, err := grpcClient.Extend(ctx, &carillonv1.ExtendRequest{WorkerId: c.id, Incarnation: "3"})
					return err
				},
				"Finish": func() error {
					_, err := grpcClient.Finish(ctx, &carillonv1.FinishRequest{WorkerId: c.id, Incarnation: "3", Results: []*carillonv1.AttemptResult{{}}})
					return err
				},
			}
			for name, call := range calls {
				err := call()
				if denied := status.Code(err) == codes.PermissionDenied; denied != c.refuse {
					t.Errorf("%s: %v", name, err)
				}
			}
			for path, body := range map[string]string{
				"/v1/workers/" + c.id + ":poll":   `{"incarnation": "4", "wait": "0s", "handlers": ["h"]}`,
				"/v1/workers/" + c.id + ":extend": `{"incarnation": "4"}`,
				"/v1/workers/" + c.id + ":finish": `{"incarnation": "4", "results": [{}]}`,
			} {
				for _, header := range []http.Header{{}, {"Grpc-Metadata-Carillon-Peer-Uri": {"carillon://worker/" + c.id}}, {"Grpc-Metadata-Carillon-Peer-Uri": {"carillon://worker/other"}}} {
					code, reason := s.postAs(httpClient, path, body, header)
					if denied := code == http.StatusForbidden && reason == "IDENTITY_MISMATCH"; denied != c.refuse {
						t.Errorf("%s with %v: %d %s", path, header, code, reason)
					}
				}
			}
		})
	}
}

// Where certificates are required, REST refuses who has none; probes are answered.
func TestRequiredCertificatesOverHTTP(t *testing.T) {
	t.Parallel()
	s := startTLS(t, tls.RequireAndVerifyClientCert)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 401, "/v1/namespaces/default/jobs": 401, "/healthz/../metrics": 401, "//readyz": 401} {
		if code, body := s.get(path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	_, client := s.as(s.issue(t, "ann", certs.Identity{}))
	other := *s.server
	other.client = client
	for _, path := range []string{"/metrics", "/v1/namespaces/default/jobs", "/healthz"} {
		if code, body := other.get(path); code != http.StatusOK {
			t.Errorf("%s with a certificate: %d %s", path, code, body)
		}
	}
	plain := *s.server
	plain.url, plain.client = strings.Replace(s.url, "https:", "http:", 1), http.DefaultClient
	if code, _ := plain.get("/healthz"); code != http.StatusBadRequest {
		t.Errorf("plain text is answered by %d", code)
	}
}

// The SDK's worker does its work under TLS, by the files that it was given.
func TestTheSDKWithTLS(t *testing.T) {
	t.Parallel()
	s := startTLS(t, tls.RequireAndVerifyClientCert)
	files := s.issue(t, "w", certs.Identity{Kind: certs.Worker, Name: "w"})
	w, err := worker.Dial(t.Context(), s.grpc, worker.WithTLSFiles(worker.TLSFiles{CA: files.CA, Cert: files.Cert, Key: files.Key}), worker.Logger(slog.New(slog.DiscardHandler)))
	must(t, err)
	ran := make(chan string, 1)
	worker.Handle(w, "h", func(_ context.Context, task *worker.Task[any]) error {
		ran <- task.Job()
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
	}()
	_, client := s.as(files)
	code, reason := s.postAs(client, "/v1/namespaces/default/jobs?jobId=j&allowUnregisteredHandler=true", `{"handler": "h", "schedule": {"immediate": {}}}`, http.Header{})
	if code != http.StatusOK {
		t.Fatalf("create: %d %s", code, reason)
	}
	select {
	case <-ran:
	case <-time.After(20 * time.Second):
		t.Error("it never ran")
	}
}
