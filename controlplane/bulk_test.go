package controlplane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/store"
)

// A dead letter of many is settled although its shard or the database is away for a while,
// and counts as settled although the answer was lost; one that was settled by somebody else
// before doesn't.
func TestABulkInsists(t *testing.T) {
	broken := errors.New("broken")
	for what, c := range map[string]struct {
		answers []error
		want    error
	}{
		"away":                  {[]error{store.ErrUnavailable, engine.ErrNotOwned, nil}, nil},
		"the answer was lost":   {[]error{store.ErrUnavailable, core.ErrNotDead}, nil},
		"settled by somebody":   {[]error{core.ErrNotDead}, core.ErrNotDead},
		"its job ended":         {[]error{store.ErrUnavailable, core.ErrJobEnded}, core.ErrJobEnded},
		"what won't get better": {[]error{broken}, broken},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			b := &bulk{settle: func(context.Context, store.SlotOf) error { n++; return c.answers[n-1] }}
			if err := b.insist(t.Context(), store.SlotOf{}); !errors.Is(err, c.want) || n != len(c.answers) {
				t.Errorf("%s: %v after %d tries, want %v after %d", what, err, n, c.want, len(c.answers))
			}
		})
	}
}
