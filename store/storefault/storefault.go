// Package storefault wraps any store so that it fails as stores do: it takes its time,
// refuses what it was asked for, does it and loses the answer, or stands still. What
// happens is decided by a seed or by a script, so that it can happen again.
package storefault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// Fault is what happens to one call.
type Fault struct {
	Delay  time.Duration // before the call
	Before bool          // it fails, and has done nothing
	After  bool          // it fails, and has done everything
	// Hold lets the call wait for the channel to be closed, or its context to end. What
	// follows happens then.
	Hold <-chan struct{}
}

// Op is a method of a store.
type Op string

// The methods that can fail.
const (
	Commit   Op = "Commit"
	TakeOver Op = "TakeOver"
	Reload   Op = "Reload"
	Renew    Op = "Renew"
	Load     Op = "Load"
	Read     Op = "Read" // every other read of an owner
	Submit   Op = "Submit"
)

// Plan decides what happens to the calls, one after the other.
type Plan func(op Op) Fault

// Odds are how probable each fault is.
type Odds struct {
	Before, After float64
	Delay         float64
	MaxDelay      time.Duration
}

// Random plans by a seed. The same calls in the same order meet the same faults.
func Random(seed uint64, odds Odds) Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	return func(Op) Fault {
		var f Fault
		if r.Float64() < odds.Delay {
			f.Delay = time.Duration(r.Int64N(int64(odds.MaxDelay) + 1))
		}
		switch x := r.Float64(); {
		case x < odds.Before:
			f.Before = true
		case x < odds.Before+odds.After:
			f.After = true
		}
		return f
	}
}

// Store is a store with faults. People's questions and the catalog have none: nothing
// depends on their answers.
type Store struct {
	store.Store

	mu     sync.Mutex
	plan   Plan
	counts map[Op]int
}

var _ store.Store = (*Store)(nil)

// Wrap returns st with the faults of a plan; nil: none.
func Wrap(st store.Store, plan Plan) *Store {
	return &Store{Store: st, plan: plan, counts: map[Op]int{}}
}

// Use replaces the plan.
func (s *Store) Use(plan Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
}

// Calls returns how often a method was called.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

// Next plans faults for the next calls of one method; all others pass.
func Next(op Op, faults ...Fault) Plan {
	return func(called Op) Fault {
		if called != op || len(faults) == 0 {
			return Fault{}
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
}

// Repeat returns a fault n times, for Next.
func Repeat(f Fault, n int) []Fault {
	all := make([]Fault, n)
	for i := range all {
		all[i] = f
	}
	return all
}

// next takes the fault of a call.
func (s *Store) next(op Op) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[op]++
	if s.plan == nil {
		return Fault{}
	}
	return s.plan(op)
}

// try makes a call with its fault.
func try[T any](ctx context.Context, s *Store, op Op, call func() (T, error)) (T, error) {
	var none T
	f := s.next(op)
	if f.Hold != nil {
		select {
		case <-f.Hold:
		case <-ctx.Done():
			return none, injected(op, "was held", ctx.Err())
		}
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-ctx.Done():
			return none, injected(op, "took too long", ctx.Err())
		}
	}
	if f.Before {
		return none, injected(op, "was not done", nil)
	}
	v, err := call()
	if err == nil && f.After {
		return none, injected(op, "was done, its answer was lost", nil)
	}
	return v, err
}

func injected(op Op, what string, cause error) error {
	if cause != nil {
		return fmt.Errorf("storefault: %s %s: %w: %w", op, what, store.ErrUnavailable, cause)
	}
	return fmt.Errorf("storefault: %s %s: %w", op, what, store.ErrUnavailable)
}

// Commit implements store.Committer.
func (s *Store) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	return try(ctx, s, Commit, func() (store.Outcome, error) { return s.Store.Commit(ctx, b) })
}

// TakeOver implements store.Shards.
func (s *Store) TakeOver(ctx context.Context, c store.Claim) (store.Owned, error) {
	return try(ctx, s, TakeOver, func() (store.Owned, error) { return s.Store.TakeOver(ctx, c) })
}

// Reload implements store.Shards.
func (s *Store) Reload(ctx context.Context, p shard.Proof) (store.Owned, error) {
	return try(ctx, s, Reload, func() (store.Owned, error) { return s.Store.Reload(ctx, p) })
}

// Renew implements store.Shards.
func (s *Store) Renew(ctx context.Context, p shard.Proof, c store.Claim) error {
	_, err := try(ctx, s, Renew, func() (struct{}, error) { return struct{}{}, s.Store.Renew(ctx, p, c) })
	return err
}

// Load implements store.Loader.
func (s *Store) Load(ctx context.Context, p shard.Proof, room []job.Job) (store.Loaded, error) {
	return try(ctx, s, Load, func() (store.Loaded, error) { return s.Store.Load(ctx, p, room) })
}

// OnceJobs implements store.Loader.
func (s *Store) OnceJobs(ctx context.Context, p shard.Proof, after job.SlotKey, until job.Instant, limit int) ([]job.Job, error) {
	return try(ctx, s, Read, func() ([]job.Job, error) { return s.Store.OnceJobs(ctx, p, after, until, limit) })
}

// Waiting implements store.Loader.
func (s *Store) Waiting(ctx context.Context, p shard.Proof, q store.BacklogQuery) ([]store.BacklogSlot, error) {
	return try(ctx, s, Read, func() ([]store.BacklogSlot, error) { return s.Store.Waiting(ctx, p, q) })
}

// InboxShards implements store.Loader.
func (s *Store) InboxShards(ctx context.Context) ([]shard.ID, error) {
	return try(ctx, s, Read, func() ([]shard.ID, error) { return s.Store.InboxShards(ctx) })
}

// SlotOf implements store.Loader.
func (s *Store) SlotOf(ctx context.Context, p shard.Proof, key job.SlotKey) (store.SlotOf, error) {
	return try(ctx, s, Read, func() (store.SlotOf, error) { return s.Store.SlotOf(ctx, p, key) })
}

// Drain implements store.Loader.
func (s *Store) Drain(ctx context.Context, p shard.Proof, limit int) ([]job.Job, error) {
	return try(ctx, s, Read, func() ([]job.Job, error) { return s.Store.Drain(ctx, p, limit) })
}

// OldSlots implements store.Loader.
func (s *Store) OldSlots(ctx context.Context, p shard.Proof, q store.PruneQuery) ([]store.PruneSlot, error) {
	return try(ctx, s, Read, func() ([]store.PruneSlot, error) { return s.Store.OldSlots(ctx, p, q) })
}

// EndedJobs implements store.Loader.
func (s *Store) EndedJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.EndedJob, error) {
	return try(ctx, s, Read, func() ([]store.EndedJob, error) { return s.Store.EndedJobs(ctx, p, q) })
}

// Oldest implements store.Loader.
func (s *Store) Oldest(ctx context.Context, p shard.Proof, from store.Old) (store.Old, error) {
	return try(ctx, s, Read, func() (store.Old, error) { return s.Store.Oldest(ctx, p, from) })
}

// SpentJob implements store.Loader.
func (s *Store) SpentJob(ctx context.Context, p shard.Proof, uid job.UID, last, before job.Instant) (bool, error) {
	return try(ctx, s, Read, func() (bool, error) { return s.Store.SpentJob(ctx, p, uid, last, before) })
}

// DoneJobs implements store.Loader.
func (s *Store) DoneJobs(ctx context.Context, p shard.Proof, q store.EndedQuery) ([]store.DoneJob, error) {
	return try(ctx, s, Read, func() ([]store.DoneJob, error) { return s.Store.DoneJobs(ctx, p, q) })
}

// submitted is the answer of Submit.
type submitted struct {
	existing []*job.Job
	stored   bool
}

// Submit implements store.Inbox.
func (s *Store) Submit(ctx context.Context, jobs []job.Job) ([]*job.Job, bool, error) {
	a, err := try(ctx, s, Submit, func() (submitted, error) {
		existing, stored, err := s.Store.Submit(ctx, jobs)
		return submitted{existing, stored}, err
	})
	return a.existing, a.stored, err
}
