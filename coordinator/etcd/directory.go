package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// view is what others may see of the facts. It is never changed, only replaced.
type view struct {
	rev     int64
	members []coordinator.Member
	holders []coordinator.Holder
	byName  map[string]coordinator.Member
}

func newView(shards int) view {
	v := view{holders: make([]coordinator.Holder, shards)}
	for id := range v.holders {
		v.holders[id].Shard = shard.ID(id)
	}
	return v
}

// show lets others see the facts.
func (n *node) show() {
	v := view{rev: n.facts.rev, members: n.facts.list(), holders: make([]coordinator.Holder, len(n.facts.holders)), byName: map[string]coordinator.Member{}}
	for _, m := range v.members {
		v.byName[m.Node] = m
	}
	for i, h := range n.facts.holders {
		v.holders[i] = coordinator.Holder{Shard: shard.ID(i), Node: h.Node, Rev: h.rev, Wanted: n.want[i], Pinned: n.facts.pins[i] != "" && n.facts.pins[i] == n.want[i]}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.warnOfAddresses(v.members)
	same := slices.Equal(v.members, n.view.members) && slices.Equal(v.holders, n.view.holders)
	n.view = v
	if !same {
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// warnOfAddresses tells of another node that is reached where this one is, if both have been told
// so: then they can't reach each other.
func (n *node) warnOfAddresses(members []coordinator.Member) {
	for _, m := range members {
		if m.Node != n.cfg.Node && m.Address == n.cfg.Address && n.warned != m.Node {
			n.warned = m.Node
			n.cfg.Log.Error("another node has the same address: nodes and workers can't tell them apart; set advertise", "node", m.Node, "address", m.Address)
		}
	}
}

// seenView returns what the last show showed.
func (c *Coordinator) seenView() view {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

// Members implements coordinator.Directory.
func (c *Coordinator) Members() []coordinator.Member { return slices.Clone(c.seenView().members) }

// Holders implements coordinator.Directory.
func (c *Coordinator) Holders() []coordinator.Holder { return slices.Clone(c.seenView().holders) }

// Holder implements coordinator.Directory.
func (c *Coordinator) Holder(id shard.ID) (coordinator.Member, bool) {
	v := c.seenView()
	if id < 0 || int(id) >= len(v.holders) {
		return coordinator.Member{}, false
	}
	m, ok := v.byName[v.holders[id].Node]
	return m, ok
}

// Changed implements coordinator.Directory.
func (c *Coordinator) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Status implements coordinator.Directory.
func (c *Coordinator) Status() coordinator.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return coordinator.Status{Kind: "etcd", Connected: c.answered, Since: c.since, Session: c.session, Gen: c.cfg.Gen, Rev: c.seen, AsOf: c.view.rev, Problem: c.problem}
}

// Pin implements coordinator.Operator.
func (c *Coordinator) Pin(ctx context.Context, id shard.ID, node string) error {
	if id < 0 || int(id) >= c.cfg.Shards {
		return fmt.Errorf("etcd: shard %d: the cluster has %d", id, c.cfg.Shards)
	}
	key := c.cfg.pinKey(id)
	if node == "" {
		return c.write(ctx, "unpin a shard", clientv3.OpDelete(key))
	}
	return c.writeFor(ctx, node, "pin a shard", clientv3.OpPut(key, node))
}

// Drain implements coordinator.Operator.
func (c *Coordinator) Drain(ctx context.Context, node string, drain bool) error {
	key := c.cfg.drainKey(node)
	if !drain {
		return c.write(ctx, "undrain a node", clientv3.OpDelete(key))
	}
	return c.writeFor(ctx, node, "drain a node", clientv3.OpPut(key, "drain"))
}

// writeFor writes something about a node that takes part.
func (c *Coordinator) writeFor(ctx context.Context, node, what string, op clientv3.Op) error {
	client, err := c.connected()
	if err != nil {
		return err
	}
	resp, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(c.cfg.memberKey(node)), ">", 0)).Then(op).Commit()
	if err != nil {
		return writeFailed(ctx, what, err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("etcd: %s: %w: %s", what, coordinator.ErrNoMember, node)
	}
	return nil
}

func (c *Coordinator) write(ctx context.Context, what string, op clientv3.Op) error {
	client, err := c.connected()
	if err != nil {
		return err
	}
	if _, err := client.Do(ctx, op); err != nil {
		return writeFailed(ctx, what, err)
	}
	return nil
}

// writeFailed keeps the end of a caller's own context apart.
func writeFailed(ctx context.Context, what string, err error) error {
	if cause := ctx.Err(); errors.Is(cause, context.Canceled) {
		return cause
	}
	return unavailable(what, err)
}
