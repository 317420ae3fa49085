package engine_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// A simulated clock goes from one fire time to the next, waits for what runs, and costs no
// lease; a worker that is gone loses its own by simulated time.
func TestAdvance(t *testing.T) {
	from := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	c := clock.NewSimulated(from)
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "carillon.db"), sqlite.Volatile(), sqlite.Clock(c.Wall))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	_, err = db.InitShards(t.Context(), shards)
	r.must(err)
	cfg := engine.DefaultConfig("test", shards)
	cfg.Clock = c
	cfg.InboxEvery, cfg.Core.WatermarkEvery, cfg.Core.PassEvery = time.Minute, time.Minute, time.Hour
	rev, err := db.NextRevision(t.Context())
	r.must(err)
	r.node = engine.New(cfg, db, solo.New("test", shards, rev))
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- r.node.Run(ctx) }()
	defer func() { cancel(); r.must(<-end); r.must(db.Close()) }()

	advance := func(d time.Duration) {
		t.Helper()
		until := c.Wall().Add(d)
		if running, err := r.node.Advance(t.Context(), c, until); err != nil || running != 0 || !c.Wall().Equal(until) {
			t.Fatalf("%v, %d run, %v", c.Wall(), running, err)
		}
	}
	advance(time.Second)
	w := r.join(job.OutcomeSucceeded)
	j := r.create(r.job("j", cron("0 * * * *")))
	advance(6 * time.Hour)
	got := w.got()
	if len(got) != 6 {
		t.Fatalf("%d attempts in six hours", len(got))
	}
	for i, a := range got {
		if want := job.At(from.Add(time.Duration(i+1) * time.Hour)); a.Token.Key.FireTime != want || a.Token.Attempt != 1 || a.Token.Key.UID != j.UID {
			t.Errorf("attempt %d is %+v", i, a.Token)
		}
	}
	hold, stop := context.WithCancel(t.Context())
	w.mu.Lock()
	w.outcome, w.given = job.OutcomeNone, stop // it holds what it gets
	w.mu.Unlock()
	_, err = r.node.Advance(hold, c, c.Wall().Add(2*time.Hour))
	r.must(err)
	if running, err := r.node.Advance(hold, c, c.Wall().Add(2*time.Hour)); err != nil || running != 1 {
		t.Errorf("%d run, %v", running, err)
	}
	if at := c.Wall(); !at.Equal(from.Add(7 * time.Hour)) {
		t.Errorf("time went on to %s while an attempt runs", at)
	}
	r.node.Disconnect(t.Context(), w.key, w)
	advance(time.Minute)
	v := r.join(job.OutcomeSucceeded)
	advance(time.Minute)
	if got := v.got(); len(got) != 1 || got[0].Token.Attempt != 2 || got[0].Failures != 1 {
		t.Errorf("after the lease %+v", got)
	}
}
