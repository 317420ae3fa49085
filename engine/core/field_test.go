package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Faults that users of other schedulers reported, by the numbers under which the team
// collected them. What is tested elsewhere isn't repeated here.

// minutely fires at the full minutes; so does t0.
var minutely = job.Schedule{Kind: job.KindCron, Cron: "* * * * *"}

// B50, B51, B58: the owner dies over and over, also right at a fire time, and everything that
// was acknowledged is there: each occurrence once.
func TestOwnersThatDieOverAndOver(t *testing.T) {
	r := newRig(t)
	r.join("w", 1000)
	var jobs []job.Job
	for n := range 20 {
		jobs = append(jobs, r.createWith(fmt.Sprint("j", n), minutely, job.Policies{}))
	}
	for n := range 30 {
		r.sleep(17 * time.Second)
		r.serveAll()
		if n%3 == 0 { // half a second before a minute
			r.sleep(time.Duration(59500-(r.now.Milliseconds()-t0*1000)%60000) * time.Millisecond % time.Minute)
		}
		r.down(4 * time.Second)
		r.serveAll()
	}
	minutes := int(r.now.Seconds()-t0) / 60
	for _, j := range jobs {
		got := r.of(j)
		if len(got) != minutes {
			t.Fatalf("%s has %d slots in %d minutes: %q", j.Name, len(got), minutes, got)
		}
		for i, s := range got {
			if want := fmt.Sprintf("%d SUCCEEDED", (i+1)*60); s != want {
				t.Errorf("%s: %s, want %s", j.Name, s, want)
			}
		}
	}
}

// B53, B66: a job that runs once at a time, with a handler that is longer than its interval,
// through failovers to owners whose clocks differ.
func TestFailoversKeepTheOverlap(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 10)
	j := r.newJob("j", minutely)
	j.Policies.Overlap.Mode, j.Timeout = job.OverlapQueue, time.Hour
	j = r.create(j)
	r.sleep(61 * time.Second)
	held := r.assigned()
	for n := range 10 {
		r.sleep(30 * time.Second)
		r.s.Abandon()
		r.now = r.now.Add(time.Duration(500-n*100) * time.Millisecond)
		r.restart()
		r.workers.Join(w, []string{"h"}, 10, 10-len(held), r.now.Add(r.cfg.Lease))
		for _, a := range held {
			if !r.s.Attest(w, a.Token) {
				t.Fatal("the attempt is lost")
			}
		}
		r.pump()
		if got := r.s.Running(); got != 1 {
			t.Fatalf("%d run", got)
		}
		if n%3 == 2 { // 90 s, and the next one
			r.finish(held[0], job.OutcomeSucceeded)
			held = r.assigned()
		}
	}
}

// B59: nothing is dropped without a trace: in an outage, while workers are full, and by a
// policy.
func TestNothingIsDroppedSilently(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	all := r.createWith("all", minutely, job.Policies{})
	none := r.createWith("none", minutely, job.Policies{CatchUp: job.CatchUp{Mode: job.CatchUpNone}})
	skip := r.createWith("skip", minutely, job.Policies{Overlap: job.Overlap{Mode: job.OverlapSkip}})
	r.sleep(30 * time.Second)
	r.down(2 * time.Minute)
	r.sleep(10 * time.Minute)
	for _, j := range []job.Job{all, none, skip} {
		for at := range r.owedUpTo(j, r.now.Add(-time.Second)) { // what a range records is leapt over
			if _, ok := r.slots[job.SlotKey{FireTime: at, UID: j.UID}]; !ok {
				t.Errorf("%s left no trace of %s", j.Name, at)
			}
		}
	}
	if n, text := r.told(store.EventGapClosed); n != 1 || !strings.Contains(text, "left out") {
		t.Errorf("the gap's event, %d times: %s", n, text)
	}
}

// B62, B71: a job that always fails has a slot each minute, each with its own budget, and its
// dead letters keep no later occurrence from running.
func TestFailuresDoNotPileUp(t *testing.T) {
	r := newRig(t)
	r.join("w", 100)
	j := r.newJob("j", minutely)
	j.Retry.MaxAttempts = 5
	j = r.create(j)
	other := r.createWith("other", minutely, job.Policies{})
	for range 660 {
		r.sleep(time.Second)
		for _, a := range r.assigned() {
			outcome := job.OutcomeSucceeded
			if a.Work.Name == "j" {
				outcome = job.OutcomeFailed
			}
			r.finish(a, outcome)
		}
	}
	for _, s := range r.of(j)[:9] {
		if !strings.HasSuffix(s, "DEAD") {
			t.Errorf("%s", s)
		}
	}
	for key, s := range r.slots {
		if key.UID == j.UID && s.Attempt > 5 {
			t.Errorf("%v had %d attempts", key, s.Attempt)
		}
	}
	if got := r.of(other); len(got) != 11 || slices.ContainsFunc(got, func(s string) bool { return !strings.HasSuffix(s, "SUCCEEDED") }) {
		t.Errorf("the other job: %q", got)
	}
}

// B68: a wake-up that comes early fires nothing, and the next fire time is computed from the
// scheduled one.
func TestAWakeUpThatComesEarly(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	j := r.createWith("j", minutely, job.Policies{})
	for _, early := range []time.Duration{5 * time.Millisecond, time.Millisecond, time.Microsecond} {
		r.now = job.AtSecond(t0 + 60).Add(-early)
		r.step(Tick{})
		r.wantSlots(j)
	}
	r.now = job.AtSecond(t0 + 60).Add(3 * time.Millisecond)
	r.step(Tick{})
	r.step(Tick{})
	r.wantSlots(j, "60 RUNNING")
	r.sleep(2 * time.Minute)
	if got := r.of(j); len(got) != 3 || got[2] != "180 RUNNING" {
		t.Errorf("%q", got)
	}
}

// B72: what two owners insert in batches of many is there once.
func TestTwoOwnersInsertTheSame(t *testing.T) {
	r := newRig(t)
	for n := range 200 {
		r.createWith(fmt.Sprint("j", n), minutely, job.Policies{})
	}
	r.sleep(59 * time.Second)
	r.now = r.now.Add(time.Second)
	r.s.Step(r.now, Tick{})
	b := r.s.Ready(r.now, store.MaxBatchRows)
	if len(b.Rows.Slots) != 200 {
		t.Fatalf("%d slots", len(b.Rows.Slots))
	}
	r.commit(b.Rows) // its answer is lost, and with it the owner
	r.down(0)
	r.sleep(2 * time.Second)
	r.wantStates("READY:200 ")
}

// B76: a run that has ended keeps no later one from running.
func TestEndedRunsSuppressNothing(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	r.createWith("j", minutely, job.Policies{Overlap: job.Overlap{Mode: job.OverlapSkip}})
	for range 5 {
		r.sleep(61 * time.Second)
		r.serveAll()
	}
	r.wantStates("SUCCEEDED:5 ")
}

// B79: times that workers report decide nothing.
func TestWorkersClocksDecideNothing(t *testing.T) {
	for _, skew := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		r := newRig(t)
		w := r.join("w", 1)
		j := r.createWith("j", job.Schedule{Kind: job.KindImmediate}, job.Policies{})
		a := r.assigned()[0]
		r.step(Started{Worker: w, Token: a.Token, At: r.now.Add(skew)})
		r.sleep(20 * time.Second)
		r.step(Result{Worker: w, Token: a.Token, Outcome: job.OutcomeSucceeded, StartedAt: r.now.Add(skew)})
		r.wantSlots(j, "0 SUCCEEDED")
	}
}

// B81, B84: a run that is longer than the lease, with heartbeats, has one attempt; without,
// the second end of two changes nothing.
func TestTheLeaseIsNotTheTimeout(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 2)
	j := r.newJob("j", job.Schedule{Kind: job.KindImmediate})
	j.Timeout = time.Minute
	j = r.create(j)
	first := r.assigned()[0]
	r.sleep(45 * time.Second)
	if more := r.assigned(); len(more) > 0 {
		t.Errorf("a second attempt: %+v", more)
	}
	r.step(WorkerLost{Worker: w})
	r.sleep(2 * time.Second)
	second := r.assigned()[0]
	r.finish(second, job.OutcomeSucceeded)
	r.finish(first, job.OutcomeSucceeded)
	if acks := takeAll[Ack](r); len(acks) != 2 || !acks[0].Accepted || acks[1].Accepted {
		t.Errorf("%+v", acks)
	}
	r.wantSlots(j, "0 SUCCEEDED")
}

// B85, B87, B98: a RUNNING row for which nobody has a lease is found, whatever became of who
// knew of it.
func TestRunningRowsWithoutALease(t *testing.T) {
	r := newRig(t)
	r.join("w", 5)
	for n := range 5 {
		r.createWith(fmt.Sprint("j", n), job.Schedule{Kind: job.KindImmediate}, job.Policies{})
	}
	r.assigned()
	r.workers.Remove("w") // and nobody is told
	r.s.Abandon()
	r.restart()
	r.wantStates("RUNNING:5 ")
	r.sleep(r.cfg.Lease + r.cfg.LeaseMargin + time.Second)
	r.wantStates("READY:5 ")
}

// B94: every pair of policies, with every kind of schedule, does something that is known.
func TestAllPairsOfPolicies(t *testing.T) {
	policies := map[string]job.Policies{
		"start": {StartDeadline: 20 * time.Second}, "total": {TotalDeadline: 30 * time.Second}, "latest": {CatchUp: job.CatchUp{Mode: job.CatchUpLatest}},
		"none": {CatchUp: job.CatchUp{Mode: job.CatchUpNone}}, "few": {CatchUp: job.CatchUp{MaxCount: 2}}, "young": {CatchUp: job.CatchUp{MaxAge: 15 * time.Second}},
		"two": {Overlap: job.Overlap{MaxRunning: 2}}, "queue": {Overlap: job.Overlap{Mode: job.OverlapQueue}}, "skip": {Overlap: job.Overlap{Mode: job.OverlapSkip}},
		"replace": {Overlap: job.Overlap{Mode: job.OverlapReplace}}, "urgent": {Priority: 10}, "calm": {Priority: -10},
		"goals": {StartWithin: time.Second, FinishWithin: 2 * time.Second}, "call": {OnDeadLetter: "h"},
	}
	for a, p := range policies {
		for b, q := range policies {
			for kind, s := range kinds() {
				for _, attempts := range []int32{1, 3} {
					r := newRig(t)
					j := r.newJob("j", s)
					j.Policies, j.Retry.MaxAttempts = merge(p, q), attempts
					j = r.create(j)
					r.sleep(12 * time.Second)
					r.join("w", 1)
					for n := range 3 {
						for _, x := range r.assigned() {
							r.finish(x, []job.Outcome{job.OutcomeFailed, job.OutcomeReleased, job.OutcomeTimedOut}[n%3])
						}
						r.sleep(3 * time.Second)
					}
					r.down(40 * time.Second)
					r.step(Delete{Tag: 9, Job: r.jobs[j.UID]})
					for range 80 {
						r.serveAll()
						r.sleep(time.Second)
					}
					for key, x := range r.slots {
						if x.State.Open() {
							t.Errorf("%s and %s, %s: %v is %v", a, b, kind, key.FireTime, x.State)
						}
					}
					if len(r.gaps) > 0 || len(r.backlog) > 0 || len(r.s.slots) > 0 || len(r.s.lanes) > 0 {
						t.Errorf("%s and %s, %s: left are gaps %v, backlog %v, slots %v, lanes %v", a, b, kind, r.gaps, r.backlog, r.s.slots, r.s.lanes)
					}
				}
			}
		}
	}
}

// merge returns what either of two policies says.
func merge(p, q job.Policies) job.Policies {
	p.StartDeadline, p.TotalDeadline = max(p.StartDeadline, q.StartDeadline), max(p.TotalDeadline, q.TotalDeadline)
	if q.CatchUp != (job.CatchUp{}) {
		p.CatchUp = q.CatchUp
	}
	if q.Overlap != (job.Overlap{}) {
		p.Overlap = q.Overlap
	}
	p.Priority += q.Priority
	p.StartWithin, p.FinishWithin = max(p.StartWithin, q.StartWithin), max(p.FinishWithin, q.FinishWithin)
	p.OnDeadLetter = max(p.OnDeadLetter, q.OnDeadLetter)
	return p
}

// B95, B97, B119, B129: what a dead worker held is queued again when its lease ends, once, be
// the job recurring or not; what a worker hands back is, at once.
func TestWhatADeadWorkerHeld(t *testing.T) {
	for kind, s := range kinds() {
		r := newRig(t)
		w := r.join("w", 10)
		r.createWith("j", s, job.Policies{})
		r.sleep(11 * time.Second)
		a := r.assigned()[0]
		r.workers.Remove("w")
		for range 4 { // and told so by everybody
			r.step(WorkerLost{Worker: w})
		}
		if got := r.slots[a.Token.Key]; got.State != job.Ready || got.Failures != 1 {
			t.Errorf("%s: %+v", kind, got)
		}
		r.join("w2", 10)
		r.sleep(2 * time.Second)
		again := r.assigned()[0]
		r.step(Result{Worker: again.Worker, Token: again.Token, Outcome: job.OutcomeReleased})
		if got := r.slots[a.Token.Key]; got.Failures != 1 || got.Attempt != 3 {
			t.Errorf("%s: after it was handed back %+v", kind, got)
		}
	}
}

// B117: a running slot always has a claim, a deadline, and, once it is known, a start.
func TestARunningSlotShowsItsTimes(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 100)
	for n := range 100 {
		r.createWith(fmt.Sprint("j", n), job.Schedule{Kind: job.KindImmediate}, job.Policies{})
	}
	for _, a := range r.assigned() {
		r.step(Started{Worker: w, Token: a.Token, At: r.now})
		info, ok := r.s.Slot(a.Token.Key)
		if !ok || info.Slot.ClaimedAt == 0 || info.Slot.Deadline == 0 || info.StartedAt == 0 || info.LeaseUntil == 0 {
			t.Fatalf("%+v", info)
		}
	}
}

// B120, B124: limits that are reached hang nothing: runs follow each other.
func TestLimitsThatAreReached(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	a := r.createWith("a", minutely, job.Policies{Overlap: job.Overlap{Mode: job.OverlapQueue}})
	b := r.createWith("b", minutely, job.Policies{Overlap: job.Overlap{MaxRunning: 1}})
	for range 40 {
		r.sleep(30 * time.Second)
		for _, x := range r.assigned() {
			r.finish(x, job.OutcomeSucceeded)
		}
	}
	for _, j := range []job.Job{a, b} {
		n := 0
		for _, s := range r.of(j) {
			if strings.HasSuffix(s, "SUCCEEDED") {
				n++
			}
		}
		if n < 18 {
			t.Errorf("%s ran %d times in 20 minutes: %q", j.Name, n, r.of(j))
		}
	}
}

// B121: however runs end, their places are given back.
func TestPlacesAreGivenBack(t *testing.T) {
	r := newRig(t)
	w := r.join("w", 50)
	j := r.newJob("j", job.Schedule{Kind: job.KindOnce, At: job.AtSecond(t0).Add(300 * 24 * time.Hour)})
	j.Policies.Overlap.MaxRunning, j.Timeout = 2, 20*time.Second
	j.Retry.MaxAttempts = 2
	j = r.create(j)
	rnd := seeded(11)
	for range 500 {
		r.trigger(j)
		for _, a := range r.assigned() {
			switch n := rnd.IntN(6); n {
			case 0, 1, 2:
				r.finish(a, []job.Outcome{job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeReleased}[n])
			case 3:
				r.step(CancelSlot{Tag: 6, Found: store.SlotOf{Slot: r.slots[a.Token.Key], Job: r.jobs[j.UID]}, Reason: "test"})
				r.workers.AddCredit(r.workers.Get("w"), 1)
			case 4:
				r.step(WorkerLost{Worker: w})
				r.workers.AddCredit(r.workers.Get("w"), 2)
			default: // it times out
			}
		}
		r.sleep(time.Second)
	}
	r.sleep(10 * time.Minute)
	r.serveAll()
	r.workers.AddCredit(r.workers.Get("w"), 50)
	r.sleep(time.Hour)
	r.serveAll()
	r.trigger(j)
	r.trigger(j)
	r.trigger(j)
	if got := r.s.Running(); got != 2 {
		t.Errorf("%d run, want 2", got)
	}
}

// B126: a job that allows one run, of a handler that nobody serves: its slots wait, and run
// when a worker comes.
func TestALimitedJobWithoutWorkers(t *testing.T) {
	r := newRig(t)
	j := r.createWith("j", minutely, job.Policies{Overlap: job.Overlap{Mode: job.OverlapQueue}})
	r.sleep(20*time.Minute + time.Second)
	if n, _ := r.told(store.EventHandlerStalled); n != 1 {
		t.Errorf("told %d times", n)
	}
	r.join("w", 10)
	r.serveAll()
	for i, s := range r.of(j) {
		if s != fmt.Sprintf("%d SUCCEEDED", (i+1)*60) {
			t.Errorf("%s", s)
		}
	}
}

// B132: one job's thousand slots in line, behind a handler of ten minutes, keep nobody waiting.
func TestADeepLineStarvesNobody(t *testing.T) {
	r := newRig(t)
	r.join("w", 30)
	deep := r.newJob("deep", everySecond)
	deep.Policies.Overlap.Mode, deep.Timeout = job.OverlapQueue, time.Hour
	r.create(deep)
	r.sleep(1000 * time.Second)
	var others []job.Job
	for n := range 20 {
		others = append(others, r.createWith(fmt.Sprint("j", n), minutely, job.Policies{}))
	}
	r.sleep(21 * time.Second)
	for _, j := range others {
		for _, s := range r.of(j) {
			if !strings.HasSuffix(s, "RUNNING") {
				t.Errorf("%s: %s", j.Name, s)
			}
		}
	}
}

// B133: under a load of urgent work that never ends, what is less urgent waits for as long as
// the documentation says, and not for ever.
func TestTheLeastUrgentRunsInTheEnd(t *testing.T) {
	r := newRig(t)
	r.join("w", 1)
	r.createWith("urgent", everySecond, job.Policies{Priority: 5})
	for len(r.assigned()) > 0 {
	}
	low := r.createWith("low", job.Schedule{Kind: job.KindImmediate}, job.Policies{Priority: -5})
	begun := r.now
	for r.s.Running() == 0 {
		r.sleep(time.Second)
	}
	for range 2000 {
		for _, a := range r.assigned() {
			if a.Work.Name == "low" {
				if waited := r.now.Sub(begun); waited > 10*job.PriorityStep+time.Minute {
					t.Errorf("it waited for %s", waited)
				}
				return
			}
			r.sleep(2 * time.Second) // half of what comes can be done
			r.finish(a, job.OutcomeSucceeded)
		}
	}
	t.Errorf("it never ran: %q", r.of(low))
}
