package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// devFlags are the flags of `carillon dev`.
type devFlags struct {
	data, grpc, http, logLevel string
}

func newDev() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole scheduler on this machine: SQLite inside, loopback only",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.data, "data", defaultData(), "folder of the database; it survives restarts")
	flags.StringVar(&f.grpc, "grpc", "127.0.0.1:7070", "loopback address of gRPC; port 0 takes a free one")
	flags.StringVar(&f.http, "http", "127.0.0.1:7080", "loopback address of REST and metrics; port 0 takes a free one")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// defaultData is the customary place of a user's data.
func defaultData() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "carillon")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "carillon-data"
	}
	return filepath.Join(home, ".local", "share", "carillon")
}

// run assembles a node of one process and serves it until ctx ends.
func (f *devFlags) run(ctx context.Context, out, logs io.Writer) (err error) {
	log, err := newLogger(logs, f.logLevel)
	if err != nil {
		return err
	}
	grpcListener, httpListener, err := f.listen()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.data, 0o700); err != nil {
		return errors.Join(fmt.Errorf("--data: %w", err), grpcListener.Close(), httpListener.Close())
	}
	path := filepath.Join(f.data, "carillon.db")
	db, err := sqlite.Open(ctx, path)
	if err != nil {
		return errors.Join(err, grpcListener.Close(), httpListener.Close())
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	server, err := devServer(ctx, db, log, grpcListener, httpListener)
	if err != nil {
		return errors.Join(err, grpcListener.Close(), httpListener.Close())
	}
	fmt.Fprintf(out, "carillon dev is up\n  gRPC     %s\n  REST     http://%s/v1\n  metrics  http://%s/metrics\n  data     %s\n",
		grpcListener.Addr(), httpListener.Addr(), httpListener.Addr(), path)
	return server.Run(ctx)
}

// devServer puts the rooms together: store, coordinator, node, server.
func devServer(ctx context.Context, db *sqlite.DB, log *slog.Logger, grpcListener, httpListener net.Listener) (*controlplane.Server, error) {
	shards, err := db.InitShards(ctx, shard.DefaultCount)
	if err != nil {
		return nil, err
	}
	rev, err := db.NextRevision(ctx)
	if err != nil {
		return nil, err
	}
	metrics := controlplane.NewMetrics()
	cfg := engine.DefaultConfig("dev", shards)
	cfg.Log, cfg.Observer = log, metrics
	node := engine.New(cfg, db, solo.New(shards, rev))
	return controlplane.New(controlplane.Config{
		NodeID: cfg.ID, Shards: shards, Node: node, Core: cfg.Core, Store: db, Metrics: metrics, Log: log,
		GRPC: grpcListener, HTTP: httpListener,
	}), nil
}

func newLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, invalidInput("--log-level must be debug, info, warn or error, is %q", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// listen opens both listeners. They have no authentication, so they must not be
// reachable from elsewhere.
func (f *devFlags) listen() (grpcListener, httpListener net.Listener, err error) {
	if grpcListener, err = listenLoopback("--grpc", f.grpc); err != nil {
		return nil, nil, err
	}
	if httpListener, err = listenLoopback("--http", f.http); err != nil {
		return nil, nil, errors.Join(err, grpcListener.Close())
	}
	return grpcListener, httpListener, nil
}

func listenLoopback(flag, address string) (net.Listener, error) {
	addr, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, invalidInput("%s: %w", flag, err)
	}
	if !addr.IP.IsLoopback() {
		return nil, invalidInput("%s must be a loopback address, is %s: `carillon dev` has no authentication", flag, address)
	}
	l, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}
