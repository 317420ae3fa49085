package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/controlplane/chaos"
	"github.com/carillon-scheduler/carillon/controlplane/config"
	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// devFlags are the flags of `carillon dev`.
type devFlags struct {
	node
	data      string
	clock     string
	from      string
	chaosSeed int64 // negative: no chaos
}

func newDev(c *client) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole scheduler on this machine: SQLite inside, loopback only",
		Args:  exactly(0),
	}
	flags := cmd.Flags()
	some := config.AddSome(flags, "listen", "http", "log_level", "pprof", "stream_max_age", "drain_timeout", "retention", "dead_retention", "event_retention")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load(cmd, some)
		if err != nil {
			return err
		}
		f.Server = loaded.Server
		return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	flags.StringVar(&f.data, "data", defaultData(), "folder of the database; it survives restarts")
	flags.StringVar(&f.clock, "clock", "real", "real, or sim: time stands still until `carillon dev advance`, in a database of its own that is thrown away")
	flags.StringVar(&f.from, "from", "", "with --clock=sim: the time at which it begins (RFC 3339); default: this hour")
	flags.Int64Var(&f.chaosSeed, "chaos", -1, "treat workers badly, by this seed: deliver twice, lose answers, cancel late; a report follows at the end")
	cmd.AddCommand(newAdvance(c))
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

// simulate sets up a simulated clock, if that is asked for.
func (f *devFlags) simulate() error {
	switch {
	case f.clock != "real" && f.clock != "sim":
		return invalidInput("--clock must be real or sim, is %q", f.clock)
	case f.clock == "real" && f.from != "":
		return invalidInput("--from is for --clock=sim")
	case f.clock == "real":
		return nil
	}
	from := time.Now().UTC().Truncate(time.Hour)
	if f.from != "" {
		at, err := time.Parse(time.RFC3339, f.from)
		if err != nil {
			return invalidInput("--from %q is no time, such as 2027-01-01T00:00:00Z", f.from)
		}
		from = at
	}
	f.simulated = clock.NewSimulated(from)
	return nil
}

// open opens the database; that of simulated time lasts as long as the process, and is
// removed by clean.
func (f *devFlags) open(ctx context.Context) (db *sqlite.DB, path string, clean func() error, err error) {
	dir, clean, opts := f.data, func() error { return nil }, []sqlite.Option(nil)
	if f.simulated != nil {
		if dir, err = os.MkdirTemp("", "carillon-sim"); err != nil {
			return nil, "", nil, err
		}
		clean, opts = func() error { return os.RemoveAll(dir) }, []sqlite.Option{sqlite.Volatile(), sqlite.Clock(f.simulated.Wall)}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", nil, fmt.Errorf("--data: %w", err)
	}
	path = filepath.Join(dir, "carillon.db")
	if db, err = sqlite.Open(ctx, path, opts...); err != nil {
		return nil, "", nil, errors.Join(err, clean())
	}
	return db, path, clean, nil
}

// run serves a node of one process until ctx ends.
func (f *devFlags) run(ctx context.Context, out, logs io.Writer) (err error) {
	log := newLog(f.LogLevel, logs)
	if err := f.simulate(); err != nil {
		return err
	}
	l, err := f.listen()
	if err != nil {
		return err
	}
	db, path, clean, err := f.open(ctx)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { err = errors.Join(err, clean()) }()
	if f.chaosSeed >= 0 {
		f.chaos = chaos.New(chaos.Default(uint64(f.chaosSeed)))
		defer func() { err = errors.Join(err, f.chaos.WriteReport(out)) }()
	}
	return f.serve(ctx, "dev", db, log, l, func() {
		fmt.Fprintf(out, "carillon dev is up\n  gRPC     %s\n  REST     http://%s/v1\n  metrics  http://%s/metrics\n  data     %s\n",
			l.grpc.Addr(), l.http.Addr(), l.http.Addr(), path)
	})
}
