package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/controlplane/chaos"
	"github.com/carillon-scheduler/carillon/controlplane/config"
	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/internal/certs"
	"github.com/carillon-scheduler/carillon/store"
)

// node is what `dev` and `server` run.
type node struct {
	config.Server
	chaos     *chaos.Chaos     // nil: none
	simulated *clock.Simulated // nil: time is real
}

// newLogger returns a log from a level on, as --log-level names it.
func newLogger(level string, w io.Writer) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, invalidInput("--log-level must be debug, info, warn or error, is %q", level)
	}
	return newLog(l, w), nil
}

func newLog(level slog.Level, w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// listeners are the two ports of a node.
type listeners struct{ grpc, http net.Listener }

func (l listeners) Close() error { return errors.Join(l.grpc.Close(), l.http.Close()) }

// listen opens both ports.
func (n *node) listen() (l listeners, err error) {
	if l.grpc, err = net.Listen("tcp", n.Listen); err != nil {
		return l, fmt.Errorf("listen: %w", err)
	}
	if l.http, err = net.Listen("tcp", n.HTTP); err != nil {
		return l, errors.Join(fmt.Errorf("http: %w", err), l.grpc.Close())
	}
	return l, nil
}

// url is an address over HTTP.
func (n *node) url(l listeners, path string) string {
	scheme := "http"
	if n.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + l.http.Addr().String() + path
}

// certificates opens what the node shows, to clients and to other nodes; nil if that is
// nothing. It also says what is asked of clients.
func (n *node) certificates(log *slog.Logger) (*certs.Source, tls.ClientAuthType, error) {
	if n.TLS.Cert == "" {
		return nil, tls.NoClientCert, nil
	}
	asked := tls.NoClientCert
	switch {
	case n.RequireClientCert:
		asked = tls.RequireAndVerifyClientCert
	case n.TLS.CA != "":
		asked = tls.VerifyClientCertIfGiven
	}
	source, err := certs.Open(n.TLS, log)
	if err != nil {
		return nil, asked, fmt.Errorf("TLS: %w", err)
	}
	return source, asked, nil
}

// assemble puts the rooms together: store, coordinator, node, server.
func (n *node) assemble(ctx context.Context, id string, db store.Store, log *slog.Logger, l listeners) (*controlplane.Server, error) {
	shards, err := db.InitShards(ctx, n.Shards)
	if err != nil {
		return nil, err
	}
	source, asked, err := n.certificates(log)
	if err != nil {
		return nil, err
	}
	clusterID, err := db.ClusterID(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := n.cluster(ctx, id, clusterID, db, shards, log, l)
	if err != nil {
		return nil, err
	}
	metrics := controlplane.NewMetrics()
	cfg := engine.DefaultConfig(id, shards)
	cfg.Log, cfg.Observer, cfg.DrainTimeout = log, metrics, n.DrainTimeout
	cfg.Core.Retention, cfg.Core.DeadRetention, cfg.Core.EventRetention = n.Retention, n.DeadRetention, n.EventRetention
	if n.simulated != nil {
		cfg.Clock = n.simulated
		// They are proofs of life for others, and cost a write each.
		cfg.InboxEvery, cfg.Core.WatermarkEvery, cfg.Core.PassEvery = time.Minute, time.Minute, time.Hour
	}
	served := controlplane.Config{
		NodeID: cfg.ID, Shards: shards, Cluster: cluster, ClusterID: clusterID, Node: engine.New(cfg, db, cluster), Core: cfg.Core, Store: db, Metrics: metrics, Log: log,
		GRPC: l.grpc, HTTP: l.http, TLS: source, ClientCerts: asked, Dial: []grpc.DialOption{source.Peers()},
		Profiles: n.Profiles, StreamMaxAge: n.StreamMaxAge, Simulated: n.simulated,
	}
	if n.chaos != nil {
		served.Stream, served.Unary = n.chaos.Stream, n.chaos.Unary
	}
	return controlplane.New(served), nil
}

// cluster gives the node all shards, or with etcd its share of them.
func (n *node) cluster(ctx context.Context, id, clusterID string, db store.Store, shards int, log *slog.Logger, l listeners) (coordinator.Cluster, error) {
	address := n.AdvertiseFor(l.grpc.Addr())
	if len(n.Etcd) > 0 {
		return newCluster(n.Server, clusterID, address, shards, db, log)
	}
	rev, err := db.NextRevision(ctx)
	if err != nil {
		return nil, err
	}
	return solo.New(id, shards, rev).At(address, version(), n.Capacity), nil
}

// serve runs a node on a database until ctx ends, and closes both.
func (n *node) serve(ctx context.Context, id string, db store.Store, log *slog.Logger, l listeners, up func()) (err error) {
	defer func() { err = errors.Join(err, db.Close()) }()
	server, err := n.assemble(ctx, id, db, log, l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	up()
	return server.Run(ctx)
}
