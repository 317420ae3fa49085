// Package solo is the coordinator of a cluster of one process: it owns every
// shard from start to stop.
package solo

import (
	"context"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// Coordinator grants all shards under one revision.
type Coordinator struct {
	shards int
	rev    int64
}

var _ coordinator.Coordinator = (*Coordinator)(nil)

// New returns a coordinator of all shards. The revision must be larger than that
// of every earlier process: the database then refuses what those may still send.
func New(shards int, rev int64) *Coordinator {
	return &Coordinator{shards: shards, rev: rev}
}

// Run implements coordinator.Coordinator.
func (c *Coordinator) Run(ctx context.Context, changes chan<- coordinator.Change) error {
	for id := range c.shards {
		select {
		case changes <- coordinator.Change{Shard: shard.ID(id), Mine: true, Rev: c.rev}:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}
