package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// node is this node's part. It belongs to Run's goroutine.
type node struct {
	*Coordinator
	changes chan<- coordinator.Change
	outbox  []coordinator.Change // that wait to be taken

	lease  clientv3.LeaseID
	facts  *facts
	want   []string // who should hold each shard
	wanted int      // by which structure of the facts that was reckoned
	told   member   // what is published of this node

	held      map[shard.ID]int64     // shards that this node was told to own, with the revision of the claim
	going     map[shard.ID]departure // of them: those that it was told to give up, or to drop
	given     map[shard.ID]time.Time // shards that it gave up, and nobody has taken
	letting   map[shard.ID]int64     // shards whose keys are to be deleted; the revision of the key for which that was done
	unheld    map[shard.ID]time.Time // since when nobody holds a shard
	notBefore map[shard.ID]time.Time // shards that the database refused
	leaving   bool
	unfit     fitness

	owners     map[shard.ID]Ownership // as the database says; nil: that isn't known
	ownersFrom time.Time              // as of then at least
	ownersAt   time.Time              // when that was last asked for
	ownersBusy bool
	ownersRead chan []Ownership
	soon       *time.Timer // when the database may be asked again
	stale      string      // why no claim of this node can win
	warned     string      // the node of which it was told that it has this node's address
}

// departure is what a node was told of a shard that it is to own no longer.
type departure struct {
	kind coordinator.Kind // zero: nothing
	rev  int64
}

// takePart is one session: it ends with its lease.
func (n *node) takePart(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := n.begin(ctx); err != nil {
		return err
	}
	defer n.revoke(ctx)
	lost, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		n.keepAlive(ctx, n.lease, lost)
	}()
	defer func() { cancel(); <-ended }()
	if err := n.register(ctx); err != nil {
		return err
	}
	for {
		err := n.follow(ctx, lost)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errLeaseLost):
			return err
		}
		n.cfg.Log.Debug("the watch of the cluster ended; it is listed anew", "error", err)
		select {
		case <-time.After(retryEvery):
		case err := <-lost:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin gets a lease.
func (n *node) begin(ctx context.Context) error {
	if err := n.connect(); err != nil {
		return err
	}
	callCtx, cancel := call(ctx)
	defer cancel()
	sent := time.Now()
	resp, err := n.client.Grant(callCtx, int64(n.cfg.TTL/time.Second))
	if err != nil {
		n.unheard(err)
		return unavailable("get a lease", err)
	}
	n.lease = resp.ID
	n.hear(sent, resp.Revision)
	return nil
}

// revoke ends the lease, so that others need not wait for its end.
func (n *node) revoke(ctx context.Context) {
	ctx, cancel := call(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := n.client.Revoke(ctx, n.lease); err != nil {
		n.cfg.Log.Debug("the lease was not revoked; it ends by itself", "error", err)
	}
}

// register makes this node a member. A process of its name that lives, or whose lease lasts
// still, keeps it out.
func (n *node) register(ctx context.Context) error {
	ctx, cancel := call(ctx)
	defer cancel()
	n.told = n.self()
	key := n.cfg.memberKey(n.cfg.Node)
	put := clientv3.OpPut(key, encode(n.told), clientv3.WithLease(n.lease))
	resp, err := n.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(put).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return unavailable("register", err)
	}
	if resp.Succeeded {
		return nil
	}
	found := resp.Responses[0].GetResponseRange().Kvs
	var other member
	if len(found) == 1 && json.Unmarshal(found[0].Value, &other) == nil && other.Incarnation == n.incarnation {
		// An earlier session of this process, whose lease lasts still.
		_, err := n.client.Do(ctx, put)
		if err != nil {
			return unavailable("register", err)
		}
		return nil
	}
	return fmt.Errorf("etcd: a node named %s takes part already, at %s; if it has ended, its lease will within %s", n.cfg.Node, other.Address, n.cfg.TTL)
}

// self is what this node says of itself.
func (n *node) self() member {
	return member{
		Address: n.cfg.Address, Version: n.cfg.Version, Capacity: n.cfg.Capacity, Started: n.started.UTC(), Incarnation: n.incarnation, Gen: n.cfg.Gen,
		Draining: n.leaving, Unfit: n.unfit.released || n.stale != "" || len(n.held) == 0 && n.cannot(), Commits: n.unfit.commits, TookMicros: n.unfit.took.Microseconds(),
		SkewMicros: n.unfit.health.Skew.Microseconds(), SkewUnknown: !n.unfit.health.Failing.IsZero(),
	}
}

// publish tells others what has changed of this node.
func (n *node) publish(ctx context.Context) error {
	now := n.self()
	if now == n.told {
		return nil
	}
	ctx, cancel := call(ctx)
	defer cancel()
	if _, err := n.client.Put(ctx, n.cfg.memberKey(n.cfg.Node), encode(now), clientv3.WithLease(n.lease)); err != nil {
		return unavailable("publish this node's health", err)
	}
	n.told = now
	return nil
}

// list reads all keys.
func (n *node) list(ctx context.Context) error {
	ctx, cancel := call(ctx)
	defer cancel()
	resp, err := n.client.Get(ctx, n.cfg.prefix(), clientv3.WithPrefix())
	if err != nil {
		return unavailable("list", err)
	}
	f := newFacts(n.cfg.Shards)
	for _, kv := range resp.Kvs {
		f.take(&n.cfg, &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
	}
	f.rev = resp.Header.Revision
	n.mu.Lock()
	if f.rev < n.seen {
		n.cfg.Log.Error("etcd's revision went back: it was restored or made anew", "from", n.seen, "to", f.rev)
		n.owners = nil // they say whether claims can win
	}
	n.seen = f.rev
	n.mu.Unlock()
	n.facts, n.wanted = f, -1
	return nil
}

// follow lists, and then watches until that ends, and does what follows from it.
func (n *node) follow(ctx context.Context, lost <-chan error) error {
	if err := n.list(ctx); err != nil {
		return err
	}
	n.inSession(n.stale)
	if err := n.winAgain(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchCtx := clientv3.WithRequireLeader(ctx)
	watch := n.client.Watch(watchCtx, n.cfg.prefix(), clientv3.WithPrefix(), clientv3.WithRev(n.facts.rev+1), clientv3.WithProgressNotify())
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	shown := time.Now() // when the watch last said anything
	for {
		if err := n.act(ctx); err != nil {
			return err
		}
		var changes chan<- coordinator.Change
		var next coordinator.Change
		if len(n.outbox) > 0 {
			changes, next = n.changes, n.outbox[0]
		}
		select {
		case changes <- next:
			n.outbox = n.outbox[1:]
		case resp, ok := <-watch:
			if err := n.watched(resp, ok); err != nil {
				return err
			}
			shown = time.Now()
		case <-n.kick:
		case <-n.soon.C:
		case owners := <-n.ownersRead:
			if err := n.takeOwners(ctx, owners); err != nil {
				return err
			}
		case <-tick.C:
			// A watch that has silently ended shows nothing; one that lives answers this.
			if time.Since(shown) > n.cfg.TTL {
				return errors.New("etcd: the watch shows nothing")
			}
			progress, cancel := call(watchCtx)
			if err := n.client.RequestProgress(progress); err != nil {
				n.cfg.Log.Debug("the watch was not asked for its progress", "error", err)
			}
			cancel()
			if err := n.lookAround(ctx); err != nil {
				return err
			}
		case err := <-lost:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watched takes what the watch shows.
func (n *node) watched(resp clientv3.WatchResponse, ok bool) error {
	if !ok {
		return errors.New("etcd: the watch has ended")
	}
	if err := resp.Err(); err != nil {
		return unavailable("watch", err)
	}
	for _, e := range resp.Events {
		n.facts.take(&n.cfg, e)
		n.facts.rev = e.Kv.ModRevision
	}
	n.mu.Lock()
	n.seen = max(n.seen, resp.Header.Revision)
	n.mu.Unlock()
	return nil
}

// winAgain wins the keys of the shards that this node owns, after a session that was lost: before
// others may.
func (n *node) winAgain(ctx context.Context) error {
	var again []shard.ID
	for id := range n.held {
		switch h := n.facts.holders[id]; {
		case h.rev == 0:
			again = append(again, id)
		case h.Incarnation == n.incarnation && h.lease != int64(n.lease):
			// The key of the session before lasts still: it needs the new lease.
			if err := n.adopt(ctx, id, h.rev); err != nil {
				return err
			}
		}
	}
	return n.create(ctx, again)
}

func (n *node) adopt(ctx context.Context, id shard.ID, rev int64) error {
	ctx, cancel := call(ctx)
	defer cancel()
	key := n.cfg.shardKey(id)
	_, err := n.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", rev)).
		Then(clientv3.OpPut(key, n.holding(), clientv3.WithLease(n.lease))).Commit()
	if err != nil {
		return unavailable("keep a shard", err)
	}
	return nil
}

func (n *node) holding() string {
	return encode(holding{Node: n.cfg.Node, Incarnation: n.incarnation})
}

// maxTxn bounds the keys of one transaction.
const maxTxn = 64

// create makes the keys of shards that nobody holds. Which of them are won, the watch shows.
func (n *node) create(ctx context.Context, ids []shard.ID) error {
	for len(ids) > 0 {
		var ops []clientv3.Op
		for _, id := range ids[:min(len(ids), maxTxn)] {
			key := n.cfg.shardKey(id)
			ops = append(ops, clientv3.OpTxn(
				[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
				[]clientv3.Op{clientv3.OpPut(key, n.holding(), clientv3.WithLease(n.lease))}, nil))
		}
		if err := n.txn(ctx, "take shards", ops); err != nil {
			return err
		}
		ids = ids[min(len(ids), maxTxn):]
	}
	return nil
}

// remove deletes the keys of shards, if they are still this node's. That they are gone, the watch
// shows.
func (n *node) remove(ctx context.Context, ids []shard.ID) error {
	var ops []clientv3.Op
	for _, id := range ids {
		key := n.cfg.shardKey(id)
		ops = append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", n.facts.holders[id].rev)},
			[]clientv3.Op{clientv3.OpDelete(key)}, nil))
	}
	if err := n.txn(ctx, "release shards", ops); err != nil {
		return err
	}
	for _, id := range ids {
		n.letting[id] = n.facts.holders[id].rev
	}
	return nil
}

func (n *node) txn(ctx context.Context, what string, ops []clientv3.Op) error {
	ctx, cancel := call(ctx)
	defer cancel()
	if _, err := n.client.Txn(ctx).Then(ops...).Commit(); err != nil {
		return unavailable(what, err)
	}
	return nil
}
