package sim

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/coordinator/etcd"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
)

// node is a host on which a node runs, life after life.
type node struct {
	w     *world
	name  string
	clock *hostClock
	gen   int64 // owner_gen of the next life

	mu    sync.Mutex // guards what follows
	lives int
	life  *life // nil: it doesn't run
	newer bool  // the next life is of a later version
}

// life is one process of a host.
type life struct {
	process *simnet.Process
	stop    context.CancelFunc
	ended   chan struct{}
}

// targetOf is where the node of a host is reached.
func targetOf(host string) string { return "passthrough:///" + host + ":7070" }

// start begins a life, unless there is one.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life != nil {
		return
	}
	n.lives++
	p := simnet.NewProcess(n.name, n.lives)
	ctx, stop := context.WithCancel(context.Background())
	l := &life{process: p, stop: stop, ended: make(chan struct{})}
	n.life = l
	n.w.trace(p.ID, "starts")
	go func() {
		defer close(l.ended)
		for ctx.Err() == nil && !p.Dead() {
			err := n.run(ctx, p, n.newer)
			if ctx.Err() != nil || p.Dead() {
				return
			}
			// Whoever watches over the process starts it again.
			n.w.trace(p.ID, "ends by itself: %v", err)
			time.Sleep(time.Second)
		}
	}()
}

// kill ends the life at once.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil {
		return
	}
	n.life.process.Kill()
	n.life.stop() // what is left of it talks to nobody any more
	n.life = nil
}

// terminate has the life end in good order; what it is by then, is awaited by end.
func (n *node) terminate() (ended <-chan struct{}) {
	n.mu.Lock()
	l := n.life
	n.life = nil
	n.mu.Unlock()
	if l == nil {
		return closedChan()
	}
	l.stop()
	n.w.lingering(l)
	return l.ended
}

func closedChan() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// process is that of the life, or nil.
func (n *node) process() *simnet.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil {
		return nil
	}
	return n.life.process
}

// noJitter is the back-off of a connection whose pauses chance doesn't decide.
var noJitter = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: 2 * time.Second},
	MinConnectTimeout: 4900 * time.Millisecond, // never when the worker gives up, too,
})

// dialOptions are those of a connection that a process makes.
func (w *world) dialOptions(p *simnet.Process) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), noJitter,
		grpc.WithReadBufferSize(2 << 10), grpc.WithWriteBufferSize(2 << 10), // most of what a run allocates, else
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return w.net.Dial(ctx, p, address) }),
	}
}

// run is one try to be a node: the parts are put together as the program does.
func (n *node) run(ctx context.Context, p *simnet.Process, newer bool) error {
	w := n.w
	db := w.database.link(p)
	log := slog.New(&logger{w: w, who: p.ID})
	if _, err := db.InitShards(ctx, w.shards); err != nil {
		return err
	}
	id, err := db.ClusterID(ctx)
	if err != nil {
		return err
	}
	version := "1"
	if newer {
		version = "2"
	}
	cluster := etcd.New(etcd.ClientConfig{Client: func() (*clientv3.Client, error) { return w.etcd.NewClient(p), nil }}, etcd.Config{
		Cluster: id, Node: n.name, Address: targetOf(n.name), Version: version, Capacity: 1, Shards: w.shards, Gen: n.gen, TTL: sessionTTL,
		Owners: func(ctx context.Context) ([]etcd.Ownership, error) {
			owners, err := db.Owners(ctx)
			out := make([]etcd.Ownership, 0, len(owners))
			for _, o := range owners {
				out = append(out, etcd.Ownership{Shard: o.Shard, Node: o.Node, Gen: o.Gen, Rev: o.Rev})
			}
			return out, err
		}, Log: log,
	})
	metrics := controlplane.NewMetrics()
	cfg := w.engineConfig(n.name)
	cfg.Log, cfg.Observer, cfg.Clock = log, &observer{Observer: metrics, w: w, who: p.ID}, n.clock.of(p)
	driven := engine.New(cfg, db, cluster)
	grpcListener, err := w.net.Listen(p, n.name+":7070")
	if err != nil {
		return err
	}
	httpListener, err := w.net.Listen(p, n.name+":7080")
	if err != nil {
		return err
	}
	served := controlplane.Config{
		NodeID: n.name, Shards: w.shards, Cluster: cluster, ClusterID: id, Node: driven, Core: cfg.Core, Store: db, Metrics: metrics, Log: log,
		GRPC: grpcListener, HTTP: httpListener, Dial: w.dialOptions(p), StreamMaxAge: streamMaxAge,
	}
	if newer {
		served.Stream, served.Unary = laterStream, laterUnary
	}
	err = controlplane.New(served).Run(ctx)
	if err != nil {
		return err
	}
	w.trace(p.ID, "has ended")
	return nil
}

const (
	sessionTTL   = 5 * time.Second
	streamMaxAge = 3 * time.Minute
)

// hostClock is the clocks of a host, by its own idea.
type hostClock struct {
	mu    sync.Mutex
	ahead time.Duration // of the wall clock
}

// step sets the wall clock.
func (c *hostClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}

func (c *hostClock) set(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = ahead
}

// of is the clocks as a process reads them: one that is frozen reads none.
func (c *hostClock) of(p *simnet.Process) processClock { return processClock{c, p, time.Now()} }

type processClock struct {
	host  *hostClock
	p     *simnet.Process
	start time.Time
}

// Monotonic implements clock.Source.
func (c processClock) Monotonic() time.Duration {
	c.p.Gate("clock")
	return time.Since(c.start)
}

// Wall implements clock.Source.
func (c processClock) Wall() time.Time {
	c.p.Gate("wall clock")
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	return time.Now().Round(0).Add(c.host.ahead)
}

// logger puts what a process logs into the trace.
type logger struct {
	w     *world
	who   string
	attrs string
}

// Enabled implements slog.Handler.
func (l *logger) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError || l.w.verbose && level >= slog.LevelInfo
}

// never are messages that no node may have a reason to log.
var never = []string{"a call panicked", "a shard made a false step and is loaded anew"}

// Handle implements slog.Handler.
func (l *logger) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message + l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(" " + a.String())
		return true
	})
	if slices.Contains(never, r.Message) {
		l.w.wrong("%s: %s", l.who, b.String())
	}
	if l.w.verbose {
		l.w.trace(l.who, "log: %s", b.String())
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (l *logger) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *l
	for _, a := range attrs {
		with.attrs += " " + a.String()
	}
	return &with
}

// WithGroup implements slog.Handler.
func (l *logger) WithGroup(string) slog.Handler { return l }
