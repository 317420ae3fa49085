package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/controlplane/chaos"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// devFlags are the flags of `carillon dev`.
type devFlags struct {
	nodeFlags
	data      string
	chaosSeed int64 // negative: no chaos
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
	flags.Int64Var(&f.chaosSeed, "chaos", -1, "treat workers badly, by this seed: deliver twice, lose answers, cancel late; a report follows at the end")
	f.register(flags, "loopback ")
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

// run serves a node of one process until ctx ends.
func (f *devFlags) run(ctx context.Context, out, logs io.Writer) (err error) {
	log, err := f.logger(logs)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	l, err := f.listen(false)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.data, 0o700); err != nil {
		return errors.Join(fmt.Errorf("--data: %w", err), l.Close())
	}
	path := filepath.Join(f.data, "carillon.db")
	db, err := sqlite.Open(ctx, path)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if f.chaosSeed >= 0 {
		f.chaos = chaos.New(chaos.Default(uint64(f.chaosSeed)))
		defer func() { err = errors.Join(err, f.chaos.WriteReport(out)) }()
	}
	return f.serve(ctx, "dev", shard.DefaultCount, db, log, l, func() {
		fmt.Fprintf(out, "carillon dev is up\n  gRPC     %s\n  REST     http://%s/v1\n  metrics  http://%s/metrics\n  data     %s\n",
			l.grpc.Addr(), l.http.Addr(), l.http.Addr(), path)
	})
}
