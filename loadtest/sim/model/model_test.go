package model_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/sim/model"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		st := model.New(func() job.Instant { return job.At(time.Now()) })
		t.Cleanup(func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
		return st
	})
}

// own makes a database of some shards, all of one owner.
func own(tb testing.TB, st store.Store, shards int) []store.Owned {
	tb.Helper()
	n, err := st.InitShards(tb.Context(), shards)
	if err != nil {
		tb.Fatal(err)
	}
	var owned []store.Owned
	for id := range n {
		o, err := st.TakeOver(tb.Context(), store.Claim{Shard: shard.ID(id), Node: "a", Rev: 1})
		if err != nil {
			tb.Fatal(err)
		}
		owned = append(owned, o)
	}
	return owned
}

// What a caller does with what it gave or was given changes no row.
func TestRowsAreNotShared(t *testing.T) {
	st := model.New(func() job.Instant { return fire0 })
	proof := own(t, st, 1)[0].Proof
	key := store.GapKey{To: fire0}
	j := job.Job{UID: job.UID{1}, Namespace: "n", Name: "j", Labels: map[string]string{"a": "1"}}
	c := store.Calendar{Namespace: "n", Name: "c", Version: 1, Items: []string{"SAT"}}
	rows := store.ShardBatch{Proof: proof,
		Creates: []store.Create{{Job: j, Slots: []job.Slot{{Key: job.SlotKey{FireTime: fire0, UID: j.UID}, State: job.Ready}}}},
		GapPuts: []store.Gap{{Key: key, Options: store.GapOptions{CatchUp: map[string]job.CatchUp{"u": {MaxCount: 1}}}}}}
	if _, err := st.Commit(t.Context(), store.Batch{Shards: []store.ShardBatch{rows}}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.AddCalendar(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for range 2 { // of what was given, and of what was returned
		j.Labels["a"], c.Items[0] = "2", "SUN"
		rows.GapPuts[0].Options.CatchUp["u"] = job.CatchUp{}
		rows.Creates[0].Slots[0].State = job.Dead
		a, err1 := st.Audit(t.Context(), 0)
		stands, err2 := st.Calendar(t.Context(), "n", "c", 0)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if a.Jobs[0].Labels["a"] != "1" || a.Gaps[0].Options.CatchUp["u"].MaxCount != 1 || a.Slots[0].State != job.Ready || stands.Items[0] != "SAT" {
			t.Fatalf("a row changed: %+v, %+v", a, stands)
		}
		j, c, rows.GapPuts, rows.Creates[0].Slots = a.Jobs[0], stands, a.Gaps, a.Slots
	}
}

// A database that is closed is as one that can't be reached.
func TestNothingAfterClose(t *testing.T) {
	st := model.New(func() job.Instant { return fire0 })
	proof := own(t, st, 1)[0].Proof
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	_, err1 := st.Commit(t.Context(), store.Batch{})
	_, err2 := st.Load(t.Context(), proof, nil)
	_, err3 := st.Events(t.Context(), 0, 1)
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	}
}
