package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/controlplane/jobfile"
	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const maxPreview = 100_000

func newSchedule(c *client) *cobra.Command {
	return newGroup("schedule", "Look at schedules, without a server", newSchedulePreview(c))
}

// previewFlags are the flags of `schedule preview`.
type previewFlags struct {
	schedule    scheduleFlags
	from, until string
	count       int
	file, job   string
	calendars   []string
}

func newSchedulePreview(c *client) *cobra.Command {
	var f previewFlags
	cmd := &cobra.Command{
		Use:   "preview (EXPR | --every DURATION | --file FILE)",
		Short: "Show when a schedule, or each job of a file, fires",
		Long: `Show when a schedule, or each job of a file, fires. No server is needed, unless a
calendar is named that no --calendar brings along: then it is read from the server.

A file holds jobs in YAML or JSON, in the form of the API: a list, or a mapping whose
"jobs" are one.`,
		Example: `  carillon schedule preview '0 2 * * *' -n 10
  carillon schedule preview '0 2 * * *' --spread 10m --job nightly --except closed --calendar closed=holidays.ics
  carillon schedule preview --file jobs.yaml --until 2027-01-01T00:00:00Z`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.schedule.cron = args[0]
			}
			p, err := f.previewer(cmd, c, len(args) == 1)
			if err != nil {
				return err
			}
			defer p.calendars.unused(cmd.ErrOrStderr())
			if f.file != "" {
				return p.previewFile(cmd, f.file)
			}
			return p.previewOne(cmd, &f)
		},
	}
	flags := cmd.Flags()
	f.schedule.register(flags)
	flags.StringVar(&f.from, "from", "", "show fire times after this one, RFC 3339 (default: now)")
	flags.StringVar(&f.until, "until", "", "count what fires up to this time, RFC 3339; for a file, find the busiest moment")
	flags.IntVarP(&f.count, "count", "n", 3, "how many")
	flags.StringVarP(&f.file, "file", "f", "", "preview the jobs of this file; - is standard input")
	flags.StringVar(&f.job, "job", "", "the name of the job, which decides its place in a --spread")
	flags.StringArrayVar(&f.calendars, "calendar", nil, "NAME=FILE: what a calendar holds, as .ics, .csv or lines of items; may be repeated")
	return cmd
}

// previewer previews schedules.
type previewer struct {
	*client
	now, from time.Time
	until     *timestamppb.Timestamp
	count     int
	calendars *calendars
}

// previewer reads the flags; cron says that an expression was given.
func (f *previewFlags) previewer(cmd *cobra.Command, c *client, cron bool) (*previewer, error) {
	p := &previewer{client: c, now: time.Now(), count: f.count}
	p.from = p.now
	if f.from != "" {
		t, err := parseTime("--from", f.from)
		if err != nil {
			return nil, err
		}
		p.from = t.AsTime()
	}
	if s := p.from.Unix(); s < schedule.MinSecond || s > schedule.MaxSecond {
		return nil, invalidInput("--from must be in the years 1 to 9999")
	}
	if f.until != "" {
		t, err := parseTime("--until", f.until)
		if err != nil {
			return nil, err
		}
		p.until = t
	}
	if f.count < 1 || f.count > maxPreview {
		return nil, invalidInput("-n must be 1 to %d, is %d", maxPreview, f.count)
	}
	var err error
	if p.calendars, err = c.readCalendars(cmd.Context(), f.calendars, cmd.ErrOrStderr()); err != nil {
		return nil, err
	}
	f.job = strings.TrimPrefix(f.job, c.parent()+"/jobs/")
	given := cmd.Flags().Changed
	switch {
	case f.file != "" && (cron || f.schedule.given(cmd) || given("job")):
		return nil, invalidInput("give a file, or one schedule")
	case f.file == "" && cron == given("every"):
		return nil, invalidInput("give exactly one of an expression, --every and --file")
	case given("anchor") && !given("every"):
		return nil, invalidInput("--anchor is for --every")
	case given("job") && job.CheckJobName(f.job) != nil:
		return nil, invalidInput("--job %w", job.CheckJobName(f.job))
	}
	if until := p.until; until != nil && (until.AsTime().Before(p.from) || until.AsTime().After(p.from.Add(job.Reach))) {
		return nil, invalidInput("--until must lie at or after --from, and at most 100 years after it")
	}
	return p, nil
}

// previewOutput is the JSON of a preview.
type previewOutput struct {
	Name            string          `json:"name,omitempty"`
	FireTimes       []string        `json:"fire_times"`
	Description     string          `json:"description"`
	Warnings        []string        `json:"warnings"`
	Skipped         []skippedOutput `json:"skipped,omitempty"`          // the first of them
	SkippedMore     bool            `json:"skipped_more,omitempty"`     // there are more
	OccurrenceCount *uint32         `json:"occurrence_count,omitempty"` // with --until
	SkippedCount    *uint32         `json:"skipped_count,omitempty"`    // with --until
	Error           string          `json:"error,omitempty"`            // of a job of a file, instead of all else
}

type skippedOutput struct {
	FireTime string `json:"fire_time"`
	Calendar string `json:"calendar"`
}

func (p *previewer) previewOne(cmd *cobra.Command, f *previewFlags) error {
	s, err := f.schedule.recurring(cmd)
	if err != nil {
		return err
	}
	out, err := p.preview(cmd.Context(), f.job, s)
	if err != nil {
		return exitError{exitInvalid, p.pointed(cmd, f.schedule.cron, err)}
	}
	if p.output == "json" {
		return writeOutput(cmd.OutOrStdout(), out)
	}
	p.print(cmd.OutOrStdout(), out)
	return nil
}

// pointed shows, before an error, where in the expression it is.
func (p *previewer) pointed(cmd *cobra.Command, expr string, err error) error {
	if _, refusal := schedule.ParseCron(expr); refusal != nil && p.output != "json" && !cmd.Flags().Changed("every") {
		if e, ok := refusal.(*schedule.Error); ok && e.Pointer() != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), e.Pointer())
		}
		return refusal
	}
	return err
}

// preview asks for the fire times page by page, as a client of the API would.
func (p *previewer) preview(ctx context.Context, name string, s *carillonv1.Schedule) (out previewOutput, err error) {
	out = previewOutput{Name: name, FireTimes: []string{}, Warnings: []string{}}
	var v jobspec.Violations
	j := job.Job{Namespace: p.namespace, Name: name}
	req := &carillonv1.PreviewScheduleRequest{Schedule: proto.Clone(s).(*carillonv1.Schedule), From: timestamppb.New(p.from), Until: p.until}
	for len(out.FireTimes) < p.count {
		req.Count = int32(min(p.count-len(out.FireTimes), jobspec.MaxPreview))
		resp, err := jobspec.Preview(ctx, &v, req, j, job.At(p.now), p.calendars.find)
		if err != nil {
			return out, err
		}
		if len(v.Fields) > 0 {
			if len(out.FireTimes) > 0 {
				return out, nil // it has fired for the last time
			}
			return out, v.Fields[0]
		}
		p.add(&out, req, resp)
		n := len(resp.GetFireTimes())
		if n < int(req.GetCount()) {
			break
		}
		if s.GetMaxOccurrences() > 0 { // it counts from here on
			req.Schedule.MaxOccurrences -= int32(n)
			if req.Schedule.GetMaxOccurrences() == 0 {
				break
			}
		}
		req.From, req.Until = resp.GetFireTimes()[n-1], nil
	}
	return out, nil
}

// add adds a page.
func (p *previewer) add(out *previewOutput, req *carillonv1.PreviewScheduleRequest, resp *carillonv1.PreviewScheduleResponse) {
	for _, t := range resp.GetFireTimes() {
		out.FireTimes = append(out.FireTimes, timeCell(t))
	}
	for _, o := range resp.GetSkipped() {
		out.Skipped = append(out.Skipped, skippedOutput{timeCell(o.GetFireTime()), o.GetCalendar()})
	}
	out.SkippedMore = out.SkippedMore || resp.GetSkippedMore()
	if out.Description == "" {
		out.Description = resp.GetDescription()
		out.Warnings = append(out.Warnings, resp.GetWarnings()...)
	}
	if req.GetUntil() != nil {
		out.OccurrenceCount, out.SkippedCount = &resp.OccurrenceCount, &resp.SkippedCount
	}
}

func (p *previewer) print(w io.Writer, out previewOutput) {
	fmt.Fprintln(w, out.Description)
	skipped := out.Skipped
	for _, t := range out.FireTimes {
		n := 0
		for n < len(skipped) && skipped[n].FireTime < t {
			n++
		}
		printSkipped(w, skipped[:n], n > 0 && n == len(skipped) && out.SkippedMore)
		skipped = skipped[n:]
		fmt.Fprintln(w, " ", t)
	}
	if len(out.FireTimes) == 0 {
		fmt.Fprintln(w, "  no further fire time before the year 10000")
	}
	if out.OccurrenceCount != nil {
		fmt.Fprintf(w, "up to %s: %d runs, %d skipped\n", timeCell(p.until), *out.OccurrenceCount, *out.SkippedCount)
	}
	for _, warning := range out.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
}

// printSkipped prints what is skipped between two fire times: many in one line.
func printSkipped(w io.Writer, skipped []skippedOutput, more bool) {
	const few = 10
	if n := len(skipped); n > few {
		orMore := ""
		if more {
			orMore = " or more"
		}
		fmt.Fprintf(w, "  from %s on  skipped: %d%s (%s)\n", skipped[0].FireTime, n, orMore, skipped[0].Calendar)
		return
	}
	for _, s := range skipped {
		fmt.Fprintf(w, "  %s  skipped: %s\n", s.FireTime, s.Calendar)
	}
}

// previewFile previews every job of a file. One that is wrong doesn't hide the others.
func (p *previewer) previewFile(cmd *cobra.Command, name string) error {
	entries, err := readJobs(cmd, name, p.namespace)
	if err != nil {
		return err
	}
	out := fileOutput{Jobs: make([]previewOutput, len(entries))}
	load := newForecast(p.from, p.until)
	wrong := 0
	for i, e := range entries {
		if out.Jobs[i], err = p.previewEntry(cmd.Context(), e); err != nil {
			out.Jobs[i] = previewOutput{Name: e.Name, FireTimes: []string{}, Warnings: []string{}, Error: err.Error()}
			wrong++
			continue
		}
		if err := load.add(cmd.Context(), p, e); err != nil {
			return err
		}
	}
	out.Load = load.output()
	if err := p.printFile(cmd.OutOrStdout(), out); err != nil {
		return err
	}
	if wrong > 0 {
		return invalidInput("%d of %d jobs are wrong", wrong, len(entries))
	}
	return nil
}

// previewEntry previews a job of a file. All of the job must be right, not its schedule
// alone.
func (p *previewer) previewEntry(ctx context.Context, e jobfile.Entry) (previewOutput, error) {
	if e.Err != nil {
		return previewOutput{}, e.Err
	}
	var v jobspec.Violations
	if jobspec.Job(&v, "job", e.Job); len(v.Fields) > 0 {
		return previewOutput{}, fmt.Errorf("line %d: %w", e.Line, v.Fields[0])
	}
	return p.preview(ctx, e.Name, e.Job.GetSchedule())
}

// fileOutput is the JSON of a preview of a file.
type fileOutput struct {
	Jobs []previewOutput `json:"jobs"`
	Load *loadOutput     `json:"load,omitempty"` // with --until
}

func (p *previewer) printFile(w io.Writer, out fileOutput) error {
	if p.output == "json" {
		return writeOutput(w, out)
	}
	rows := make([][]string, len(out.Jobs))
	for i, j := range out.Jobs {
		text := j.Description
		if j.Error != "" {
			text = "error: " + j.Error
		}
		if n := len(j.Skipped); n > 0 {
			text += fmt.Sprintf(" (%d skipped before the last)", n)
		}
		rows[i] = []string{j.Name, strings.Join(j.FireTimes, " "), text}
	}
	if err := wideTable(w, "NAME NEXT SCHEDULE", rows); err != nil {
		return err
	}
	for _, j := range out.Jobs {
		for _, warning := range j.Warnings {
			fmt.Fprintf(w, "warning: %s: %s\n", j.Name, warning)
		}
	}
	out.Load.print(w)
	return nil
}

func readJobs(cmd *cobra.Command, name, namespace string) ([]jobfile.Entry, error) {
	data, err := readFile(cmd, name)
	if err != nil {
		return nil, err
	}
	entries, err := jobfile.Read(data, namespace)
	if err != nil {
		return nil, invalidInput("%s %w", name, err)
	}
	return entries, nil
}

// readFile reads a file, or standard input for "-".
func readFile(cmd *cobra.Command, name string) (data []byte, err error) {
	if name == "-" {
		data, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), jobfile.MaxBytes+1))
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, invalidInput("%w", err)
	}
	return data, nil
}

func writeOutput(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// recurring builds the schedule of a preview: cron or interval.
func (f *scheduleFlags) recurring(cmd *cobra.Command) (*carillonv1.Schedule, error) {
	s := &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: f.cron}}
	if cmd.Flags().Changed("every") {
		interval := &carillonv1.IntervalSchedule{Every: durationpb.New(f.every)}
		s.Kind = &carillonv1.Schedule_Interval{Interval: interval}
		if cmd.Flags().Changed("anchor") {
			anchor, err := parseTime("--anchor", f.anchor)
			if err != nil {
				return nil, err
			}
			interval.Anchor = anchor
		}
	}
	return s, f.limit(cmd, s)
}
