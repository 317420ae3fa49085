package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// hands are clocks that a test sets: the machine's wall clock and the database's. The
// monotonic clock stands still while the machine sleeps.
type hands struct {
	mu             sync.Mutex
	start          time.Time
	wall, database time.Duration // ahead of the bubble's time
	slept          time.Duration
}

func (h *hands) set(wall, database time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall, h.database = wall, database
}

func (h *hands) Monotonic() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.start) - h.slept
}

func (h *hands) Wall() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.wall)
}

// misled is a store whose database has another time.
type misled struct {
	store.Store
	h *hands
}

func (m misled) Now(ctx context.Context) (job.Instant, error) {
	m.h.mu.Lock()
	defer m.h.mu.Unlock()
	return job.At(time.Now().Add(m.h.database)), nil
}

// Time jumps ahead everywhere: what was missed is made up for, each occurrence once, and the
// next one is on time. It jumps back: nothing has two slots, an extra run starts at once, and
// the schedule goes on when its time has come again.
func TestTimeJumps(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 10 * time.Second, time.Hour, 365 * 24 * time.Hour, -time.Second, -10 * time.Second, -time.Hour, -365 * 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hands{start: time.Now()}
				r := newRigAt(t, h)
				defer func() { r.stop() }()
				w := r.join(job.OutcomeSucceeded)
				expr, every := "* * * * *", time.Minute
				if step > 24*time.Hour {
					expr, every = "0 * * * *", time.Hour
				}
				j := r.create(r.job("j", cron(expr)))
				w.beat(2*every + 5*time.Second)
				before := len(r.slots(j.UID))
				h.set(step, step)
				w.beat(5 * time.Second) // it is noticed, and the shards are loaded
				if _, _, err := r.node.Trigger(t.Context(), j, "", ""); err != nil {
					t.Fatal(err)
				}
				w.beat(time.Second)
				if n := len(r.slots(j.UID)) - before - max(0, int(step/every)); n < 1 || n > 2 {
					t.Errorf("%d slots beside those that were missed; the extra run is one", n)
				}
				if back := -step; back > time.Minute && back < 24*time.Hour {
					w.beat(back) // until the time has come again
				}
				if step > -24*time.Hour {
					w.beat(2 * every)
					last := job.At(h.Wall().Truncate(every))
					if s, ok := r.slots(j.UID)[last]; !ok || s.Trigger != job.TriggerSchedule || s.ClaimedAt > last+job.Second {
						t.Errorf("the slot of %s: %+v", last, s)
					}
				}
				for at, s := range r.slots(j.UID) {
					if s.State != job.Succeeded && s.State != job.Running {
						t.Errorf("slot %s is %v", at, s.State)
					}
					if s.ClaimedAt != 0 && s.ClaimedAt < at && at.Whole() {
						t.Errorf("slot %s was claimed at %s", at, s.ClaimedAt)
					}
				}
			})
		})
	}
}

// Somebody sets this machine's clock, and the database's is right: nothing changes. So it is
// if the database's alone is wrong.
func TestOneClockIsWrong(t *testing.T) {
	for what, set := range map[string]func(h *hands){
		"this machine's is ahead":  func(h *hands) { h.set(time.Hour, 0) },
		"this machine's is behind": func(h *hands) { h.set(-time.Hour, 0) },
		"the database's is ahead":  func(h *hands) { h.set(0, time.Hour) },
		"the database's is behind": func(h *hands) { h.set(0, -time.Hour) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hands{start: time.Now()}
				r := newRigAt(t, h)
				defer func() { r.stop() }()
				w := r.join(job.OutcomeSucceeded)
				j := r.create(r.job("j", cron("* * * * *")))
				w.beat(90 * time.Second)
				set(h)
				w.beat(10*time.Minute + 10*time.Second)
				r.wantSlots(j, time.Minute, time.Now().Add(-5*time.Second), job.Succeeded)
				for at, s := range r.slots(j.UID) {
					if s.ClaimedAt < at || s.ClaimedAt > at+job.Second {
						t.Errorf("slot %s was claimed at %s", at, s.ClaimedAt)
					}
				}
			})
		})
	}
}

// The machine sleeps, and its monotonic clock with it: what was missed is made up for.
func TestAMachineThatSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hands{start: time.Now()}
		r := newRigAt(t, h)
		defer func() { r.stop() }()
		w := r.join(job.OutcomeSucceeded)
		j := r.create(r.job("j", cron("* * * * *")))
		w.beat(150 * time.Second)
		h.mu.Lock()
		h.slept, h.wall, h.database = h.slept+0, 2*time.Hour, 2*time.Hour // nobody noticed the two hours
		h.mu.Unlock()
		w.beat(10 * time.Second)
		made := 0
		for _, s := range r.slots(j.UID) {
			if s.Trigger == job.TriggerBackfill {
				made++
			}
		}
		if made < 119 || made > 120 {
			t.Errorf("%d occurrences were made up for", made)
		}
	})
}

// newRigAt is newRig with clocks that a test sets.
func newRigAt(t *testing.T, h *hands) *rig {
	r := &rig{t: t, path: t.TempDir() + "/carillon.db", time: h}
	r.start()
	return r
}
