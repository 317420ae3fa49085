package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/internal/certs"
	"github.com/carillon-scheduler/carillon/internal/certs/authority"
	"github.com/carillon-scheduler/carillon/job"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// addTLS adds the flags that say how to connect to a node.
func (c *client) addTLS(flags *pflag.FlagSet) {
	c.tls = map[string]*string{}
	for _, f := range []struct{ variable, about string }{
		{"CARILLON_TLS", "on: connect with TLS, which the files below imply; off: in plain text"},
		{"CARILLON_TLS_CA", "authorities to trust, in a file (default: the system's)"},
		{"CARILLON_TLS_CERT", "certificate to show, in a file"},
		{"CARILLON_TLS_KEY", "its key, in a file"},
		{"CARILLON_TLS_NAME", "the node's name in its certificate, if it isn't that of --address"},
	} {
		c.tls[f.variable] = flags.String(tlsFlag(f.variable), "", f.about+" ("+f.variable+")")
	}
}

func tlsFlag(variable string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, "CARILLON_"), "_", "-"))
}

// tlsSettings are what the flags say, or else the environment; nil: plain text.
func (c *client) tlsSettings() (*certs.Settings, error) {
	s, err := certs.ReadSettings(func(variable string) (string, string) {
		if value := *c.tls[variable]; value != "" {
			return value, "--" + tlsFlag(variable)
		}
		return os.Getenv(variable), variable
	})
	if err != nil {
		return nil, exitError{exitInvalid, err}
	}
	return s, nil
}

// credentials are those of a command's connection.
func (c *client) credentials() (credentials.TransportCredentials, error) {
	s, err := c.tlsSettings()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return insecure.NewCredentials(), nil
	}
	source, err := s.Open(slog.New(slog.DiscardHandler)) // a command is over before a file changes
	if err != nil {
		return nil, exitError{exitInvalid, err}
	}
	return source.Transport(s.ServerName), nil
}

// workerTLS is how a worker connects.
func (c *client) workerTLS() (worker.Option, error) {
	s, err := c.tlsSettings()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return worker.TLS(nil), nil
	}
	return worker.WithTLSFiles(worker.TLSFiles{CA: s.CA, Cert: s.Cert, Key: s.Key, Name: s.ServerName}), nil
}

// newTLS builds the commands of a small authority.
func newTLS() *cobra.Command {
	cmd := newGroup("tls", "Make certificates for tests and small sites", newTLSInit(), newTLSNode(), newTLSWorker(), newTLSClient())
	cmd.Long = "Makes an authority in a folder, and certificates beside it. Keep the folder where nobody else reads\n" +
		"it: whoever has ca.key can be every node and worker. Nodes and workers get their own files and ca.crt."
	return cmd
}

func newTLSInit() *cobra.Command {
	return &cobra.Command{
		Use: "init DIR", Short: "Make an authority in a folder", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := authority.Init(args[0], time.Now()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "an authority is in %s; its key, %s, should stay there\n", args[0], authority.KeyFile)
			return err
		},
	}
}

// issueFlags are what the commands that issue have in common.
type issueFlags struct {
	dir   string
	days  int
	hosts []string
}

func (f *issueFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.dir, "dir", ".", "folder of the authority; the files are written there")
	flags.IntVar(&f.days, "days", int(authority.DefaultLife/(24*time.Hour)), "how long the certificate lasts, at most as long as the authority")
}

func newTLSNode() *cobra.Command {
	var f issueFlags
	cmd := &cobra.Command{
		Use: "node NAME", Short: "Make the certificate of a node, or renew it", Args: exactly(1),
		Example: "  carillon tls node n1 --dir tls --host n1.internal --host 10.0.0.1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := job.CheckName(args[0]); err != nil {
				return invalidInput("NAME %w, is %q", err, args[0])
			}
			for _, host := range f.hosts {
				if host == "" || strings.ContainsAny(host, "/ ") {
					return invalidInput("--host must be a name or an address, is %q", host)
				}
			}
			return f.issue(cmd, authority.Request{Name: "node-" + args[0], Identity: certs.Identity{Kind: certs.Node, Name: args[0]}, Hosts: f.hosts})
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringSliceVar(&f.hosts, "host", []string{"localhost", "127.0.0.1", "::1"}, "a name or address at which the node is reached; may be repeated")
	return cmd
}

func newTLSWorker() *cobra.Command {
	var f issueFlags
	cmd := &cobra.Command{
		Use: "worker ID", Short: "Make the certificate of a worker, which may have that id alone, or renew it", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := job.CheckWorkerID(args[0]); err != nil {
				return invalidInput("ID %w, is %q", err, args[0])
			}
			return f.issue(cmd, authority.Request{Name: "worker-" + args[0], Identity: certs.Identity{Kind: certs.Worker, Name: args[0]}})
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func newTLSClient() *cobra.Command {
	var f issueFlags
	cmd := &cobra.Command{
		Use: "client NAME", Short: "Make the certificate of somebody who calls, such as a person, or renew it", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := job.CheckName(args[0]); err != nil {
				return invalidInput("NAME %w, is %q", err, args[0])
			}
			return f.issue(cmd, authority.Request{Name: "client-" + args[0]})
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *issueFlags) issue(cmd *cobra.Command, r authority.Request) error {
	const maxDays = 3650
	if f.days < 1 || f.days > maxDays {
		return invalidInput("--days must be 1 to %d, is %d", maxDays, f.days)
	}
	r.Life = time.Duration(f.days) * 24 * time.Hour
	a, err := authority.Open(f.dir)
	if err != nil {
		return fmt.Errorf("--dir: %w; `carillon tls init` makes one", err)
	}
	out, err := a.Issue(r, time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\nfor %s, until %s\n", out.Cert, out.Key, r.Identity, out.Expires.UTC().Format(time.RFC3339))
	return err
}
