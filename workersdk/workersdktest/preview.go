// Package workersdktest is for the unit tests of those who use Carillon. It says, without
// a server, when their jobs will fire.
package workersdktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/controlplane/jobfile"
	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Option says what a schedule alone doesn't.
type Option func(*options)

type options struct {
	namespace, job string
	until          time.Time
	calendars      map[string][]string
}

// Job names the job, whose place in a spread follows from its name. Without it nothing
// is moved.
func Job(name string) Option { return func(o *options) { o.job = name } }

// Namespace is the one that the job is in. Default: default.
func Namespace(name string) Option { return func(o *options) { o.namespace = name } }

// Until lets a preview count what happens up to and at an instant, at most 100 years
// after its beginning.
func Until(t time.Time) Option { return func(o *options) { o.until = t } }

// Calendar says what a calendar holds, in the form of PutCalendar: a weekday (SAT), a day
// of every year (12-25), a date (2026-12-24), dates (2026-12-24/2027-01-01, both included)
// or instants (2026-12-24T18:00:00Z/2026-12-25T06:00:00Z, the last one not included).
func Calendar(name string, items ...string) Option {
	return func(o *options) { o.calendars[name] = items }
}

// FireTimes returns the first n instants after another at which a job with this schedule
// runs, in UTC; fewer if it has no more. n is 1 to 1,000. An error names the field that is
// wrong, in the words of the server.
func FireTimes(s *carillonv1.Schedule, after time.Time, n int, opts ...Option) ([]time.Time, error) {
	p, err := Preview(s, after, n, opts...)
	if err != nil {
		return nil, err
	}
	times := make([]time.Time, len(p.GetFireTimes()))
	for i, t := range p.GetFireTimes() {
		times[i] = t.AsTime()
	}
	return times, nil
}

// Preview says all that the server's PreviewSchedule does: the first n fire times, what a
// calendar skips among them, the schedule in plain English, and warnings.
func Preview(s *carillonv1.Schedule, after time.Time, n int, opts ...Option) (*carillonv1.PreviewScheduleResponse, error) {
	o := newOptions(opts)
	if n < 1 || n > jobspec.MaxPreview {
		return nil, fmt.Errorf("n must be 1 to %d, is %d", jobspec.MaxPreview, n)
	}
	return o.preview(s, after, n)
}

func newOptions(opts []Option) *options {
	o := &options{namespace: "default", calendars: map[string][]string{}}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

func (o *options) preview(s *carillonv1.Schedule, after time.Time, n int) (*carillonv1.PreviewScheduleResponse, error) {
	req := &carillonv1.PreviewScheduleRequest{Schedule: s, From: timestamppb.New(after), Count: int32(n)}
	if !o.until.IsZero() {
		req.Until = timestamppb.New(o.until)
	}
	var v jobspec.Violations
	j := job.Job{Namespace: o.namespace, Name: strings.TrimPrefix(o.job, "namespaces/"+o.namespace+"/jobs/")}
	if j.Name != "" {
		v.Check("job", job.CheckJobName(j.Name))
	}
	resp, err := jobspec.Preview(context.Background(), &v, req, j, job.At(after), o.find)
	if err != nil {
		return nil, err
	}
	var all []error
	for _, one := range v.Fields {
		all = append(all, one)
	}
	return resp, errors.Join(all...)
}

// find implements jobspec.Calendars.
func (o *options) find(_ context.Context, _, name string, version int64) (*schedule.Calendar, error) {
	items, given := o.calendars[name]
	if !given {
		return nil, jobspec.ErrNoCalendar
	}
	c, err := schedule.NewCalendar(name, max(version, 1), items)
	if err != nil {
		return nil, fmt.Errorf("calendar %s: %w", name, err)
	}
	return c, nil
}

// JobPreview is the preview of one job of a file.
type JobPreview struct {
	Name    string
	Job     *carillonv1.Job
	Preview *carillonv1.PreviewScheduleResponse
	Err     error // what is wrong with it; Preview is nil then
}

// PreviewFile previews every job of a file in YAML or JSON, as `carillon schedule preview
// --file` does. The error is of the file as a whole.
func PreviewFile(name string, after time.Time, n int, opts ...Option) ([]JobPreview, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	o := newOptions(opts)
	entries, err := jobfile.Read(data, o.namespace)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	previews := make([]JobPreview, len(entries))
	for i, e := range entries {
		o.job = e.Name
		previews[i] = JobPreview{Name: e.Name, Job: e.Job, Err: e.Err}
		var v jobspec.Violations
		if e.Err == nil {
			jobspec.Job(&v, "job", e.Job)
		}
		switch {
		case e.Err != nil:
		case len(v.Fields) > 0:
			previews[i].Err = v.Fields[0]
		default:
			previews[i].Preview, previews[i].Err = o.preview(e.Job.GetSchedule(), after, n)
		}
	}
	return previews, nil
}
