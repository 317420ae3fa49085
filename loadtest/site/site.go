// Package site runs a whole cluster on this machine: etcd, a database, nodes and workers, each a
// process of its own, which can be killed, stopped, frozen and started again by itself. Addresses
// and data survive a restart. Each process writes a log of its own.
//
// With a network each process stands in a network namespace of its own, and what passes between any
// two of them can be cut, both ways or one way (network_linux.go). That needs root, and Linux.
//
// A site restarts nothing by itself. Nothing of it outlives the process that started it: the
// processes die with it, and the namespaces have no names by which they could stay.
package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/internal/freeport"
)

// Config says what a site is made of.
type Config struct {
	Carillon string // the binary
	Dir      string // for data and logs; it is the caller's to remove
	Members  int    // of etcd
	Nodes    int    // that there are places for
	Start    int    // nodes that are started with the site; zero: all
	Workers  int    // processes
	Network  bool   // each process in a network namespace of its own
	MayEnd   bool   // processes may be ended by somebody else: that is no fault

	TTL    time.Duration // of a node's session
	Shards int
	// NodeFlags are further flags of each node.
	NodeFlags []string
	// Worker is the command of a worker process, program first, by its number from 0 and the addresses
	// of all nodes.
	Worker func(number int, nodes string) []string
}

// Site is a cluster that runs.
type Site struct {
	cfg     Config
	network *Network       // nil: all are on loopback
	ports   freeport.Ports // of loopback

	Database *Database
	Etcd     []*Member
	Nodes    []*Node
	Workers  []*Program
}

// Start starts a site and waits until its shards are held and its workers run. It leaves nothing
// behind if that fails.
func Start(ctx context.Context, cfg Config) (*Site, error) {
	s := &Site{cfg: cfg}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Site) start(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.logs(), 0o755); err != nil {
		return err
	}
	if s.cfg.Network {
		if s.network, err = newNetwork(s.parties()); err != nil {
			return err
		}
	}
	if err := s.place(); err != nil {
		return err
	}
	if s.Database, err = s.startDatabase(ctx); err != nil {
		return err
	}
	if err := s.StartEtcd(ctx); err != nil {
		return err
	}
	first := s.cfg.Start
	if first == 0 {
		first = s.cfg.Nodes
	}
	if err := startAll(ctx, s.Nodes[:first]); err != nil {
		return err
	}
	if err := startAll(ctx, s.Workers); err != nil {
		return err
	}
	return s.Settled(ctx)
}

// startAll starts programs at the same time and waits for all of them.
func startAll[P interface{ Start(context.Context) error }](ctx context.Context, all []P) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range all {
		group.Go(func() error { return p.Start(ctx) })
	}
	return group.Wait()
}

// StartEtcd starts all members of etcd, which wait for each other.
func (s *Site) StartEtcd(ctx context.Context) error { return startAll(ctx, s.Etcd) }

// parties are the names of all that have a place in the network.
func (s *Site) parties() []string {
	names := []string{DatabaseName}
	for i := range s.cfg.Members {
		names = append(names, memberName(i))
	}
	for i := range s.cfg.Nodes {
		names = append(names, nodeName(i))
	}
	for i := range s.cfg.Workers {
		names = append(names, workerName(i))
	}
	return names
}

// DatabaseName is the name of the database in the network.
const DatabaseName = "database"

func memberName(i int) string { return "etcd-" + strconv.Itoa(i+1) }
func nodeName(i int) string   { return "node-" + strconv.Itoa(i+1) }
func workerName(i int) string { return "worker-" + strconv.Itoa(i+1) }

// place gives all programs their addresses.
func (s *Site) place() error {
	for i := range s.cfg.Members {
		m, err := s.newMember(memberName(i))
		if err != nil {
			return err
		}
		s.Etcd = append(s.Etcd, m)
	}
	for i := range s.cfg.Nodes {
		n, err := s.newNode(nodeName(i))
		if err != nil {
			return err
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range s.cfg.Workers {
		s.Workers = append(s.Workers, s.newWorker(i))
	}
	return nil
}

// address is where a program of a name listens: on its own address in the network, at its usual
// port, or on a port of loopback that stays its own.
func (s *Site) address(name string, port int) (string, error) {
	if s.network != nil {
		return net.JoinHostPort(s.network.Address(name), strconv.Itoa(port)), nil
	}
	return s.ports.Reserve()
}

// Network is where its processes stand; nil if they are all on loopback.
func (s *Site) Network() *Network { return s.network }

// Dial connects to a program of the site, as one of its network.
func (s *Site) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.network != nil {
		return s.network.Dial(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// Addresses are those of all nodes' gRPC, separated by commas.
func (s *Site) Addresses() string {
	all := make([]string, len(s.Nodes))
	for i, n := range s.Nodes {
		all[i] = n.GRPC
	}
	return strings.Join(all, ",")
}

// Running are the nodes that run.
func (s *Site) Running() (nodes []*Node) {
	for _, n := range s.Nodes {
		if n.Running() {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (s *Site) logs() string { return filepath.Join(s.cfg.Dir, "logs") }

// Logs is the folder of the logs, a file for each process.
func (s *Site) Logs() string { return s.logs() }

// Stop ends all that runs, what came last first, and says what didn't end as it should. Stopping
// twice is fine.
func (s *Site) Stop() error {
	var errs []error
	errs = append(errs, stopAll(s.Workers), stopAll(s.Nodes), stopAll(s.Etcd))
	s.Workers, s.Nodes, s.Etcd = nil, nil, nil
	if s.Database != nil {
		errs = append(errs, s.Database.stop())
		s.Database = nil
	}
	if s.network != nil {
		errs = append(errs, s.network.close())
		s.network = nil
	}
	return errors.Join(append(errs, s.ports.Close())...)
}

// stopAll ends programs at the same time; what doesn't run is fine.
func stopAll[P interface{ close() error }](all []P) error {
	errs := make(chan error, len(all))
	for _, p := range all {
		go func() { errs <- p.close() }()
	}
	var joined []error
	for range all {
		joined = append(joined, <-errs)
	}
	return errors.Join(joined...)
}

// until asks for something until it holds.
func until(ctx context.Context, within time.Duration, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	again := time.NewTicker(askEvery)
	defer again.Stop()
	for {
		ok, err := holds(ctx)
		if ok {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("it never came within %s that %s: %w", within, what, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// askEvery is how often something is asked for.
const askEvery = 50 * time.Millisecond

// Dir is the folder of its data and logs.
func (s *Site) Dir() string { return s.cfg.Dir }
