package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/coordinator/etcdserver"
)

// etcdFlags are the flags of `carillon etcd`.
type etcdFlags struct {
	etcdserver.Config
	logLevel     string
	isNew, joins bool
}

func newEtcd() *cobra.Command {
	var f etcdFlags
	cmd := &cobra.Command{
		Use: "etcd", Short: "Run a member of etcd, for small sites and tests", Args: exactly(0),
		Long: "Runs a member of an etcd cluster: of one member, or of those that --initial-cluster lists, each\n" +
			"started with the same list. Addresses are HOST:PORT or URLs.",
		Example: `  carillon etcd --data /var/lib/carillon/etcd
  carillon etcd --name a --listen-peer 10.0.0.1:2380 --initial-cluster a=https://10.0.0.1:2380,b=https://10.0.0.2:2380,c=https://10.0.0.3:2380 \
      --listen-client 10.0.0.1:2379 --tls-cert node-a.crt --tls-key node-a.key --tls-ca ca.crt`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Name, "name", "etcd", "name of this member")
	flags.StringVar(&f.Data, "data", filepath.Join(defaultData(), "etcd"), "folder of this member; it survives restarts")
	flags.StringVar(&f.ListenClient, "listen-client", "127.0.0.1:2379", "where clients are served")
	flags.StringVar(&f.ListenPeer, "listen-peer", "127.0.0.1:2380", "where other members are served")
	flags.StringVar(&f.AdvertiseClient, "advertise-client", "", "where clients reach it (default: where it listens)")
	flags.StringVar(&f.AdvertisePeer, "advertise-peer", "", "where other members reach it (default: where it listens)")
	flags.StringVar(&f.InitialCluster, "initial-cluster", "", "all members, as NAME=URL,… of their peers' addresses (default: this one)")
	flags.BoolVar(&f.isNew, "new", false, "with --initial-cluster: these members begin together (the default)")
	flags.BoolVar(&f.joins, "existing", false, "it joins a cluster that lives, to which it was added")
	flags.StringVar(&f.Cert, "tls-cert", "", "certificate that clients and members are shown")
	flags.StringVar(&f.Key, "tls-key", "", "its key")
	flags.StringVar(&f.CA, "tls-ca", "", "authorities of which clients and members must show a certificate")
	flags.BoolVar(&f.InsecureListen, "insecure-listen", false, "listen beyond loopback although strangers aren't kept out")
	flags.StringVar(&f.logLevel, "log-level", "warn", "debug, info, warn or error")
	return cmd
}

func (f *etcdFlags) run(ctx context.Context, out, logs io.Writer) error {
	if f.isNew && f.joins {
		return invalidInput("--new and --existing exclude each other")
	}
	f.Existing = f.joins
	if err := f.LogLevel.UnmarshalText([]byte(f.logLevel)); err != nil {
		return invalidInput("--log-level must be debug, info, warn or error, is %q", f.logLevel)
	}
	if f.InitialCluster != "" {
		fmt.Fprintln(logs, "carillon etcd waits for its members")
	}
	err := etcdserver.Run(ctx, f.Config, func(m etcdserver.Member) {
		fmt.Fprintf(out, "carillon etcd is up\n  clients  %s\n  member   %x\n  data     %s\n", strings.Join(m.Client, ","), m.ID, m.Data)
	})
	if errors.Is(err, etcdserver.ErrConfig) {
		return exitError{exitInvalid, err}
	}
	return err
}
