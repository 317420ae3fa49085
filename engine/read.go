package engine

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// readJob is a read that a shard asked for, or a look at all inboxes.
type readJob struct {
	shard   *core.Shard
	proof   shard.Proof
	read    core.Read
	inboxes bool
}

// retention holds the reads that find what is old: one at a time for the whole node,
// lest live work wait for a reader.
type retention struct {
	waiting []readJob
	under   *readJob // the one under way
}

// readEnded notes that a reader is done with a read.
func (l *loop) readEnded(j readJob) {
	l.reading--
	l.retention.ended(j)
}

// ended notes that a read ended, if it was one of these.
func (r *retention) ended(j readJob) {
	if j.read.Kind.Retains() {
		r.under = nil
	}
}

// maxReaders bounds the reads that run at the same time.
const maxReaders = 4

// startReads hands the shards' reads to the readers.
func (l *loop) startReads() {
	for _, id := range l.order {
		s := l.shards[id]
		for _, r := range s.Reads() {
			j := readJob{shard: s, proof: s.Proof(), read: r}
			if r.Kind.Retains() {
				l.retention.waiting = append(l.retention.waiting, j)
			} else {
				l.unread = append(l.unread, j)
			}
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
			l.inLoop(ctx, func(l *loop) {
				l.readEnded(j)
				done(l)
			})
			return
		}
		if ctx.Err() != nil {
			return
		}
		if fenced := (*store.FencedError)(nil); errors.As(err, &fenced) {
			l.inLoop(ctx, func(l *loop) {
				l.readEnded(j)
				if l.shards[j.proof.Shard] == j.shard {
					l.lose(j.proof.Shard)
				}
			})
			return
		}
		if j.read.Kind.Retains() {
			l.cfg.Log.Warn("a read of the retention failed; it comes again", "shard", j.proof.Shard, "kind", j.read.Kind, "error", err)
			l.inLoop(ctx, func(l *loop) {
				l.readEnded(j)
				if l.shards[j.proof.Shard] == j.shard {
					l.step(j.shard, core.RetainFailed{Read: j.read})
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
		slots, err := st.Waiting(ctx, j.proof, store.BacklogQuery{Handler: r.Handler, Priority: r.Priority, Fairness: r.Fairness, After: r.From, UID: r.UID, Checks: r.Checks, Limit: r.Limit})
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
	case core.ReadOldSlots:
		slots, err := st.OldSlots(ctx, j.proof, store.PruneQuery{After: r.After, Until: r.Until, Limit: r.Limit})
		return core.OldSlotsLoaded{Read: r, Slots: slots}, err
	case core.ReadEndedJobs:
		jobs, err := st.EndedJobs(ctx, j.proof, r.Ended)
		return core.EndedJobsLoaded{Read: r, Jobs: jobs}, err
	case core.ReadDoneJobs:
		jobs, err := st.DoneJobs(ctx, j.proof, r.Ended)
		return core.DoneJobsLoaded{Read: r, Jobs: jobs}, err
	case core.ReadSpent:
		done, err := st.SpentJob(ctx, j.proof, r.UID, r.After.FireTime, r.Until)
		return core.SpentLoaded{Read: r, Done: done}, err
	case core.ReadOldest:
		oldest, err := st.Oldest(ctx, j.proof, r.Oldest)
		return core.OldestLoaded{Read: r, Oldest: oldest}, err
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
