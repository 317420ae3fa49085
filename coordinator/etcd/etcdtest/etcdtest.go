// Package etcdtest runs etcd inside a test.
package etcdtest

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/carillon-scheduler/carillon/coordinator/etcd"
	"github.com/carillon-scheduler/carillon/internal/freeport"
)

// Cluster is an etcd of some members.
type Cluster struct {
	t       *testing.T
	dir     string
	members []*member
}

type member struct {
	client, peer url.URL
	server       *embed.Etcd // nil: it is stopped
}

// readyTimeout bounds the start of a member.
const readyTimeout = 30 * time.Second

// Start runs an etcd of as many members until the test ends. It keeps nothing safe from a
// crash of the machine.
func Start(t *testing.T, members int) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir()}
	for range members {
		c.members = append(c.members, &member{client: freeURL(t), peer: freeURL(t)})
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.Stop(i)
		}
	})
	c.Begin(c.all()...)
	return c
}

func (c *Cluster) all() []int {
	all := make([]int, len(c.members))
	for i := range all {
		all[i] = i
	}
	return all
}

// Begin starts members, with what they had stored.
func (c *Cluster) Begin(members ...int) {
	c.t.Helper()
	for _, i := range members { // a quorum is ready only together
		server, err := embed.StartEtcd(c.config(i))
		if err != nil {
			c.t.Fatal(err)
		}
		c.members[i].server = server
	}
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	for _, i := range members {
		select {
		case <-c.members[i].server.Server.ReadyNotify():
		case <-timer.C:
			c.t.Fatalf("member %d of etcd is not ready", i)
		}
	}
}

func (c *Cluster) config(i int) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = fmt.Sprintf("m%d", i)
	cfg.Dir = filepath.Join(c.dir, cfg.Name)
	m := c.members[i]
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{m.client}, []url.URL{m.client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{m.peer}, []url.URL{m.peer}
	cfg.InitialCluster = ""
	for k, other := range c.members {
		if k > 0 {
			cfg.InitialCluster += ","
		}
		cfg.InitialCluster += fmt.Sprintf("m%d=%s", k, other.peer.String())
	}
	cfg.TickMs, cfg.ElectionMs = 50, 500 // a lease lasts a second at least
	cfg.UnsafeNoFsync = true
	cfg.LogLevel, cfg.LogOutputs = "fatal", []string{filepath.Join(c.dir, cfg.Name+".log")}
	return cfg
}

// Stop stops a member.
func (c *Cluster) Stop(i int) {
	if s := c.members[i].server; s != nil {
		s.Close()
		c.members[i].server = nil
	}
}

// Wipe stops all members and starts an etcd that knows nothing, at the same addresses.
func (c *Cluster) Wipe() {
	c.t.Helper()
	for i := range c.members {
		c.Stop(i)
	}
	c.dir = c.t.TempDir()
	c.Begin(c.all()...)
}

// Endpoints are where clients connect.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.client.Host)
	}
	return all
}

// Client returns a client that is closed when the test ends.
func (c *Cluster) Client() *clientv3.Client {
	c.t.Helper()
	client, err := etcd.Dial(etcd.ClientConfig{Endpoints: c.Endpoints()})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() }) // its calls have ended
	return client
}

// Do has a client do something, and fails the test if that fails.
func (c *Cluster) Do(do func(ctx context.Context, client *clientv3.Client) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), readyTimeout)
	defer cancel()
	if err := do(ctx, c.Client()); err != nil {
		c.t.Fatal(err)
	}
}

func freeURL(t *testing.T) url.URL {
	t.Helper()
	return url.URL{Scheme: "http", Host: freeport.For(t)}
}
