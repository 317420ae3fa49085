package storefault_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	"github.com/carillon-scheduler/carillon/store/storefault"
	"github.com/carillon-scheduler/carillon/store/storetest"
)

func open(t *testing.T, plan storefault.Plan) *storefault.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "c.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.InitShards(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return storefault.Wrap(db, plan)
}

// Without faults it is the store that it wraps.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "c.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return storefault.Wrap(db, nil)
	})
}

func TestACallFailsBeforeOrAfterItsEffect(t *testing.T) {
	for _, f := range []storefault.Fault{{Before: true}, {After: true}} {
		s := open(t, storefault.Next(storefault.TakeOver, f))
		if _, err := s.TakeOver(t.Context(), store.Claim{Node: "a", Rev: 1}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%+v: %v", f, err)
		}
		if a, err := s.Audit(t.Context(), 0); err != nil || (a.Epoch == 1) != f.After {
			t.Errorf("%+v: epoch %d, %v", f, a.Epoch, err)
		}
		if o, err := s.TakeOver(t.Context(), store.Claim{Node: "a", Rev: 1}); err != nil || o.Proof.Epoch != 1 {
			t.Errorf("%+v, sent again: %+v, %v", f, o, err)
		}
	}
}

func TestACallIsDelayedAndHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		s := open(t, storefault.Next(storefault.TakeOver, storefault.Fault{Delay: time.Minute}, storefault.Fault{Hold: hold}, storefault.Fault{Hold: make(chan struct{})}))
		began := time.Now()
		if _, err := s.TakeOver(t.Context(), store.Claim{Rev: 1}); err != nil || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		time.AfterFunc(time.Hour, func() { close(hold) })
		if _, err := s.TakeOver(t.Context(), store.Claim{Rev: 2}); err != nil || time.Since(began) != time.Hour+time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.TakeOver(ctx, store.Claim{Rev: 3}); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("held for ever: %v", err)
		}
		if n := s.Calls(storefault.TakeOver); n != 3 {
			t.Errorf("%d calls", n)
		}
	})
}

// The same seed is the same faults.
func TestFaultsAreRepeatable(t *testing.T) {
	odds := storefault.Odds{Before: 0.3, After: 0.3, Delay: 0.5, MaxDelay: time.Second}
	a, b, other := storefault.Random(7, odds), storefault.Random(7, odds), storefault.Random(8, odds)
	kinds := map[storefault.Fault]int{}
	differ := false
	for range 1000 {
		f := a(storefault.Commit)
		if f != b(storefault.Commit) {
			t.Fatal("one seed, two histories")
		}
		differ = differ || f != other(storefault.Commit)
		f.Delay = min(f.Delay, 1)
		kinds[f]++
	}
	if !differ || len(kinds) != 6 {
		t.Errorf("kinds %v, another seed differs: %v", kinds, differ)
	}
}
