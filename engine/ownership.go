package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// How a shard comes to this node is in load.go; this is how it stays, and how it goes.

// loading is a shard that this node has taken over and not loaded yet. Nobody else renews the
// leases of its attempts any more, so this node does, for whoever says that he holds one; it
// judges what they are, and what came of them, once the shard is loaded.
type loading struct {
	epoch  shard.Epoch
	events []ShardEvent // for the shard
}

// maxLoadingEvents bounds what waits for a shard that is loaded. What comes beyond it is sent
// again by the workers.
const maxLoadingEvents = 10_000

// took notes that a shard is this node's from now on.
func (l *loop) took(p shard.Proof) {
	if s := l.shards[p.Shard]; s != nil || l.draining {
		return // it is another claim of what is loaded
	}
	told := &loading{epoch: p.Epoch}
	if before := l.loading[p.Shard]; before != nil {
		told.events = before.events
	}
	l.loading[p.Shard] = told
	l.announce(p)
}

// untake ends that: the shard is another's, or has another epoch.
func (l *loop) untake(p shard.Proof) {
	if told := l.loading[p.Shard]; told != nil && told.epoch == p.Epoch {
		delete(l.loading, p.Shard)
		l.disown(p.Shard)
	}
}

// giveUp hands a shard over: its last batch gives it up, and its end releases it.
func (l *loop) giveUp(id shard.ID, rev int64) {
	s := l.shards[id]
	if s == nil {
		l.release(id, rev) // it was never loaded, or is to be loaded anew
		return
	}
	l.leaving[id] = rev
	l.step(s, core.Leave{})
}

// lose drops a shard that another owner has taken.
func (l *loop) lose(id shard.ID) {
	l.cfg.Log.Error("another owner has taken a shard", "shard", id)
	l.cfg.Observer.FenceLost()
	l.release(id, l.claims[id].Rev)
}

// refused lets others have a shard that this node could not take. One that it owns by an
// older claim stays: the database says when that ends.
func (l *loop) refused(id shard.ID, rev int64) {
	if l.shards[id] == nil {
		l.release(id, rev)
		return
	}
	c := l.claims[id]
	c.Rev = rev // it is lost under the coordinator's latest word
	l.claims[id] = c
}

// release drops a shard and lets others have it.
func (l *loop) release(id shard.ID, rev int64) {
	l.disown(id)
	l.drop(id, &NotOwnedError{id}) // the last batch has answered what it wrote
	delete(l.claims, id)
	l.proof.doubted(id, false)
	delete(l.loading, id)
	delete(l.reloads, id)
	delete(l.leaving, id)
	l.unloaded = slices.DeleteFunc(l.unloaded, func(j loadJob) bool { return j.id == id })
	l.node.coord.Released(id, rev)
}

// disown tells workers that their leases of a shard's attempts aren't this node's to renew any
// more: also one that never hears of the next owner must let them end.
func (l *loop) disown(id shard.ID) {
	if s := l.shards[id]; s != nil {
		for worker, tokens := range s.Holders() {
			for _, t := range tokens {
				l.send(worker, core.Disowned{Worker: worker, Token: t})
			}
		}
	}
	for _, sess := range l.streams { // and what they asked about while it was not loaded
		for t := range sess.unresolved {
			if t.Shard == id {
				l.send(sess.key, core.Disowned{Worker: sess.key, Token: t})
				delete(sess.unresolved, t)
			}
		}
	}
}

// keep puts a later claim in the place of the one under which this node owns a shard. It
// reports whether the node owns it; if not, the claim is for a take-over.
func (l *loop) keep(ctx context.Context, j loadJob) (kept bool, err error) {
	owned := make(chan shard.Proof, 1)
	err = l.node.post(ctx, func(l *loop) {
		if s := l.shards[j.id]; s != nil {
			owned <- s.Proof()
		} else {
			owned <- shard.Proof{}
		}
	})
	if err != nil {
		return true, nil // the loop has ended, and the shard with it
	}
	p, err := await(ctx, l.node, owned)
	if err != nil || p.Epoch == 0 {
		return err != nil, nil
	}
	tryCtx, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
	defer cancel()
	err = l.node.store.Renew(tryCtx, p, j.claim)
	fenced := (*store.FencedError)(nil)
	switch {
	case err == nil:
		l.inLoop(ctx, func(l *loop) {
			if l.shards[j.id] != nil {
				l.claims[j.id] = j.claim
			}
			l.proof.doubted(j.id, false)
		})
		return true, nil
	case errors.As(err, &fenced):
		l.inLoop(ctx, func(l *loop) {
			if s := l.shards[j.id]; s != nil && s.Proof() == p {
				l.claims[j.id] = j.claim
				l.lose(j.id)
			}
		})
		return true, nil
	case errors.Is(err, store.ErrSuperseded):
		// The epoch holds all the same: nobody else has taken the shard.
		l.cfg.Log.Error("a claim is older than the one before", "shard", j.id, "gen", j.claim.Gen, "rev", j.claim.Rev)
		return true, nil
	}
	l.cfg.Log.Error("renewing the claim of a shard failed; it is tried again", "shard", j.id, "error", err)
	return true, err
}

// proof is what shows that nobody else owns this node's shards yet.
type proof struct {
	mu    sync.Mutex
	begun time.Time // of the latest commit that succeeded
	took  time.Duration
	stuck time.Time         // since when the database doesn't answer anything; zero: it does
	doubt map[shard.ID]bool // shards that were won again, before the database has said that they are still this node's
}

// doubted notes that a shard was won again, or that it is known whose it is.
func (p *proof) doubted(id shard.ID, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !is {
		delete(p.doubt, id)
		return
	}
	if p.doubt == nil {
		p.doubt = map[shard.ID]bool{}
	}
	p.doubt[id] = true
}

func (p *proof) doubtful() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.doubt) > 0
}

func (p *proof) committed(begun time.Time, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.took = begun, took
}

// answered notes whether the database answers.
func (p *proof) answered(does bool, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case does:
		p.stuck = time.Time{}
	case p.stuck.IsZero():
		p.stuck = at
	}
}

func (p *proof) health() (h coordinator.Health) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return coordinator.Health{Begun: p.begun, Took: p.took, Failing: p.stuck}
}

// Away reports whether the database hasn't answered this node for a while.
func (n *Node) Away() bool {
	at := n.proof.health().Failing
	return !at.IsZero() && time.Since(at) > slowCommit
}

// slowCommit is how long a commit may take before the database counts as one that doesn't
// answer.
const slowCommit = time.Second

// tellHealth tells the coordinator how the node is.
func (l *loop) tellHealth(v clock.Verdict) {
	h := l.proof.health()
	if g := l.inflight; g != nil && time.Since(g.began) > slowCommit && (h.Failing.IsZero() || g.began.Before(h.Failing)) {
		h.Failing = g.began
	}
	h.Skew, h.Off = -v.Database, v.Unfit
	l.node.coord.Report(h)
}

// Granted is how long a lease lasts that is granted now, from when the worker sent what is
// answered. It may be called by any goroutine: most heartbeats are answered without a turn of
// the loop.
//
// A node that has heard neither from the database nor from the coordinator for a while may not
// know that its shards are another's; the next owner takes nothing from a worker before a
// lease that this node could have granted is over. What the coordinator says proves nothing while it
// isn't known whether a shard that was won again had another owner meanwhile.
func (n *Node) Granted() time.Duration {
	proven := n.proof.health().Begun
	if at := n.coord.Proven(); at.After(proven) && !n.proof.doubtful() {
		proven = at
	}
	return max(0, min(n.cfg.Core.Lease, n.cfg.Core.Lease-time.Since(proven)))
}
