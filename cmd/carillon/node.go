package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/controlplane/chaos"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/store"
)

// nodeFlags are what `dev` and `server` have in common.
type nodeFlags struct {
	grpc, http, logLevel                     string
	elsewhere                                string // what to do to listen elsewhere; empty: nothing
	retention, deadRetention, eventRetention time.Duration
	profiles                                 bool
	streamMaxAge                             time.Duration
	chaos                                    *chaos.Chaos     // nil: none
	simulated                                *clock.Simulated // nil: time is real
}

func (f *nodeFlags) register(flags *pflag.FlagSet, reach string) {
	flags.StringVar(&f.grpc, "grpc", "127.0.0.1:7070", reach+"address of gRPC; port 0 takes a free one")
	flags.StringVar(&f.http, "http", "127.0.0.1:7080", reach+"address of REST and metrics; port 0 takes a free one")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.BoolVar(&f.profiles, "pprof", false, "serve profiles of this process beside the metrics, under /debug/pprof/")
	flags.DurationVar(&f.streamMaxAge, "stream-max-age", time.Hour, "after which time a worker is asked to open a new stream")
	const day = 24 * time.Hour
	flags.DurationVar(&f.retention, "retention", 7*day, "how long slots that ended are kept")
	flags.DurationVar(&f.deadRetention, "dead-retention", 30*day, "how long dead letters are kept")
	flags.DurationVar(&f.eventRetention, "event-retention", 30*day, "how long events are kept")
}

// minRetention is as long as requests are remembered: what they made must be there.
const minRetention = 24 * time.Hour

func (f *nodeFlags) check() error {
	for _, r := range []struct {
		flag  string
		value time.Duration
	}{{"--retention", f.retention}, {"--dead-retention", f.deadRetention}, {"--event-retention", f.eventRetention}} {
		if r.value < minRetention {
			return invalidInput("%s must be at least %s, is %s", r.flag, minRetention, r.value)
		}
	}
	if f.streamMaxAge < time.Second {
		return invalidInput("--stream-max-age must be at least 1s, is %s", f.streamMaxAge)
	}
	return nil
}

// logger returns the log that the flags ask for.
func (f *nodeFlags) logger(w io.Writer) (*slog.Logger, error) {
	return newLogger(f.logLevel, w)
}

// newLogger returns a log from a level on, as --log-level names it.
func newLogger(level string, w io.Writer) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, invalidInput("--log-level must be debug, info, warn or error, is %q", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// listeners are the two ports of a node.
type listeners struct{ grpc, http net.Listener }

func (l listeners) Close() error { return errors.Join(l.grpc.Close(), l.http.Close()) }

// listen opens both ports. Nobody has to say who he is, so they must not be reachable
// from elsewhere, unless that is asked for.
func (f *nodeFlags) listen(anywhere bool) (l listeners, err error) {
	if l.grpc, err = listenOn("--grpc", f.grpc, anywhere, f.elsewhere); err != nil {
		return l, err
	}
	if l.http, err = listenOn("--http", f.http, anywhere, f.elsewhere); err != nil {
		return l, errors.Join(err, l.grpc.Close())
	}
	return l, nil
}

func listenOn(flag, address string, anywhere bool, elsewhere string) (net.Listener, error) {
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, invalidInput("%s: %w", flag, err)
	}
	if !anywhere && !addr.IP.IsLoopback() {
		return nil, invalidInput("%s must be a loopback address, is %s: there is no authentication yet%s", flag, address, elsewhere)
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

// assemble puts the rooms together: store, coordinator, node, server.
func (f *nodeFlags) assemble(ctx context.Context, id string, shards int, db store.Store, log *slog.Logger, l listeners) (*controlplane.Server, error) {
	shards, err := db.InitShards(ctx, shards)
	if err != nil {
		return nil, err
	}
	rev, err := db.NextRevision(ctx)
	if err != nil {
		return nil, err
	}
	metrics := controlplane.NewMetrics()
	cfg := engine.DefaultConfig(id, shards)
	cfg.Log, cfg.Observer = log, metrics
	cfg.Core.Retention, cfg.Core.DeadRetention, cfg.Core.EventRetention = f.retention, f.deadRetention, f.eventRetention
	if f.simulated != nil {
		cfg.Clock = f.simulated
		// They are proofs of life for others, and cost a write each.
		cfg.InboxEvery, cfg.Core.WatermarkEvery, cfg.Core.PassEvery = time.Minute, time.Minute, time.Hour
	}
	alone := solo.New(cfg.ID, shards, rev)
	node := engine.New(cfg, db, alone)
	served := controlplane.Config{
		NodeID: cfg.ID, Shards: shards, Cluster: alone, Node: node, Core: cfg.Core, Store: db, Metrics: metrics, Log: log,
		GRPC: l.grpc, HTTP: l.http, Profiles: f.profiles, StreamMaxAge: f.streamMaxAge, Simulated: f.simulated,
	}
	if f.chaos != nil {
		served.Stream, served.Unary = f.chaos.Stream, f.chaos.Unary
	}
	return controlplane.New(served), nil
}

// serve runs a node on a database until ctx ends, and closes both.
func (f *nodeFlags) serve(ctx context.Context, id string, shards int, db store.Store, log *slog.Logger, l listeners, up func()) (err error) {
	defer func() { err = errors.Join(err, db.Close()) }()
	server, err := f.assemble(ctx, id, shards, db, log, l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	up()
	return server.Run(ctx)
}
