package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func newGap(c *client) *cobra.Command {
	return newGroup("gap", "See what is still to be made up for, and change it", newGapList(c), newGapShow(c), newGapCatchUp(c), newGapCancel(c))
}

// gapName completes what a user typed to a gap's resource name.
func gapName(s string) string {
	if strings.HasPrefix(s, "gaps/") {
		return s
	}
	return "gaps/" + s
}

func newGapList(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the open gaps: those of downtimes, and backfills", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewGapServiceClient(conn).ListGaps(ctx, &carillonv1.ListGapsRequest{})
				if err != nil {
					return err
				}
				return c.printGaps(cmd.OutOrStdout(), resp.GetGaps())
			})
		},
	}
}

func newGapShow(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "show GAP", Short: "Show a gap, with what it owes of each job", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneGap(cmd, func(ctx context.Context, s carillonv1.GapServiceClient) (*carillonv1.Gap, error) {
				resp, err := s.GetGap(ctx, &carillonv1.GetGapRequest{Name: gapName(args[0])})
				return resp.GetGap(), err
			})
		},
	}
}

func newGapCatchUp(c *client) *cobra.Command {
	var f policyFlags
	var reason string
	cmd := &cobra.Command{
		Use: "catch-up GAP JOB", Short: "Change what a gap makes up for of one job", Args: exactly(2),
		Example: "  carillon gap catch-up 3-1796040000000000 invoices --catch-up latest --reason 'ann: only the newest matters'",
		RunE: func(cmd *cobra.Command, args []string) error {
			var j carillonv1.Job
			if err := f.apply(cmd, &j); err != nil {
				return err
			}
			return c.oneGap(cmd, func(ctx context.Context, s carillonv1.GapServiceClient) (*carillonv1.Gap, error) {
				resp, err := s.ChangeGapCatchUp(ctx, &carillonv1.ChangeGapCatchUpRequest{Name: gapName(args[0]), Job: c.jobName(args[1]), CatchUp: j.GetCatchUp(), Reason: reason})
				return resp.GetGap(), err
			})
		},
	}
	f.registerCatchUp(cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "who and why, for the record (required)")
	return cmd
}

func newGapCancel(c *client) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "cancel GAP", Short: "End a backfill; what it has made stays", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneGap(cmd, func(ctx context.Context, s carillonv1.GapServiceClient) (*carillonv1.Gap, error) {
				resp, err := s.CancelBackfill(ctx, &carillonv1.CancelBackfillRequest{Name: gapName(args[0]), Reason: reason})
				return resp.GetGap(), err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "who and why, for the record")
	return cmd
}

func newJobBackfill(c *client) *cobra.Command {
	var from, to, reason string
	var rate int32
	var dryRun, wait bool
	cmd := &cobra.Command{
		Use: "backfill JOB --from TIME --to TIME", Short: "Make the slots of a past range of a recurring job",
		Long: `Make the slots of a past range of a recurring job: from a time on, and before another one.
Slots that exist stay as they are, so it may be asked for again.`,
		Example: "  carillon job backfill invoices --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --rate 10 --reason 'ann: lost week'",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &carillonv1.BackfillJobRequest{Name: c.jobName(args[0]), RateLimit: rate, Reason: reason, ValidateOnly: dryRun}
			var err error
			if req.FromTime, err = parseTime("--from", from); err != nil {
				return err
			}
			if req.ToTime, err = parseTime("--to", to); err != nil {
				return err
			}
			return c.follow(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				s := carillonv1.NewGapServiceClient(conn)
				gap, err := within(ctx, func(ctx context.Context) (*carillonv1.BackfillJobResponse, error) { return s.BackfillJob(ctx, req) })
				if err == nil && wait && !dryRun {
					err = waitForGap(ctx, cmd, s, gap.GetGap())
				}
				if err != nil {
					return err
				}
				return c.printGap(cmd.OutOrStdout(), gap.GetGap())
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the first instant of the range, RFC 3339 (required)")
	flags.StringVar(&to, "to", "", "the end of the range, which isn't part of it, RFC 3339 (required)")
	flags.Int32Var(&rate, "rate", 0, "how many slots are made each second at most (default: as many as there is room for)")
	flags.StringVar(&reason, "reason", "", "who and why, for the record")
	flags.BoolVar(&dryRun, "dry-run", false, "show how many occurrences there are, but make nothing")
	flags.BoolVar(&wait, "wait", false, "wait until the slots are made, and show how far it is")
	return cmd
}

// waitEvery is how often a gap that is waited for is looked at.
const waitEvery = time.Second

// waitForGap waits until a gap is filled, and shows how far it is to those who look.
func waitForGap(ctx context.Context, cmd *cobra.Command, s carillonv1.GapServiceClient, gap *carillonv1.Gap) error {
	total := gap.GetOwedCount()
	for {
		resp, err := within(ctx, func(ctx context.Context) (*carillonv1.GetGapResponse, error) {
			return s.GetGap(ctx, &carillonv1.GetGapRequest{Name: gap.GetName()})
		})
		if status.Code(err) == codes.NotFound {
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d made\n", total, total)
			gap.OwedCount, gap.MadeCount, gap.Remaining = 0, total, nil
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d made\n", total-resp.GetGap().GetOwedCount(), total)
		select {
		case <-time.After(waitEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// within makes one call of a command that takes longer.
func within[R any](ctx context.Context, call func(ctx context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

// oneGap makes a call that answers with a gap, and shows it.
func (c *client) oneGap(cmd *cobra.Command, do func(ctx context.Context, s carillonv1.GapServiceClient) (*carillonv1.Gap, error)) error {
	return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
		gap, err := do(ctx, carillonv1.NewGapServiceClient(conn))
		if err != nil {
			return err
		}
		return c.printGap(cmd.OutOrStdout(), gap)
	})
}

func (c *client) printGaps(w io.Writer, gaps []*carillonv1.Gap) error {
	if c.output == "json" {
		return printJSONList(w, gaps)
	}
	rows := make([][]string, len(gaps))
	for i, g := range gaps {
		rows[i] = []string{lastPart(g.GetName()), gapKind(g), timeCell(g.GetCursorTime()), timeCell(g.GetToTime()), strconv.FormatInt(int64(g.GetJobCount()), 10),
			strconv.FormatInt(g.GetOwedCount(), 10), strconv.FormatInt(g.GetMadeCount(), 10), rateCell(g), remainingCell(g)}
	}
	return table(w, "GAP OF MADE-UP-TO TO JOBS OWED MADE RATE REMAINING", rows)
}

// gapKind says what a gap is of.
func gapKind(g *carillonv1.Gap) string {
	switch {
	case g.GetRequestTime() != nil:
		return "backfill of " + lastPart(g.GetJob())
	case g.GetJob() != "":
		return "job " + lastPart(g.GetJob())
	}
	return "downtime"
}

func rateCell(g *carillonv1.Gap) string {
	if g.GetRate() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f/s", g.GetRate())
}

func remainingCell(g *carillonv1.Gap) string {
	if g.GetRemaining() == nil {
		return "-"
	}
	return g.GetRemaining().AsDuration().String()
}

func (c *client) printGap(w io.Writer, g *carillonv1.Gap) error {
	if c.output == "json" {
		return printJSON(w, g)
	}
	limit := "-"
	if g.GetRateLimit() > 0 {
		limit = fmt.Sprintf("%d/s", g.GetRateLimit())
	}
	rows := [][]string{
		{"name", g.GetName()}, {"of", gapKind(g)}, {"shard", strconv.Itoa(int(g.GetShard()))}, {"from", timeCell(g.GetFromTime())}, {"to", timeCell(g.GetToTime())},
		{"made up to", timeCell(g.GetCursorTime())}, {"recorded", timeCell(g.GetCreateTime())}, {"rate limit", limit},
		{"jobs", strconv.Itoa(int(g.GetJobCount()))}, {"owed", strconv.FormatInt(g.GetOwedCount(), 10)}, {"left out", strconv.FormatInt(g.GetLeftOutCount(), 10)},
		{"made", strconv.FormatInt(g.GetMadeCount(), 10)}, {"rate", rateCell(g)}, {"remaining", remainingCell(g)},
	}
	if err := fields(w, rows); err != nil || len(g.GetJobs()) == 0 {
		return err
	}
	jobs := make([][]string, len(g.GetJobs()))
	for i, o := range g.GetJobs() {
		catchUp := catchUpText(o.GetCatchUp())
		if o.GetChanged() {
			catchUp += " (changed)"
		}
		jobs[i] = []string{lastPart(o.GetJob()), catchUp, strconv.FormatInt(o.GetOwedCount(), 10), strconv.FormatInt(o.GetLeftOutCount(), 10)}
	}
	fmt.Fprintln(w)
	return table(w, "JOB CATCH-UP OWED LEFT-OUT", jobs)
}
