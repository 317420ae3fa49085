package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/carillon-scheduler/carillon/controlplane/config"
	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/store"
)

// newCluster returns what gives this node its share of the shards, through etcd. Other nodes
// reach it at address.
func newCluster(_ context.Context, _ config.Server, _ string, _ int, _ store.Store, _ *slog.Logger) (coordinator.Cluster, error) {
	return nil, errors.New("etcd: this program has no coordinator for it; leave it out to run one node")
}
