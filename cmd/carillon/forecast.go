package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/controlplane/jobfile"
	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/job"
)

// maxForecastRuns bounds the runs that a forecast walks over.
const maxForecastRuns = 50_000_000

// forecast counts the starts of all jobs of a file by second and minute, to find the
// moments with the most.
type forecast struct {
	from, until      int64 // Unix seconds; no until: nothing is counted
	seconds, minutes map[int64]int
	runs, skipped    int64
}

func newForecast(from time.Time, until *timestamppb.Timestamp) *forecast {
	f := &forecast{from: from.Unix(), seconds: map[int64]int{}, minutes: map[int64]int{}}
	if until != nil {
		f.until = until.GetSeconds()
	}
	return f
}

// add counts the starts of a job whose preview was fine.
func (f *forecast) add(ctx context.Context, p *previewer, e jobfile.Entry) error {
	if f.until == 0 {
		return nil
	}
	var v jobspec.Violations
	j := job.Job{Namespace: p.namespace, Name: e.Name, Schedule: jobspec.Schedule(&v, "schedule", e.Job.GetSchedule())}
	from := job.At(p.from)
	if err := jobspec.Decide(ctx, &v, "schedule", e.Job.GetSchedule(), &j, job.At(p.now), from, p.calendars.find); err != nil {
		return err
	}
	if !j.Schedule.Kind.Recurring() {
		at := j.Schedule.At.Seconds()
		if j.Schedule.Kind == job.KindImmediate || at <= f.from { // it starts at once
			at = f.from
		}
		if at <= f.until {
			f.count(at)
		}
		return nil
	}
	plan, err := j.Schedule.Plan(from)
	if err != nil {
		return err
	}
	f.skipped += plan.Count(f.from, f.until) - plan.CountRuns(f.from, f.until)
	for at, ok := plan.NextRun(f.from, f.until); ok; at, ok = plan.NextRun(at, f.until) {
		if f.count(at); f.runs > maxForecastRuns {
			return invalidInput("--until: more than %d runs lie before it", maxForecastRuns)
		}
	}
	return nil
}

func (f *forecast) count(at int64) {
	f.runs++
	f.seconds[at]++
	f.minutes[at-at%60]++
}

// loadOutput is the JSON of a forecast.
type loadOutput struct {
	Runs          int64  `json:"runs"`
	Skipped       int64  `json:"skipped"`
	BusiestSecond string `json:"busiest_second,omitempty"`
	InThatSecond  int    `json:"runs_in_that_second,omitempty"`
	BusiestMinute string `json:"busiest_minute,omitempty"`
	InThatMinute  int    `json:"runs_in_that_minute,omitempty"`
	until         int64
}

func (f *forecast) output() *loadOutput {
	if f.until == 0 {
		return nil
	}
	out := &loadOutput{Runs: f.runs, Skipped: f.skipped, until: f.until}
	out.BusiestSecond, out.InThatSecond = busiest(f.seconds)
	out.BusiestMinute, out.InThatMinute = busiest(f.minutes)
	return out
}

// busiest returns the first moment with the most runs.
func busiest(counts map[int64]int) (when string, most int) {
	first := int64(0)
	for at, n := range counts {
		if n > most || n == most && at < first {
			first, most = at, n
		}
	}
	if most == 0 {
		return "", 0
	}
	return time.Unix(first, 0).UTC().Format(time.RFC3339), most
}

func (o *loadOutput) print(w io.Writer) {
	if o == nil {
		return
	}
	fmt.Fprintf(w, "up to %s: %d runs, %d skipped", time.Unix(o.until, 0).UTC().Format(time.RFC3339), o.Runs, o.Skipped)
	if o.Runs > 0 {
		fmt.Fprintf(w, "; at most %d in a second (%s) and %d in a minute (%s)", o.InThatSecond, o.BusiestSecond, o.InThatMinute, o.BusiestMinute)
	}
	fmt.Fprintln(w)
}
