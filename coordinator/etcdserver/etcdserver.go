// Package etcdserver is a member of an etcd cluster in this process, for small sites and tests:
// etcd's own server with what a site of Carillon's size needs set, so that nobody has to know it.
//
// Carillon keeps a few kilobytes in etcd, which change all the time: leases, and who owns which
// shard. So history is compacted by the hour, the database has a quota, and snapshots and
// write-ahead logs are kept in a bounded number. JSON over HTTP is off: whatever a browser on this
// machine has open could reach it.
package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
)

// Bounds of what a member keeps.
const (
	quotaBytes    = 2 << 30
	history       = "1h"
	snapshotEvery = 10_000 // changes
	keptFiles     = 5      // of snapshots and of write-ahead logs, each
)

// Config says what a member is. Addresses are HOST:PORT, or URLs, separated by commas.
type Config struct {
	Name, Data                     string // its name among the members; its folder
	ListenClient, ListenPeer       string
	AdvertiseClient, AdvertisePeer string // empty: where it listens
	InitialCluster                 string // name=url,…; empty: this member alone
	Existing                       bool   // it joins a cluster that lives
	// Cert and Key are shown to clients and members alike. With a CA both must show one of its
	// certificates.
	Cert, Key, CA  string
	InsecureListen bool // beyond loopback although strangers aren't kept out
	LogLevel       slog.Level
}

// Member is a member that takes part.
type Member struct {
	ID     uint64
	Client []string // where clients reach it
	Data   string
}

// embedded makes etcd's own configuration.
func (c *Config) embedded() (*embed.Config, error) {
	e := embed.NewConfig()
	e.Name, e.Dir = c.Name, c.Data
	if c.Name == "" || strings.ContainsAny(c.Name, "=,") {
		return nil, fmt.Errorf("name: must not be empty, nor hold = or a comma, is %q", c.Name)
	}
	if c.Data == "" {
		return nil, errors.New("data: is required: the folder of this member")
	}
	if (c.Cert == "") != (c.Key == "") || c.CA != "" && c.Cert == "" {
		return nil, errors.New("TLS needs a certificate and its key; an authority of others needs both")
	}
	if err := c.addresses(e); err != nil {
		return nil, err
	}
	if e.InitialCluster = c.InitialCluster; c.InitialCluster == "" {
		e.InitialCluster = e.InitialClusterFromName(c.Name)
	}
	if members, err := types.NewURLsMap(e.InitialCluster); err != nil {
		return nil, fmt.Errorf("initial cluster: must be NAME=URL,…: %w", err)
	} else if members[c.Name] == nil {
		return nil, fmt.Errorf("initial cluster: has no member of this name, %s", c.Name)
	}
	if c.Existing {
		e.ClusterState = embed.ClusterStateFlagExisting
	}
	if c.Cert != "" {
		info := transport.TLSInfo{CertFile: c.Cert, KeyFile: c.Key, TrustedCAFile: c.CA, ClientCertAuth: c.CA != ""}
		e.ClientTLSInfo, e.PeerTLSInfo, e.TlsMinVersion = info, info, "TLS1.3"
	}
	e.AutoCompactionMode, e.AutoCompactionRetention = embed.CompactorModePeriodic, history
	e.QuotaBackendBytes, e.SnapshotCount = quotaBytes, snapshotEvery
	e.MaxSnapFiles, e.MaxWalFiles = keptFiles, keptFiles
	e.EnableGRPCGateway = false
	e.LogLevel, e.LogOutputs, e.LogFormat = strings.ToLower(c.LogLevel.String()), []string{"stderr"}, "console"
	return e, nil
}

// addresses reads all four.
func (c *Config) addresses(e *embed.Config) (err error) {
	for _, a := range []struct {
		name, text, otherwise string
		into                  *[]url.URL
		listens               bool
	}{
		{"listen client", c.ListenClient, "", &e.ListenClientUrls, true},
		{"listen peer", c.ListenPeer, "", &e.ListenPeerUrls, true},
		{"advertise client", c.AdvertiseClient, c.ListenClient, &e.AdvertiseClientUrls, false},
		{"advertise peer", c.AdvertisePeer, c.ListenPeer, &e.AdvertisePeerUrls, false},
	} {
		text := a.text
		if text == "" {
			text = a.otherwise
		}
		*a.into = nil
		for one := range strings.SplitSeq(text, ",") {
			u, err := c.address(one, a.listens)
			if err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			*a.into = append(*a.into, *u)
		}
	}
	return nil
}

// address reads one. What listens must not be reachable from elsewhere, unless strangers are
// kept out or let in on purpose; what is advertised must be of one machine.
func (c *Config) address(text string, listens bool) (*url.URL, error) {
	scheme := "http"
	if c.Cert != "" {
		scheme = "https"
	}
	if text = strings.TrimSpace(text); !strings.Contains(text, "://") {
		text = scheme + "://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != scheme || u.Port() == "" || u.Port() == "0" || u.Path != "" || u.User != nil {
		return nil, fmt.Errorf("must be HOST:PORT or %s://HOST:PORT, is %q", scheme, text)
	}
	ip := net.ParseIP(u.Hostname())
	everywhere := u.Hostname() == "" || ip != nil && ip.IsUnspecified()
	switch {
	case !listens && everywhere:
		return nil, fmt.Errorf("must be of one machine, is %q", text)
	case listens && ip == nil && u.Hostname() != "localhost" && u.Hostname() != "":
		return nil, fmt.Errorf("must be an IP address to listen on, is %q", text)
	case listens && !c.InsecureListen && c.CA == "" && (everywhere || ip != nil && !ip.IsLoopback()):
		return nil, fmt.Errorf("must be a loopback address, is %q, unless strangers are kept out by an authority whose certificates all must show (or let in by --insecure-listen)", text)
	}
	return u, nil
}

// ErrConfig is the kind of errors of a configuration that makes no sense.
var ErrConfig = errors.New("the member can't be run so")

// Run takes part until ctx ends. up is called once the cluster has a leader and this member
// serves its clients.
func Run(ctx context.Context, c Config, up func(Member)) error {
	cfg, err := c.embedded()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := os.MkdirAll(c.Data, 0o700); err != nil {
		return err
	}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer server.Close() // waits for its end
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return fmt.Errorf("etcd: %w", err)
	case <-server.Server.StopNotify():
		return errors.New("etcd: it stopped before it was ready")
	case <-ctx.Done():
		// Close waits for listeners that wait for a leader, which may never come.
		server.Server.HardStop()
		return nil
	}
	m := Member{ID: uint64(server.Server.MemberID()), Data: c.Data}
	for _, u := range cfg.AdvertiseClientUrls {
		m.Client = append(m.Client, u.String())
	}
	up(m)
	select {
	case err := <-server.Err():
		return fmt.Errorf("etcd: %w", err)
	case <-server.Server.StopNotify():
		return errors.New("etcd: it was taken out of its cluster, or stopped by itself")
	case <-ctx.Done():
		return nil
	}
}
