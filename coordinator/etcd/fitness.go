package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-scheduler/carillon/coordinator"
)

// A node whose database doesn't answer keeps its shards from everybody; a node whose clock is
// off fires at the wrong time. It releases its shards, but only if it isn't the others that
// fail: when the database is away for all, to move shards would only make it worse.
//
// So it needs a peer that shows, by two commits that began after this node's first failure,
// that the database is well; or one whose clock agrees with the database. One node at a
// time does so, and the same node more and more seldom.

// Times of a release.
const (
	unfitAfter  = 5 * time.Second // without a commit
	fineCommit  = time.Second     // what a commit of a database in good health takes at most
	fineSkew    = 500 * time.Millisecond
	firstPause  = 30 * time.Second // before the same node may release again
	longestWait = 10 * time.Minute
	forgetPause = time.Hour // after which a node that was well begins with the first pause again
)

// fitness is whether this node can drive shards.
type fitness struct {
	health   coordinator.Health
	reported bool  // it has said how it is
	commits  int64 // published
	begun    time.Time
	took     time.Duration
	failing  time.Time // since when
	rev      int64     // of etcd, as it was read then or later
	released bool      // it holds no shards until it is well again
	next     time.Time // it doesn't release before
	pause    time.Duration
}

// judge releases this node's shards if they are better off elsewhere, and takes part again
// when what was wrong is over.
func (n *node) judge(ctx context.Context) error {
	f := &n.unfit
	h := f.health
	if h.Begun.After(f.begun) && h.Took <= fineCommit && h.Failing.IsZero() {
		f.commits++
		f.begun, f.took = h.Begun, h.Took
	}
	if f.released {
		if h.Failing.IsZero() && !h.Off && len(n.held) == 0 {
			if err := n.unmark(ctx); err != nil {
				return err
			}
			n.cfg.Log.Info("this node is fit again")
			f.released = false
		}
		return nil
	}
	if n.facts.releasing == n.cfg.Node { // an answer was lost
		if err := n.unmark(ctx); err != nil {
			return err
		}
	}
	switch {
	case h.Failing.IsZero():
		f.failing = time.Time{}
	case f.failing.IsZero():
		rev, err := n.revision(ctx)
		if err != nil {
			return err
		}
		f.failing, f.rev = h.Failing, rev
	}
	why := ""
	switch {
	case !f.failing.IsZero() && time.Since(later(h.Begun, f.failing)) >= unfitAfter && n.peerCommits():
		why = "its database doesn't answer, and a peer's does"
	case h.Off && n.peerAgrees():
		why = "its clock is off from the database's, with which a peer agrees"
	}
	if why == "" || len(n.held) == 0 || time.Now().Before(f.next) {
		return nil
	}
	first, err := n.mark(ctx)
	if err != nil || !first {
		return err
	}
	n.cfg.Log.Error("this node releases its shards", "why", why, "shards", len(n.held))
	f.released = true
	if time.Since(f.next) > forgetPause {
		f.pause = 0
	}
	f.pause = min(max(2*f.pause, firstPause), longestWait)
	f.next = time.Now().Add(f.pause)
	return n.publish(ctx)
}

// cannot reports whether this node could not drive a shard now.
func (n *node) cannot() bool {
	h := n.unfit.health
	return !h.Failing.IsZero() && time.Since(h.Failing) > fineCommit || h.Off && n.peerAgrees()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// revision reads etcd's revision.
func (n *node) revision(ctx context.Context) (int64, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	resp, err := n.client.Get(ctx, n.cfg.releasingKey(), clientv3.WithCountOnly())
	if err != nil {
		return 0, unavailable("read the revision", err)
	}
	return resp.Header.Revision, nil
}

// peerCommits reports whether a peer has shown two commits since this node began to fail.
func (n *node) peerCommits() bool {
	for name, m := range n.facts.members {
		if name != n.cfg.Node && !m.Unfit && m.shown[0] > n.unfit.rev {
			return true
		}
	}
	return false
}

func (n *node) peerAgrees() bool {
	for name, m := range n.facts.members {
		if skew := time.Duration(m.SkewMicros) * time.Microsecond; name != n.cfg.Node && !m.SkewUnknown && skew.Abs() <= fineSkew {
			return true
		}
	}
	return false
}

// mark makes this node the one that releases; false if another one does.
func (n *node) mark(ctx context.Context) (first bool, err error) {
	ctx, cancel := call(ctx)
	defer cancel()
	key := n.cfg.releasingKey()
	resp, err := n.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, n.cfg.Node, clientv3.WithLease(n.lease))).Commit()
	if err != nil {
		return false, unavailable("release shards", err)
	}
	return resp.Succeeded || n.facts.releasing == n.cfg.Node, nil
}

func (n *node) unmark(ctx context.Context) error {
	ctx, cancel := call(ctx)
	defer cancel()
	key := n.cfg.releasingKey()
	_, err := n.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", n.cfg.Node)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return unavailable("take part again", err)
	}
	return nil
}
