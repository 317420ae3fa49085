package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// call hands an event to a shard and waits for its reply.
func (n *Node) call(ctx context.Context, id shard.ID, event func(tag uint64) core.Event) (core.Reply, error) {
	reply := make(chan core.Reply, 1)
	err := n.post(ctx, func(l *loop) {
		s := l.shards[id]
		switch {
		case l.draining:
			reply <- core.Reply{Err: ErrStopping}
		case s == nil || !s.Live():
			reply <- core.Reply{Err: &NotOwnedError{id}}
		default:
			l.lastTag++
			l.calls[l.lastTag] = call{id, reply}
			l.step(s, event(l.lastTag))
		}
	})
	if err != nil {
		return core.Reply{}, err
	}
	select {
	case r := <-reply:
		return r, r.Err
	case <-ctx.Done():
		n.forget(ctx, reply)
		return core.Reply{}, ctx.Err()
	case <-n.stopped:
		return core.Reply{}, ErrStopping
	}
}

// forget takes a call that gave up out of those that wait.
func (n *Node) forget(ctx context.Context, reply chan core.Reply) {
	// An error means that the loop has ended, and the call with it.
	_ = n.post(context.WithoutCancel(ctx), func(l *loop) {
		for tag, c := range l.calls {
			if c.reply == reply {
				delete(l.calls, tag)
			}
		}
	})
}

// Create stores a job and returns it, or the job that has its name or request id.
func (n *Node) Create(ctx context.Context, j job.Job) (stored, existing *job.Job, err error) {
	r, err := n.call(ctx, j.Shard, func(tag uint64) core.Event { return core.Create{Tag: tag, Job: j} })
	return r.Job, r.Existing, err
}

// CreateByInbox is Create without the shard's owner, who finds the job within a second.
func (n *Node) CreateByInbox(ctx context.Context, j job.Job) (stored, existing *job.Job, err error) {
	jobs := []job.Job{j}
	all, ok, err := n.CreateAll(ctx, jobs)
	if err != nil {
		return nil, nil, err
	}
	if !ok || all[0] != nil {
		return nil, all[0], nil
	}
	return &jobs[0], nil, nil
}

// CreateAll stores all jobs or none, through the inboxes of their shards, and
// tells the owners at once. It returns for each job what package store's Submit
// does.
func (n *Node) CreateAll(ctx context.Context, jobs []job.Job) (existing []*job.Job, stored bool, err error) {
	existing, stored, err = n.store.Submit(ctx, jobs)
	if err != nil || !stored {
		return existing, stored, err
	}
	ids := map[shard.ID]bool{}
	for i := range jobs {
		ids[jobs[i].Shard] = true
	}
	// The jobs are stored: the owners would find them without this hint, too.
	_ = n.post(ctx, func(l *loop) {
		for id := range ids {
			if s := l.shards[id]; s != nil {
				l.step(s, core.InboxHint{})
			}
		}
	})
	return existing, stored, nil
}

// Delete ends a job.
func (n *Node) Delete(ctx context.Context, j job.Job) (*job.Job, error) {
	r, err := n.call(ctx, j.Shard, func(tag uint64) core.Event { return core.Delete{Tag: tag, Job: j} })
	return r.Job, err
}

// Trigger makes a slot of a job now, or returns the key of the one that the same
// request made before.
func (n *Node) Trigger(ctx context.Context, j job.Job, requestID, hash string) (*job.Slot, *job.SlotKey, error) {
	r, err := n.call(ctx, j.Shard, func(tag uint64) core.Event {
		return core.Trigger{Tag: tag, Job: j, RequestID: requestID, Hash: hash}
	})
	return r.Slot, r.Earlier, err
}

// Cancel cancels a slot and returns it as it is then.
func (n *Node) Cancel(ctx context.Context, found store.SlotOf, reason string) (*job.Slot, error) {
	r, err := n.call(ctx, found.Job.Shard, func(tag uint64) core.Event {
		return core.CancelSlot{Tag: tag, Found: found, Reason: reason}
	})
	return r.Slot, err
}

// Redrive lets a dead slot be tried again, with other parameters if there are some, and
// returns it as it is then.
func (n *Node) Redrive(ctx context.Context, found store.SlotOf, params []byte, reason string) (*job.Slot, error) {
	r, err := n.call(ctx, found.Job.Shard, func(tag uint64) core.Event {
		return core.RedriveSlot{Tag: tag, Found: found, Params: params, Reason: reason}
	})
	return r.Slot, err
}

// Discard gives a dead slot up and returns it as it is then.
func (n *Node) Discard(ctx context.Context, found store.SlotOf, reason string) (*job.Slot, error) {
	r, err := n.call(ctx, found.Job.Shard, func(tag uint64) core.Event {
		return core.DiscardSlot{Tag: tag, Found: found, Reason: reason}
	})
	return r.Slot, err
}

// View is what a node knows beyond the database.
type View struct {
	Owned   bool // the shard is live here
	Gaps    []core.GapInfo
	Slot    *core.SlotInfo
	Workers int  // that serve the slot's handler
	Free    int  // of them with credit
	Stalled bool // slots of the handler wait for too long
}

// Look returns what the node knows of a slot and of its handler.
func (n *Node) Look(ctx context.Context, id shard.ID, key job.SlotKey, handler string) (View, error) {
	views, err := n.LookAll(ctx, []Question{{id, key, handler}})
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

// Question names a slot and its handler.
type Question struct {
	Shard   shard.ID
	Key     job.SlotKey
	Handler string
}

// LookAll answers many questions in one turn of the loop.
func (n *Node) LookAll(ctx context.Context, questions []Question) ([]View, error) {
	done := make(chan []View, 1)
	err := n.post(ctx, func(l *loop) {
		views := make([]View, len(questions))
		for i, q := range questions {
			views[i] = l.look(q)
		}
		done <- views
	})
	if err != nil {
		return nil, err
	}
	return await(ctx, n, done)
}

func (l *loop) look(q Question) View {
	var v View
	v.Workers, v.Free = l.workers.Serving(q.Handler)
	s := l.shards[q.Shard]
	if s == nil {
		return v
	}
	v.Owned, v.Gaps = s.Live(), s.Gaps()
	v.Stalled = slices.Contains(s.Attention().Stalled, q.Handler)
	if info, ok := s.Slot(q.Key); ok {
		v.Slot = &info
	}
	return v
}

// Stats returns the node in numbers.
func (n *Node) Stats(ctx context.Context) (Stats, error) {
	done := make(chan Stats, 1)
	if err := n.post(ctx, func(l *loop) { done <- l.stats() }); err != nil {
		return Stats{}, err
	}
	return await(ctx, n, done)
}

// Serving returns how many workers serve each of the handlers.
func (n *Node) Serving(ctx context.Context, handlers []string) ([]int, error) {
	done := make(chan []int, 1)
	err := n.post(ctx, func(l *loop) {
		counts := make([]int, len(handlers))
		for i, h := range handlers {
			counts[i], _ = l.workers.Serving(h)
		}
		done <- counts
	})
	if err != nil {
		return nil, err
	}
	return await(ctx, n, done)
}

// await waits for the loop's answer.
func await[T any](ctx context.Context, n *Node, done <-chan T) (T, error) {
	var zero T
	select {
	case v := <-done:
		return v, nil
	case <-ctx.Done():
		return zero, fmt.Errorf("waiting for the node: %w", ctx.Err())
	case <-n.stopped:
		return zero, ErrStopping
	}
}
