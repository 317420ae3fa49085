package workersdk

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

const (
	sdkVersion      = "carillon-go/0.1.0"
	protocolVersion = 1
	defaultCapacity = 64
	maxCapacity     = 100_000
	defaultGrace    = 5 * time.Second
)

var (
	workerID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)
	notOfID  = regexp.MustCompile(`[^A-Za-z0-9._:-]+`)
)

// Worker runs handlers for one cluster. Make it with [Dial], add handlers with
// [Handle], then call [Worker.Run] once.
type Worker struct {
	targets     []string // the seeds
	incarnation string
	cfg         config

	mu       sync.Mutex
	ran      bool                // guarded by mu
	handlers map[string]*handler // guarded by mu until Run began, unchanged after
}

type config struct {
	id       string
	capacity int
	grace    time.Duration
	log      *slog.Logger
	dial     []grpc.DialOption

	interceptors []Interceptor
	codec        Codec
	credentials
}

// Option changes a worker.
type Option func(*config)

// Capacity sets how many attempts the worker holds at the same time, running or
// waiting for their handler: 1 to 100,000, default 64. In a cluster it is shared out over the
// nodes: each gets what it can use, as long as others don't get less than a fair share, and what
// nobody can use is spread evenly.
func Capacity(n int) Option { return func(c *config) { c.capacity = n } }

// ID sets the stable id of the worker: 1 to 128 letters, digits, '.', '_', ':' or
// '-'. No two workers that live at the same time may share one. With a stable id the
// cluster takes back at once what a crashed process held when its successor
// connects. Default: the one that its certificate names, see [Dial], or else the host name
// and a random suffix.
func ID(id string) Option { return func(c *config) { c.id = id } }

// ShutdownGrace sets how long running handlers go on undisturbed once Run's context
// has ended: default 5 s. Run returns at most about 4 s after it.
func ShutdownGrace(d time.Duration) Option { return func(c *config) { c.grace = d } }

// Logger sets the logger: default slog.Default().
func Logger(l *slog.Logger) Option { return func(c *config) { c.log = l } }

// DialOptions adds options of the gRPC connection, over the worker's own.
func DialOptions(opts ...grpc.DialOption) Option {
	return func(c *config) { c.dial = append(c.dial, opts...) }
}

// Dial makes a worker for the cluster at target, a gRPC target such as
// "carillon:7070", or several, separated by commas: the addresses of any of its nodes, from which
// it learns the others. All addresses of a DNS name are tried. It checks its arguments and opens no connection: Run does, and
// waits for a cluster that isn't there yet. It fails if ctx is over.
//
// Without [TLS], [WithTLSFiles], [Token] and [DialOptions] the environment says how to connect:
//
//	CARILLON_TLS        on: with TLS, which the files below imply; off or unset: in plain text
//	CARILLON_TLS_CA     a file with the certificates of authorities to trust; unset: the system's
//	CARILLON_TLS_CERT   a file with the worker's certificate, and
//	CARILLON_TLS_KEY    one with its key
//	CARILLON_TLS_NAME   the server's name in its certificate, if it isn't the target's
//	CARILLON_TOKEN      a token that is sent with each call; it needs TLS
//	CARILLON_TOKEN_FILE a file with one, which is read anew for each stream
//
// Certificates are read again for a new stream when their files have changed. One that names
// carillon://worker/ID lets the worker have that id alone.
func Dial(ctx context.Context, target string, opts ...Option) (*Worker, error) {
	cfg := config{capacity: defaultCapacity, grace: defaultGrace, log: slog.Default()}
	if err := cfg.fromEnvironment(os.LookupEnv); err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	w := &Worker{targets: seeds(target), incarnation: uuid.NewString(), cfg: cfg, handlers: map[string]*handler{}}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, context.Cause(ctx))
	}
	for _, seed := range w.targets {
		conn, err := w.newConn(seed)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", target, err)
		}
		if err := conn.Close(); err != nil {
			return nil, fmt.Errorf("dial %s: %w", target, err)
		}
	}
	return w, nil
}

// seeds splits a list of targets.
func seeds(target string) (out []string) {
	for t := range strings.SplitSeq(target, ",") {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return []string{target} // for gRPC to judge
	}
	return out
}

func (c *config) check() error {
	switch {
	case c.capacity < 1 || c.capacity > maxCapacity:
		return fmt.Errorf("the capacity must be 1 to %d, is %d", maxCapacity, c.capacity)
	case c.id != "" && !workerID.MatchString(c.id):
		return fmt.Errorf("the id %q must be 1 to 128 letters, digits, '.', '_', ':' or '-'", c.id)
	case c.grace < 0:
		return fmt.Errorf("the shutdown grace must not be negative, is %s", c.grace)
	case c.log == nil:
		return errors.New("the logger is nil")
	}
	return c.credentials.check()
}

// complete opens the files, and names a worker that has no name.
func (c *config) complete() error {
	if err := c.open(c.log); err != nil {
		return err
	}
	if c.id == "" {
		c.id = cmp.Or(c.workerID(), defaultID())
	}
	return nil
}

func defaultID() string {
	const maxHost = 100
	host, err := os.Hostname()
	host = notOfID.ReplaceAllString(host, "-")
	if err != nil || host == "" {
		host = "worker"
	}
	var suffix [4]byte
	rand.Read(suffix[:]) // never fails
	return host[:min(len(host), maxHost)] + "-" + hex.EncodeToString(suffix[:])
}

// newConn makes a connection. Each stream has its own, so that one that is silently
// dead isn't used again.
func (w *Worker) newConn(target string) (*grpc.ClientConn, error) {
	const maxReceive = 16 << 20 // beside the node's own 1 MiB: room for what it may become
	opts := []grpc.DialOption{
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		// The connector has its own back-off; this one only lasts within one opening.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: 2 * time.Second,
		}, MinConnectTimeout: openTimeout}),
	}
	opts = append(opts, w.cfg.credentials.options()...)
	return grpc.NewClient(target, append(opts, w.cfg.dial...)...)
}

// jitter chooses the pauses of one connector. It follows from the incarnation: what that is, is all that
// chance decides of a worker.
func (w *Worker) jitter() *mathrand.Rand {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(w.incarnation)) // a hash never fails
	return mathrand.New(mathrand.NewPCG(seed.Sum64(), 0))
}

// Run connects and runs handlers until ctx ends, then shuts down as the package
// comment tells and returns nil. It returns an error only if it was called twice, if
// there is no handler, or if the node refuses this worker for good. It may be called
// once.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return fmt.Errorf("run worker %s: %w", w.cfg.id, err)
	}
	// Streams and handlers outlive ctx: its end begins the shutdown.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	l := newLoop(w)
	l.newContext = func(deadline time.Time) (context.Context, context.CancelCauseFunc, context.CancelFunc) {
		return attemptContext(life, deadline)
	}
	var connectors sync.WaitGroup
	l.startConnector = func(k *link) {
		var ctx context.Context
		ctx, k.cancel = context.WithCancel(life)
		connectors.Go(func() { l.connect(ctx, k) })
	}
	err := l.run(ctx)
	end()
	connectors.Wait()
	if err != nil {
		return fmt.Errorf("run worker %s: %w", w.cfg.id, err)
	}
	return nil
}

func (w *Worker) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ran:
		return errors.New("it was run before")
	case len(w.handlers) == 0:
		return errors.New("it has no handlers")
	}
	w.ran = true
	return nil
}
