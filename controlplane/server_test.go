package controlplane_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// server is a running server with clients.
type server struct {
	t         *testing.T
	url       string
	grpc      string
	jobs      carillonv1.JobServiceClient
	slots     carillonv1.SlotServiceClient
	handlers  carillonv1.HandlerServiceClient
	calendars carillonv1.CalendarServiceClient
	workers   carillonv1.WorkerServiceClient
	conn      *grpc.ClientConn
	client    *http.Client
	stop      func() error
}

// start serves a database, made at path if it isn't there.
func start(t *testing.T, path string, tune ...func(*engine.Config)) *server {
	t.Helper()
	return startAs(t, path, func(*controlplane.Config) {}, tune...)
}

// startAs is start with a server that is configured otherwise.
func startAs(t *testing.T, path string, configure func(*controlplane.Config), tune ...func(*engine.Config)) *server {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path)
	must(t, err)
	s := startNode(t, db, "test", nil, configure, tune...)
	stop := s.stop
	s.stop = sync.OnceValue(func() error { return errors.Join(stop(), db.Close()) })
	t.Cleanup(func() { must(t, s.stop()) })
	return s
}

// startNode is startAs with a database that stays open, a name, and other nodes; nil: it is alone.
func startNode(t *testing.T, db store.Store, name string, cluster coordinator.Cluster, configure func(*controlplane.Config), tune ...func(*engine.Config)) *server {
	t.Helper()
	shards, err := db.InitShards(t.Context(), 8)
	must(t, err)
	rev, err := db.NextRevision(t.Context())
	must(t, err)
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	metrics := controlplane.NewMetrics()
	cfg := engine.DefaultConfig(name, shards)
	cfg.Log, cfg.Observer = log, metrics
	for _, f := range tune {
		f(&cfg)
	}
	grpcListener, httpListener := listen(t), listen(t)
	if cluster == nil {
		cluster = solo.New(name, shards, rev)
	}
	served := controlplane.Config{
		NodeID: name, Shards: shards, Cluster: cluster, Node: engine.New(cfg, db, cluster), Core: cfg.Core, Store: db, Metrics: metrics, Log: log,
		GRPC: grpcListener, HTTP: httpListener,
	}
	configure(&served)
	srv := controlplane.New(served)
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- srv.Run(ctx) }()
	conn, err := grpc.NewClient(grpcListener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	must(t, err)
	s := &server{t: t, url: "http://" + httpListener.Addr().String(), grpc: grpcListener.Addr().String(), conn: conn, client: http.DefaultClient,
		jobs: carillonv1.NewJobServiceClient(conn), slots: carillonv1.NewSlotServiceClient(conn), handlers: carillonv1.NewHandlerServiceClient(conn),
		calendars: carillonv1.NewCalendarServiceClient(conn), workers: carillonv1.NewWorkerServiceClient(conn)}
	if served.TLS != nil { // the tests of TLS bring clients that look closer
		s.url = "https://" + httpListener.Addr().String()
		s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		t.Cleanup(s.client.CloseIdleConnections)
	}
	stop := sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-end, conn.Close())
	})
	s.stop = stop
	t.Cleanup(func() { must(t, stop()) })
	s.eventually("the node is ready", func() bool {
		code, _ := s.get("/readyz")
		return code == http.StatusOK
	})
	return s
}

func newServer(t *testing.T) *server {
	return start(t, filepath.Join(t.TempDir(), "carillon.db"))
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}

// eventually waits for a condition of the running server.
func (s *server) eventually(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("it never came that %s", what)
		}
	}
}

func (s *server) get(path string) (int, string) { return s.do(http.MethodGet, path, "") }

func (s *server) post(path, body string) (int, string) { return s.do(http.MethodPost, path, body) }

func (s *server) do(method, path, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	must(s.t, err)
	return s.send(req)
}

func (s *server) send(req *http.Request) (int, string) {
	s.t.Helper()
	resp, err := s.client.Do(req)
	must(s.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(s.t, err)
	return resp.StatusCode, string(b)
}

// restFailure is an error over REST.
type restFailure struct {
	Error struct {
		Code    int
		Message string
		Status  string
		Details []struct {
			Reason          string
			Domain          string
			FieldViolations []struct{ Field, Description, Reason string }
		}
	}
}

func parseFailure(t *testing.T, body string) (f restFailure) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &f); err != nil {
		t.Fatalf("the error %q isn't JSON: %v", body, err)
	}
	return f
}

// reason returns the reason and the first field of an error.
func (f restFailure) reason() (reason, field string) {
	for _, d := range f.Error.Details {
		if d.Domain != "" {
			reason = d.Reason
		}
		for _, v := range d.FieldViolations {
			if field == "" {
				field = v.Field
			}
		}
	}
	return reason, field
}

func (s *server) countJobs() int {
	s.t.Helper()
	resp, err := s.jobs.ListJobs(s.t.Context(), &carillonv1.ListJobsRequest{Parent: "namespaces/default", PageSize: 1000, ShowEnded: true})
	must(s.t, err)
	return len(resp.GetJobs())
}
