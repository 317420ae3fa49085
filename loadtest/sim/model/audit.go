package model

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// Audit implements store.Auditor.
func (m *Store) Audit(ctx context.Context, id shard.ID) (store.Audit, error) {
	s, err := m.known(ctx, id)
	if err != nil {
		return store.Audit{Shard: id}, err
	}
	defer m.leave()
	a := store.Audit{
		Shard: id, Owner: s.owner, Epoch: s.epoch, Gen: s.gen, Rev: s.rev,
		Watermark: s.watermark, OpenFrom: s.openFrom, RetainedFrom: s.retainedFrom,
		TakeOvers: slices.Clone(s.epochs),
		Jobs:      list(&s.jobs, func(_ job.UID, j *job.Job) job.Job { return copyJob(j) }),
		Inbox:     list(&s.inbox, func(uid job.UID, _ struct{}) job.UID { return uid }),
		Slots:     list(&s.slots, func(_ job.SlotKey, slot *job.Slot) job.Slot { return *slot }),
		Attempts: list(&s.attempts, func(k attemptKey, a *job.Attempt) store.SlotAttempt {
			return store.SlotAttempt{Key: k.slot, Attempt: *a}
		}),
		Backlog:     list(&s.backlog, func(_ store.BacklogKey, r store.BacklogRow) store.BacklogRow { return r }),
		DeadLetters: list(&s.dead, func(_ job.SlotKey, d store.DeadLetter) store.DeadLetter { return d }),
		Skips:       list(&s.skips, func(_ skipKey, k store.Skip) store.Skip { return k }),
		Gaps:        s.openGaps(),
		Events:      list(&s.events, func(_ eventKey, e store.Event) store.Event { return e }),
	}
	return a, nil
}

// list returns all rows of a table in order; nil if there are none.
func list[K, V, T any](table *ordered[K, V], row func(K, V) T) []T {
	if table.size == 0 {
		return nil
	}
	all := make([]T, 0, table.size)
	for k, v := range table.all() {
		all = append(all, row(k, v))
	}
	return all
}

func (s *rows) openGaps() []store.Gap {
	return list(&s.gaps, func(_ store.GapKey, g *store.Gap) store.Gap {
		open := *g
		open.Options = copyOptions(open.Options)
		return open
	})
}
