package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/internal/again"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Node is a `carillon server`.
type Node struct {
	*Program
	GRPC, HTTP string // host:port of either
	// Conn is connected to its gRPC while it runs. Calls are made again as the command line does.
	Conn *grpc.ClientConn
	// OwnerGen is given at its next start.
	OwnerGen int
}

// maxMessage is above the largest answer of a node.
const maxMessage = 16 << 20

func (s *Site) newNode(name string) (_ *Node, err error) {
	n := &Node{Program: &Program{Name: name, site: s}}
	if n.GRPC, err = s.address(name, 7070); err != nil {
		return nil, err
	}
	if n.HTTP, err = s.address(name, 7080); err != nil {
		return nil, err
	}
	n.args = func() []string {
		args := []string{s.cfg.Carillon, "server", "--migrate", "--node", name, "--etcd", s.endpoints(), "--listen", n.GRPC, "--http", n.HTTP,
			"--session-ttl", s.cfg.TTL.String(), "--shards", strconv.Itoa(s.cfg.Shards), "--owner-gen", strconv.Itoa(n.OwnerGen)}
		return append(append(args, s.insecure()...), s.cfg.NodeFlags...)
	}
	n.env = func() []string { return []string{"CARILLON_STORE=" + s.Database.Address} }
	n.ready = func(ctx context.Context) error {
		return until(ctx, startTimeout, name+" is ready", func(ctx context.Context) (bool, error) { return s.answers(ctx, "http://"+n.HTTP+"/readyz") })
	}
	n.Conn, err = grpc.NewClient("passthrough:///"+n.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(again.Calls(nil)), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// A node that comes back is to be found at once.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}, MinConnectTimeout: time.Second}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return s.Dial(ctx, "tcp", address) }))
	return n, err
}

func (n *Node) close() error { return errors.Join(n.Program.close(), n.Conn.Close()) }

// Cluster asks a node how it sees the cluster.
func (n *Node) Cluster(ctx context.Context) (*carillonv1.Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := carillonv1.NewClusterServiceClient(n.Conn).GetCluster(ctx, &carillonv1.GetClusterRequest{})
	return resp.GetCluster(), err
}

// Shards asks a node for all shards.
func (n *Node) Shards(ctx context.Context) ([]*carillonv1.Shard, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := carillonv1.NewClusterServiceClient(n.Conn).ListShards(ctx, &carillonv1.ListShardsRequest{})
	return resp.GetShards(), err
}

// settleTimeout is how long shards may take until they are where they should be.
const settleTimeout = 90 * time.Second

// Settled waits until the nodes that run, and they alone, hold all shards, each its share, and own
// them by the database's word.
func (s *Site) Settled(ctx context.Context) error {
	why := ""
	err := until(ctx, settleTimeout, "all shards are where they should be", func(ctx context.Context) (ok bool, err error) {
		why, err = s.unsettled(ctx)
		return why == "" && err == nil, err
	})
	if err != nil && why != "" {
		return fmt.Errorf("%w: %s", err, why)
	}
	return err
}

// unsettled says what is not yet as it should be.
func (s *Site) unsettled(ctx context.Context) (why string, err error) {
	running := s.Running()
	if len(running) == 0 {
		return "no node runs", nil
	}
	shards, err := running[0].Shards(ctx)
	if err != nil {
		return "", err
	}
	counts := map[string]int{}
	for _, n := range running {
		counts[n.Name] = 0
	}
	for _, one := range shards {
		if one.GetHolder() == "" || one.GetHolder() != one.GetOwner() || one.GetWanted() != one.GetHolder() {
			return fmt.Sprintf("%s is held by %q, owned by %q, wanted by %q", one.GetName(), one.GetHolder(), one.GetOwner(), one.GetWanted()), nil
		}
		counts[one.GetHolder()]++
	}
	for name, n := range counts {
		if fair := float64(len(shards)) / float64(len(running)); float64(n) < fair-1 || float64(n) > fair+1 {
			return fmt.Sprintf("%s holds %d of %d shards", name, n, len(shards)), nil
		}
	}
	if len(counts) != len(running) {
		return fmt.Sprintf("shards are held by %v", counts), nil
	}
	return "", nil
}
