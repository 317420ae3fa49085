package checker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// at returns an instant so many seconds after the cluster of these tests began.
func at(seconds float64) job.Instant {
	return job.At(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)).Add(time.Duration(seconds * float64(time.Second)))
}

// The jobs of these tests.
var (
	tick, gone, again, once, immediate, waiting, aside = uid(1), uid(2), uid(3), uid(4), uid(5), uid(6), uid(7)
	refused, unknown, planned                          = uid(8), uid(9), uid(10)
)

func uid(n byte) job.UID { return job.UID{0: 1, 15: n} }

// nameIn returns a name that lies in a shard of two.
func nameIn(id shard.ID, prefix string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s%d", prefix, i); shard.Of("default", name, 2) == id {
			return name
		}
	}
}

// history is a History that is easy to make.
type history struct{ History }

func (h *history) job(id shard.ID, u job.UID, name string, s job.Schedule) *job.Job {
	a := &h.Shards[id]
	a.Jobs = append(a.Jobs, job.Job{UID: u, Shard: id, Namespace: "default", Name: nameIn(id, name), Handler: "h", Schedule: s,
		Retry: job.RetryPolicy{MaxAttempts: 2}, Timeout: time.Minute, CreatedAt: at(5), EffectiveFrom: at(5)})
	if u != waiting {
		h.Ledger.Acked = append(h.Ledger.Acked, u)
	}
	return &a.Jobs[len(a.Jobs)-1]
}

// add makes a slot that one attempt ended well.
func (h *history) add(id shard.ID, u job.UID, fire job.Instant, trigger job.Trigger) *job.Slot {
	a := &h.Shards[id]
	s := job.Slot{Key: job.SlotKey{FireTime: fire, UID: u}, Trigger: trigger, State: job.Succeeded, CreatedAt: fire,
		Outcome: job.OutcomeSucceeded, FinishedAt: fire.Add(50 * time.Millisecond)}
	claim(&s, fire)
	a.Slots = append(a.Slots, s)
	h.ran(s.Key, 1, fire, true)
	return &a.Slots[len(a.Slots)-1]
}

// claim is the next claim of a slot. The first epoch ends after 100 seconds.
func claim(s *job.Slot, when job.Instant) {
	s.Attempt++
	s.Worker, s.Incarnation, s.ClaimedAt, s.StartedAt, s.Epoch = "w", "1", when, when.Add(time.Millisecond), 1
	if when > at(100) {
		s.Epoch = 2
	}
}

// ran notes what a handler did.
func (h *history) ran(key job.SlotKey, attempt int32, claimed job.Instant, done bool) {
	e := Effect{Job: key.UID, Fire: key.FireTime, Attempt: attempt, Kind: Began, At: claimed.Add(time.Millisecond)}
	h.Effects = append(h.Effects, e)
	if done {
		e.Kind, e.At = Done, e.At.Add(time.Millisecond)
		h.Effects = append(h.Effects, e)
	}
}

// unfinish takes the end away from what a handler did.
func (h *history) unfinish(key job.SlotKey) {
	h.Effects = slices.DeleteFunc(h.Effects, func(e Effect) bool { return e.Job == key.UID && e.Fire == key.FireTime && e.Kind == Done })
}

// failed records the first attempt of a slot as ended without ending it.
func (h *history) failed(s *job.Slot, outcome job.Outcome, claimed, ended job.Instant) {
	first := job.Attempt{Number: 1, Worker: "w", Epoch: 1, ClaimedAt: claimed, EndedAt: ended, Outcome: outcome}
	if claimed > at(100) {
		first.Epoch = 2
	}
	a := &h.Shards[0]
	a.Attempts = append(a.Attempts, store.SlotAttempt{Key: s.Key, Attempt: first})
	if outcome.CountsAsFailure() {
		s.Failures++
	}
}

// good is a history as it must be: of all that may become of a slot, and of jobs that
// ended, wait in the inbox or were set aside. If it isn't quiet, some work is open.
func good(quiet bool) *history {
	h := &history{History{Now: at(206), Quiet: quiet, Shards: make([]store.Audit, 2)}}
	h.Ledger.Refused = []job.UID{refused}
	for id := range h.Shards {
		h.Shards[id] = store.Audit{Shard: shard.ID(id), Owner: "b", Epoch: 2, Rev: 2, Watermark: at(200), OpenFrom: at(150),
			TakeOvers: []store.TakeOver{{Epoch: 1, Owner: "a", Rev: 1, At: at(0)}, {Epoch: 2, Owner: "b", Rev: 2, At: at(100)}}}
	}
	h.tickingShard()
	h.otherShard()
	if !quiet {
		h.openWork()
	}
	return h
}

// tickingShard is shard 0: a job of every 10 seconds, whose first slots had a hard
// time.
func (h *history) tickingShard() {
	everyTen := job.Schedule{Kind: job.KindCron, Cron: "*/10 * * * * *"}
	h.job(0, tick, "tick", everyTen)
	for sec := 10.0; sec <= 200; sec += 10 {
		h.add(0, tick, at(sec), job.TriggerSchedule)
	}
	// One failure, then the success.
	s := h.slot(10)
	h.failed(s, job.OutcomeFailed, at(10), at(11))
	h.unfinish(s.Key)
	claim(s, at(12))
	s.NotBefore, s.FinishedAt = 0, at(13)
	h.ran(s.Key, 2, at(12), true)
	// The lease was lost, and the success came late.
	h.failed(h.slot(20), job.OutcomeLeaseLost, at(20), at(22))
	h.slot(20).Failures, h.slot(20).FinishedAt = 0, at(23)
	// Two failures: a dead letter.
	s = h.slot(30)
	h.failed(s, job.OutcomeTimedOut, at(30), at(31))
	h.unfinish(s.Key)
	claim(s, at(32))
	h.ran(s.Key, 2, at(32), false)
	s.State, s.Outcome, s.Failures, s.FinishedAt, s.ErrorCode = job.Dead, job.OutcomeFailed, 2, at(33), "boom"
	h.Shards[0].DeadLetters = []store.DeadLetter{{Key: s.Key, At: at(33), ErrorCode: "boom"}}
	// Cancelled while it waited, and while it ran.
	*h.slot(40) = job.Slot{Key: h.slot(40).Key, Trigger: job.TriggerSchedule, State: job.Cancelled, CreatedAt: at(40), FinishedAt: at(41)}
	h.forget(40)
	h.slot(50).State, h.slot(50).Outcome = job.Cancelled, job.OutcomeCancelled
	// Nobody vouched for the first attempt after the take-over; its worker finished it.
	s = h.slot(90)
	h.failed(s, job.OutcomeUnclaimed, at(90), at(111))
	claim(s, at(112))
	s.FinishedAt = at(113)
	h.ran(s.Key, 2, at(112), true)
	// Made up for.
	h.slot(100).Trigger = job.TriggerBackfill
}

// otherShard is shard 1: jobs of all other kinds.
func (h *history) otherShard() {
	everyTen := job.Schedule{Kind: job.KindCron, Cron: "*/10 * * * * *"}
	h.job(1, gone, "name", everyTen).EndedAt = at(35)
	h.job(1, again, "name", everyTen).EffectiveFrom = at(35)
	h.job(1, once, "once", job.Schedule{Kind: job.KindOnce, At: at(-20)})
	h.job(1, immediate, "immediate", job.Schedule{Kind: job.KindImmediate})
	h.job(1, aside, "aside", job.Schedule{Kind: job.KindCron, Cron: "* * * * *"}).Quarantine = "its rows were refused"
	for sec := 10.0; sec <= 200; sec += 10 {
		if u := gone; sec < 35 {
			h.add(1, u, at(sec), job.TriggerSchedule)
			continue
		}
		h.add(1, again, at(sec), job.TriggerSchedule)
	}
	beyond := h.add(1, gone, at(40), job.TriggerBackfill)
	*beyond = job.Slot{Key: beyond.Key, Trigger: job.TriggerBackfill, State: job.Cancelled, CreatedAt: at(120), FinishedAt: at(120)}
	h.Effects = slices.DeleteFunc(h.Effects, func(e Effect) bool { return e.Job == gone && e.Fire == at(40) })
	s := h.add(1, once, at(-20), job.TriggerSchedule)
	s.CreatedAt, s.ClaimedAt, s.StartedAt, s.FinishedAt = at(5), at(5), at(5), at(6)
	h.Effects[len(h.Effects)-2].At = at(5)
	h.add(1, immediate, at(5)+1, job.TriggerImmediate)
	h.plannedJob()
	h.add(1, again, at(36)+7, job.TriggerManual)
	// It runs one at a time, and did not make up for all.
	h.jobOf(again).Policies = job.Policies{CatchUp: job.CatchUp{MaxCount: 9}, Overlap: job.Overlap{MaxRunning: 1}}
	for _, sec := range []float64{60, 70, 80} {
		h.drop(1, again, at(sec))
	}
	h.Shards[1].Skips = []store.Skip{{UID: again, From: at(60), To: at(80), Count: 3, Code: job.CodeNotCaughtUp, MadeAt: at(65)}}
	// What waits of the job that was set aside goes on waiting.
	key := job.SlotKey{FireTime: at(120), UID: aside}
	a := &h.Shards[1]
	a.Slots = append(a.Slots, job.Slot{Key: key, Trigger: job.TriggerSchedule, State: job.Ready, CreatedAt: at(120)})
	a.Backlog = []store.BacklogRow{{Key: store.BacklogKey{Waiting: true, Handler: "h", Rank: at(120), Slot: key}, WakeAt: at(120)}}
}

// plannedJob makes a job with all that a schedule may add: it fires 3 s after the tens,
// from 103 s on, four times, but not from 120 to 140 s.
func (h *history) plannedJob() {
	h.job(1, planned, "planned", job.Schedule{Kind: job.KindCron, Cron: "*/10 * * * * *", Start: at(100), End: at(190), Spread: 5 * time.Second,
		Offset: 3 * time.Second, MaxOccurrences: 4, Calendars: "off@1=SAT,02-29;pause@2=2026-12-24/2027-01-01,2026-12-01T00:02:00Z/2026-12-01T00:02:20Z"})
	for _, sec := range []float64{103, 113, 143, 153} {
		h.add(1, planned, at(sec), job.TriggerSchedule)
	}
	for _, sec := range []float64{123, 133} {
		s := h.add(1, planned, at(sec), job.TriggerSchedule)
		*s = job.Slot{Key: s.Key, Trigger: job.TriggerSchedule, State: job.Skipped, CreatedAt: at(sec), FinishedAt: at(sec), ErrorCode: job.CodeExcluded}
		h.Effects = slices.DeleteFunc(h.Effects, func(e Effect) bool { return e.Job == planned && e.Fire == at(sec) })
	}
}

// openWork makes a gap, slots that wait and run, and a job in the inbox.
func (h *history) openWork() {
	a := &h.Shards[0]
	a.Gaps = []store.Gap{{Key: store.GapKey{To: at(130)}, From: at(105), Cursor: job.SlotKey{FireTime: at(110), UID: tick}}}
	h.forget(120)
	h.forget(130)
	a.Slots = slices.DeleteFunc(a.Slots, func(s job.Slot) bool { return s.Key.FireTime == at(120) || s.Key.FireTime == at(130) })
	// It waits for its second attempt, and is too old to be found by a scan.
	s := h.slot(140)
	h.failed(s, job.OutcomeFailed, at(140), at(141))
	h.unfinish(s.Key)
	s.State, s.Outcome, s.FinishedAt, s.NotBefore = job.Ready, job.OutcomeFailed, 0, at(300)
	a.Backlog = []store.BacklogRow{{Key: store.BacklogKey{Waiting: true, Handler: "h", Rank: at(300), Slot: s.Key}, WakeAt: at(300)}}
	// One runs, one waits for a worker.
	s = h.slot(160)
	s.State, s.Outcome, s.FinishedAt, s.Deadline = job.Running, job.OutcomeNone, 0, at(220)
	h.forget(170)
	*h.slot(170) = job.Slot{Key: h.slot(170).Key, Trigger: job.TriggerBackfill, State: job.Ready, CreatedAt: at(170)}
	a.Backlog = append(a.Backlog,
		store.BacklogRow{Key: store.BacklogKey{Handler: "h", Rank: at(160), Slot: s.Key}, WakeAt: at(220)},
		store.BacklogRow{Key: store.BacklogKey{Waiting: true, Handler: "h", Priority: 1, Rank: at(170), Slot: h.slot(170).Key}, WakeAt: at(170)})
	h.job(1, waiting, "waiting", job.Schedule{Kind: job.KindInterval, Every: time.Second, Anchor: at(0)})
	h.Shards[1].Inbox = []job.UID{waiting}
}

// slot returns the slot of the ticking job of a second.
func (h *history) slot(sec float64) *job.Slot { return h.slotOf(0, tick, at(sec)) }

// jobOf returns a job of shard 1.
func (h *history) jobOf(u job.UID) *job.Job {
	jobs := h.Shards[1].Jobs
	return &jobs[slices.IndexFunc(jobs, func(j job.Job) bool { return j.UID == u })]
}

func (h *history) slotOf(id shard.ID, u job.UID, fire job.Instant) *job.Slot {
	slots := h.Shards[id].Slots
	return &slots[slices.IndexFunc(slots, func(s job.Slot) bool { return s.Key == job.SlotKey{FireTime: fire, UID: u} })]
}

// drop deletes a slot.
func (h *history) drop(id shard.ID, u job.UID, fire job.Instant) {
	h.Shards[id].Slots = slices.DeleteFunc(h.Shards[id].Slots, func(s job.Slot) bool { return s.Key == job.SlotKey{FireTime: fire, UID: u} })
	h.Effects = slices.DeleteFunc(h.Effects, func(e Effect) bool { return e.Job == u && e.Fire == fire })
}

// forget deletes what handlers did in a slot of the ticking job.
func (h *history) forget(sec float64) {
	h.Effects = slices.DeleteFunc(h.Effects, func(e Effect) bool { return e.Job == tick && e.Fire == at(sec) })
}

// row returns the record of an attempt of the ticking job.
func (h *history) row(sec float64) *job.Attempt {
	rows := h.Shards[0].Attempts
	return &rows[slices.IndexFunc(rows, func(r store.SlotAttempt) bool { return r.Key.FireTime == at(sec) })].Attempt
}

// effect returns what the handler did in an attempt of the ticking job.
func (h *history) effect(sec float64, attempt int32, kind EffectKind) *Effect {
	return &h.Effects[slices.IndexFunc(h.Effects, func(e Effect) bool {
		return e.Job == tick && e.Fire == at(sec) && e.Attempt == attempt && e.Kind == kind
	})]
}

func TestAGoodHistory(t *testing.T) {
	for _, quiet := range []bool{true, false} {
		h := good(quiet)
		for _, v := range Check(h.History) {
			t.Errorf("quiet %v: %v", quiet, v)
		}
		h.Effects = nil // nobody wrote them down
		for _, v := range Check(h.History) {
			t.Errorf("quiet %v, without effects: %v", quiet, v)
		}
	}
}

// What is allowed although it looks strange.
func TestWhatIsNotHeldAgainstAHistory(t *testing.T) {
	for what, change := range map[string]func(h *history){
		"old slots were deleted": func(h *history) {
			h.Shards[0].RetainedFrom, h.Shards[1].RetainedFrom = at(45), at(45)
			for i := range h.Shards {
				a := &h.Shards[i]
				a.Slots = slices.DeleteFunc(a.Slots, func(s job.Slot) bool { return s.Key.FireTime < at(45) })
				a.Attempts = slices.DeleteFunc(a.Attempts, func(r store.SlotAttempt) bool { return r.Key.FireTime < at(45) })
			}
			h.Shards[0].DeadLetters = nil
		},
		"an ended job was deleted": func(h *history) {
			h.Ledger.Acked, h.Ledger.Ended = append(h.Ledger.Acked, unknown), []job.UID{unknown}
			h.ran(job.SlotKey{FireTime: at(61), UID: unknown}, 1, at(61), true)
		},
		"a slot was redriven": func(h *history) {
			h.slot(10).Failures = 0
			h.Ledger.Redriven = []job.SlotKey{h.slot(10).Key}
		},
		"what happened just now": func(h *history) {
			h.ran(job.SlotKey{FireTime: at(203), UID: tick}, 1, at(203), true)
			h.ran(job.SlotKey{FireTime: at(203), UID: unknown}, 1, at(203), true)
			h.forget(200)
			h.slot(200).FinishedAt = at(205)
		},
		"a clock that is a little wrong": func(h *history) {
			h.slot(60).StartedAt, h.effect(60, 1, Began).At = at(59.6), at(59.6)
			h.slot(100).ClaimedAt, h.slot(100).Epoch = at(100), 2
			h.Shards[0].TakeOvers[1].At = at(100.4)
		},
	} {
		h := good(false)
		change(h)
		for _, v := range Check(h.History) {
			t.Errorf("%s: %v", what, v)
		}
	}
}

// Each of these seeds one violation. The named invariant must see it, and no other
// may.
var seeds = []struct {
	want Invariant
	what string
	seed func(h *history)
}{
	{1, "an immediate job without its slot", func(h *history) { h.drop(1, immediate, at(5)+1) }},
	{1, "the watermark stands still while occurrences become due", func(h *history) { h.calm(); h.Now = at(226) }},
	{1, "a job of one fire time that has passed beyond the watermark", func(h *history) {
		h.calm()
		h.Now = at(206.5)
		h.job(0, unknown, "late", job.Schedule{Kind: job.KindOnce, At: at(201)})
	}},
	{2, "a slot between two occurrences", func(h *history) { h.add(0, tick, at(15), job.TriggerSchedule) }},
	{2, "a slot before effective-from", func(h *history) {
		h.add(1, again, at(30), job.TriggerSchedule)
	}},
	{2, "a slot after its job's end that isn't cancelled", func(h *history) { h.add(1, gone, at(50), job.TriggerBackfill) }},
	{2, "a slot without its job", func(h *history) {
		key := job.SlotKey{FireTime: at(160), UID: unknown}
		h.Shards[0].Slots = append(h.Shards[0].Slots, job.Slot{Key: key, Trigger: job.TriggerSchedule, State: job.Ready, CreatedAt: at(160)})
	}},
	{2, "a slot twice", func(h *history) { h.Shards[0].Slots = append(h.Shards[0].Slots, *h.slot(60)) }},
	{2, "a slot made before its fire time", func(h *history) { h.slot(60).CreatedAt = at(59) }},
	{2, "a slot started before its fire time", func(h *history) { h.slot(60).StartedAt = at(59) }},
	{2, "an attempt that failed, started before its fire time", func(h *history) { h.row(10).StartedAt = at(9) }},
	{2, "a manual slot on a whole second", func(h *history) { h.add(0, tick, at(63), job.TriggerManual) }},
	{2, "an immediate job with two slots", func(h *history) { h.add(1, immediate, at(7)+1, job.TriggerImmediate) }},
	{2, "a slot without a trigger", func(h *history) { h.slot(60).Trigger = job.TriggerNone }},
	{2, "a slot of a schedule that can't be read", func(h *history) {
		h.job(1, unknown, "strange", job.Schedule{Kind: job.KindCron, Cron: "* * *"})
		h.add(1, unknown, at(60), job.TriggerSchedule)
	}},
	{3, "a success before the success", func(h *history) {
		h.row(10).Outcome = job.OutcomeSucceeded
		h.slot(10).Failures = 0
	}},
	{4, "a success whose attempt failed", func(h *history) {
		h.slot(60).Outcome = job.OutcomeReleased
	}},
	{4, "a success without an attempt", func(h *history) {
		s := h.slot(60)
		s.Attempt, s.Worker, s.ClaimedAt, s.Epoch, s.Outcome = 0, "", 0, 0, job.OutcomeNone
		h.Effects = nil
	}},
	{4, "an open slot with a success among its attempts", func(h *history) {
		h.row(140).Outcome = job.OutcomeSucceeded
		h.slot(140).Failures = 0
	}},
	{4, "a state that nobody knows", func(h *history) { h.slot(40).State = 77 }},
	{4, "a worker without a claim", func(h *history) {
		h.slot(170).Worker, h.slot(170).ClaimedAt, h.slot(170).Epoch = "w", at(170), 2
	}},
	{4, "a running slot without an attempt", func(h *history) {
		s := h.slot(160)
		s.Attempt, s.Worker, s.ClaimedAt, s.Epoch = 0, "", 0, 0
		h.forget(160)
	}},
	{4, "a waiting slot whose attempt came to nothing", func(h *history) { h.slot(140).Outcome = job.OutcomeNone }},
	{4, "an attempt that came to nothing", func(h *history) { h.row(90).Outcome = job.OutcomeCancelled; h.Effects = nil }},
	{4, "a dead slot without an end", func(h *history) { h.slot(30).FinishedAt, h.Shards[0].DeadLetters[0].At = 0, 0 }},
	{4, "a dead letter of another error", func(h *history) { h.Shards[0].DeadLetters[0].ErrorCode = "bang" }},
	{4, "a dead slot in the backlog", func(h *history) {
		s := h.slot(30)
		h.Shards[0].Backlog = append(h.Shards[0].Backlog, backlogRow(s, &h.Shards[0].Jobs[0]))
	}},
	{4, "a claim by nobody", func(h *history) { h.slot(60).Worker = "" }},
	{4, "a running slot without a deadline", func(h *history) { h.slot(160).Deadline = 0 }},
	{4, "a slot that is over and has a deadline", func(h *history) { h.slot(60).Deadline = at(120) }},
	{4, "a waiting slot with an end", func(h *history) { h.slot(170).FinishedAt = at(171) }},
	{4, "a dead slot without a failure", func(h *history) {
		h.slot(30).Outcome, h.slot(30).Failures = job.OutcomeReleased, 1
	}},
	{4, "a dead slot without a dead letter", func(h *history) { h.Shards[0].DeadLetters = nil }},
	{4, "a dead letter of a slot that isn't dead", func(h *history) {
		h.Shards[0].DeadLetters = append(h.Shards[0].DeadLetters, store.DeadLetter{Key: h.slot(60).Key})
	}},
	{4, "a dead letter of no slot", func(h *history) {
		h.Shards[0].DeadLetters = append(h.Shards[0].DeadLetters, store.DeadLetter{Key: job.SlotKey{FireTime: at(61), UID: tick}})
	}},
	{4, "a dead letter of another death", func(h *history) { h.Shards[0].DeadLetters[0].At = at(34) }},
	{4, "a row of the backlog in another place than its slot's", func(h *history) { h.Shards[0].Backlog[0].Key.Rank = at(140) }},
	{4, "a row of the backlog of no slot", func(h *history) {
		h.Shards[0].Backlog = append(h.Shards[0].Backlog, store.BacklogRow{Key: store.BacklogKey{Slot: job.SlotKey{FireTime: at(61), UID: tick}}})
	}},
	{4, "a late success of an attempt that timed out", func(h *history) { h.row(20).Outcome = job.OutcomeTimedOut }},
	{4, "a result without a success", func(h *history) { h.slot(30).Result = []byte("{}") }},
	{5, "an attempt without a record", func(h *history) {
		h.Shards[0].Attempts = slices.DeleteFunc(h.Shards[0].Attempts, func(r store.SlotAttempt) bool { return r.Key.FireTime == at(10) })
		h.slot(10).Failures = 0
		h.Effects = nil // they are I11's
	}},
	{5, "an attempt beyond the newest", func(h *history) { h.failed(h.slot(60), job.OutcomeReleased, at(60), at(61)); h.row(60).Number = 7 }},
	{5, "an attempt that is recorded twice", func(h *history) { h.failed(h.slot(10), job.OutcomeReleased, at(10), at(11)) }},
	{5, "an attempt zero", func(h *history) {
		h.failed(h.slot(60), job.OutcomeReleased, at(60), at(60))
		h.row(60).Number = 0
		h.row(60).EndedAt = at(60)
	}},
	{5, "a slot that waits again without a record of why", func(h *history) {
		a := &h.Shards[0]
		a.Attempts = slices.DeleteFunc(a.Attempts, func(r store.SlotAttempt) bool { return r.Key.FireTime == at(140) })
	}},
	{5, "an attempt that ended and runs", func(h *history) { h.failed(h.slot(160), job.OutcomeReleased, at(160), at(161)) }},
	{5, "a failure that isn't counted", func(h *history) { h.slot(10).Failures = 0 }},
	{5, "more failures than are allowed", func(h *history) { h.Shards[0].Jobs[0].Retry.MaxAttempts = 1 }},
	{5, "a record of an attempt of no slot", func(h *history) {
		h.Shards[0].Attempts = append(h.Shards[0].Attempts, store.SlotAttempt{Key: job.SlotKey{FireTime: at(61), UID: tick}})
	}},
	{6, "a claim before the last attempt ended", func(h *history) { h.row(10).EndedAt = at(12) + 1 }},
	{6, "a claim while the last attempt has no end", func(h *history) { h.row(10).EndedAt = 0 }},
	{6, "a claim by the next owner before the last attempt ended", func(h *history) { h.row(90).EndedAt = at(112.6) }},
	{6, "an attempt that ended before its claim", func(h *history) { h.slot(60).FinishedAt = at(59) }},
	{7, "a claim under an epoch that never was", func(h *history) { h.slot(60).Epoch = 3 }},
	{7, "a claim under an epoch that was over", func(h *history) { h.slot(190).Epoch = 1 }},
	{7, "a claim under an epoch that hadn't begun", func(h *history) { h.slot(60).Epoch = 2 }},
	{7, "an attempt under a lower epoch than the one before", func(h *history) {
		h.Shards[0].TakeOvers[1].At = at(10) // both epochs began within the clocks' error
		h.Shards[0].TakeOvers[0].At = at(9.8)
		moveClaims(&h.Shards[0], 10)
		h.row(10).ClaimedAt, h.row(10).EndedAt, h.row(10).Epoch = at(10), at(10.1), 2
		h.slot(10).ClaimedAt, h.slot(10).StartedAt, h.slot(10).Epoch = at(10.2), at(10.2), 1
	}},
	{8, "an epoch that falls", func(h *history) {
		a := &h.Shards[1]
		a.TakeOvers = append(a.TakeOvers, store.TakeOver{Epoch: 1, Rev: 3, At: at(202)})
		a.Epoch, a.Rev, a.Slots, a.Backlog, a.Skips, h.Effects = 1, 3, nil, nil, nil, nil
		a.Jobs, h.Ledger.Acked = nil, nil
	}},
	{8, "an earlier claim that won", func(h *history) { h.Shards[0].TakeOvers[1].Rev, h.Shards[0].Rev = 0, 0 }},
	{8, "a shard of an older claim than that of its newest epoch", func(h *history) { h.Shards[0].Rev-- }},
	{8, "a shard of another generation", func(h *history) { h.Shards[0].Gen = 3 }},
	{8, "a generation that falls", func(h *history) { h.Shards[0].TakeOvers[0].Gen = 1 }},
	{8, "a shard that doesn't stand at its newest epoch", func(h *history) { h.Shards[0].Epoch = 3 }},
	{8, "an epoch that began before the last", func(h *history) {
		h.Shards[1].TakeOvers = append(h.Shards[1].TakeOvers, store.TakeOver{Epoch: 3, Rev: 3, At: at(204)}, store.TakeOver{Epoch: 4, Rev: 4, At: at(203)})
		h.Shards[1].Epoch, h.Shards[1].Rev = 4, 4
	}},
	{9, "an old open slot outside the backlog", func(h *history) { h.Shards[0].Backlog = h.Shards[0].Backlog[1:] }},
	{9, "a slot that waits although all is quiet", func(h *history) { h.calm(); h.wait(190) }},
	{9, "a slot that runs on although all is quiet", func(h *history) {
		h.calm()
		s := h.slot(190)
		s.State, s.Outcome, s.FinishedAt, s.Deadline = job.Running, job.OutcomeNone, 0, at(195)
	}},
	{9, "a gap although all is quiet", func(h *history) {
		h.calm()
		h.Shards[0].Gaps = []store.Gap{{Key: store.GapKey{To: at(130)}, From: at(105), Cursor: job.SlotKey{FireTime: at(110)}}}
	}},
	{9, "a row of the inbox although all is quiet", func(h *history) { h.calm(); h.Shards[0].Inbox = []job.UID{tick} }},
	{9, "a row of the backlog although all is quiet", func(h *history) {
		h.calm()
		h.wait(190)
		s := h.slot(190)
		s.NotBefore = at(300)
		h.Shards[0].Backlog = []store.BacklogRow{{Key: store.BacklogKey{Waiting: true, Handler: "h", Rank: at(300), Slot: s.Key}, WakeAt: at(300)}}
	}},
	{10, "an acknowledged job that isn't there", func(h *history) { h.Ledger.Acked = append(h.Ledger.Acked, unknown) }},
	{10, "a refused job that is there", func(h *history) { h.Ledger.Refused = append(h.Ledger.Refused, tick) }},
	{10, "two live jobs of one name", func(h *history) { h.job(0, unknown, "tick", job.Schedule{Kind: job.KindCron, Cron: "0 0 1 1 *"}) }},
	{10, "one uid in two shards", func(h *history) { h.job(0, once, "other", job.Schedule{Kind: job.KindCron, Cron: "0 0 1 1 *"}) }},
	{10, "a job in another shard than its name's", func(h *history) {
		h.job(0, unknown, "other", job.Schedule{Kind: job.KindCron, Cron: "0 0 1 1 *"}).Name = nameIn(1, "other")
	}},
	{10, "a job that says it is in another shard", func(h *history) { h.Shards[0].Jobs[0].Shard = 1 }},
	{11, "a run of an attempt that was never claimed", func(h *history) { h.ran(h.slot(60).Key, 2, at(62), false) }},
	{11, "a run of a slot that isn't there", func(h *history) { h.ran(job.SlotKey{FireTime: at(61), UID: tick}, 1, at(62), false) }},
	{11, "a run of a job that isn't there", func(h *history) { h.ran(job.SlotKey{FireTime: at(61), UID: unknown}, 1, at(62), false) }},
	{11, "an attempt that began twice", func(h *history) { h.ran(h.slot(60).Key, 1, at(60), false) }},
	{12, "a run before its claim", func(h *history) { h.effect(10, 2, Began).At = at(11) }},
	{12, "a run before its fire time", func(h *history) { h.effect(60, 1, Began).At = at(59) }},
	{13, "a success that nobody completed", func(h *history) { h.forget(60) }},
	{13, "an attempt that was completed twice", func(h *history) {
		h.Effects = append(h.Effects, *h.effect(60, 1, Done))
	}},
	{13, "a second complete run after one that failed", func(h *history) { h.ranAgain(10) }},
	{14, "a final slot without an end", func(h *history) { h.slot(60).FinishedAt = 0 }},
	{14, "a final slot in the backlog", func(h *history) {
		h.Shards[0].Backlog = append(h.Shards[0].Backlog, store.BacklogRow{Key: store.BacklogKey{Handler: "h", Slot: h.slot(60).Key}})
	}},
	{15, "a lost occurrence", func(h *history) { h.drop(0, tick, at(60)) }},
	{15, "a lost occurrence of a job that ended", func(h *history) { h.drop(1, gone, at(30)) }},
	{15, "a lost occurrence of a job of one fire time", func(h *history) { h.drop(1, once, at(-20)) }},
	{15, "a gap that was closed too early", func(h *history) { h.Shards[0].Gaps = nil }},
	{15, "a gap whose cursor passed a hole", func(h *history) { h.Shards[0].Gaps[0].Cursor = job.SlotKey{FireTime: at(120), UID: tick} }},
	{15, "a gap that ends before the hole", func(h *history) { h.Shards[0].Gaps[0].Key.To = at(125) }},
	{15, "a gap of another job", func(h *history) { h.Shards[0].Gaps[0].Key.UID = unknown }},
	{2, "an occurrence after the last", func(h *history) { h.add(1, planned, at(163), job.TriggerSchedule) }},
	{2, "an occurrence before the start", func(h *history) { h.add(1, planned, at(93), job.TriggerSchedule) }},
	{2, "an occurrence that was not moved", func(h *history) { h.add(1, planned, at(110), job.TriggerSchedule) }},
	{2, "an occurrence after the end", func(h *history) {
		h.jobOf(planned).Schedule.MaxOccurrences = 0
		for _, sec := range []float64{163, 173, 183, 193} {
			h.add(1, planned, at(sec), job.TriggerSchedule)
		}
	}},
	{15, "a lost occurrence of a job with bounds", func(h *history) { h.drop(1, planned, at(143)) }},
	{15, "an excluded occurrence that is not recorded", func(h *history) { h.drop(1, planned, at(133)) }},
	{15, "a job that ended too early", func(h *history) { h.jobOf(planned).Schedule.MaxOccurrences = 5 }},
	{16, "an excluded occurrence that ran", func(h *history) {
		h.jobOf(planned).Schedule.Calendars += ",2026-12-01T00:01:40Z/2026-12-01T00:01:44Z"
		h.jobOf(planned).Schedule.MaxOccurrences = 3
	}},
	{16, "an occurrence that was skipped for nothing", func(h *history) {
		h.jobOf(planned).Schedule.Calendars = ""
		h.jobOf(planned).Schedule.MaxOccurrences = 6
	}},
	{17, "a range that is counted wrong", func(h *history) { h.Shards[1].Skips[0].Count = 4 }},
	{17, "a range that begins between occurrences", func(h *history) { h.Shards[1].Skips[0].From-- }},
	{17, "a range that ends between occurrences", func(h *history) { h.Shards[1].Skips[0].To++ }},
	{17, "a range with a slot", func(h *history) { h.add(1, again, at(70), job.TriggerBackfill) }},
	{17, "a range of a job that leaves out nothing", func(h *history) { h.jobOf(again).Policies.CatchUp = job.CatchUp{} }},
	{17, "a range of no job", func(h *history) {
		h.Shards[1].Skips = append(h.Shards[1].Skips, store.Skip{UID: job.UID{77}, From: at(60), To: at(60), Count: 1})
	}},
	{18, "two attempts at a time", func(h *history) { h.slotOf(1, again, at(50)).FinishedAt = at(95) }},
	{18, "an attempt beside one that failed later", func(h *history) {
		s := h.slotOf(1, again, at(100))
		h.Shards[1].Attempts = append(h.Shards[1].Attempts, store.SlotAttempt{Key: s.Key, Attempt: job.Attempt{Number: 1, Worker: "w", Epoch: s.Epoch, ClaimedAt: at(100), EndedAt: at(112), Outcome: job.OutcomeReleased}})
		s.Attempt, s.Epoch, s.ClaimedAt, s.StartedAt, s.FinishedAt = 2, 2, at(115), at(115), at(116)
		h.Effects = nil // they are I11's
	}},
	{15, "a job that left the inbox without its slots", func(h *history) { h.Shards[1].Inbox = nil }},
}

// calm turns a history into a quiet one.
func (h *history) calm() { *h = *good(true) }

// wait makes a slot of the ticking job one that waits for its first claim.
func (h *history) wait(sec float64) {
	h.forget(sec)
	*h.slot(sec) = job.Slot{Key: h.slot(sec).Key, Trigger: job.TriggerSchedule, State: job.Ready, CreatedAt: at(sec)}
}

// ranAgain completes the first attempt of a slot.
func (h *history) ranAgain(sec float64) {
	e := *h.effect(sec, 1, Began)
	e.Kind = Done
	h.Effects = append(h.Effects, e)
}

// moveClaims puts all but one slot into an epoch that fits a take-over that was moved
// to the beginning.
func moveClaims(a *store.Audit, but float64) {
	for i := range a.Slots {
		if a.Slots[i].Epoch != 0 && a.Slots[i].Key.FireTime != at(but) {
			a.Slots[i].Epoch = 2
		}
	}
	for i := range a.Attempts {
		a.Attempts[i].Attempt.Epoch = 2
	}
}

func TestEachSeededViolationIsSeenByItsInvariant(t *testing.T) {
	seen := map[Invariant]bool{}
	for _, c := range seeds {
		seen[c.want] = true
		t.Run(fmt.Sprintf("%v %s", c.want, c.what), func(t *testing.T) {
			h := good(false)
			c.seed(h)
			found := Check(h.History)
			if len(found) == 0 {
				t.Error("nothing was found")
			}
			for _, v := range found {
				if v.Invariant != c.want {
					t.Errorf("found %v", v)
				}
			}
		})
	}
	for _, i := range invariants {
		if !seen[i.id] {
			t.Errorf("%v has no seed", i.id)
		}
	}
}
