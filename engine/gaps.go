package engine

import (
	"context"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// GapDetail is an open gap with what it owes.
type GapDetail struct {
	Info    core.GapInfo
	Jobs    int         // recurring ones of which it owes something
	Owed    int64       // occurrences that will have a slot
	LeftOut int64       // occurrences that won't
	Top     []core.Owed // of each job, the most first
}

// Gaps lists the open gaps of all shards of this node, by shard and age. To count what they
// owe takes a look at every job: a shard at a time, so that no slot waits for it.
func (n *Node) Gaps(ctx context.Context) (gaps []GapDetail, err error) {
	for id := range shard.ID(n.cfg.Shards) {
		done := make(chan []GapDetail, 1)
		err := n.post(ctx, func(l *loop) {
			var found []GapDetail
			if s := l.shards[id]; s != nil {
				for _, info := range s.Gaps() {
					found = append(found, detailOf(s, info, 0))
				}
			}
			done <- found
		})
		if err != nil {
			return nil, err
		}
		found, err := await(ctx, n, done)
		if err != nil {
			return nil, err
		}
		gaps = append(gaps, found...)
	}
	return gaps, nil
}

// Gap reads one gap with what it owes of so many jobs at most. It fails with core.ErrNoGap.
func (n *Node) Gap(ctx context.Context, id shard.ID, key store.GapKey, most int) (GapDetail, error) {
	type answer struct {
		gap GapDetail
		err error
	}
	done := make(chan answer, 1)
	err := n.post(ctx, func(l *loop) {
		s := l.shards[id]
		if s == nil {
			done <- answer{err: &NotOwnedError{id}}
			return
		}
		for _, info := range s.Gaps() {
			if info.Key == key {
				done <- answer{gap: detailOf(s, info, most)}
				return
			}
		}
		done <- answer{err: core.ErrNoGap}
	})
	if err != nil {
		return GapDetail{}, err
	}
	a, err := await(ctx, n, done)
	if err != nil {
		return GapDetail{}, err
	}
	return a.gap, a.err
}

func detailOf(s *core.Shard, info core.GapInfo, most int) GapDetail {
	d := GapDetail{Info: info}
	d.Top, d.Jobs, d.Owed, d.LeftOut = s.OwedBy(info.Key, most)
	return d
}

// Backfill makes the slots of a past range of a job; see core.Backfill.
func (n *Node) Backfill(ctx context.Context, b core.Backfill) (*core.GapInfo, error) {
	r, err := n.call(ctx, b.Job.Shard, func(tag uint64) core.Event { b.Tag = tag; return b })
	return r.Gap, err
}

// CancelBackfill ends a backfill that somebody asked for.
func (n *Node) CancelBackfill(ctx context.Context, id shard.ID, key store.GapKey, reason string) (*core.GapInfo, error) {
	r, err := n.call(ctx, id, func(tag uint64) core.Event { return core.CancelBackfill{Tag: tag, Key: key, Reason: reason} })
	return r.Gap, err
}

// ChangeCatchUp changes what a gap makes up for of one job.
func (n *Node) ChangeCatchUp(ctx context.Context, id shard.ID, key store.GapKey, uid job.UID, c job.CatchUp, reason string) error {
	_, err := n.call(ctx, id, func(tag uint64) core.Event {
		return core.ChangeCatchUp{Tag: tag, Key: key, UID: uid, CatchUp: c, Reason: reason}
	})
	return err
}
