package main_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/carillon-scheduler/carillon/internal/freeport"
)

// etcdMember is a `carillon etcd` that can be killed and started again.
type etcdMember struct {
	*process
	args   []string
	client string
	out    *logBuffer
}

func (m *etcdMember) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(binary, m.args...)
	m.out = &logBuffer{}
	cmd.Stdout = m.out
	m.process = launch(t, cmd)
}

func (m *etcdMember) up(t *testing.T) {
	t.Helper()
	eventually(t, 60*time.Second, "the member is up", func() bool {
		if m.gone() {
			t.Fatalf("it has ended: %s", m.logs)
		}
		return strings.Contains(m.out.String(), "data ")
	})
}

var memberID = regexp.MustCompile(`member   ([0-9a-f]+)\n`)

func (m *etcdMember) id(t *testing.T) string {
	t.Helper()
	found := memberID.FindStringSubmatch(m.out.String())
	if found == nil {
		t.Fatalf("no member id in %s", m.out)
	}
	return found[1]
}

// startEtcd starts members together, with TLS if certificates are in a folder.
func startEtcd(t *testing.T, certs string, names ...string) []*etcdMember {
	t.Helper()
	scheme, more := "http", []string(nil)
	if certs != "" {
		scheme = "https"
		more = []string{"--tls-cert", filepath.Join(certs, "node-etcd.crt"), "--tls-key", filepath.Join(certs, "node-etcd.key"), "--tls-ca", filepath.Join(certs, "ca.crt")}
	}
	var members []*etcdMember
	var all []string
	peers := map[string]string{}
	for _, name := range names {
		peers[name] = freeport.For(t)
		all = append(all, fmt.Sprintf("%s=%s://%s", name, scheme, peers[name]))
	}
	for _, name := range names {
		client := freeport.For(t)
		m := &etcdMember{client: scheme + "://" + client, args: append([]string{"etcd", "--name", name, "--data", filepath.Join(t.TempDir(), name),
			"--listen-client", client, "--listen-peer", peers[name], "--initial-cluster", strings.Join(all, ","), "--new"}, more...)}
		m.start(t)
		members = append(members, m)
	}
	for _, m := range members {
		m.up(t)
	}
	return members
}

func etcdClient(t *testing.T, certs string, members ...*etcdMember) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{DialTimeout: 5 * time.Second, Logger: zap.NewNop(), Context: t.Context()}
	for _, m := range members {
		cfg.Endpoints = append(cfg.Endpoints, m.client)
	}
	if certs != "" {
		tls, err := transport.TLSInfo{CertFile: filepath.Join(certs, "client-ann.crt"), KeyFile: filepath.Join(certs, "client-ann.key"), TrustedCAFile: filepath.Join(certs, "ca.crt")}.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		cfg.TLS = tls
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Three members go on when one is killed, and it comes back with its data.
func TestThreeMembersOfEtcd(t *testing.T) {
	t.Parallel()
	members := startEtcd(t, "", "a", "b", "c")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	put := func(c *clientv3.Client, key string) {
		t.Helper()
		eventually(t, 20*time.Second, key+" is written", func() bool {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := c.Put(ctx, key, "value of "+key)
			return err == nil
		})
	}
	put(etcdClient(t, "", members...), "before")
	victim, id := members[0], members[0].id(t)
	victim.kill(syscall.SIGKILL)
	put(etcdClient(t, "", members[1], members[2]), "meanwhile")
	victim.start(t)
	victim.up(t)
	if again := victim.id(t); again != id {
		t.Errorf("it came back as %s, was %s", again, id)
	}
	own := etcdClient(t, "", victim)
	for _, key := range []string{"before", "meanwhile"} { // the first from its disk, the second from the others
		eventually(t, 20*time.Second, "the member itself has "+key, func() bool {
			resp, err := own.Get(ctx, key, clientv3.WithSerializable())
			return err == nil && len(resp.Kvs) == 1 && string(resp.Kvs[0].Value) == "value of "+key
		})
	}
	list, err := own.MemberList(ctx)
	if err != nil || len(list.Members) != 3 {
		t.Errorf("members: %v, %v", list, err)
	}
	for _, m := range members {
		if err := m.kill(syscall.SIGTERM); err != nil {
			t.Errorf("SIGTERM: %v\n%s", err, m.logs)
		}
	}
}

// With TLS both clients and members must show certificates.
func TestEtcdWithTLS(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	makeCerts(t, dir, "init", "node etcd", "client ann")
	members := startEtcd(t, dir, "a", "b")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := etcdClient(t, dir, members...).Put(ctx, "k", "v"); err != nil {
		t.Error(err)
	}
	theirs := filepath.Join(t.TempDir(), "theirs")
	makeCerts(t, theirs, "init", "client ann")
	short, cancelShort := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancelShort()
	if _, err := etcdClient(t, theirs, members...).Put(short, "k", "w"); err == nil {
		t.Error("a client of another authority is let in")
	}
}

func TestFlagsOfEtcd(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for args, says := range map[string]string{
		"--listen-client 0.0.0.0:2379":           "loopback",
		"--listen-peer 10.0.0.1:2380":            "loopback",
		"--listen-peer :2380 --insecure-listen":  "advertise peer: must be of one machine",
		"--listen-client somewhere:2379":         "must be an IP address",
		"--listen-client 127.0.0.1":              "HOST:PORT",
		"--listen-client https://127.0.0.1:1":    "http://HOST:PORT",
		"--advertise-client 0.0.0.0:2379":        "one machine",
		"--initial-cluster a=http://127.0.0.1:1": "no member of this name, etcd",
		"--initial-cluster nonsense":             "NAME=URL",
		"--new --existing":                       "exclude",
		"--name a=b":                             "name",
		"--tls-cert x":                           "TLS needs",
		"--tls-ca x":                             "TLS needs",
		"--log-level loud":                       "--log-level",
		"more":                                   "usage",
	} {
		out, code := run(t, "", append([]string{"etcd", "--data", data}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(out, says) {
			t.Errorf("%s: exit %d, want %q: %s", args, code, says, out)
		}
	}
}

// SIGTERM ends a member that never found the others.
func TestSIGTERMOfALonelyMember(t *testing.T) {
	t.Parallel()
	a, b := freeport.For(t), freeport.For(t)
	m := &etcdMember{args: []string{"etcd", "--name", "a", "--data", filepath.Join(t.TempDir(), "a"), "--listen-client", freeport.For(t), "--listen-peer", a,
		"--initial-cluster", "a=http://" + a + ",b=http://" + b}}
	m.start(t)
	eventually(t, 30*time.Second, "it waits", func() bool { return m.logs.String() != "" })
	if err := m.kill(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, m.logs)
	}
	if m.out.String() != "" {
		t.Errorf("it says that it is up: %s", m.out)
	}
}
