package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return noon.Add(time.Duration(seconds * float64(time.Second)))
}

const (
	succeeded = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED
	failed    = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED
	unclaimed = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_UNCLAIMED
)

func jobOf(id string, r rule, e ending) *job {
	return &job{id: id, name: "namespaces/default/jobs/" + id, uid: "uid-" + id, rule: r, ending: e,
		from: at(0.5), called: at(0.5), answered: at(0.6)}
}

// slotAt makes a slot as it should be, with attempts of these outcomes.
func slotAt(j *job, fire time.Time, trigger carillonv1.SlotTrigger, outcomes ...carillonv1.AttemptOutcome) record {
	r := record{slot: &carillonv1.Slot{Name: j.name + "/slots/" + slotID(fire), JobUid: j.uid, FireTime: timestamppb.New(fire),
		Trigger: trigger, State: j.ending.state, Attempt: int32(len(outcomes))}}
	for i, o := range outcomes {
		start := timestamppb.New(fire.Add(time.Millisecond))
		r.attempts = append(r.attempts, &carillonv1.Attempt{Attempt: int32(i + 1), Outcome: o, StartTime: start, ClaimTime: start})
	}
	return r
}

// goodWorld is one in which all is as it must be: an outage from 4.2 s to 6.8 s, the
// end at 10 s.
func goodWorld() *world {
	const (
		onTime   = carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE
		backfill = carillonv1.SlotTrigger_SLOT_TRIGGER_BACKFILL
		now      = carillonv1.SlotTrigger_SLOT_TRIGGER_IMMEDIATE
	)
	second := jobOf("every-second", rule{every: time.Second}, succeeds)
	flaky := jobOf("flaky", rule{every: 5 * time.Second}, succeedsThird)
	broken := jobOf("broken", rule{immediate: true}, diesAtThird)
	once := jobOf("once", rule{once: at(6)}, succeeds)
	daily := jobOf("daily", rule{every: day, offset: 2 * time.Hour}, succeeds)
	w := &world{jobs: []*job{second, flaky, broken, once, daily}, end: at(10), listed: at(11.5), outage: outage{at(4.2), at(6.8)}}
	for i := 1; i <= 11; i++ { // the eleventh is after the end
		trigger := onTime
		if i == 5 || i == 6 {
			trigger = backfill
		}
		w.records = append(w.records, slotAt(second, at(float64(i)), trigger, succeeded))
	}
	w.records = append(w.records,
		slotAt(flaky, at(5), backfill, failed, failed, succeeded), slotAt(flaky, at(10), onTime, failed, failed, succeeded),
		slotAt(broken, at(0.55), now, failed, failed, failed), slotAt(once, at(6), backfill, succeeded))
	return w
}

func TestVerifyAcceptsWhatIsRight(t *testing.T) {
	w := goodWorld()
	if wrong := w.verify(); len(wrong) != 0 {
		t.Errorf("violations of a good world: %q", wrong)
	}
	if n := w.pending(); n != 0 {
		t.Errorf("%d slots of a good world are pending", n)
	}
}

func TestVerifyAcceptsAnAttemptThatTheOutageCutOff(t *testing.T) {
	w := goodWorld()
	w.records[3] = slotAt(w.jobs[0], at(4), carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE, unclaimed, succeeded)
	if wrong := w.verify(); len(wrong) != 0 {
		t.Errorf("violations: %q", wrong)
	}
}

// The records of a good world, by what the tests below do to them.
const (
	thirdSecond, fifthSecond, flakyAtFive, brokenSlot = 2, 4, 11, 13
)

func TestVerifyCatches(t *testing.T) {
	tests := []struct {
		name, want string
		spoil      func(w *world)
	}{
		{"missing", "jobs/every-second: missing: no slot at 2026-11-29T12:00:03Z", func(w *world) {
			w.records = append(w.records[:thirdSecond:thirdSecond], w.records[thirdSecond+1:]...)
		}},
		{"missing immediate", "jobs/broken: missing", func(w *world) {
			w.records = append(w.records[:brokenSlot:brokenSlot], w.records[brokenSlot+1:]...)
		}},
		{"doubled", "20261129T120003Z: doubled: there are 2 slots", func(w *world) {
			w.records = append(w.records, w.records[thirdSecond])
		}},
		{"doubled under another name", "uid-every-second at 2026-11-29 12:00:03 +0000 UTC: doubled", func(w *world) {
			r := slotAt(w.jobs[0], at(3), carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE, succeeded)
			r.slot.Name = "namespaces/default/jobs/other/slots/20261129T120003Z"
			w.records = append(w.records, r)
		}},
		{"extra", "slots/20261129T120007Z: extra: the job does not fire then", func(w *world) {
			w.records = append(w.records, slotAt(w.jobs[1], at(7), carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE, succeeded))
		}},
		{"extra of the day", "jobs/daily/slots/20261129T120001Z: extra", func(w *world) {
			w.records = append(w.records, slotAt(w.jobs[4], at(1), carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE, succeeded))
		}},
		{"extra immediate", "extra: an immediate job has one slot", func(w *world) {
			w.records = append(w.records, slotAt(w.jobs[2], at(0.56), carillonv1.SlotTrigger_SLOT_TRIGGER_IMMEDIATE, failed, failed, failed))
		}},
		{"from the future", "slots/20261129T120012Z: extra", func(w *world) {
			w.records = append(w.records, slotAt(w.jobs[0], at(12), carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE, succeeded))
		}},
		{"of nobody", "extra: nobody created the job uid-stray", func(w *world) {
			w.records = append(w.records, slotAt(jobOf("stray", rule{}, succeeds), at(1), carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE, succeeded))
		}},
		{"wrong state", "wrong state: is RUNNING, want SUCCEEDED", func(w *world) {
			w.records[thirdSecond].slot.State = carillonv1.SlotState_SLOT_STATE_RUNNING
		}},
		{"wrong trigger", "wrong trigger: is SLOT_TRIGGER_SCHEDULE", func(w *world) {
			w.records[fifthSecond].slot.Trigger = carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE
		}},
		{"too few attempts", "wrong attempts: 2 listed, newest is 2, want 3", func(w *world) {
			w.records[flakyAtFive] = slotAt(w.jobs[1], at(5), carillonv1.SlotTrigger_SLOT_TRIGGER_BACKFILL, failed, succeeded)
		}},
		{"a hidden attempt", "wrong attempts: 2 listed, newest is 3, want 3", func(w *world) {
			w.records[flakyAtFive].attempts = w.records[flakyAtFive].attempts[1:]
		}},
		{"wrong outcome", "number 2 came to ATTEMPT_OUTCOME_SUCCEEDED, want ATTEMPT_OUTCOME_FAILED", func(w *world) {
			w.records[brokenSlot].attempts[1].Outcome = succeeded
		}},
		{"cut off without an outage", "number 1 came to ATTEMPT_OUTCOME_UNCLAIMED", func(w *world) {
			w.records[9] = slotAt(w.jobs[0], at(10), carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE, unclaimed, succeeded)
		}},
		{"early", "started 1s before its fire time", func(w *world) {
			w.records[thirdSecond].attempts[0].StartTime = timestamppb.New(at(2))
		}},
		{"immediate outside its call", "wrong fire time", func(w *world) {
			w.records[brokenSlot] = slotAt(w.jobs[2], at(0.7), carillonv1.SlotTrigger_SLOT_TRIGGER_IMMEDIATE, failed, failed, failed)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := goodWorld()
			tt.spoil(w)
			if wrong := strings.Join(w.verify(), "\n"); !strings.Contains(wrong, tt.want) {
				t.Errorf("violations:\n%s\nwant one with %q", wrong, tt.want)
			}
		})
	}
}

func TestPending(t *testing.T) {
	w := goodWorld()
	w.records[thirdSecond].slot.State = carillonv1.SlotState_SLOT_STATE_READY
	w.records = w.records[:len(w.records)-1] // of the once-job
	if n := w.pending(); n != 2 {
		t.Errorf("pending = %d, want 2", n)
	}
}

func TestVerifyStored(t *testing.T) {
	j := jobOf("daily", rule{every: day, offset: 2 * time.Hour}, succeeds)
	m := &carillonv1.Job{Uid: j.uid, EffectiveFrom: timestamppb.New(j.from), NextFireTime: timestamppb.New(time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC))}
	if wrong := j.verifyStored(m, at(1), at(2)); len(wrong) != 0 {
		t.Errorf("violations: %q", wrong)
	}
	m.Uid, m.EffectiveFrom, m.NextFireTime = "another", timestamppb.New(at(0)), timestamppb.New(at(3))
	if wrong := j.verifyStored(m, at(1), at(2)); len(wrong) != 3 {
		t.Errorf("violations: %q, want 3", wrong)
	}
}

func TestCheckAcknowledged(t *testing.T) {
	j := jobOf("x", rule{}, succeeds)
	if text := j.checkAcknowledged(); text != "" {
		t.Error(text)
	}
	j.acknowledge(&carillonv1.Job{Name: j.name})
	if text := j.checkAcknowledged(); !strings.Contains(text, "wrong effective_from") || !j.from.Equal(j.called) {
		t.Errorf("without an effective_from: %q, goes on from %s", text, j.from)
	}
}
