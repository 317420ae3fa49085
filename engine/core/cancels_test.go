package core

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// A cancel of a running attempt is confirmed by its worker, whatever it says of the attempt;
// or, after a grace, it is recorded that it was not obeyed.
func TestCancelsAreConfirmed(t *testing.T) {
	for what, c := range map[string]struct {
		says    job.Outcome
		ignored int
	}{"it stopped": {job.OutcomeCancelled, 0}, "it ended before it heard of it": {job.OutcomeSucceeded, 0}, "nothing": {job.OutcomeNone, 1}} {
		r := newRig(t)
		r.join("w", 1)
		j := r.createWith("j", job.Schedule{Kind: job.KindImmediate}, job.Policies{})
		a := r.assigned()[0]
		r.sleep(time.Second)
		r.step(CancelSlot{Tag: 3, Found: store.SlotOf{Slot: r.slots[a.Token.Key], Job: r.jobs[j.UID]}, Reason: "ann"})
		if stops := takeAll[Stop](r); len(stops) != 1 || stops[0].Reason != StopCancelled {
			t.Fatalf("%s: %+v", what, stops)
		}
		r.sleep(5 * time.Second)
		if c.says != job.OutcomeNone {
			r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: c.says})
		}
		r.sleep(time.Minute)
		n, text := r.told(store.EventCancelIgnored)
		if n != c.ignored || n > 0 && !strings.Contains(text, "attempt 1 of worker w") {
			t.Errorf("%s: told %d times: %s", what, n, text)
		}
		seen := takeAll[Observation](r)
		if containsKind(seen, CancelConfirmed) == (c.ignored > 0) || containsKind(seen, CancelIgnored) != (c.ignored > 0) {
			t.Errorf("%s: counted %+v", what, seen)
		}
		r.wantSlots(j, "0 CANCELLED cancelled")
	}
}

// A slot that waits has no handler that must stop.
func TestACancelOfAWaitingSlotAwaitsNobody(t *testing.T) {
	r := newRig(t)
	j := r.createWith("j", job.Schedule{Kind: job.KindImmediate}, job.Policies{})
	key := job.SlotKey{FireTime: r.firstOf(j), UID: j.UID}
	r.step(CancelSlot{Tag: 3, Found: store.SlotOf{Slot: r.slots[key], Job: r.jobs[j.UID]}, Reason: "ann"})
	r.sleep(time.Minute)
	if n, _ := r.told(store.EventCancelIgnored); n != 0 || len(r.s.stops.open) != 0 {
		t.Errorf("told %d times, %d are awaited", n, len(r.s.stops.open))
	}
}

// Nobody waits for the answer of a worker whose lease has ended.
func TestACancelEndsWithItsWorkersLease(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 10)
	j := r.createWith("j", everyTen, job.Policies{})
	r.sleep(11 * time.Second)
	a := r.assigned()[0]
	r.step(CancelSlot{Tag: 4, Found: store.SlotOf{Slot: r.slots[a.Token.Key], Job: r.jobs[j.UID]}, Reason: "ann"})
	if len(r.s.stops.open) != 1 {
		t.Fatal("nothing is awaited")
	}
	r.workers.Remove("w")
	r.step(WorkerLost{Worker: w})
	r.sleep(2 * r.cfg.CancelGrace)
	if n, text := r.told(store.EventCancelIgnored); n != 0 || len(r.s.stops.open) != 0 {
		t.Errorf("told %d times: %s; %d are awaited", n, text, len(r.s.stops.open))
	}
}
