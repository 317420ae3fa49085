package engine

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// loadJob asks the loader for a shard: to take it over by a claim, or, if proof
// is set, to load it anew under a new epoch.
type loadJob struct {
	id    shard.ID
	claim store.Claim
	proof shard.Proof
}

// loadAll is the loader: it follows the coordinator, and loads one shard after
// the other, each of which fires as soon as it is loaded.
func (l *loop) loadAll(ctx context.Context, changes <-chan coordinator.Change) error {
	for {
		select {
		case c := <-changes:
			if !c.Mine {
				l.release(ctx, c.Shard)
				continue
			}
			l.load(ctx, loadJob{id: c.Shard, claim: store.Claim{Shard: c.Shard, Node: l.cfg.ID, Gen: c.Gen, Rev: c.Rev}})
		case j := <-l.loads:
			l.load(ctx, j)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *loop) release(ctx context.Context, id shard.ID) {
	// An error means that the loop has ended, and the shard with it.
	_ = l.node.post(ctx, func(l *loop) { l.drop(id) })
}

// load takes a shard over and hands it to the loop. It tries again while the
// database can't be reached, and gives up if somebody else is the owner.
func (l *loop) load(ctx context.Context, j loadJob) {
	backoff := minBackoff
	for ctx.Err() == nil {
		owned, loaded, err := l.tryLoad(ctx, j)
		if err == nil {
			_ = l.node.post(ctx, func(l *loop) { // fails only if the loop has ended
				l.wake()
				l.add(core.New(l.cfg.Core, owned, loaded, l.workers, l.now))
			})
			return
		}
		fenced := (*store.FencedError)(nil)
		if errors.Is(err, store.ErrSuperseded) || errors.As(err, &fenced) {
			l.cfg.Log.Error("a shard belongs to another owner", "shard", j.id, "error", err)
			l.cfg.Observer.FenceLost()
			return
		}
		l.cfg.Log.Error("loading a shard failed; it is tried again", "shard", j.id, "error", err)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		backoff = min(backoff*2, maxBackoff)
	}
}

func (l *loop) tryLoad(ctx context.Context, j loadJob) (store.Owned, store.Loaded, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
	defer cancel()
	take := func() (store.Owned, error) { return l.node.store.TakeOver(ctx, j.claim) }
	if j.proof.Epoch != 0 {
		take = func() (store.Owned, error) { return l.node.store.Reload(ctx, j.proof) }
	}
	owned, err := take()
	if err != nil {
		return owned, store.Loaded{}, err
	}
	loaded, err := l.node.store.Load(ctx, owned.Proof)
	return owned, loaded, err
}

// readJob is a read that a shard asked for, or a look at all inboxes.
type readJob struct {
	shard   *core.Shard
	proof   shard.Proof
	read    core.Read
	inboxes bool
}

// maxReaders bounds the reads that run at the same time.
const maxReaders = 4

// startReads hands the shards' reads to the readers.
func (l *loop) startReads() {
	for _, id := range l.order {
		s := l.shards[id]
		for _, r := range s.Reads() {
			l.unread = append(l.unread, readJob{shard: s, proof: s.Proof(), read: r})
		}
	}
}

// readAll runs the readers.
func (l *loop) readAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range maxReaders {
		group.Go(func() error {
			for {
				select {
				case j := <-l.reads:
					l.read(ctx, j)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}
	return group.Wait()
}

// read answers one read, again until it succeeds or the shard is lost.
func (l *loop) read(ctx context.Context, j readJob) {
	backoff := minBackoff
	for ctx.Err() == nil {
		done, err := l.tryRead(ctx, j)
		if err == nil {
			_ = l.node.post(ctx, done) // fails only if the loop has ended
			return
		}
		if fenced := (*store.FencedError)(nil); errors.As(err, &fenced) {
			_ = l.node.post(ctx, func(l *loop) {
				if l.shards[j.proof.Shard] == j.shard {
					l.drop(j.proof.Shard)
				}
			})
			return
		}
		l.cfg.Log.Error("a read failed; it is tried again", "shard", j.proof.Shard, "kind", j.read.Kind, "error", err)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		backoff = min(backoff*2, maxBackoff)
	}
}

func (l *loop) tryRead(ctx context.Context, j readJob) (request, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
	defer cancel()
	if j.inboxes {
		ids, err := l.node.store.InboxShards(ctx)
		return func(l *loop) { l.hintInboxes(ids) }, err
	}
	event, err := l.readEvent(ctx, j)
	return func(l *loop) {
		if l.shards[j.proof.Shard] == j.shard {
			l.step(j.shard, event)
		}
	}, err
}

func (l *loop) readEvent(ctx context.Context, j readJob) (core.Event, error) {
	st, r := l.node.store, j.read
	switch r.Kind {
	case core.ReadOnce:
		jobs, err := st.OnceJobs(ctx, j.proof, r.After, r.Until, r.Limit)
		return core.OnceLoaded{Read: r, Jobs: jobs}, err
	case core.ReadGapOnce:
		jobs, err := st.OnceJobs(ctx, j.proof, r.After, r.Until, r.Limit)
		return core.GapOnceLoaded{Read: r, Jobs: jobs}, err
	case core.ReadWaiting:
		slots, err := st.Waiting(ctx, j.proof, store.BacklogQuery{Handler: r.Handler, Priority: r.Priority, After: r.From, UID: r.UID, Limit: r.Limit})
		return core.WaitingLoaded{Read: r, Slots: slots}, err
	case core.ReadInbox:
		jobs, err := st.Drain(ctx, j.proof, r.Limit)
		return core.InboxLoaded{Read: r, Jobs: jobs}, err
	case core.ReadSlot:
		found, err := st.SlotOf(ctx, j.proof, r.Key)
		if errors.Is(err, store.ErrNotFound) {
			return core.SlotLoaded{Key: r.Key}, nil
		}
		return core.SlotLoaded{Key: r.Key, Found: &found}, err
	}
	return core.Tick{}, nil
}

// hintInboxes tells the shards whose inbox isn't empty.
func (l *loop) hintInboxes(ids []shard.ID) {
	l.inboxBusy = false
	for _, id := range ids {
		if s := l.shards[id]; s != nil {
			l.step(s, core.InboxHint{})
		}
	}
}
