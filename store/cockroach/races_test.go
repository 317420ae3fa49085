package cockroach_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
)

// rivals are two owners of one shard: the old one behind a proxy.
type rivals struct {
	t        *testing.T
	proxy    *pgtest.Proxy
	old, new *cockroach.DB
	owned    store.Owned // by old
}

func newRivals(t *testing.T, isolation string) *rivals {
	t.Helper()
	r := &rivals{t: t, proxy: newProxy(t)}
	url := database(t, template)
	short := cockroach.Config{URL: url, Isolation: isolation, LockTimeout: 400 * time.Millisecond, IdleTimeout: 700 * time.Millisecond}
	r.new = open(t, short)
	if _, err := r.new.InitShards(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	short.URL = behind(r.proxy, url)
	r.old = open(t, short)
	var err error
	if r.owned, err = r.old.TakeOver(t.Context(), store.Claim{Node: "old", Rev: 1}); err != nil {
		t.Fatal(err)
	}
	return r
}

// freeze lets the old owner's commit stop at a statement, and returns once it has.
// thaw lets it go on, and returns what came of it.
func (r *rivals) freeze(at func(pgtest.Statement) bool) (thaw func() error) {
	r.t.Helper()
	hold, frozen, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	asked := false
	r.proxy.Judge(func(s pgtest.Statement) pgtest.Verdict {
		if asked || !at(s) {
			return pgtest.Verdict{}
		}
		asked = true
		close(frozen)
		return pgtest.Verdict{Hold: hold}
	})
	go func() {
		_, err := r.old.Commit(context.WithoutCancel(r.t.Context()), batch(store.ShardBatch{Proof: r.owned.Proof, Watermark: r.owned.Watermark + job.Second,
			Creates: []store.Create{{Job: everyMinute(1)}}}))
		done <- err
	}()
	select {
	case <-frozen:
	case err := <-done:
		r.t.Fatalf("the commit ended before it could be frozen: %v", err)
	}
	var thawed sync.Once
	r.t.Cleanup(func() { thawed.Do(func() { close(hold) }) })
	return func() error {
		thawed.Do(func() { close(hold) })
		return <-done
	}
}

// takeOver takes the shard for the new owner, as often as it takes.
func (r *rivals) takeOver() store.Owned {
	r.t.Helper()
	for end := time.Now().Add(8 * time.Second); ; {
		o, err := r.new.TakeOver(r.t.Context(), store.Claim{Node: "new", Rev: 2})
		if err == nil {
			return o
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(end) {
			r.t.Fatalf("take over: %v", err)
		}
	}
}

// wantNothing asserts that nothing of the old owner's batch is there, before and
// after it woke up.
func (r *rivals) wantNothing(o store.Owned) {
	r.t.Helper()
	if l, err := r.new.Load(r.t.Context(), o.Proof, nil); err != nil || len(l.Recurring) != 0 {
		r.t.Errorf("the new owner loaded %d jobs, %v", len(l.Recurring), err)
	}
	if o.Watermark != r.owned.Watermark {
		r.t.Errorf("the watermark moved to %s", o.Watermark)
	}
}

var isolations = []string{"read committed", "serializable"}

// R1, a zombie owner that froze before its first statement reached the database.
func TestAZombieFrozenBeforeItsFence(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			r := newRivals(t, isolation)
			thaw := r.freeze(func(s pgtest.Statement) bool { return s.Tx > 0 && s.N == 2 })
			o := r.takeOver()
			r.wantNothing(o)
			if err := thaw(); err == nil {
				t.Error("the zombie's commit succeeded")
			}
			r.wantNothing(o)
		})
	}
}

// R1, a zombie owner that froze with its lock held, in the middle of sending its
// batch: the server waits for the rest of it without any limit of time.
func TestAZombieFrozenBetweenItsFenceAndItsWrites(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			r := newRivals(t, isolation)
			thaw := r.freeze(func(s pgtest.Statement) bool { return s.Tx > 0 && s.N == 3 })
			o := r.takeOver()
			r.wantNothing(o)
			if err := thaw(); err == nil {
				t.Error("the zombie's commit succeeded")
			}
			r.wantNothing(o)
		})
	}
}

// The same while people's lists take all connections that they may have.
func TestATakeOverFreesItselfInAFloodOfLists(t *testing.T) {
	r := newRivals(t, "read committed")
	thaw := r.freeze(func(s pgtest.Statement) bool { return s.Tx > 0 && s.N == 3 })
	r.new.HoldReaders(t.Context(), t.Cleanup)
	r.wantNothing(r.takeOver())
	if err := thaw(); err == nil {
		t.Error("the zombie's commit succeeded")
	}
}

// R1, a zombie owner that froze before its COMMIT, with everything written.
func TestAZombieFrozenBeforeItsCommit(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			r := newRivals(t, isolation)
			thaw := r.freeze(pgtest.Statement.Commits)
			o := r.takeOver()
			r.wantNothing(o)
			if err := thaw(); err == nil {
				t.Error("the zombie's commit succeeded")
			}
			r.wantNothing(o)
		})
	}
}
