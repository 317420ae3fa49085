package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func newJob(c *client) *cobra.Command {
	return newGroup("job", "Create, read, run and delete jobs", newJobCreate(c), newJobList(c), newJobGet(c), newJobDelete(c), newJobRun(c), newJobBackfill(c))
}

// scheduleFlags are the flags of what a schedule is.
type scheduleFlags struct {
	cron, anchor, start, end string
	every, spread            time.Duration
	maxOccurrences           int32
	except                   []string
}

// register registers all of them but --cron.
func (f *scheduleFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.every, "every", 0, "run on a grid of this distance, such as 90s or 6h")
	flags.StringVar(&f.anchor, "anchor", "", "a point of the grid of --every, RFC 3339 (default: now)")
	flags.StringVar(&f.start, "start", "", "fire at no earlier time, RFC 3339")
	flags.StringVar(&f.end, "end", "", "fire at no later time, RFC 3339")
	flags.Int32Var(&f.maxOccurrences, "max-occurrences", 0, "fire so often at most")
	flags.DurationVar(&f.spread, "spread", 0, "move the job, by its name, to a place within this time, such as 5m")
	flags.StringArrayVar(&f.except, "except", nil, "don't run on what this calendar holds, NAME or NAME@VERSION; may be repeated")
}

// given reports whether any of them was.
func (f *scheduleFlags) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"every", "anchor", "start", "end", "max-occurrences", "spread", "except"}, cmd.Flags().Changed)
}

// limit adds to a schedule what the flags add.
func (f *scheduleFlags) limit(cmd *cobra.Command, s *carillonv1.Schedule) (err error) {
	given := cmd.Flags().Changed
	if given("start") {
		if s.StartTime, err = parseTime("--start", f.start); err != nil {
			return err
		}
	}
	if given("end") {
		if s.EndTime, err = parseTime("--end", f.end); err != nil {
			return err
		}
	}
	if given("spread") {
		s.Spread = durationpb.New(f.spread)
	}
	if given("max-occurrences") && f.maxOccurrences < 1 {
		return invalidInput("--max-occurrences must be at least 1, is %d", f.maxOccurrences)
	}
	s.MaxOccurrences, s.Calendars = f.maxOccurrences, f.except
	return nil
}

// createFlags are the flags of `job create`.
type createFlags struct {
	scheduleFlags
	handler, at, params, requestID string
	timeout, backoff, maxBackoff   time.Duration
	factor, jitter                 float64
	maxAttempts                    int32
	labels                         map[string]string
	noRetry                        []string
	retryWindow                    time.Duration
	policies                       policyFlags
	now, allowUnregistered, dryRun bool
}

func newJobCreate(c *client) *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use:   "create [NAME] --handler HANDLER (--now | --at TIME | --cron EXPR | --every DURATION)",
		Short: "Create a job",
		Example: `  carillon job create nightly --handler billing.invoices --cron '0 2 * * *' --params '{"region":"eu"}'
  carillon job create --handler billing.invoices --now
  carillon job create reminder --handler mail.send --at 2026-12-24T18:00:00Z --params @mail.json`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.request(cmd, c.parent())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				req.JobId = args[0]
			}
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewJobServiceClient(conn).CreateJob(ctx, req)
				if err != nil {
					return err
				}
				return c.printJob(cmd.OutOrStdout(), resp.GetJob())
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.handler, "handler", "", "the handler that runs (required)")
	flags.BoolVar(&f.now, "now", false, "run once, now")
	flags.StringVar(&f.at, "at", "", "run once at this time, RFC 3339, UTC")
	flags.StringVar(&f.cron, "cron", "", "run by a cron expression, UTC")
	f.register(flags)
	flags.StringVar(&f.params, "params", "", "parameters: JSON, @FILE, or @- for standard input")
	flags.StringVar(&f.requestID, "request-id", "", "makes the call repeatable")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long an attempt may run (default: the server's)")
	flags.Int32Var(&f.maxAttempts, "max-attempts", 0, "how many attempts may fail (default: the server's)")
	flags.DurationVar(&f.backoff, "backoff", 0, "delay after the first failure (default: the server's)")
	flags.DurationVar(&f.maxBackoff, "max-backoff", 0, "longest delay (default: the server's)")
	flags.Float64Var(&f.factor, "backoff-factor", 0, "growth of the delay (default: the server's)")
	flags.Float64Var(&f.jitter, "jitter", 0, "random share of the delay, 0 to 1 (default: the server's)")
	flags.StringArrayVar(&f.noRetry, "no-retry", nil, "an error code that is not tried again; may be repeated")
	flags.DurationVar(&f.retryWindow, "retry-window", 0, "how long after a slot was made it may be tried again (default: without a limit)")
	f.policies.register(flags)
	flags.StringToStringVar(&f.labels, "label", nil, "a label, KEY=VALUE; may be repeated")
	flags.BoolVar(&f.allowUnregistered, "allow-unregistered", false, "accept a handler that no worker has registered yet")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check and show, but store nothing")
	return cmd
}

// request builds the request from the flags that were given; what wasn't is left
// to the server.
func (f *createFlags) request(cmd *cobra.Command, parent string) (*carillonv1.CreateJobRequest, error) {
	schedule, err := f.schedule(cmd)
	if err != nil {
		return nil, err
	}
	params, err := readParams(f.params, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	given := cmd.Flags().Changed
	policy := &carillonv1.RetryPolicy{NonRetryableCodes: f.noRetry}
	if given("retry-window") {
		policy.RetryWindow = durationpb.New(f.retryWindow)
	}
	if given("max-attempts") {
		policy.MaxAttempts = &f.maxAttempts
	}
	if given("backoff") {
		policy.InitialBackoff = durationpb.New(f.backoff)
	}
	if given("max-backoff") {
		policy.MaxBackoff = durationpb.New(f.maxBackoff)
	}
	if given("backoff-factor") {
		policy.BackoffFactor = &f.factor
	}
	if given("jitter") {
		policy.Jitter = &f.jitter
	}
	j := &carillonv1.Job{Handler: f.handler, Params: params, Schedule: schedule, RetryPolicy: policy, Labels: f.labels}
	if given("timeout") {
		j.AttemptTimeout = durationpb.New(f.timeout)
	}
	if err := f.policies.apply(cmd, j); err != nil {
		return nil, err
	}
	return &carillonv1.CreateJobRequest{Parent: parent, Job: j, RequestId: f.requestID,
		AllowUnregisteredHandler: f.allowUnregistered, ValidateOnly: f.dryRun}, nil
}

func (f *createFlags) schedule(cmd *cobra.Command) (*carillonv1.Schedule, error) {
	var schedules []*carillonv1.Schedule
	given := cmd.Flags().Changed
	if f.now {
		schedules = append(schedules, &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}})
	}
	if given("at") {
		at, err := parseTime("--at", f.at)
		if err != nil {
			return nil, err
		}
		schedules = append(schedules, &carillonv1.Schedule{Kind: &carillonv1.Schedule_RunAt{RunAt: at}})
	}
	if given("cron") {
		schedules = append(schedules, &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: f.cron}})
	}
	if given("every") {
		interval := &carillonv1.IntervalSchedule{Every: durationpb.New(f.every)}
		if given("anchor") {
			anchor, err := parseTime("--anchor", f.anchor)
			if err != nil {
				return nil, err
			}
			interval.Anchor = anchor
		}
		schedules = append(schedules, &carillonv1.Schedule{Kind: &carillonv1.Schedule_Interval{Interval: interval}})
	} else if given("anchor") {
		return nil, invalidInput("--anchor is for --every")
	}
	if len(schedules) != 1 {
		return nil, invalidInput("give exactly one of --now, --at, --cron and --every")
	}
	return schedules[0], f.limit(cmd, schedules[0])
}

func parseTime(flag, s string) (*timestamppb.Timestamp, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, invalidInput("%s must be a time such as 2026-12-24T18:00:00Z, is %q", flag, s)
	}
	return timestamppb.New(t), nil
}

// readParams reads --params.
func readParams(s string, stdin io.Reader) (*carillonv1.Json, error) {
	switch {
	case s == "":
		return nil, nil
	case s == "@-":
		b, err := io.ReadAll(io.LimitReader(stdin, maxMessageBytes))
		return &carillonv1.Json{Text: string(b)}, err
	case s[0] == '@':
		b, err := os.ReadFile(s[1:])
		if err != nil {
			return nil, invalidInput("--params: %w", err)
		}
		return &carillonv1.Json{Text: string(b)}, nil
	}
	return &carillonv1.Json{Text: s}, nil
}

func newJobList(c *client) *cobra.Command {
	var ended bool
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs by name", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				jobs, err := allPages(limit, func(token string, size int32) ([]*carillonv1.Job, string, error) {
					resp, err := carillonv1.NewJobServiceClient(conn).ListJobs(ctx, &carillonv1.ListJobsRequest{
						Parent: c.parent(), PageSize: size, PageToken: token, ShowEnded: ended})
					return resp.GetJobs(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				return c.printJobs(cmd.OutOrStdout(), jobs)
			})
		},
	}
	cmd.Flags().BoolVar(&ended, "ended", false, "list ended jobs, too")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most; 0: all")
	return cmd
}

// allPages reads pages until limit or the end.
func allPages[T any](limit int, page func(token string, size int32) ([]T, string, error)) ([]T, error) {
	const size = 1000
	var all []T
	for token := ""; ; {
		want := int32(size)
		if limit > 0 {
			want = min(want, int32(limit-len(all)))
		}
		items, next, err := page(token, want)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if next == "" || limit > 0 && len(all) >= limit {
			return all, nil
		}
		token = next
	}
}

// oneJob builds a command that does something with one job.
func oneJob(c *client, use, about string, do func(ctx context.Context, s carillonv1.JobServiceClient, name string) (*carillonv1.Job, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: about, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				j, err := do(ctx, carillonv1.NewJobServiceClient(conn), c.jobName(args[0]))
				if err != nil {
					return err
				}
				return c.printJob(cmd.OutOrStdout(), j)
			})
		},
	}
}

func newJobGet(c *client) *cobra.Command {
	return oneJob(c, "get JOB", "Read a job by its name or uid",
		func(ctx context.Context, s carillonv1.JobServiceClient, name string) (*carillonv1.Job, error) {
			resp, err := s.GetJob(ctx, &carillonv1.GetJobRequest{Name: name})
			return resp.GetJob(), err
		})
}

func newJobDelete(c *client) *cobra.Command {
	return oneJob(c, "delete JOB", "End a job: it fires no more",
		func(ctx context.Context, s carillonv1.JobServiceClient, name string) (*carillonv1.Job, error) {
			resp, err := s.DeleteJob(ctx, &carillonv1.DeleteJobRequest{Name: name})
			return resp.GetJob(), err
		})
}

func newJobRun(c *client) *cobra.Command {
	var requestID string
	cmd := &cobra.Command{
		Use: "run JOB", Short: "Run a job once more, now", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewJobServiceClient(conn).RunJob(ctx, &carillonv1.RunJobRequest{Name: c.jobName(args[0]), RequestId: requestID})
				if err != nil {
					return err
				}
				return c.printSlot(cmd.OutOrStdout(), resp.GetSlot())
			})
		},
	}
	cmd.Flags().StringVar(&requestID, "request-id", "", "makes the call repeatable")
	return cmd
}

func (c *client) printJobs(w io.Writer, jobs []*carillonv1.Job) error {
	if c.output == "json" {
		return printJSONList(w, jobs)
	}
	rows := make([][]string, len(jobs))
	for i, j := range jobs {
		rows[i] = []string{lastPart(j.GetName()), short(j.GetState().String(), "JOB_STATE_"), j.GetHandler(),
			j.GetScheduleDescription(), timeCell(j.GetNextFireTime())}
	}
	return table(w, "NAME STATE HANDLER SCHEDULE NEXT", rows)
}

func (c *client) printJob(w io.Writer, j *carillonv1.Job) error {
	if c.output == "json" {
		return printJSON(w, j)
	}
	policy := j.GetRetryPolicy()
	rows := [][]string{
		{"name", j.GetName()}, {"uid", j.GetUid()}, {"state", short(j.GetState().String(), "JOB_STATE_")},
		{"handler", j.GetHandler()}, {"params", j.GetParams().GetText()}, {"schedule", j.GetScheduleDescription()},
		{"next fire", timeCell(j.GetNextFireTime())}, {"created", timeCell(j.GetCreateTime())}, {"ended", timeCell(j.GetEndTime())},
		{"timeout", j.GetAttemptTimeout().AsDuration().String()},
		{"retries", fmt.Sprintf("%d attempts, back-off %s to %s, factor %g, jitter %g", policy.GetMaxAttempts(),
			policy.GetInitialBackoff().AsDuration(), policy.GetMaxBackoff().AsDuration(), policy.GetBackoffFactor(), policy.GetJitter())},
	}
	if codes := policy.GetNonRetryableCodes(); len(codes) > 0 {
		rows = append(rows, []string{"not retried", strings.Join(codes, ", ")})
	}
	if policy.GetRetryWindow() != nil {
		rows = append(rows, []string{"retry window", policy.GetRetryWindow().AsDuration().String()})
	}
	rows = append(rows, policyRows(j)...)
	for _, warning := range j.GetWarnings() {
		rows = append(rows, []string{"warning", warning})
	}
	if labels := j.GetLabels(); len(labels) > 0 {
		rows = append(rows, []string{"labels", joinLabels(labels)})
	}
	if q := j.GetQuarantineReason(); q != "" {
		rows = append(rows, []string{"set aside", q})
	}
	return fields(w, rows)
}

// joinLabels writes labels in the order of their keys.
func joinLabels(labels map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ", ")
}
