package sim

import (
	"context"
	"slices"
	"strconv"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

var _ store.Store = (*link)(nil)

// key names a call of a shard: those of several shards are made at the same instant.
func key(what string, id shard.ID) string { return what + " of shard " + strconv.Itoa(int(id)) }

// read makes a call that has one result.
func read[T any](ctx context.Context, l *link, what string, write []shard.ID, do func(ctx context.Context) (T, error)) (T, error) {
	var out T
	err := l.call(ctx, what, write, func() (err error) { out, err = do(context.WithoutCancel(ctx)); return err })
	if err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// Close implements store.Store.
func (*link) Close() error { return nil }

// Commit implements store.Committer.
func (l *link) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	ids := make([]shard.ID, len(b.Shards))
	for i := range b.Shards {
		ids[i] = b.Shards[i].Proof.Shard
	}
	var out store.Outcome
	err := l.call(ctx, "commit", ids, func() (err error) {
		out, err = l.database.kept.Commit(context.WithoutCancel(ctx), b)
		l.database.w.committed(l.process, &b, out, err)
		l.database.w.gapsMade(&b, err)
		return err
	}, func() { b = cloned(b) })
	if err != nil {
		return store.Outcome{}, err
	}
	return out, nil
}

// cloned copies a batch: who made it may change it once its caller was answered.
func cloned(b store.Batch) store.Batch {
	b.Shards = slices.Clone(b.Shards)
	for i := range b.Shards {
		s := &b.Shards[i]
		s.Creates, s.Ends, s.Quarantines, s.Requests = slices.Clone(s.Creates), slices.Clone(s.Ends), slices.Clone(s.Quarantines), slices.Clone(s.Requests)
		s.Slots, s.Updates, s.Attempts, s.Lates = slices.Clone(s.Slots), slices.Clone(s.Updates), slices.Clone(s.Attempts), slices.Clone(s.Lates)
		s.BacklogDels, s.BacklogPuts, s.DeadPuts, s.DeadDels = slices.Clone(s.BacklogDels), slices.Clone(s.BacklogPuts), slices.Clone(s.DeadPuts), slices.Clone(s.DeadDels)
		s.GapPuts, s.GapMoves, s.GapChanges, s.Skips = slices.Clone(s.GapPuts), slices.Clone(s.GapMoves), slices.Clone(s.GapChanges), slices.Clone(s.Skips)
		s.InboxDels, s.Events, s.SlotPrunes, s.JobPrunes = slices.Clone(s.InboxDels), slices.Clone(s.Events), slices.Clone(s.SlotPrunes), slices.Clone(s.JobPrunes)
	}
	return b
}

// Submit implements store.Inbox.
func (l *link) Submit(ctx context.Context, jobs []job.Job) (existing []*job.Job, stored bool, err error) {
	var found []*job.Job
	var new bool
	err = l.call(ctx, "submit", []shard.ID{}, func() (err error) {
		found, new, err = l.database.kept.Submit(context.WithoutCancel(ctx), jobs)
		l.database.w.submitted(l.process, jobs, new, err)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return found, new, nil
}

// Jobs implements store.Reader.
func (l *link) Jobs(ctx context.Context, p store.JobsPage) (jobs []job.Job, next store.JobCursor, err error) {
	err = l.call(ctx, "jobs", nil, func() (err error) {
		jobs, next, err = l.database.kept.Jobs(context.WithoutCancel(ctx), p)
		return err
	})
	return jobs, next, err
}

// Slots implements store.Reader.
func (l *link) Slots(ctx context.Context, p store.SlotsPage) (slots []store.SlotOf, next store.SlotCursor, err error) {
	err = l.call(ctx, "slots", nil, func() (err error) {
		slots, next, err = l.database.kept.Slots(context.WithoutCancel(ctx), p)
		return err
	})
	return slots, next, err
}

// DeadLetters implements store.Reader.
func (l *link) DeadLetters(ctx context.Context, p store.DeadLettersPage) (letters []store.DeadLetterOf, next store.DeadCursor, err error) {
	err = l.call(ctx, "dead letters", nil, func() (err error) {
		letters, next, err = l.database.kept.DeadLetters(context.WithoutCancel(ctx), p)
		return err
	})
	return letters, next, err
}

func (l *link) ClusterID(ctx context.Context) (string, error) {
	return read(ctx, l, "cluster id", nil, func(ctx context.Context) (string, error) { return l.database.kept.ClusterID(ctx) })
}

func (l *link) InitShards(ctx context.Context, count int) (int, error) {
	return read(ctx, l, "init", nil, func(ctx context.Context) (int, error) { return l.database.kept.InitShards(ctx, count) })
}

func (l *link) NextRevision(ctx context.Context) (int64, error) {
	return read(ctx, l, "revision", nil, func(ctx context.Context) (int64, error) { return l.database.kept.NextRevision(ctx) })
}

func (l *link) TakeOver(ctx context.Context, c store.Claim) (store.Owned, error) {
	return read(ctx, l, key("take over", c.Shard), []shard.ID{c.Shard}, func(ctx context.Context) (store.Owned, error) { return l.database.kept.TakeOver(ctx, c) })
}

func (l *link) Reload(ctx context.Context, p shard.Proof) (store.Owned, error) {
	return read(ctx, l, key("reload", p.Shard), []shard.ID{p.Shard}, func(ctx context.Context) (store.Owned, error) { return l.database.kept.Reload(ctx, p) })
}

func (l *link) Renew(ctx context.Context, p shard.Proof, c store.Claim) error {
	return l.call(ctx, key("renew", p.Shard), []shard.ID{p.Shard}, func() error { return l.database.kept.Renew(context.WithoutCancel(ctx), p, c) })
}

func (l *link) Owners(ctx context.Context) ([]store.Owner, error) {
	return read(ctx, l, "owners", nil, func(ctx context.Context) ([]store.Owner, error) { return l.database.kept.Owners(ctx) })
}

func (l *link) Load(ctx context.Context, p shard.Proof, room []job.Job) (store.Loaded, error) {
	return read(ctx, l, key("load", p.Shard), nil, func(ctx context.Context) (store.Loaded, error) { return l.database.kept.Load(ctx, p, room) })
}

func (l *link) OnceJobs(ctx context.Context, p shard.Proof, after job.SlotKey, until job.Instant, limit int) ([]job.Job, error) {
	return read(ctx, l, key("once jobs", p.Shard), nil, func(ctx context.Context) ([]job.Job, error) {
		return l.database.kept.OnceJobs(ctx, p, after, until, limit)
	})
}

func (l *link) Waiting(ctx context.Context, p shard.Proof, q store.BacklogQuery) ([]store.BacklogSlot, error) {
	return read(ctx, l, key("waiting", p.Shard), nil, func(ctx context.Context) ([]store.BacklogSlot, error) { return l.database.kept.Waiting(ctx, p, q) })
}

func (l *link) InboxShards(ctx context.Context) ([]shard.ID, error) {
	return read(ctx, l, "inboxes", nil, func(ctx context.Context) ([]shard.ID, error) { return l.database.kept.InboxShards(ctx) })
}

func (l *link) SlotOf(ctx context.Context, p shard.Proof, k job.SlotKey) (store.SlotOf, error) {
	return read(ctx, l, key("slot of", p.Shard), nil, func(ctx context.Context) (store.SlotOf, error) { return l.database.kept.SlotOf(ctx, p, k) })
}

func (l *link) Drain(ctx context.Context, p shard.Proof, limit int) ([]job.Job, error) {
	return read(ctx, l, key("drain", p.Shard), nil, func(ctx context.Context) ([]job.Job, error) { return l.database.kept.Drain(ctx, p, limit) })
}

func (l *link) OldSlots(ctx context.Context, p shard.Proof, q store.PruneQuery) ([]store.PruneSlot, error) {
	return read(ctx, l, key("old slots", p.Shard), nil, func(ctx context.Context) ([]store.PruneSlot, error) { return l.database.kept.OldSlots(ctx, p, q) })
}

func (l *link) EndedJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.EndedJob, error) {
	return read(ctx, l, key("ended jobs", p.Shard), nil, func(ctx context.Context) ([]store.EndedJob, error) { return l.database.kept.EndedJobs(ctx, p, q) })
}

func (l *link) Oldest(ctx context.Context, p shard.Proof, from store.Old) (store.Old, error) {
	return read(ctx, l, key("oldest", p.Shard), nil, func(ctx context.Context) (store.Old, error) { return l.database.kept.Oldest(ctx, p, from) })
}

func (l *link) SpentJob(ctx context.Context, p shard.Proof, uid job.UID, last, before job.Instant) (bool, error) {
	return read(ctx, l, key("spent job", p.Shard), nil, func(ctx context.Context) (bool, error) { return l.database.kept.SpentJob(ctx, p, uid, last, before) })
}

func (l *link) DoneJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.DoneJob, error) {
	return read(ctx, l, key("done jobs", p.Shard), nil, func(ctx context.Context) ([]store.DoneJob, error) { return l.database.kept.DoneJobs(ctx, p, q) })
}

func (l *link) RegisterHandlers(ctx context.Context, names []string, now job.Instant) error {
	return l.call(ctx, "register handlers", []shard.ID{}, func() error { return l.database.kept.RegisterHandlers(context.WithoutCancel(ctx), names, now) })
}

func (l *link) Handler(ctx context.Context, name string) (store.Handler, error) {
	return read(ctx, l, "handler", nil, func(ctx context.Context) (store.Handler, error) { return l.database.kept.Handler(ctx, name) })
}

func (l *link) Handlers(ctx context.Context, after string, limit int) ([]store.Handler, error) {
	return read(ctx, l, "handlers", nil, func(ctx context.Context) ([]store.Handler, error) { return l.database.kept.Handlers(ctx, after, limit) })
}

func (l *link) Job(ctx context.Context, id shard.ID, namespace, name string) (job.Job, error) {
	return read(ctx, l, "job", nil, func(ctx context.Context) (job.Job, error) { return l.database.kept.Job(ctx, id, namespace, name) })
}

func (l *link) JobByUID(ctx context.Context, namespace string, uid job.UID) (job.Job, error) {
	return read(ctx, l, "job by uid", nil, func(ctx context.Context) (job.Job, error) { return l.database.kept.JobByUID(ctx, namespace, uid) })
}

func (l *link) JobUIDs(ctx context.Context, id shard.ID, namespace, name string) ([]job.UID, error) {
	return read(ctx, l, "job uids", nil, func(ctx context.Context) ([]job.UID, error) { return l.database.kept.JobUIDs(ctx, id, namespace, name) })
}

func (l *link) JobByRequest(ctx context.Context, id shard.ID, namespace, requestID string) (job.Job, error) {
	return read(ctx, l, "job by request", nil, func(ctx context.Context) (job.Job, error) {
		return l.database.kept.JobByRequest(ctx, id, namespace, requestID)
	})
}

func (l *link) SlotsByKey(ctx context.Context, id shard.ID, keys []job.SlotKey) ([]job.Slot, error) {
	return read(ctx, l, "slots by key", nil, func(ctx context.Context) ([]job.Slot, error) { return l.database.kept.SlotsByKey(ctx, id, keys) })
}

func (l *link) KeysBefore(ctx context.Context, id shard.ID, before job.SlotKey, limit int) ([]job.SlotKey, error) {
	return read(ctx, l, "keys before", nil, func(ctx context.Context) ([]job.SlotKey, error) {
		return l.database.kept.KeysBefore(ctx, id, before, limit)
	})
}

func (l *link) UnscheduledSlots(ctx context.Context, id shard.ID, uid job.UID, before job.Instant, limit int) ([]job.Slot, error) {
	return read(ctx, l, "unscheduled slots", nil, func(ctx context.Context) ([]job.Slot, error) {
		return l.database.kept.UnscheduledSlots(ctx, id, uid, before, limit)
	})
}

func (l *link) CountSlots(ctx context.Context, namespace string, since job.Instant) (store.SlotCounts, error) {
	return read(ctx, l, "count slots", nil, func(ctx context.Context) (store.SlotCounts, error) {
		return l.database.kept.CountSlots(ctx, namespace, since)
	})
}

func (l *link) Attempts(ctx context.Context, id shard.ID, k job.SlotKey) ([]job.Attempt, error) {
	return read(ctx, l, "attempts", nil, func(ctx context.Context) ([]job.Attempt, error) { return l.database.kept.Attempts(ctx, id, k) })
}

func (l *link) RetainedFrom(ctx context.Context, id shard.ID) (job.Instant, error) {
	return read(ctx, l, "retained from", nil, func(ctx context.Context) (job.Instant, error) { return l.database.kept.RetainedFrom(ctx, id) })
}

func (l *link) GapsOf(ctx context.Context, id shard.ID) ([]store.Gap, error) {
	return read(ctx, l, "gaps of", nil, func(ctx context.Context) ([]store.Gap, error) { return l.database.kept.GapsOf(ctx, id) })
}

func (l *link) DeadLetterGroups(ctx context.Context, namespace string, limit int) ([]store.DeadLetterGroup, error) {
	return read(ctx, l, "dead letter groups", nil, func(ctx context.Context) ([]store.DeadLetterGroup, error) {
		return l.database.kept.DeadLetterGroups(ctx, namespace, limit)
	})
}

func (l *link) Skips(ctx context.Context, id shard.ID, uid job.UID, from job.Instant, limit int) ([]store.Skip, error) {
	return read(ctx, l, "skips", nil, func(ctx context.Context) ([]store.Skip, error) {
		return l.database.kept.Skips(ctx, id, uid, from, limit)
	})
}

func (l *link) Events(ctx context.Context, id shard.ID, limit int) ([]store.Event, error) {
	return read(ctx, l, "events", nil, func(ctx context.Context) ([]store.Event, error) { return l.database.kept.Events(ctx, id, limit) })
}

func (l *link) Now(ctx context.Context) (job.Instant, error) {
	return read(ctx, l, "now", nil, func(ctx context.Context) (job.Instant, error) { return l.database.kept.Now(ctx) })
}

func (l *link) AddCalendar(ctx context.Context, c store.Calendar) (bool, error) {
	return read(ctx, l, "add calendar", []shard.ID{}, func(ctx context.Context) (bool, error) { return l.database.kept.AddCalendar(ctx, c) })
}

func (l *link) Calendar(ctx context.Context, namespace, name string, version int64) (store.Calendar, error) {
	return read(ctx, l, "calendar", nil, func(ctx context.Context) (store.Calendar, error) {
		return l.database.kept.Calendar(ctx, namespace, name, version)
	})
}

func (l *link) Calendars(ctx context.Context, namespace, after string, limit int) ([]store.Calendar, error) {
	return read(ctx, l, "calendars", nil, func(ctx context.Context) ([]store.Calendar, error) {
		return l.database.kept.Calendars(ctx, namespace, after, limit)
	})
}

func (l *link) Audit(ctx context.Context, id shard.ID) (store.Audit, error) {
	return read(ctx, l, "audit", nil, func(ctx context.Context) (store.Audit, error) { return l.database.kept.Audit(ctx, id) })
}
