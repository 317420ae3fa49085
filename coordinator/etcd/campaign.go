package etcd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// act does what follows from the facts.
func (n *node) act(ctx context.Context) error {
	n.hearNode()
	if n.leaving != n.told.Draining {
		if err := n.publish(ctx); err != nil {
			return err
		}
	}
	if n.wanted != n.facts.structure {
		n.want, n.wanted = n.facts.assign(), n.facts.structure
		n.show()
	}
	var take, let []shard.ID
	for i := range n.facts.holders {
		id := shard.ID(i)
		switch h := &n.facts.holders[i]; {
		case h.rev == 0:
			if n.mayTake(id) {
				take = append(take, id)
			}
		case h.Node != n.cfg.Node || h.Incarnation != n.incarnation:
			delete(n.given, id)
		case n.letting[id]:
			let = append(let, id)
		default:
			n.mine(id, h.rev)
		}
	}
	if len(let) > 0 {
		if err := n.remove(ctx, let[:min(len(let), maxTxn)]); err != nil {
			return err
		}
		return n.act(ctx)
	}
	return n.create(ctx, take)
}

// mine deals with a shard whose key is this node's.
func (n *node) mine(id shard.ID, rev int64) {
	before, held := n.held[id]
	switch {
	case !held:
		n.say(coordinator.Take, id, rev)
	case before != rev:
		n.say(coordinator.Keep, id, rev)
	case n.giving[id] || n.want[id] == n.cfg.Node && !n.leaving:
	case n.unfit.released:
		n.giving[id] = true
		n.say(coordinator.Drop, id, rev)
	case n.moving() < maxMoves:
		n.giving[id] = true
		n.say(coordinator.GiveUp, id, rev)
	}
}

func (n *node) say(kind coordinator.Kind, id shard.ID, rev int64) {
	n.held[id] = rev
	n.outbox = append(n.outbox, coordinator.Change{Shard: id, Kind: kind, Gen: n.cfg.Gen, Rev: rev})
}

// moving counts the shards that are under way to other nodes.
func (n *node) moving() int {
	count := len(n.giving)
	for id, at := range n.given {
		if time.Since(at) > moveTimeout {
			delete(n.given, id)
		} else {
			count++
		}
	}
	return count
}

// hearNode takes what the node has said.
func (n *node) hearNode() {
	released, health, leaving := n.taken()
	n.leaving = leaving
	n.unfit.health = health
	for _, id := range released {
		switch {
		case n.giving[id]:
			n.given[id] = time.Now()
		case n.facts.holders[id].Incarnation == n.incarnation:
			// The database refused the claim, or another one came later.
			n.notBefore[id] = time.Now().Add(tickEvery)
			n.owners = nil
		}
		delete(n.giving, id)
		delete(n.held, id)
		n.outbox = slices.DeleteFunc(n.outbox, func(c coordinator.Change) bool { return c.Shard == id })
		if n.facts.holders[id].Incarnation == n.incarnation {
			n.letting[id] = true
		}
	}
}

// mayTake reports whether this node should take a shard that nobody holds, and may.
func (n *node) mayTake(id shard.ID) bool {
	if n.want[id] != n.cfg.Node || n.leaving || n.unfit.released || n.stale != "" || !n.unfit.health.Failing.IsZero() {
		return false
	}
	if _, held := n.held[id]; held {
		return true // it is owned, whatever became of the key
	}
	if n.owners == nil || time.Now().Before(n.notBefore[id]) {
		return false
	}
	// What the database says is somebody's may be won again by its owner, after an
	// outage of etcd, before others take it.
	contact := n.contactSince()
	if time.Since(contact) >= n.cfg.TTL {
		return true
	}
	if o := n.owners[id].Node; n.ownersFrom.After(contact) && (o == "" || o == n.cfg.Node) {
		return true
	}
	n.readOwners(ownersSoon)
	return false
}

// How often the database is asked whose shards are.
const (
	ownersSoon  = 200 * time.Millisecond
	ownersLater = 5 * time.Second
)

// lookAround does what is to be done about once a second.
func (n *node) lookAround(ctx context.Context) error {
	if n.owners == nil {
		n.readOwners(tickEvery)
	} else if n.stale != "" {
		n.readOwners(ownersLater)
	}
	if err := n.judge(ctx); err != nil {
		return err
	}
	if err := n.publish(ctx); err != nil {
		return err
	}
	n.show()
	return nil
}

// readOwners asks the database whose the shards are, unless it was asked lately. The answer
// comes by a channel.
func (n *node) readOwners(every time.Duration) {
	if n.ownersBusy || time.Since(n.ownersAt) < every {
		return
	}
	n.ownersBusy, n.ownersAt = true, time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		owners, err := n.cfg.Owners(ctx)
		if err != nil {
			n.cfg.Log.Warn("whose the shards are could not be read", "error", err)
			owners = nil
		}
		n.ownersRead <- owners // has room: one is under way at most
	}()
}

// takeOwners takes the database's answer, and whether claims of this node can win at all.
func (n *node) takeOwners(owners []Ownership) {
	n.ownersBusy = false
	if owners == nil {
		return
	}
	n.ownersFrom = n.ownersAt
	n.owners = make(map[shard.ID]Ownership, len(owners))
	stale := ""
	for _, o := range owners {
		n.owners[o.Shard] = o
		switch {
		case o.Gen > n.cfg.Gen:
			stale = fmt.Sprintf("shard %d was taken under owner_gen %d, and this node's is %d: give all nodes the same, the highest", o.Shard, o.Gen, n.cfg.Gen)
		case o.Gen == n.cfg.Gen && o.Rev > n.facts.rev && stale == "":
			stale = fmt.Sprintf("etcd is at revision %d, and shard %d was taken under revision %d of owner_gen %d: etcd was restored or made anew; raise owner_gen to %d on all nodes",
				n.facts.rev, o.Shard, o.Rev, o.Gen, o.Gen+1)
		}
	}
	if stale != n.stale {
		n.stale = stale
		if stale != "" {
			n.cfg.Log.Error("this node can take no shards", "why", stale)
		}
		n.inSession(stale)
	}
}
