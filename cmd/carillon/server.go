package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/controlplane/config"
)

func newServer() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a node on a database of its own choice",
		Long: "Runs a node on CockroachDB (24 or newer), PostgreSQL (14 or newer) or a SQLite file.\n" +
			"Each setting may also stand in a file (--config), or in the environment: --session-ttl is\n" +
			"CARILLON_SESSION_TTL there. Flags go before the environment, and that before the file.",
		Example: `  CARILLON_STORE='postgres://carillon:secret@db.internal/carillon' carillon server --migrate
  carillon server --store @/etc/carillon/store
  carillon server --config /etc/carillon/carillon.yaml
  carillon server --store sqlite:/var/lib/carillon/carillon.db`,
		Args: exactly(0),
	}
	f := config.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load(cmd, f)
		if err != nil {
			return err
		}
		return (&node{Server: loaded.Server}).run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// load puts the settings of a node together.
func load(cmd *cobra.Command, f *config.Flags) (*config.Loaded, error) {
	for _, flag := range []string{"tls", "tls-ca", "tls-name"} {
		if given := cmd.Flags().Lookup(flag); given != nil && given.Changed {
			return nil, invalidInput("--%s says how to connect to a node; a node has --tls-cert, --tls-key and --tls-client-ca", flag)
		}
	}
	loaded, err := f.Load(os.Getenv)
	if err != nil {
		return nil, exitError{exitInvalid, err}
	}
	return loaded, nil
}

// run serves a node until ctx ends.
func (n *node) run(ctx context.Context, out, logs io.Writer) error {
	log := newLog(n.LogLevel, logs)
	l, err := n.listen()
	if err != nil {
		return err
	}
	if n.InsecureListen && !n.Closed() {
		log.Warn("whoever reaches this node may do everything: not everybody must show a certificate", "grpc", l.grpc.Addr(), "http", l.http.Addr())
	}
	db, err := openStore(ctx, n.Store, n.Migrate)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return n.serve(ctx, n.Node, db, log, l, func() {
		fmt.Fprintf(out, "carillon server is up\n  node     %s\n  gRPC     %s\n  REST     %s\n  metrics  %s\n  store    %s\n",
			n.Node, l.grpc.Addr(), n.url(l, "/v1"), n.url(l, "/metrics"), n.Store)
	})
}
