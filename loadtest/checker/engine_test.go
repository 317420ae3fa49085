package checker_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
)

// TestARealEngine drives nodes on SQLite through failing handlers, silent workers,
// commits of unknown fate, kills and downtimes, and finds no violation, neither in
// the middle of it nor in the end.
func TestARealEngine(t *testing.T) {
	seeds := uint64(4)
	if n, err := strconv.ParseUint(os.Getenv("CARILLON_HISTORY_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	seen := map[string]int{}
	// The order of goroutines is not of the seed: it goes on until everything was seen.
	for seed := uint64(0); seed < seeds || seed < seeds+50 && len(missing(seen)) > 0; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "carillon.db")
			synctest.Test(t, func(t *testing.T) {
				runEngine(&cluster{t: t, path: path, rnd: &random{rnd: rand.New(rand.NewPCG(seed, 7))}, live: map[string]job.Job{}, seen: seen})
			})
		})
	}
	if unseen := missing(seen); len(unseen) > 0 {
		t.Errorf("no history has %q: %v", unseen, seen)
	}
}

func runEngine(c *cluster) {
	c.start()
	w := c.work()
	for range 40 {
		c.act()
		c.sleep(4 * time.Second)
		if c.rnd.IntN(5) == 0 {
			c.check(false)
		}
	}
	c.calm.Store(true)
	time.Sleep(90 * time.Second)
	c.check(true)
	w.quit()
	c.stop()
}

// check takes down what handlers did, and only then reads what is stored: their
// attempts are there by then.
func (c *cluster) check(quiet bool) {
	c.t.Helper()
	c.mu.Lock()
	h := checker.History{Quiet: quiet, Ledger: c.ledger, Effects: append([]checker.Effect{}, c.effects...)}
	c.mu.Unlock()
	var err error
	h.Shards, err = checker.Read(c.t.Context(), c.db, shards)
	c.must(err)
	h.Now = job.At(time.Now())
	for _, v := range checker.Check(h) {
		c.t.Error(v)
	}
	if quiet {
		c.count(h)
	}
}

// count notes what a history was made of.
func (c *cluster) count(h checker.History) {
	for _, a := range h.Shards {
		c.seen["take-over"] += len(a.TakeOvers)
		for _, s := range a.Slots {
			c.seen[s.State.String()]++
			c.seen[fmt.Sprintf("trigger %d", s.Trigger)]++
		}
		for _, r := range a.Attempts {
			c.seen["attempt that came to "+r.Attempt.Outcome.String()]++
		}
	}
	c.seen["effect"] += len(h.Effects)
}

// missing lists what a test of this kind must have met, and has not.
func missing(seen map[string]int) (unseen []string) {
	for _, what := range []string{"take-over", "effect", "SUCCEEDED", "CANCELLED", "DEAD", "trigger 1", "trigger 2", "trigger 3", "trigger 4",
		"attempt that came to FAILED", "attempt that came to LEASE_LOST", "attempt that came to UNCLAIMED"} {
		if seen[what] == 0 {
			unseen = append(unseen, what)
		}
	}
	return unseen
}
