package model_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/sim/model"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// The model and the reference adapter get the same calls, drawn from so few jobs, names and
// instants that rows meet each other all the time, and must give the same answers, those of
// Statements and of orders that nobody promised included.
func TestAnswersAreSQLites(t *testing.T) {
	seen := coverage{}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			p := newPair(t, seed, seen)
			for range 150 {
				p.step()
				p.compareAll()
				if t.Failed() {
					return
				}
			}
		})
	}
	if !t.Failed() {
		seen.check(t)
	}
}

const pairShards = 3

// pair is two stores that should be equal, and what the calls are drawn from.
type pair struct {
	t      *testing.T
	r      *rand.Rand
	stores [2]store.Store // the model, and SQLite
	now    job.Instant
	proofs [pairShards]shard.Proof
	audits [pairShards]store.Audit // as they stand
	last   store.Batch
	seen   coverage
}

func newPair(t *testing.T, seed uint64, seen coverage) *pair {
	p := &pair{t: t, r: rand.New(rand.NewPCG(seed, 7)), now: fire0, seen: seen}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "carillon.db"), sqlite.Volatile(), sqlite.Clock(func() time.Time { return p.now.Time() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	p.stores = [2]store.Store{model.New(func() job.Instant { return p.now }), db}
	p.same("init", func(ctx context.Context, st store.Store) (any, error) { return st.InitShards(ctx, pairShards) })
	for id := range shard.ID(pairShards) {
		p.takeOver(store.Claim{Shard: id, Node: "a", Rev: 1})
	}
	p.compareAll()
	return p
}

// same asks both stores, and returns the answer of the model.
func (p *pair) same(what string, ask func(context.Context, store.Store) (any, error)) any {
	p.t.Helper()
	var answers [2]any
	var kinds [2]string
	for i, st := range p.stores {
		answer, err := ask(p.t.Context(), st)
		kinds[i] = kindOf(err)
		if answers[i] = answer; err != nil {
			answers[i] = nil
		}
	}
	p.seen[what+": "+kinds[0]]++
	if kinds[0] != kinds[1] {
		p.t.Errorf("%s: the model says %s, SQLite %s", what, kinds[0], kinds[1])
	}
	if reflect.DeepEqual(answers[0], answers[1]) {
		return answers[0] // as nearly always; cmp takes longer than SQLite
	}
	if diff := cmp.Diff(answers[1], answers[0], cmpopts.EquateEmpty()); diff != "" {
		p.t.Errorf("%s: (-sqlite +model)\n%s", what, diff)
	}
	return answers[0]
}

// kindOf says how a call failed, as far as a caller can tell.
func kindOf(err error) string {
	var fenced *store.FencedError
	var refused *store.RefusedError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &fenced):
		return fmt.Sprint("fenced ", fenced.Shards)
	case errors.As(err, &refused):
		return fmt.Sprint("refused ", refused.Shard, " ", refused.UID)
	}
	for _, kind := range []error{store.ErrNotFound, store.ErrSuperseded, store.ErrUnavailable} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "another error"
}

// compareAll compares all that the stores hold, and some of what they answer.
func (p *pair) compareAll() {
	for id := range shard.ID(pairShards) {
		a, _ := p.same("Audit", func(ctx context.Context, st store.Store) (any, error) { return st.Audit(ctx, id) }).(store.Audit)
		p.audits[id] = a
		p.seen.note(&a)
	}
	all := p.questions()
	for range 12 {
		q := all[p.r.IntN(len(all))]
		p.same(q.name, q.ask)
	}
}

// step makes one change.
func (p *pair) step() {
	p.now += job.Instant(p.r.IntN(3)) * job.Second / 2
	switch n := p.r.IntN(100); {
	case n < 60:
		p.commit(p.batch())
	case n < 67:
		p.commit(p.last) // its reply was lost
	case n < 75:
		p.submit()
	case n < 81:
		p.takeOver(p.claim(p.shard()))
	case n < 84:
		p.reload(p.maybeStale())
	case n < 94:
		proof := p.maybeStale()
		claim := p.claim(proof.Shard)
		p.same("Renew", func(ctx context.Context, st store.Store) (any, error) { return nil, st.Renew(ctx, proof, claim) })
	case n < 96:
		names, at := []string{p.pick("a", "b", "c"), p.pick("a", "d")}, p.instant()
		p.same("RegisterHandlers", func(ctx context.Context, st store.Store) (any, error) {
			return nil, st.RegisterHandlers(ctx, names, at)
		})
	default:
		c := store.Calendar{Namespace: p.pick("m", "n"), Name: p.pick("a", "b", "ab"), Version: 1 + int64(p.r.IntN(4)), Deleted: p.one(4), Items: []string{"SAT", "SUN"}[:p.r.IntN(3)], CreatedAt: p.now}
		p.same("AddCalendar", func(ctx context.Context, st store.Store) (any, error) { return st.AddCalendar(ctx, c) })
	}
}

func (p *pair) takeOver(c store.Claim) {
	if o, ok := p.same("TakeOver", func(ctx context.Context, st store.Store) (any, error) { return st.TakeOver(ctx, c) }).(store.Owned); ok {
		p.proofs[c.Shard] = o.Proof
	}
}

func (p *pair) reload(proof shard.Proof) {
	if o, ok := p.same("Reload", func(ctx context.Context, st store.Store) (any, error) { return st.Reload(ctx, proof) }).(store.Owned); ok {
		p.proofs[proof.Shard] = o.Proof
	}
}

func (p *pair) commit(b store.Batch) {
	p.last = b
	p.same("Commit", func(ctx context.Context, st store.Store) (any, error) { return st.Commit(ctx, b) })
	for _, s := range b.Shards { // who gave a shard up, takes it again
		if s.GiveUp {
			p.takeOver(store.Claim{Shard: s.Proof.Shard, Node: "a", Gen: p.audits[s.Proof.Shard].Gen, Rev: p.audits[s.Proof.Shard].Rev + 1})
		}
	}
}

func (p *pair) submit() {
	jobs := rows(p, 3, func() job.Job { return p.job(p.shard()) })
	p.same("Submit", func(ctx context.Context, st store.Store) (any, error) {
		own := slices.Clone(jobs)
		existing, stored, err := st.Submit(ctx, own)
		return []any{existing, stored, own}, err
	})
}

// coverage counts the calls by what was answered, and the audits that saw each table filled.
type coverage map[string]int

var tables = []string{"jobs", "an inbox", "slots", "attempts", "a backlog", "dead letters", "skips", "gaps", "events"}

func (c coverage) note(a *store.Audit) {
	for i, n := range []int{len(a.Jobs), len(a.Inbox), len(a.Slots), len(a.Attempts), len(a.Backlog), len(a.DeadLetters), len(a.Skips), len(a.Gaps), len(a.Events)} {
		if n > 0 {
			c[tables[i]]++
		}
	}
}

// check fails if the calls were so few or so alike that they show nothing.
func (c coverage) check(t *testing.T) {
	t.Log(c)
	for _, table := range tables {
		if c[table] < 50 {
			t.Errorf("%d audits saw %s", c[table], table)
		}
	}
	late := store.ErrSuperseded.Error()
	for _, call := range []string{"Commit: ok", "Submit: ok", "TakeOver: ok", "TakeOver: " + late, "Reload: ok", "Renew: ok", "Renew: " + late} {
		if c[call] == 0 {
			t.Errorf("no %s", call)
		}
	}
}
