// Package controlplane is what listens: the gRPC services, the workers' streams,
// the REST gateway, the metrics, and the server that is assembled of them.
//
// A request is checked, mapped to the words of package job, and handed to the
// node (package engine), which drives the shards; reads for people go to the store.
// Every error leaves through one door, toStatus.
package controlplane

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/test/bufconn"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/internal/certs"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store"
)

// Config configures a server.
type Config struct {
	NodeID  string
	Shards  int // of the cluster
	Node    *engine.Node
	Core    core.Config
	Store   store.Store
	Metrics *Metrics
	Log     *slog.Logger
	// GRPC and HTTP listen; the server closes them.
	GRPC, HTTP net.Listener
	// TLS is what both listeners show. Nil: they speak in plain text.
	TLS *certs.Source
	// ClientCerts says what is asked of clients. Where certificates are required, probes of
	// the node's health over HTTP go without.
	ClientCerts tls.ClientAuthType
	// StreamMaxAge is after which time a worker is asked to open a new stream: so load
	// balancers spread workers anew. Zero means an hour.
	StreamMaxAge time.Duration
	// Cluster tells of the nodes that share the shards, and does what operators ask for.
	Cluster Cluster
	// ClusterID tells this cluster from every other one.
	ClusterID string
	// Dial is how other nodes are called.
	Dial []grpc.DialOption
	// Simulated is the clock of a server on simulated time, whose node and database follow it,
	// too. Nil: this machine's is.
	Simulated *clock.Simulated
	// Stream and Unary are interceptors between clients and services, for tests. Nil: none.
	Stream grpc.StreamServerInterceptor
	Unary  grpc.UnaryServerInterceptor
	// Profiles serves what the Go runtime knows of the process under /debug/pprof/.
	Profiles bool
}

// Server serves one node.
type Server struct {
	nodeID  string
	shards  int
	node    *engine.Node
	core    core.Config
	store   store.Store
	catalog *catalog
	metrics *Metrics
	log     *slog.Logger

	clock                      func() time.Time
	simulated                  *clock.Simulated // nil: the time is real
	streamMaxAge               time.Duration
	stream                     grpc.StreamServerInterceptor
	unary                      grpc.UnaryServerInterceptor
	profiles                   bool
	cluster                    string
	coordination               Cluster
	peers                      *peers
	handing                    sync.WaitGroup // what hands attempts back, and results on
	stopping                   atomic.Bool    // nobody new should come
	members                    *members
	tls                        *certs.Source // nil: none
	clientCerts                tls.ClientAuthType
	grpcListener, httpListener net.Listener
	local                      *bufconn.Listener
	health                     *health.Server
}

// Bounds of the listeners.
const (
	maxRequestBytes   = 16 << 20
	maxUnaryDeadline  = 30 * time.Second
	localBuffer       = 1 << 20
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	stopTimeout       = 2 * time.Second
	// maxStreams bounds what one connection may have open at the same time; REST's calls
	// share one.
	maxStreams          = 10_000
	defaultStreamMaxAge = time.Hour
)

// peerBackoff is between tries to reach another node: one that comes back is found soon.
var peerBackoff = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}

// New returns a server that Run will start.
func New(cfg Config) *Server {
	now := time.Now
	if cfg.Simulated != nil {
		now = cfg.Simulated.Wall
	}
	dial := append([]grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxRequestBytes), grpc.MaxCallSendMsgSize(maxRequestBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: peerBackoff, MinConnectTimeout: askTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
	}, cfg.Dial...)
	return &Server{
		cluster: cfg.ClusterID, coordination: cfg.Cluster, peers: newPeers(cfg.NodeID, cfg.Cluster, dial),
		nodeID: cfg.NodeID, clock: now, simulated: cfg.Simulated, shards: cfg.Shards, node: cfg.Node, core: cfg.Core, store: cfg.Store,
		catalog: &catalog{store: cfg.Store}, metrics: cfg.Metrics, log: cfg.Log,
		streamMaxAge: cmp.Or(cfg.StreamMaxAge, defaultStreamMaxAge), profiles: cfg.Profiles,
		stream: cfg.Stream, unary: cfg.Unary, members: newMembers(directoryOf(cfg.Cluster)), tls: cfg.TLS, clientCerts: cfg.ClientCerts,
		grpcListener: cfg.GRPC, httpListener: cfg.HTTP, local: bufconn.Listen(localBuffer), health: health.NewServer(),
	}
}

// Run serves until ctx ends. Then /readyz says so, the node hands its shards over and drains, which
// ends the workers' streams, and the listeners close: the REST gateway, which calls gRPC, first.
func (s *Server) Run(ctx context.Context) error {
	grpcServer := s.newGRPC()
	conn, err := grpc.NewClient("passthrough:///local",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.local.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxRequestBytes), grpc.MaxCallSendMsgSize(maxRequestBytes)))
	if err != nil {
		return fmt.Errorf("connect the gateway: %w", err)
	}
	defer conn.Close()    // nothing is written on it any more
	defer s.peers.close() // nothing is under way any more
	httpServer, err := s.newHTTP(ctx, conn)
	if err != nil {
		return err
	}
	s.metrics.Registry.MustRegister(newNodeCollector(s.node, s.now), newClusterCollector(s.coordination))

	// A listener that fails ends all; else the order of the end is stop's.
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error { return served(grpcServer.Serve(s.grpcListener)) })
	group.Go(func() error { return s.members.follow(failed) })
	group.Go(func() error { return served(grpcServer.Serve(localListener{s.local})) })
	group.Go(func() error { return served(s.serveHTTP(httpServer)) })
	nodeCtx, stopNode := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNode()
	nodeEnd := make(chan error, 1)
	group.Go(func() error {
		err := s.node.Run(nodeCtx)
		nodeEnd <- err
		if err != nil {
			return fmt.Errorf("node: %w", err)
		}
		return nil
	})
	s.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	<-failed.Done()
	s.health.Shutdown()
	stopNode()
	s.stopping.Store(true)
	err = <-nodeEnd
	err = errors.Join(err, s.stopHTTP(ctx, httpServer))
	stopGRPC(grpcServer)
	s.handing.Wait()
	return errors.Join(err, group.Wait())
}

func (s *Server) serveHTTP(h *http.Server) error {
	if s.tls == nil {
		return h.Serve(s.httpListener)
	}
	return h.ServeTLS(s.httpListener, "", "")
}

// served takes the errors away that a stop causes.
func served(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// stopHTTP lets calls end for a moment.
func (s *Server) stopHTTP(ctx context.Context, h *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		s.log.Warn("REST calls were cut off", "error", err)
		return h.Close()
	}
	return nil
}

// stopGRPC lets calls end for a moment, then cuts them off.
func stopGRPC(g *grpc.Server) {
	timer := time.AfterFunc(stopTimeout, g.Stop)
	defer timer.Stop()
	g.GracefulStop()
}

// newGRPC assembles the gRPC server. Its keepalive policy allows what the SDK
// does.
func (s *Server) newGRPC() *grpc.Server {
	codec := newStrictCodec()
	unary := []grpc.UnaryServerInterceptor{s.recoverUnary, s.countUnary, codec.unary, boundUnary}
	unary = append(unary, s.forwardUnary)
	if s.unary != nil {
		unary = append(unary, s.unary)
	}
	stream := []grpc.StreamServerInterceptor{s.recoverStream, codec.stream}
	if s.stream != nil {
		stream = append(stream, s.stream)
	}
	if s.simulated != nil {
		times := simulatedTimes{s.simulated}
		unary, stream = append(unary, times.unary), append(stream, times.stream)
	}
	creds := insecure.NewCredentials()
	if s.tls != nil {
		creds = s.grpcCredentials()
	}
	g := grpc.NewServer(
		grpc.Creds(creds), grpc.ForceServerCodecV2(codec),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxRequestBytes), grpc.MaxSendMsgSize(maxRequestBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...),
	)
	carillonv1.RegisterJobServiceServer(g, jobService{Server: s})
	carillonv1.RegisterSlotServiceServer(g, slotService{Server: s})
	carillonv1.RegisterHandlerServiceServer(g, handlerService{Server: s})
	carillonv1.RegisterCalendarServiceServer(g, calendarService{Server: s})
	carillonv1.RegisterGapServiceServer(g, gapService{Server: s})
	carillonv1.RegisterDeadLetterServiceServer(g, deadLetterService{Server: s})
	carillonv1.RegisterWorkerServiceServer(g, workerService{Server: s})
	carillonv1.RegisterClusterServiceServer(g, clusterService{Server: s})
	if s.simulated != nil {
		carillonv1.RegisterClockServiceServer(g, newClockService(s, s.simulated))
	}
	grpc_health_v1.RegisterHealthServer(g, s.health)
	reflection.Register(g)
	return g
}

// newHTTP assembles what is served over HTTP.
func (s *Server) newHTTP(ctx context.Context, conn *grpc.ClientConn) (*http.Server, error) {
	gateway, err := newGateway(ctx, conn)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.MaxBytesHandler(gateway, maxRequestBytes))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.profiles {
		serveProfiles(mux)
	}
	h := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)}
	if s.tls != nil {
		clients := s.clientCerts
		if clients == tls.RequireAndVerifyClientCert {
			clients, h.Handler = tls.VerifyClientCertIfGiven, certified(mux)
		}
		h.TLSConfig = s.tls.Server(clients, "h2", "http/1.1")
	}
	return h, nil
}

// held is how many shards this node should have live.
func (s *Server) held() int {
	n := 0
	for _, h := range s.coordination.Holders() {
		if h.Node == s.nodeID {
			n++
		}
	}
	return n
}

// serveProfiles registers the handlers one by one: the package's own registration is
// for a mux that everything in the process shares.
func serveProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
}

// readyz says whether every shard that this node holds is live, and the database answers.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
	defer cancel()
	st, err := s.node.Stats(ctx)
	switch {
	case s.stopping.Load():
		http.Error(w, "the node is stopping", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, "the node doesn't answer", http.StatusServiceUnavailable)
	case st.Owned < s.held():
		http.Error(w, fmt.Sprintf("%d of %d shards are live", st.Owned, s.held()), http.StatusServiceUnavailable)
	case s.node.Degraded():
		http.Error(w, "the database can't be reached", http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ok")
	}
}
