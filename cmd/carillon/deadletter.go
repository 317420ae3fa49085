package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func newDeadLetter(c *client) *cobra.Command {
	return newGroup("deadletter", "See dead letters, and settle many of them", newDeadLetterList(c), newDeadLetterGroups(c), newDeadLetterRedrive(c), newDeadLetterDiscard(c))
}

// deadFlags are the flags that say which dead letters are meant.
type deadFlags struct{ handler, job, errorCode, fingerprint, since, before string }

func (f *deadFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.handler, "handler", "", "only of this handler")
	flags.StringVar(&f.job, "job", "", "only of this job")
	flags.StringVar(&f.errorCode, "error-code", "", "only with this error code")
	flags.StringVar(&f.fingerprint, "fingerprint", "", "only of this cause, as `carillon deadletter groups` shows it")
	flags.StringVar(&f.since, "since", "", "only what died at this time or later, RFC 3339")
	flags.StringVar(&f.before, "before", "", "only what died before this time, RFC 3339")
}

func (f *deadFlags) filter(c *client) (m *carillonv1.DeadLetterFilter, err error) {
	m = &carillonv1.DeadLetterFilter{Handler: f.handler, ErrorCode: f.errorCode, Fingerprint: f.fingerprint}
	if f.job != "" {
		m.Job = c.jobName(f.job)
	}
	if f.since != "" {
		if m.DeadSince, err = parseTime("--since", f.since); err != nil {
			return nil, err
		}
	}
	if f.before != "" {
		m.DeadBefore, err = parseTime("--before", f.before)
	}
	return m, err
}

func newDeadLetterList(c *client) *cobra.Command {
	var f deadFlags
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(c)
			if err != nil {
				return err
			}
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				letters, err := allPages(limit, func(token string, size int32) ([]*carillonv1.DeadLetter, string, error) {
					resp, err := carillonv1.NewDeadLetterServiceClient(conn).ListDeadLetters(ctx, &carillonv1.ListDeadLettersRequest{
						Parent: c.parent(), Filter: filter, PageSize: size, PageToken: token})
					return resp.GetDeadLetters(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				return c.printDeadLetters(cmd.OutOrStdout(), letters)
			})
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most; 0: all")
	return cmd
}

func (c *client) printDeadLetters(w io.Writer, letters []*carillonv1.DeadLetter) error {
	if c.output == "json" {
		return printJSONList(w, letters)
	}
	rows := make([][]string, len(letters))
	for i, d := range letters {
		parts := strings.Split(d.GetSlot(), "/")
		rows[i] = []string{parts[3] + "/" + parts[5], d.GetHandler(), timeCell(d.GetDeadTime()), d.GetErrorCode(), d.GetSample()}
	}
	return table(w, "SLOT HANDLER DIED CODE ERROR", rows)
}

func newDeadLetterGroups(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "groups", Short: "Count dead letters by handler and cause", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewDeadLetterServiceClient(conn).GroupDeadLetters(ctx, &carillonv1.GroupDeadLettersRequest{Parent: c.parent()})
				if err != nil {
					return err
				}
				if c.output == "json" {
					return printJSONList(cmd.OutOrStdout(), resp.GetGroups())
				}
				return printGroups(cmd.OutOrStdout(), resp.GetGroups())
			})
		},
	}
}

func printGroups(w io.Writer, groups []*carillonv1.DeadLetterGroup) error {
	rows := make([][]string, len(groups))
	for i, g := range groups {
		rows[i] = []string{strconv.FormatInt(g.GetCount(), 10), g.GetHandler(), g.GetErrorCode(), g.GetFingerprint(), timeCell(g.GetLatestTime()), g.GetSample()}
	}
	return table(w, "COUNT HANDLER CODE FINGERPRINT LATEST ERROR", rows)
}

func newDeadLetterRedrive(c *client) *cobra.Command {
	var f deadFlags
	var params string
	req := &carillonv1.RedriveDeadLettersRequest{}
	cmd := &cobra.Command{
		Use: "redrive", Short: "Let many dead letters be tried again",
		Long: `Let many dead letters be tried again, and show how far it is. Interrupt it to stop: what was
redriven stays so, and the same command again goes on with the rest.`,
		Example: "  carillon deadletter redrive --handler billing.invoices --error-code db --rate 50 --brake 20 --reason 'ann: database repaired'",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Filter, err = f.filter(c); err != nil {
				return err
			}
			if req.Params, err = readParams(params, cmd.InOrStdin()); err != nil {
				return err
			}
			req.Parent = c.parent()
			return c.watchBulk(cmd, func(ctx context.Context, s carillonv1.DeadLetterServiceClient) (func() (bulkStep, error), error) {
				stream, err := s.RedriveDeadLetters(ctx, req)
				return func() (bulkStep, error) {
					m, err := stream.Recv()
					return bulkStep{m, m.GetState(), m.GetGroups(), fmt.Sprintf("%d of %d redriven, %d refused, %d succeeded, %d failed again, %d pending", m.GetRedrivenCount(),
						m.GetTotalCount(), m.GetRefusedCount(), m.GetSucceededCount(), m.GetFailedAgainCount(), m.GetPendingCount())}, err
				}, err
			})
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().Int32Var(&req.RateLimit, "rate", 0, "how many are redriven each second at most (default 100)")
	cmd.Flags().Int32Var(&req.BrakePercent, "brake", 0, "stop if more than this percentage fails again")
	cmd.Flags().StringVar(&params, "params", "", "other parameters for all of them: JSON, @FILE, or @- for standard input")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "who and why, for the record")
	cmd.Flags().BoolVar(&req.ValidateOnly, "dry-run", false, "show how many there are, and of which causes, but redrive none")
	return cmd
}

func newDeadLetterDiscard(c *client) *cobra.Command {
	var f deadFlags
	req := &carillonv1.DiscardDeadLettersRequest{}
	cmd := &cobra.Command{
		Use: "discard --reason TEXT", Short: "Give many dead letters up", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Filter, err = f.filter(c); err != nil {
				return err
			}
			req.Parent = c.parent()
			return c.watchBulk(cmd, func(ctx context.Context, s carillonv1.DeadLetterServiceClient) (func() (bulkStep, error), error) {
				stream, err := s.DiscardDeadLetters(ctx, req)
				return func() (bulkStep, error) {
					m, err := stream.Recv()
					return bulkStep{m, m.GetState(), m.GetGroups(), fmt.Sprintf("%d of %d discarded, %d refused", m.GetDiscardedCount(), m.GetTotalCount(), m.GetRefusedCount())}, err
				}, err
			})
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&req.Reason, "reason", "", "who and why, for the record (required)")
	cmd.Flags().BoolVar(&req.ValidateOnly, "dry-run", false, "show how many there are, and of which causes, but discard none")
	return cmd
}

// bulkStep is what a call about many dead letters told.
type bulkStep struct {
	message proto.Message
	state   carillonv1.BulkState
	groups  []*carillonv1.DeadLetterGroup
	text    string
}

// watchBulk follows a call about many dead letters to its end, and shows what it tells: how
// far it is to those who look, what it came to on standard output. A redrive that was stopped
// by its brake is a failure.
func (c *client) watchBulk(cmd *cobra.Command, begin func(ctx context.Context, s carillonv1.DeadLetterServiceClient) (func() (bulkStep, error), error)) error {
	return c.follow(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
		next, err := begin(ctx, carillonv1.NewDeadLetterServiceClient(conn))
		if err != nil {
			return err
		}
		var last bulkStep
		for {
			step, err := next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if len(step.groups) > 0 && c.output != "json" {
				if err := printGroups(cmd.OutOrStdout(), step.groups); err != nil {
					return err
				}
			}
			if last = step; step.state == carillonv1.BulkState_BULK_STATE_RUNNING && c.output != "json" {
				fmt.Fprintln(cmd.ErrOrStderr(), step.text)
			}
		}
		if c.output == "json" {
			err = printJSON(cmd.OutOrStdout(), last.message)
		} else {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), last.text)
		}
		if err == nil && last.state == carillonv1.BulkState_BULK_STATE_BRAKED {
			return status.Error(codes.Aborted, "stopped by the brake: too many failed again")
		}
		return err
	})
}
