package site

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// Member is a member of etcd.
type Member struct {
	*Program
	Client, Peer string // host:port of either
}

func (s *Site) newMember(name string) (_ *Member, err error) {
	m := &Member{Program: &Program{Name: name, site: s}}
	if m.Client, err = s.address(name, 2379); err != nil {
		return nil, err
	}
	if m.Peer, err = s.address(name, 2380); err != nil {
		return nil, err
	}
	m.args = func() []string {
		return append([]string{s.cfg.Carillon, "etcd", "--name", name, "--data", s.dataOf(name), "--listen-client", m.Client, "--listen-peer", m.Peer,
			"--initial-cluster", s.initialCluster()}, s.insecure()...)
	}
	m.ready = func(ctx context.Context) error {
		return until(ctx, startTimeout, name+" is well", func(ctx context.Context) (bool, error) { return s.answers(ctx, "http://"+m.Client+"/health") })
	}
	return m, nil
}

// insecure lets a program listen in a network that nobody else is in.
func (s *Site) insecure() []string {
	if s.network == nil {
		return nil
	}
	return []string{"--insecure-listen"}
}

func (s *Site) dataOf(name string) string { return filepath.Join(s.cfg.Dir, name) }

// initialCluster are all members, as each of them is told.
func (s *Site) initialCluster() string {
	all := make([]string, len(s.Etcd))
	for i, m := range s.Etcd {
		all[i] = m.Name + "=http://" + m.Peer
	}
	return strings.Join(all, ",")
}

// endpoints are where etcd's clients find it.
func (s *Site) endpoints() string {
	all := make([]string, len(s.Etcd))
	for i, m := range s.Etcd {
		all[i] = "http://" + m.Client
	}
	return strings.Join(all, ",")
}

// WipeEtcd ends what runs of etcd and starts it with nothing in it, as after the loss of all its
// disks.
func (s *Site) WipeEtcd(ctx context.Context) error {
	for _, m := range s.Etcd {
		if m.Running() {
			if err := m.Kill(); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(s.dataOf(m.Name)); err != nil {
			return err
		}
	}
	return s.StartEtcd(ctx)
}

// Age raises etcd's revision by that many changes of a key of nobody: one that has been in use for a
// while, and is then made anew, doesn't come so far again soon.
func (s *Site) Age(ctx context.Context, changes int) error {
	client, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: []string{s.Etcd[0].Client}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return s.Dial(ctx, "tcp", address) })}})
	if err != nil {
		return err
	}
	group, putCtx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for range changes {
		group.Go(func() error {
			_, err := client.Put(putCtx, "/age", "")
			return err
		})
	}
	return errors.Join(group.Wait(), client.Close())
}

// answers reports whether a GET is answered with 200.
func (s *Site) answers(ctx context.Context, url string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	web := http.Client{Transport: &http.Transport{DialContext: s.Dial, DisableKeepAlives: true}}
	resp, err := web.Do(req)
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusOK, resp.Body.Close()
}
