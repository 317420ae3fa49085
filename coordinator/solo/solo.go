// Package solo is the coordinator of a cluster of one process: it owns every
// shard from start to stop.
package solo

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// Coordinator grants all shards under one revision.
type Coordinator struct {
	shards int
	rev    int64
	self   coordinator.Member
	since  time.Time
}

var _ coordinator.Cluster = (*Coordinator)(nil)

// New returns a coordinator that gives all shards to one node. The revision must be larger than
// that of every earlier process: the database then refuses what those may still send.
func New(node string, shards int, rev int64) *Coordinator {
	now := time.Now()
	return &Coordinator{shards: shards, rev: rev, since: now, self: coordinator.Member{Node: node, Started: now, Shards: shards}}
}

// At says what others may know of the node.
func (c *Coordinator) At(address, version string, capacity int) *Coordinator {
	c.self.Address, c.self.Version, c.self.Capacity = address, version, capacity
	return c
}

// Run implements coordinator.Coordinator.
func (c *Coordinator) Run(ctx context.Context, changes chan<- coordinator.Change) error {
	for id := range c.shards {
		select {
		case changes <- coordinator.Change{Shard: shard.ID(id), Kind: coordinator.Take, Rev: c.rev}:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// Released implements coordinator.Coordinator: there is nobody else.
func (*Coordinator) Released(shard.ID, int64) {}

// Report implements coordinator.Coordinator: there is nobody to tell.
func (*Coordinator) Report(coordinator.Health) {}

// Leave implements coordinator.Coordinator: nobody takes the shards.
func (*Coordinator) Leave() bool { return false }

// Proven implements coordinator.Coordinator.
func (*Coordinator) Proven() time.Time { return time.Now() }

// Members implements coordinator.Directory.
func (c *Coordinator) Members() []coordinator.Member { return []coordinator.Member{c.self} }

// Holder implements coordinator.Directory.
func (c *Coordinator) Holder(id shard.ID) (coordinator.Member, bool) {
	return c.self, id >= 0 && int(id) < c.shards
}

// Holders implements coordinator.Directory.
func (c *Coordinator) Holders() []coordinator.Holder {
	holders := make([]coordinator.Holder, c.shards)
	for id := range holders {
		holders[id] = coordinator.Holder{Shard: shard.ID(id), Node: c.self.Node, Rev: c.rev, Wanted: c.self.Node}
	}
	return holders
}

// Changed implements coordinator.Directory: nothing does.
func (*Coordinator) Changed() <-chan struct{} { return nil }

// Status implements coordinator.Directory.
func (c *Coordinator) Status() coordinator.Status {
	return coordinator.Status{Kind: "solo", Connected: true, Since: c.since, Session: true, Rev: c.rev}
}

// Pin implements coordinator.Operator.
func (*Coordinator) Pin(context.Context, shard.ID, string) error {
	return fmt.Errorf("solo: %w", coordinator.ErrAlone)
}

// Drain implements coordinator.Operator.
func (*Coordinator) Drain(context.Context, string, bool) error {
	return fmt.Errorf("solo: %w", coordinator.ErrAlone)
}
