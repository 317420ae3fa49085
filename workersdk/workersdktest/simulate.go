package workersdktest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/controlplane/chaos"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// Server is a whole server in the test's process, on simulated time.
type Server struct {
	Jobs        carillonv1.JobServiceClient
	Slots       carillonv1.SlotServiceClient
	DeadLetters carillonv1.DeadLetterServiceClient
	Gaps        carillonv1.GapServiceClient

	t      *testing.T
	grpc   *bufconn.Listener
	chaos  *chaos.Chaos // nil: none
	killer *killer      // nil: none
	lives  sync.WaitGroup
}

// ServerOption changes a simulated server.
type ServerOption func(*serverConfig)

type serverConfig struct {
	chaos  *chaos.Chaos
	kills  *killer
	log    *slog.Logger
	stream grpc.StreamServerInterceptor
}

// DeliverTwice has the first success of every slot lost on its way, so that its work is done a
// second time, by an attempt with a higher fence: a handler that isn't idempotent does its
// work twice.
func DeliverTwice() ServerOption {
	return func(c *serverConfig) { c.chaos = chaos.New(chaos.Config{Twice: 1}) }
}

// Chaos treats workers as badly as `carillon dev --chaos` does.
func Chaos(seed uint64) ServerOption {
	return func(c *serverConfig) { c.chaos = chaos.New(chaos.Default(seed)) }
}

// KillMidway kills the worker in the middle of a part of the first attempts, or when their
// handler is done and nobody knows it yet, and starts another one. Goroutines can't be killed:
// their context ends, and they may still be at work beside the next attempt, as a worker may
// that was only cut off. What they share is to be guarded.
func KillMidway(seed uint64) ServerOption {
	return func(c *serverConfig) { c.kills = &killer{seed: seed, killed: map[string]bool{}} }
}

// Interceptor stands between workers' streams and the server, for tests of the protocol itself.
func Interceptor(i grpc.StreamServerInterceptor) ServerOption {
	return func(c *serverConfig) { c.stream = i }
}

// ServerLog sets the server's and the workers' logger. Default: nothing is logged.
func ServerLog(log *slog.Logger) ServerOption { return func(c *serverConfig) { c.log = log } }

// Simulate runs a test in a bubble of testing/synctest, in which time passes only while all
// wait: it begins at midnight UTC 2000-01-01. The server is up when the test begins, and ends
// with it.
//
// In the bubble, goroutines must not wait for the network or for processes: a handler that
// calls out is given stand-ins.
func Simulate(t *testing.T, test func(t *testing.T, s *Server), opts ...ServerOption) {
	t.Helper()
	cfg := serverConfig{log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	for _, opt := range opts {
		opt(&cfg)
	}
	path := filepath.Join(t.TempDir(), "carillon.db")
	synctest.Test(t, func(t *testing.T) {
		s := &Server{t: t, grpc: bufconn.Listen(bufferBytes), chaos: cfg.chaos, killer: cfg.kills}
		s.serve(path, &cfg)
		test(t, s)
	})
}

const (
	bufferBytes = 1 << 20
	// simulatedShards are fewer than a cluster has: each writes its watermark again and again,
	// and that more seldom too, since nobody takes it over.
	simulatedShards = 1
	simulatedPause  = time.Minute
)

// serve runs the server until the test ends, and waits until it is up.
func (s *Server) serve(path string, cfg *serverConfig) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	db, err := sqlite.Open(ctx, path, sqlite.Volatile())
	s.must(err)
	_, err = db.InitShards(ctx, simulatedShards)
	s.must(err)
	rev, err := db.NextRevision(ctx)
	s.must(err)
	metrics := controlplane.NewMetrics()
	node := engine.DefaultConfig("test", simulatedShards)
	node.Log, node.Observer = cfg.log, metrics
	node.InboxEvery, node.Core.WatermarkEvery, node.Core.PassEvery = simulatedPause, simulatedPause, time.Hour
	alone := solo.New(node.ID, simulatedShards, rev)
	served := controlplane.Config{
		NodeID: node.ID, Shards: simulatedShards, Cluster: alone, Node: engine.New(node, db, alone), Core: node.Core, Store: db,
		Metrics: metrics, Log: cfg.log, GRPC: s.grpc, HTTP: bufconn.Listen(bufferBytes),
	}
	served.Stream = cfg.stream
	if s.chaos != nil {
		served.Stream, served.Unary = s.chaos.Stream, s.chaos.Unary
	}
	ended := make(chan error, 1)
	go func() { ended <- controlplane.New(served).Run(ctx) }()
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.Dial(ctx) }))
	s.must(err)
	s.Jobs, s.Slots = carillonv1.NewJobServiceClient(conn), carillonv1.NewSlotServiceClient(conn)
	s.DeadLetters, s.Gaps = carillonv1.NewDeadLetterServiceClient(conn), carillonv1.NewGapServiceClient(conn)
	s.t.Cleanup(func() {
		s.lives.Wait()
		cancel()
		s.must(errors.Join(<-ended, conn.Close(), db.Close()))
	})
	s.Advance(time.Second)
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Dial opens a connection to the server, for clients of your own.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) { return s.grpc.DialContext(ctx) }

// Advance lets time pass, and everything happen that is due by then, with the handlers of the
// workers that run.
func (s *Server) Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Create creates a job of the namespace default, and fails the test if it is refused.
func (s *Server) Create(id string, job *carillonv1.Job) *carillonv1.Job {
	s.t.Helper()
	resp, err := s.Jobs.CreateJob(s.t.Context(), &carillonv1.CreateJobRequest{Parent: "namespaces/default", JobId: id, Job: job})
	s.must(err)
	return resp.GetJob()
}

// History returns the newest 1,000 slots of a job, the oldest first.
func (s *Server) History(id string) []*carillonv1.Slot {
	s.t.Helper()
	resp, err := s.Slots.ListSlots(s.t.Context(), &carillonv1.ListSlotsRequest{Parent: "namespaces/default/jobs/" + id, PageSize: 1000})
	s.must(err)
	slots := resp.GetSlots()
	slices.Reverse(slots)
	return slots
}

// Report returns what befell the handlers, if the server treats workers badly.
func (s *Server) Report() []chaos.Count {
	if s.chaos == nil {
		return nil
	}
	return s.chaos.Counts()
}

// Worker runs a worker until the test ends, or until it is stopped or killed. Register adds its
// handlers; it is called again for each worker that takes the place of one that was killed.
func (s *Server) Worker(register func(*worker.Worker), opts ...worker.Option) *Worker {
	s.t.Helper()
	w := &Worker{server: s, register: register, opts: opts}
	s.must(w.start())
	s.t.Cleanup(w.Stop)
	synctest.Wait()
	return w
}

// Worker is a worker that runs.
type Worker struct {
	server   *Server
	register func(*worker.Worker)
	opts     []worker.Option

	mu      sync.Mutex // guards what follows
	stopped bool
	life    *life
}

// life is one process of a worker, as it were.
type life struct {
	end   context.CancelFunc
	gone  func()
	ended chan struct{}

	mu    sync.Mutex // guards what follows
	dead  bool
	conns []net.Conn
}

func (w *Worker) start() error {
	l := &life{ended: make(chan struct{})}
	gone, die := context.WithCancelCause(context.Background())
	l.gone = func() { die(worker.ErrLeaseLost) }
	opts := slices.Concat([]worker.Option{worker.Intercept(untilGone(gone)),
		worker.ID("test"), worker.Logger(slog.New(slog.DiscardHandler)), worker.TLS(nil), worker.Token(nil),
		worker.DialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.dial(ctx, w.server) })),
	}, w.opts)
	if k := w.server.killer; k != nil {
		opts = append(opts, worker.Intercept(k.around(w)))
	}
	next, err := worker.Dial(context.Background(), "passthrough:///test", opts...)
	if err != nil {
		return err
	}
	w.register(next)
	ctx, cancel := context.WithCancel(context.Background())
	l.end = cancel
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		cancel()
		return nil
	}
	w.life = l
	w.server.lives.Go(func() {
		defer close(l.ended)
		if err := next.Run(ctx); err != nil {
			w.server.t.Error(err)
		}
	})
	return nil
}

func (l *life) dial(ctx context.Context, to *Server) (net.Conn, error) {
	conn, err := to.Dial(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.dead {
		return nil, errors.Join(errors.New("the worker was killed"), conn.Close())
	}
	l.conns = append(l.conns, conn)
	return conn, err
}

// die cuts the worker off for good, and ends its handlers' contexts.
func (l *life) die() {
	l.mu.Lock()
	l.dead = true
	for _, c := range l.conns {
		if c != nil {
			_ = c.Close() // it may be closed already
		}
	}
	l.mu.Unlock()
	l.gone()
	l.end()
}

// untilGone ends handlers' contexts when their worker is killed.
func untilGone(gone context.Context) worker.Interceptor {
	return func(ctx context.Context, _ worker.TaskInfo, next func(context.Context) error) error {
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(gone, func() { end(context.Cause(gone)) })()
		return next(ctx)
	}
}

// Stop stops the worker as a deploy does, and returns when it has ended. What hasn't begun is
// handed back.
func (w *Worker) Stop() {
	w.mu.Lock()
	w.stopped = true
	l := w.life
	w.mu.Unlock()
	l.end()
	<-l.ended
}

// Kill cuts the worker off, as if its process had been killed, and starts another one with the
// same id. What the old one still runs has lost its context, and nobody hears what came of it.
func (w *Worker) Kill() {
	w.mu.Lock()
	l := w.life
	w.mu.Unlock()
	l.die()
	if err := w.start(); err != nil {
		w.server.t.Error(err)
	}
}

// killer kills workers in the middle of first attempts.
type killer struct {
	seed   uint64
	mu     sync.Mutex
	killed map[string]bool // guarded by mu: slots
}

// Of the slots, so many are killed once; and so long after the begin at the latest, if their
// handler runs on.
const (
	killShare = 3 // one of so many
	killWait  = 10 * time.Second
)

// around is an interceptor that kills its worker.
func (k *killer) around(w *Worker) worker.Interceptor {
	return func(ctx context.Context, t worker.TaskInfo, next func(context.Context) error) error {
		after, kills := k.plan(t)
		if !kills {
			return next(ctx)
		}
		var once sync.Once
		kill := func() { once.Do(w.Kill) }
		timer := time.AfterFunc(after, kill)
		defer timer.Stop()
		err := next(ctx)
		kill() // before anybody hears of it
		return err
	}
}

func (k *killer) plan(t worker.TaskInfo) (after time.Duration, kills bool) {
	h := fnv.New64a()
	fmt.Fprint(h, k.seed, t.Slot()) // a hash never fails
	n := h.Sum64() % 1_000_003
	k.mu.Lock()
	defer k.mu.Unlock()
	if n%killShare != 0 || k.killed[t.Slot()] {
		return 0, false
	}
	k.killed[t.Slot()] = true
	return time.Duration(n) * killWait / 1_000_003, true
}
