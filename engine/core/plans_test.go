package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// limited returns everySecond with a change.
func limited(change func(s *job.Schedule)) job.Schedule {
	s := everySecond
	s.Dialect = schedule.DialectVersion
	change(&s)
	return s
}

// between returns the stored text of a calendar that excludes some seconds after t0.
func between(t *testing.T, from, to time.Duration) string {
	t.Helper()
	at := func(d time.Duration) string { return job.AtSecond(t0).Add(d).Time().Format(time.RFC3339) }
	c, err := schedule.NewCalendar("closed", 7, []string{at(from) + "/" + at(to)})
	if err != nil {
		t.Fatal(err)
	}
	return schedule.Exclude([]*schedule.Calendar{c}).String()
}

// An occurrence that a calendar excludes is a slot that was skipped: live, in a gap after
// a downtime, and for a job of the inbox. Its calendar is named.
func TestExcludedOccurrencesAreSkipped(t *testing.T) {
	r := newRig(t)
	r.join("w", 100)
	j := r.create(r.newJob("j", limited(func(s *job.Schedule) { s.Calendars = between(t, 3*time.Second, 6*time.Second) })))
	r.sleep(8 * time.Second)
	r.serve(job.OutcomeSucceeded)
	r.wantStates("SUCCEEDED:5 SKIPPED:3 ")
	for key, s := range r.slots {
		if s.State == job.Skipped && (s.ErrorCode != job.CodeExcluded || !strings.Contains(s.ErrorText, "closed@7") || s.FinishedAt == 0 || s.Attempt != 0) {
			t.Errorf("slot %v: %+v", key, s)
		}
	}
	if state := r.s.jobs.get(j.UID); state.open != 0 {
		t.Errorf("%d slots of the job are held in memory", state.open)
	}
}

func TestAGapOverExcludedOccurrences(t *testing.T) {
	r := newRig(t)
	r.create(r.newJob("j", limited(func(s *job.Schedule) { s.Calendars = between(t, 3*time.Second, 6*time.Second) })))
	r.sleep(time.Second)
	r.now = r.now.Add(8 * time.Second)
	r.restart()
	r.sleep(time.Second)
	r.join("w", 100)
	r.serve(job.OutcomeSucceeded)
	r.wantStates("SUCCEEDED:7 SKIPPED:3 ")
}

// A run that a user asks for is made on any day.
func TestATriggerOnAnExcludedDay(t *testing.T) {
	r := newRig(t)
	j := r.create(r.newJob("j", limited(func(s *job.Schedule) { s.Calendars = between(t, 0, time.Hour) })))
	r.step(Trigger{Tag: 2, Job: j})
	r.wantStates("READY:1 ")
}

func TestBoundsAndSpread(t *testing.T) {
	r := newRig(t)
	s := limited(func(s *job.Schedule) {
		s.Cron, s.Offset, s.Spread = "*/10 * * * * *", 3*time.Second, 10*time.Second
		s.Start, s.End = job.AtSecond(t0+13), job.AtSecond(t0+43)
	})
	r.create(r.newJob("j", s))
	r.sleep(100 * time.Second)
	want := map[int64]bool{13: true, 23: true, 33: true, 43: true}
	for key := range r.slots {
		if !want[key.FireTime.Seconds()-t0] {
			t.Errorf("it fired %d s after the beginning", key.FireTime.Seconds()-t0)
		}
	}
	if len(r.slots) != len(want) {
		t.Errorf("it fired %d times", len(r.slots))
	}
}

// A job fires as often as it says, also if its shard is loaded anew meanwhile, and by way
// of a gap; what a calendar excludes doesn't count.
func TestANumberOfOccurrences(t *testing.T) {
	r := newRig(t)
	r.create(r.newJob("j", limited(func(s *job.Schedule) {
		s.MaxOccurrences, s.Calendars = 6, between(t, 3*time.Second, 5*time.Second)
	})))
	r.sleep(4 * time.Second)
	r.restart()
	r.sleep(time.Second)
	r.now = r.now.Add(2 * time.Second)
	r.restart()
	r.sleep(20 * time.Second)
	r.wantStates("READY:6 SKIPPED:2 ")
}

// A recurring job that has fired for the last time keeps its name for a day after; then
// it has ended by itself, as one that fires once.
func TestASpentJobEndsByItself(t *testing.T) {
	for _, restart := range []bool{false, true} {
		r := newRig(t)
		r.join("w", 10)
		first := r.create(r.newJob("j", limited(func(s *job.Schedule) { s.MaxOccurrences = 3 })))
		r.sleep(5 * time.Second)
		r.serve(job.OutcomeSucceeded)
		if restart {
			r.restart()
		}
		r.now = r.now.Add(23 * time.Hour)
		r.sleep(3 * time.Minute)
		if r.jobs[first.UID].EndedAt != 0 {
			t.Errorf("restart %v: it ended within a day", restart)
		}
		r.now = r.now.Add(2 * time.Hour)
		r.sleep(3 * time.Minute)
		if ended := r.jobs[first.UID]; ended.EndedAt == 0 || !ended.EndedByItself || r.s.jobs.len() != 0 {
			t.Errorf("restart %v: it has not ended: %+v, %d in memory", restart, ended, r.s.jobs.len())
		}
		r.create(r.newJob("j", once(30*day)))
	}
}

// A dead letter keeps its job, and a run by hand keeps it for another day.
func TestWhatKeepsASpentJob(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	dead := r.create(r.newJob("dead", limited(func(s *job.Schedule) { s.MaxOccurrences = 1 })))
	r.sleep(2 * time.Second)
	for range 3 {
		r.serve(job.OutcomeFailed)
		r.sleep(2 * time.Minute)
	}
	r.wantStates("DEAD:1 ")
	again := r.create(r.newJob("again", limited(func(s *job.Schedule) { s.MaxOccurrences = 1 })))
	r.sleep(2 * time.Second)
	r.serve(job.OutcomeSucceeded)
	r.now = r.now.Add(23*time.Hour + 50*time.Minute)
	r.step(Trigger{Tag: 3, Job: again})
	r.serve(job.OutcomeSucceeded)
	r.now = r.now.Add(time.Hour)
	r.sleep(3 * time.Minute)
	if r.jobs[again.UID].EndedAt != 0 {
		t.Error("it ended an hour after a run by hand")
	}
	r.days(2)
	if r.jobs[again.UID].EndedAt == 0 || r.jobs[dead.UID].EndedAt != 0 {
		t.Errorf("ended: the one %s, that with a dead letter %s", r.jobs[again.UID].EndedAt, r.jobs[dead.UID].EndedAt)
	}
}

// A job that only a newer program can read is neither fired nor set aside by an older one:
// its shard isn't loaded, and in the inbox it waits.
func TestAJobOfALaterDialect(t *testing.T) {
	r := newRig(t)
	later := r.newJob("later", everySecond)
	later.Schedule.Dialect = schedule.DialectVersion + 1
	if err := CanRead(store.Loaded{Recurring: []job.Job{later}}); !errors.Is(err, job.ErrDialect) || !strings.Contains(err.Error(), "later") {
		t.Errorf("the shard can be read: %v", err)
	}
	if err := CanRead(store.Loaded{Recurring: []job.Job{r.newJob("now", everySecond)}}); err != nil {
		t.Error(err)
	}
	later.EffectiveFrom = r.now
	r.jobs[later.UID], r.inbox[later.UID] = later, true
	r.step(InboxHint{})
	r.sleep(3 * time.Second)
	if !r.inbox[later.UID] || r.jobs[later.UID].Quarantine != "" || len(r.slots) != 0 {
		t.Errorf("in the inbox %v, set aside %q, %d slots", r.inbox[later.UID], r.jobs[later.UID].Quarantine, len(r.slots))
	}
}

// A slot that still waits keeps its job, be it in memory or in the backlog.
func TestASpentJobWaitsForItsSlots(t *testing.T) {
	for what, limit := range map[string]int{"in memory": 5000, "in the backlog": 2} {
		r := newRig(t)
		r.cfg.ReadyLimit = limit
		r.restart()
		j := r.create(r.newJob("j", limited(func(s *job.Schedule) { s.MaxOccurrences = 4 })))
		r.sleep(6 * time.Second)
		r.days(2)
		if r.jobs[j.UID].EndedAt != 0 {
			t.Errorf("%s: it ended with slots that wait", what)
		}
		r.wantStates("READY:4 ")
		r.join("w", 10)
		for range 8 { // they come back from the backlog one by one
			r.sleep(time.Second)
			r.serve(job.OutcomeSucceeded)
		}
		r.wantStates("SUCCEEDED:4 ")
		r.days(2)
		if r.jobs[j.UID].EndedAt == 0 {
			t.Errorf("%s: it did not end", what)
		}
	}
}
