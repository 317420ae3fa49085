package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// serverFlags are the flags of `carillon server`.
type serverFlags struct {
	nodeFlags
	store    storeFlag
	node     string
	shards   int
	migrate  bool
	anywhere bool
}

func newServer() *cobra.Command {
	f := serverFlags{nodeFlags: nodeFlags{elsewhere: " (--insecure-listen lets it all the same)"}}
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a node on a database of its own choice",
		Long: "Runs a node on CockroachDB (24 or newer), PostgreSQL (14 or newer) or a SQLite file. One node works on\n" +
			"a database at a time: one that is started later takes over all shards.",
		Example: `  CARILLON_STORE='postgres://carillon:secret@db.internal/carillon' carillon server --migrate
  carillon server --store @/etc/carillon/store
  carillon server --store sqlite:/var/lib/carillon/carillon.db`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	f.store.register(flags)
	flags.BoolVar(&f.migrate, "migrate", false, "bring the schema up to date before anything else")
	flags.StringVar(&f.node, "node", "", "name of this node (default: the machine's)")
	flags.IntVar(&f.shards, "shards", shard.DefaultCount, "number of shards of a new cluster; an old one keeps its own")
	flags.BoolVar(&f.anywhere, "insecure-listen", false, "listen beyond loopback although there is no authentication")
	f.register(flags, "")
	return cmd
}

// run serves a node until ctx ends.
func (f *serverFlags) run(ctx context.Context, out, logs io.Writer) error {
	log, err := f.logger(logs)
	if err != nil {
		return err
	}
	id, err := f.nodeID()
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.shards < 1 || f.shards > shard.MaxCount {
		return invalidInput("--shards must be 1 to %d, is %d", shard.MaxCount, f.shards)
	}
	where, err := f.store.resolve()
	if err != nil {
		return err
	}
	l, err := f.listen(f.anywhere)
	if err != nil {
		return err
	}
	if f.anywhere {
		log.Warn("whoever reaches this node may do everything: there is no authentication", "grpc", l.grpc.Addr(), "http", l.http.Addr())
	}
	db, err := where.open(ctx, f.migrate)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return f.serve(ctx, id, f.shards, db, log, l, func() {
		fmt.Fprintf(out, "carillon server is up\n  node     %s\n  gRPC     %s\n  REST     http://%s/v1\n  metrics  http://%s/metrics\n  store    %s\n",
			id, l.grpc.Addr(), l.http.Addr(), l.http.Addr(), where.public)
	})
}

// nodeID is the node's name: what was given, or the machine's.
func (f *serverFlags) nodeID() (string, error) {
	id := f.node
	if id == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("--node was not given, and the machine's name is not known: %w", err)
		}
		id = host
	}
	if err := job.CheckName(id); err != nil {
		return "", invalidInput("--node %q %w", id, err)
	}
	return id, nil
}
