package workersdktest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

var begin = time.Date(2026, 12, 23, 0, 0, 0, 0, time.UTC)

func cron(expr string) *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: expr}}
}

func ExampleFireTimes() {
	nightly := &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "0 2 * * *"}, Calendars: []string{"holidays"}}
	times, err := workersdktest.FireTimes(nightly, time.Date(2026, 12, 23, 12, 0, 0, 0, time.UTC), 3,
		workersdktest.Calendar("holidays", "2026-12-24/2026-12-26"))
	if err != nil {
		fmt.Println(err)
	}
	for _, t := range times {
		fmt.Println(t.Format(time.RFC3339))
	}
	// Output:
	// 2026-12-27T02:00:00Z
	// 2026-12-28T02:00:00Z
	// 2026-12-29T02:00:00Z
}

func TestErrorsNameTheField(t *testing.T) {
	for want, try := range map[string]func() error{
		"schedule.cron":         func() error { _, err := workersdktest.FireTimes(cron("0 24 * * *"), begin, 1); return err },
		"schedule: is required": func() error { _, err := workersdktest.FireTimes(nil, begin, 1); return err },
		"n must be":             func() error { _, err := workersdktest.FireTimes(cron("@daily"), begin, 0); return err },
		"job": func() error {
			_, err := workersdktest.FireTimes(cron("@daily"), begin, 1, workersdktest.Job("a b"))
			return err
		},
		"item 1": func() error {
			s := cron("@daily")
			s.Calendars = []string{"c"}
			_, err := workersdktest.FireTimes(s, begin, 1, workersdktest.Calendar("c", "x"))
			return err
		},
		"calendars[0]": func() error {
			s := cron("@daily")
			s.Calendars = []string{"c"}
			_, err := workersdktest.FireTimes(s, begin, 1)
			return err
		},
		"until": func() error {
			_, err := workersdktest.Preview(cron("@daily"), begin, 1, workersdktest.Until(begin.Add(-time.Hour)))
			return err
		},
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestASpreadFollowsFromTheName(t *testing.T) {
	s := cron("0 2 * * *")
	s.Spread = durationpb.New(time.Hour)
	at := func(opts ...workersdktest.Option) time.Time {
		times, err := workersdktest.FireTimes(s, begin, 1, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return times[0]
	}
	plain, moved := at(), at(workersdktest.Job("nightly"))
	if plain != begin.Add(2*time.Hour) || moved != plain.Add(28*time.Minute+31*time.Second) {
		t.Errorf("%v and %v", plain, moved)
	}
	if other := at(workersdktest.Job("nightly"), workersdktest.Namespace("other")); other == moved {
		t.Error("a job of another namespace is moved by the same")
	}
	if full := at(workersdktest.Job("namespaces/default/jobs/nightly")); full != moved {
		t.Errorf("by its full name it is moved to %v", full)
	}
}

func TestAFileOfJobs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(file, []byte("- name: good\n  handler: h\n  schedule: {cron: '@daily', calendars: [c]}\n- name: bad\n  handler: h\n  schedule: {cron: '@dayly'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	previews, err := workersdktest.PreviewFile(file, begin, 2, workersdktest.Calendar("c", "SAT"), workersdktest.Until(begin.AddDate(0, 0, 14)))
	if err != nil || len(previews) != 2 {
		t.Fatalf("%v, %v", previews, err)
	}
	if p := previews[0]; p.Err != nil || p.Preview.GetOccurrenceCount() != 12 || p.Preview.GetSkippedCount() != 2 || len(p.Preview.GetFireTimes()) != 2 {
		t.Errorf("good: %+v", p)
	}
	if p := previews[1]; p.Err == nil || p.Preview != nil || p.Name != "bad" {
		t.Errorf("bad: %+v", p)
	}
	if _, err := workersdktest.PreviewFile(file+"x", begin, 1); err == nil {
		t.Error("a file that isn't there was read")
	}
}
