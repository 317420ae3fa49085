package model_test

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// question is a read with its arguments.
type question struct {
	name string
	ask  func(context.Context, store.Store) (any, error)
}

// page is what a list answers.
type page struct{ Rows, Next any }

// questions draws the arguments of every read.
func (p *pair) questions() []question {
	proof, namespace, name, limit := p.proof(), p.pick("m", "n"), p.pick("a", "b", "c", "d"), 1+p.r.IntN(6)
	id := proof.Shard
	uid, key, at, until := p.uid(id), p.key(id), p.instant(), p.instant()
	ended := store.EndedQuery{AfterTime: p.orZero(p.instant()), AfterUID: uid, Before: until, Limit: limit}
	keys := rows(p, 9, func() job.SlotKey { return p.key(id) })
	backlog := store.BacklogQuery{Handler: p.pick("g", "h"), Priority: int32(p.r.IntN(3) - 1), Fairness: p.pick("", "f"), After: store.BacklogKey{Rank: p.orZero(at), Slot: key}, Limit: limit}
	filter := store.SlotFilter{States: rows(p, 2, func() job.State { return job.State(1 + p.r.IntN(5)) }), From: p.orZero(at), Until: p.orZero(until)}
	return []question{
		{"Owners", func(ctx context.Context, st store.Store) (any, error) { return st.Owners(ctx) }},
		{"Now", func(ctx context.Context, st store.Store) (any, error) { return st.Now(ctx) }},
		{"Load", func(ctx context.Context, st store.Store) (any, error) { return st.Load(ctx, proof, nil) }},
		{"Load into room", func(ctx context.Context, st store.Store) (any, error) {
			return st.Load(ctx, proof, make([]job.Job, 2, 4))
		}},
		{"OnceJobs", func(ctx context.Context, st store.Store) (any, error) {
			return st.OnceJobs(ctx, proof, key, until, limit)
		}},
		{"Waiting", func(ctx context.Context, st store.Store) (any, error) { return st.Waiting(ctx, proof, backlog) }},
		{"Waiting of a job", func(ctx context.Context, st store.Store) (any, error) {
			return st.Waiting(ctx, proof, store.BacklogQuery{UID: uid, Limit: limit})
		}},
		{"Waiting to be checked", func(ctx context.Context, st store.Store) (any, error) {
			return st.Waiting(ctx, proof, store.BacklogQuery{Checks: true, Limit: limit})
		}},
		{"InboxShards", func(ctx context.Context, st store.Store) (any, error) { return st.InboxShards(ctx) }},
		{"SlotOf", func(ctx context.Context, st store.Store) (any, error) { return st.SlotOf(ctx, proof, key) }},
		{"Drain", func(ctx context.Context, st store.Store) (any, error) { return st.Drain(ctx, proof, limit) }},
		{"OldSlots", func(ctx context.Context, st store.Store) (any, error) {
			return st.OldSlots(ctx, proof, store.PruneQuery{After: key, Until: until, Limit: limit})
		}},
		{"EndedJobs", func(ctx context.Context, st store.Store) (any, error) { return st.EndedJobs(ctx, proof, ended) }},
		{"DoneJobs", func(ctx context.Context, st store.Store) (any, error) { return st.DoneJobs(ctx, proof, ended) }},
		{"Oldest", func(ctx context.Context, st store.Store) (any, error) {
			return st.Oldest(ctx, proof, store.Old{RequestsFrom: at, EventsFrom: at, SkipsFrom: until})
		}},
		{"SpentJob", func(ctx context.Context, st store.Store) (any, error) { return st.SpentJob(ctx, proof, uid, at, until) }},
		{"Job", func(ctx context.Context, st store.Store) (any, error) { return st.Job(ctx, id, namespace, name) }},
		{"JobByUID", func(ctx context.Context, st store.Store) (any, error) { return st.JobByUID(ctx, namespace, uid) }},
		{"JobUIDs", func(ctx context.Context, st store.Store) (any, error) { return st.JobUIDs(ctx, id, namespace, name) }},
		{"JobByRequest", func(ctx context.Context, st store.Store) (any, error) {
			return st.JobByRequest(ctx, id, namespace, "r1")
		}},
		{"Jobs", func(ctx context.Context, st store.Store) (any, error) {
			jobs, next, err := st.Jobs(ctx, store.JobsPage{Namespace: namespace, ShowEnded: limit%2 == 0, After: store.JobCursor{Name: name, UID: uid}, Limit: limit})
			return page{jobs, next}, err
		}},
		{"SlotsByKey", func(ctx context.Context, st store.Store) (any, error) { return st.SlotsByKey(ctx, id, keys) }},
		{"KeysBefore", func(ctx context.Context, st store.Store) (any, error) { return st.KeysBefore(ctx, id, key, limit) }},
		{"UnscheduledSlots", func(ctx context.Context, st store.Store) (any, error) {
			return st.UnscheduledSlots(ctx, id, uid, until, limit)
		}},
		{"Slots", func(ctx context.Context, st store.Store) (any, error) {
			slots, next, err := st.Slots(ctx, store.SlotsPage{Namespace: namespace, Filter: filter, Before: store.SlotCursor{Key: key, Shard: id}, Limit: limit})
			return page{slots, next}, err
		}},
		{"CountSlots", func(ctx context.Context, st store.Store) (any, error) { return st.CountSlots(ctx, namespace, at) }},
		{"Attempts", func(ctx context.Context, st store.Store) (any, error) { return st.Attempts(ctx, id, key) }},
		{"RetainedFrom", func(ctx context.Context, st store.Store) (any, error) { return st.RetainedFrom(ctx, id) }},
		{"GapsOf", func(ctx context.Context, st store.Store) (any, error) { return st.GapsOf(ctx, id) }},
		{"DeadLetters", func(ctx context.Context, st store.Store) (any, error) {
			letters, next, err := st.DeadLetters(ctx, store.DeadLettersPage{Namespace: namespace, After: store.DeadCursor{Shard: id, Key: key}, Limit: limit})
			return page{letters, next}, err
		}},
		{"DeadLetterGroups", func(ctx context.Context, st store.Store) (any, error) {
			return st.DeadLetterGroups(ctx, namespace, limit)
		}},
		{"Skips", func(ctx context.Context, st store.Store) (any, error) { return st.Skips(ctx, id, uid, at, limit) }},
		{"Events", func(ctx context.Context, st store.Store) (any, error) { return st.Events(ctx, id, limit) }},
		{"Handler", func(ctx context.Context, st store.Store) (any, error) { return st.Handler(ctx, name) }},
		{"Handlers", func(ctx context.Context, st store.Store) (any, error) { return st.Handlers(ctx, name, limit) }},
		{"Calendar", func(ctx context.Context, st store.Store) (any, error) {
			return st.Calendar(ctx, namespace, name, int64(limit-1))
		}},
		{"Calendars", func(ctx context.Context, st store.Store) (any, error) { return st.Calendars(ctx, namespace, "", limit) }},
	}
}
