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
	holds := true
	for i := range n.facts.holders {
		id := shard.ID(i)
		h := &n.facts.holders[i]
		mine := h.rev != 0 && h.Node == n.cfg.Node && h.Incarnation == n.incarnation
		sent, letting := n.letting[id]
		if !mine {
			delete(n.letting, id)
		}
		if h.rev != 0 {
			delete(n.unheld, id)
		} else if n.unheld[id].IsZero() {
			n.unheld[id] = time.Now()
		}
		switch {
		case h.rev == 0 && n.mayTake(id):
			take = append(take, id)
		case h.rev != 0 && !mine:
			delete(n.given, id)
		case mine && letting && sent != h.rev:
			let = append(let, id)
		case mine && !letting:
			n.mine(id, h.rev)
		}
		if rev, held := n.held[id]; held && (!mine || h.lease != int64(n.lease)) {
			holds = false // it may be another node's already
			if h.rev != 0 && !mine && n.going[id].kind != coordinator.Drop {
				n.tell(coordinator.Drop, id, rev) // the database would say so soon, if it answers
			}
		}
	}
	n.prove(holds && len(n.outbox) == 0, len(n.held) == 0)
	for len(let) > 0 {
		k := min(len(let), maxTxn)
		if err := n.remove(ctx, let[:k]); err != nil {
			return err
		}
		let = let[k:]
	}
	return n.create(ctx, take)
}

// mine deals with a shard whose key is this node's.
func (n *node) mine(id shard.ID, rev int64) {
	before, held := n.held[id]
	going := n.going[id].kind
	switch elsewhere := n.want[id] != n.cfg.Node; {
	case !held:
		n.say(coordinator.Take, id, rev)
	case n.unfit.released && elsewhere && going != coordinator.Drop: // its last batch could take for ever
		n.tell(coordinator.Drop, id, rev)
	case going != 0:
		n.held[id] = rev // if it was won again meanwhile, it goes all the same
	case before != rev:
		n.say(coordinator.Keep, id, rev)
	case elsewhere && n.mayGive(id) && n.moving() < maxMoves:
		n.tell(coordinator.GiveUp, id, rev)
	}
}

// tell has the node end its ownership of a shard.
func (n *node) tell(kind coordinator.Kind, id shard.ID, rev int64) {
	n.going[id] = departure{kind, rev}
	n.say(kind, id, rev)
}

// mayGive reports whether the node that should have a shard can win it. After etcd was made anew no
// claim of this generation can: a shard that was given up then would be nobody's.
func (n *node) mayGive(id shard.ID) bool {
	if n.stale != "" {
		return n.facts.members[n.want[id]].Gen > n.cfg.Gen
	}
	return n.owners != nil // else that isn't known yet
}

func (n *node) say(kind coordinator.Kind, id shard.ID, rev int64) {
	n.held[id] = rev
	n.outbox = append(n.outbox, coordinator.Change{Shard: id, Kind: kind, Gen: n.cfg.Gen, Rev: rev})
}

// moving counts the shards that are under way to other nodes.
func (n *node) moving() int {
	count := len(n.going)
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
	n.unfit.health, n.unfit.reported = health.Health, health.reported
	for _, r := range released {
		id := r.id
		going := n.going[id]
		if going.kind != 0 && r.rev < going.rev || going.kind == 0 && r.rev < n.held[id] {
			continue // a later word is under way
		}
		switch {
		case going.kind != 0:
			n.given[id] = time.Now()
		case n.facts.holders[id].Incarnation == n.incarnation:
			// The database refused the claim, or another one came later.
			n.notBefore[id] = time.Now().Add(tickEvery)
			n.owners = nil
		}
		delete(n.going, id)
		delete(n.held, id)
		n.outbox = slices.DeleteFunc(n.outbox, func(c coordinator.Change) bool { return c.Shard == id })
		n.letting[id] = 0 // if there is a key
	}
}

// mayTake reports whether this node should take a shard that nobody holds, and may. One that
// nobody has taken for long is taken by anybody who can: whoever should have it may reckon
// otherwise, as programs of two versions might, or be unable to.
func (n *node) mayTake(id shard.ID) bool {
	if n.want[id] != n.cfg.Node && time.Since(n.unheld[id]) < 3*n.cfg.TTL || n.leaving || n.unfit.released || n.stale != "" || !n.unfit.reported || n.cannot() {
		return false
	}
	if _, held := n.held[id]; held {
		return true // it is owned, whatever became of the key
	}
	if n.owners == nil {
		n.readOwners(tickEvery)
		return false
	}
	if time.Now().Before(n.notBefore[id]) {
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

// readOwners asks the database whose the shards are. The answer comes by a channel. If it was
// asked lately, the node looks again when it may be asked.
func (n *node) readOwners(every time.Duration) {
	if n.ownersBusy {
		return
	}
	if wait := every - time.Since(n.ownersAt); wait > 0 {
		n.soon.Reset(wait)
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
func (n *node) takeOwners(ctx context.Context, owners []Ownership) error {
	n.ownersBusy = false
	if owners == nil {
		return nil
	}
	newest, err := n.revision(ctx) // later than what the database can know, if this is still the same etcd
	if err != nil {
		return err
	}
	n.ownersFrom = n.ownersAt
	n.owners = make(map[shard.ID]Ownership, len(owners))
	stale := ""
	for _, o := range owners {
		n.owners[o.Shard] = o
		switch {
		case o.Gen > n.cfg.Gen:
			stale = fmt.Sprintf("shard %d was taken under owner_gen %d, and this node's is %d: give all nodes the same, the highest", o.Shard, o.Gen, n.cfg.Gen)
		case o.Gen == n.cfg.Gen && o.Rev > newest && stale == "":
			stale = fmt.Sprintf("etcd is at revision %d, and shard %d was taken under revision %d of owner_gen %d: etcd was restored or made anew; raise owner_gen to %d on all nodes",
				newest, o.Shard, o.Rev, o.Gen, o.Gen+1)
		}
	}
	if stale != n.stale {
		n.stale = stale
		if stale != "" {
			n.cfg.Log.Error("this node can take no shards", "why", stale)
		}
		n.inSession(stale)
	}
	return nil
}
