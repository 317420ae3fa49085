package core

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// told counts the events of a kind.
func (r *rig) told(kind store.EventKind) (n int, last string) {
	for _, e := range r.events {
		if e.Kind == kind {
			n, last = n+1, e.Detail
		}
	}
	return n, last
}

// A slot that nobody takes is told of, once, and not dropped; again only after the handler had
// been served.
func TestStalledHandlersAreToldOf(t *testing.T) {
	r := newRig(t)
	r.create(r.newJob("a", job.Schedule{Kind: job.KindImmediate}))
	r.create(r.newJob("b", job.Schedule{Kind: job.KindImmediate}))
	r.sleep(r.cfg.StalledAfter - time.Second)
	if n, _ := r.told(store.EventHandlerStalled); n != 0 {
		t.Error("it is told too early")
	}
	r.sleep(time.Hour)
	n, text := r.told(store.EventHandlerStalled)
	if n != 1 || !strings.Contains(text, "0 workers serve it") || len(r.s.Attention().Stalled) != 1 {
		t.Errorf("told %d times: %s; %+v", n, text, r.s.Attention())
	}
	r.wantStates("READY:2 ")
	r.join("w", 1)
	r.serveAll()
	r.sleep(time.Minute)
	if a := r.s.Attention(); len(a.Stalled) != 0 {
		t.Errorf("afterwards %+v", a)
	}
	r.workers.Remove("w")
	r.create(r.newJob("c", job.Schedule{Kind: job.KindImmediate}))
	r.sleep(2 * r.cfg.StalledAfter)
	if n, _ := r.told(store.EventHandlerStalled); n != 2 {
		t.Errorf("told %d times, want twice", n)
	}
	if seen := takeAll[Observation](r); !containsKind(seen, HandlerStalled) {
		t.Error("it is not counted")
	}
}

func containsKind(all []Observation, kind ObservationKind) bool {
	for _, o := range all {
		if o.Kind == kind {
			return true
		}
	}
	return false
}

// A slot that waits for another one of its own job, or for its next attempt, is not what a
// worker is missing for.
func TestWhatIsNotStalled(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	j := r.newJob("j", everyTen)
	j.Policies.Overlap.Mode, j.Timeout = job.OverlapQueue, 100*time.Hour
	r.create(j)
	r.sleep(time.Hour)
	retried := r.newJob("retried", job.Schedule{Kind: job.KindImmediate})
	retried.Retry.InitialBackoff, retried.Retry.MaxBackoff = 10*time.Hour, 10*time.Hour
	if n, text := r.told(store.EventHandlerStalled); n != 0 {
		t.Errorf("told: %s", text)
	}
}

// A handler that nobody serves is named before its jobs fire.
func TestUnservedHandlersAreNamedBefore(t *testing.T) {
	r := newRig(t)
	j := r.create(r.newJob("j", job.Schedule{Kind: job.KindCron, Cron: "0 30 * * * *"})) // in half an hour
	r.sleep(19 * time.Minute)
	if n, _ := r.told(store.EventHandlerUnserved); n != 0 {
		t.Error("it is named too early")
	}
	r.sleep(2 * time.Minute)
	n, text := r.told(store.EventHandlerUnserved)
	if n != 1 || !strings.Contains(text, "the job j fires at 2027-01-15T08:30:00Z") {
		t.Errorf("named %d times: %s", n, text)
	}
	if a := r.s.Attention(); len(a.Unserved) != 1 || a.Unserved[0] != "h" {
		t.Errorf("%+v", a)
	}
	r.join("w", 1)
	r.sleep(time.Minute)
	if a := r.s.Attention(); len(a.Unserved) != 0 {
		t.Errorf("%+v", a)
	}
	r.sleep(8 * time.Minute)
	r.wantSlots(j, "1800 RUNNING")
}

// A run that is longer than its job's interval is told of when the next slot is due, once.
func TestLongRunsAreToldOf(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.newJob("j", everyTen)
	j.Timeout = time.Hour
	r.create(j)
	r.create(r.newJob("quick", everyTen))
	for range 5 {
		r.sleep(10 * time.Second)
		for _, a := range r.assigned() {
			if a.Work.Name == "quick" {
				r.finish(a, job.OutcomeSucceeded)
			}
		}
	}
	n, text := r.told(store.EventRunTooLong)
	if n != 1 || !strings.Contains(text, "the next slot of j is due") {
		t.Errorf("told %d times: %s", n, text)
	}
}

// What waits for long is told of also where something more urgent came later.
func TestStalledBehindMoreUrgentSlots(t *testing.T) {
	r := newRig(t)
	r.createWith("low", onceAt(time.Second), job.Policies{Priority: -10})
	r.createWith("high", onceAt(r.cfg.StalledAfter), job.Policies{Priority: 10})
	r.sleep(r.cfg.StalledAfter + time.Minute)
	if n, _ := r.told(store.EventHandlerStalled); n != 1 || len(r.s.Attention().Stalled) != 1 {
		t.Errorf("told %d times: %+v", n, r.s.Attention())
	}
}

// A slot that nobody waits for doesn't reach the database: its shard is loaded anew, and what
// is loaded is armed.
func TestASlotThatNothingWouldEnd(t *testing.T) {
	for what, disarm := range map[string]func(r *rig, slot *slotState){
		"READY, in no queue": func(r *rig, slot *slotState) { r.s.queue("h").leave(slot) },
		"asleep without a timer": func(r *rig, slot *slotState) {
			r.s.queue("h").leave(slot)
			slot.row.NotBefore = r.now.Add(time.Minute)
			r.s.wait(r.s.queue("h"), slot, true)
			r.s.wheel.Cancel(slot.timer)
		},
		"RUNNING without a timeout": func(r *rig, slot *slotState) {
			r.join("w", 1)
			r.s.wheel.Cancel(slot.timer)
		},
	} {
		r := newRig(t)
		j := r.create(r.newJob("j", job.Schedule{Kind: job.KindImmediate}))
		slot := r.s.slots[job.SlotKey{FireTime: r.firstOf(j), UID: j.UID}]
		if !r.s.armed(slot) {
			t.Fatalf("%s: it isn't armed to begin with", what)
		}
		disarm(r, slot)
		r.s.markDirty(slot)
		if b := r.s.Ready(r.now, store.MaxBatchRows); b != nil || r.s.Fault() == nil {
			t.Errorf("%s: a batch %+v, and the fault %v", what, b, r.s.Fault())
		}
		r.s.Abandon()
		r.restart()
		for _, slot := range r.s.slots {
			if !r.s.armed(slot) {
				t.Errorf("%s: nothing ends the wait of the slot that was loaded: %+v", what, slot.row)
			}
		}
	}
}
