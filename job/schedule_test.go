package job_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
)

// A job fires as often as it says, wherever the instant from which its occurrences were
// counted lies beside the one from which its schedule counts.
func TestANumberOfOccurrences(t *testing.T) {
	begin := job.At(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	off, err := schedule.NewCalendar("off", 1, []string{"2026-12-01T00:00:10Z/2026-12-01T00:00:20Z"})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []job.Schedule{
		{Kind: job.KindCron, Cron: "*/3 * * * * *", Dialect: 2},
		{Kind: job.KindCron, Cron: "*/3 * * * * *", Dialect: 2, Calendars: schedule.Exclude([]*schedule.Calendar{off}).String()},
		{Kind: job.KindInterval, Every: 4 * time.Second, Anchor: begin, Dialect: 2, Offset: 3 * time.Second},
		{Kind: job.KindCron, Cron: "* * * * * *", Dialect: 2, Start: begin.Add(12 * time.Second)},
	} {
		for counted := -30; counted <= 60; counted++ {
			for effective := 0; effective <= 30; effective += 5 {
				for _, n := range []int32{1, 2, 7} {
					s.MaxOccurrences = n
					if err := s.Count(begin.Add(time.Duration(counted)*time.Second + time.Millisecond)); err != nil {
						t.Fatal(err)
					}
					from := begin.Add(time.Duration(effective) * time.Second)
					plan, err := s.Plan(from)
					if err != nil {
						t.Fatal(err)
					}
					if got := plan.CountRuns(from.Seconds(), schedule.MaxSecond); got != int64(n) {
						t.Fatalf("%+v counted from %d, effective from %d: fires %d times, want %d", s, counted, effective, got, n)
					}
				}
			}
		}
	}
}

// An end that comes first wins, and so does what is out of reach.
func TestANumberOfOccurrencesThatIsNotReached(t *testing.T) {
	begin := job.At(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	s := job.Schedule{Kind: job.KindCron, Cron: "0 0 * * *", Dialect: 2, MaxOccurrences: 10, End: begin.Add(3 * 24 * time.Hour)}
	// Counted from the begin there are 3 of 10; from ten days before, 10 are reached.
	if err := s.Count(begin); err != nil {
		t.Fatal(err)
	}
	if plan, err := s.Plan(begin.Add(-10 * 24 * time.Hour)); err != nil || plan.To != begin.Seconds() {
		t.Errorf("from ten days before it ends at %d, %v", plan.To, err)
	}
	for _, from := range []job.Instant{begin, begin.Add(-time.Hour), begin.Add(time.Hour)} {
		if err := s.Count(begin); err != nil {
			t.Fatal(err)
		}
		plan, err := s.Plan(from)
		if err != nil || plan.To != s.End.Seconds() {
			t.Errorf("from %s it ends at %d, %v", from, plan.To, err)
		}
	}
	s.End, s.MaxOccurrences = 0, 1<<31-1
	s.Calendars = "weekend@1=SAT,SUN"
	if err := s.Count(begin); err != nil || s.Last != 0 {
		t.Errorf("two billion days from now: %s, %v", s.Last, err)
	}
}

// A schedule needs the later dialect only for what an earlier program would not respect.
func TestDialects(t *testing.T) {
	for want, s := range map[int]job.Schedule{
		0: {Kind: job.KindOnce},
		1: {Kind: job.KindCron, Cron: "* * * * *", Dialect: 7},
		2: {Kind: job.KindCron, Cron: "* * * * *", MaxOccurrences: 1},
	} {
		if got := s.NeedsDialect(); got != want {
			t.Errorf("%+v needs %d, want %d", s, got, want)
		}
	}
}
