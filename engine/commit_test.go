package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/store"
)

// flaky is a database whose answers to the first commits are lost.
type flaky struct {
	Store
	lost int
	sent []store.Batch
}

func (f *flaky) Commit(_ context.Context, b store.Batch) (store.Outcome, error) {
	f.sent = append(f.sent, b)
	if f.lost--; f.lost >= 0 {
		return store.Outcome{}, store.ErrUnavailable
	}
	return store.Outcome{Shards: make([]store.ShardOutcome, len(b.Shards))}, nil
}

// A commit whose answer was lost came long after its repeat, and undid what was written since: it
// took a slot's row out of the backlog, and the slot never ran.
func TestARepeatRefusesWhatWasSentBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &flaky{lost: 2}
		l := newLoop(New(DefaultConfig("n", 1), db, nil))
		for range 2 {
			if err := l.commit(t.Context(), &group{members: []*member{{}}}); err != nil {
				t.Fatal(err)
			}
		}
		type sent struct {
			try    int64
			repeat bool
		}
		var got []sent
		for _, b := range db.sent {
			got = append(got, sent{b.Try, b.Repeat})
		}
		if want := []sent{{0, false}, {1, true}, {2, true}, {2, false}}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}
