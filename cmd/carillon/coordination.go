package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/carillon-scheduler/carillon/controlplane/config"
	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/etcd"
	"github.com/carillon-scheduler/carillon/internal/certs"
	"github.com/carillon-scheduler/carillon/store"
)

// newCluster returns what gives this node its share of the shards, through etcd. Other nodes
// reach the node at address.
func newCluster(cfg config.Server, id, address string, shards int, db store.Store, log *slog.Logger) (coordinator.Cluster, error) {
	how, err := etcdClient(cfg, log)
	if err != nil {
		return nil, err
	}
	return etcd.New(how, etcd.Config{
		Cluster: id, Node: cfg.Node, Address: address, Version: version(), Capacity: cfg.Capacity, Shards: shards, Gen: cfg.OwnerGen,
		TTL: cfg.SessionTTL, Owners: ownersOf(db), Log: log,
	}), nil
}

// etcdClient says how etcd is reached.
func etcdClient(cfg config.Server, log *slog.Logger) (etcd.ClientConfig, error) {
	how := etcd.ClientConfig{Endpoints: cfg.Etcd, Username: cfg.EtcdUser}
	if cfg.EtcdPasswordFile != "" {
		text, err := os.ReadFile(cfg.EtcdPasswordFile)
		if err != nil {
			return how, fmt.Errorf("etcd_password_file: %w", err)
		}
		how.Password = strings.TrimSpace(string(text))
	}
	if cfg.EtcdTLS != (certs.Files{}) {
		source, err := certs.Open(cfg.EtcdTLS, log)
		if err != nil {
			return how, fmt.Errorf("etcd_tls: %w", err)
		}
		how.TLS = source.Client()
	}
	return how, nil
}

// ownersOf reads whose the shards are by the database's word.
func ownersOf(db store.Store) func(context.Context) ([]etcd.Ownership, error) {
	return func(ctx context.Context) ([]etcd.Ownership, error) {
		owners, err := db.Owners(ctx)
		out := make([]etcd.Ownership, 0, len(owners))
		for _, o := range owners {
			out = append(out, etcd.Ownership{Shard: o.Shard, Node: o.Node, Gen: o.Gen, Rev: o.Rev})
		}
		return out, err
	}
}

// version is that of the program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
