package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// instantID turns a fire time of RFC 3339 into the form that stands in names;
// anything else stays as it is.
func instantID(s string) string {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return job.At(t).ID()
	}
	return s
}

func newSlot(c *client) *cobra.Command {
	return newGroup("slot", "Read slots, cancel them, and settle dead letters", newSlotList(c), newSlotGet(c), newSlotAttempts(c), newSlotCancel(c),
		newSlotRedrive(c), newSlotDiscard(c))
}

// oneSlot checks that a command is given one slot.
func oneSlot(cmd *cobra.Command, args []string) error {
	if err := exactly(1)(cmd, args); err != nil {
		return err
	}
	if !strings.Contains(args[0], "/") {
		return invalidInput("give JOB/TIME, such as %s/20261130T020000Z; `carillon slot list %s` shows the times", args[0], args[0])
	}
	return nil
}

func newSlotList(c *client) *cobra.Command {
	var states []string
	var limit int
	cmd := &cobra.Command{
		Use: "list [JOB]", Short: "List the slots of a job, or of all jobs, newest first", Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseStates(states)
			if err != nil {
				return err
			}
			parent := c.jobName("-")
			if len(args) == 1 {
				parent = c.jobName(args[0])
			}
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				slots, err := allPages(limit, func(token string, size int32) ([]*carillonv1.Slot, string, error) {
					resp, err := carillonv1.NewSlotServiceClient(conn).ListSlots(ctx, &carillonv1.ListSlotsRequest{
						Parent: parent, PageSize: size, PageToken: token, States: wanted})
					return resp.GetSlots(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				return c.printSlots(cmd.OutOrStdout(), slots)
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only these states, such as RUNNING,DEAD")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most; 0: all")
	return cmd
}

func parseStates(names []string) ([]carillonv1.SlotState, error) {
	var states []carillonv1.SlotState
	for _, n := range names {
		v, ok := carillonv1.SlotState_value["SLOT_STATE_"+strings.ToUpper(n)]
		if !ok || v == 0 {
			var known []string
			for name, v := range carillonv1.SlotState_value {
				if v != 0 {
					known = append(known, short(name, "SLOT_STATE_"))
				}
			}
			slices.Sort(known)
			return nil, invalidInput("--state must be one of %s, is %q", strings.Join(known, ", "), n)
		}
		states = append(states, carillonv1.SlotState(v))
	}
	return states, nil
}

func newSlotGet(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "get JOB/TIME", Short: "Read a slot", Args: oneSlot,
		Example: "  carillon slot get nightly/20261130T020000Z",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewSlotServiceClient(conn).GetSlot(ctx, &carillonv1.GetSlotRequest{Name: c.slotName(args[0])})
				if err != nil {
					return err
				}
				return c.printSlot(cmd.OutOrStdout(), resp.GetSlot())
			})
		},
	}
}

func newSlotAttempts(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "attempts JOB/TIME", Short: "List the attempts of a slot", Args: oneSlot,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				attempts, err := allPages(0, func(token string, size int32) ([]*carillonv1.Attempt, string, error) {
					resp, err := carillonv1.NewSlotServiceClient(conn).ListAttempts(ctx, &carillonv1.ListAttemptsRequest{
						Parent: c.slotName(args[0]), PageSize: size, PageToken: token})
					return resp.GetAttempts(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				return c.printAttempts(cmd.OutOrStdout(), attempts)
			})
		},
	}
}

// onSlot builds a command that does something with one slot, for a reason.
func onSlot(c *client, use, about string, do func(ctx context.Context, s carillonv1.SlotServiceClient, name, reason string) (*carillonv1.Slot, error)) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: use, Short: about, Args: oneSlot,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				slot, err := do(ctx, carillonv1.NewSlotServiceClient(conn), c.slotName(args[0]), reason)
				if err != nil {
					return err
				}
				return c.printSlot(cmd.OutOrStdout(), slot)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "who and why, for the record")
	return cmd
}

func newSlotCancel(c *client) *cobra.Command {
	return onSlot(c, "cancel JOB/TIME", "Cancel a slot", func(ctx context.Context, s carillonv1.SlotServiceClient, name, reason string) (*carillonv1.Slot, error) {
		resp, err := s.CancelSlot(ctx, &carillonv1.CancelSlotRequest{Name: name, Reason: reason})
		return resp.GetSlot(), err
	})
}

func newSlotRedrive(c *client) *cobra.Command {
	var params string
	var cmd *cobra.Command
	cmd = onSlot(c, "redrive JOB/TIME", "Let a dead slot be tried again", func(ctx context.Context, s carillonv1.SlotServiceClient, name, reason string) (*carillonv1.Slot, error) {
		others, err := readParams(params, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		resp, err := s.RedriveSlot(ctx, &carillonv1.RedriveSlotRequest{Name: name, Reason: reason, Params: others})
		return resp.GetSlot(), err
	})
	cmd.Flags().StringVar(&params, "params", "", "other parameters: JSON, @FILE, or @- for standard input")
	return cmd
}

func newSlotDiscard(c *client) *cobra.Command {
	return onSlot(c, "discard JOB/TIME", "Give a dead slot up", func(ctx context.Context, s carillonv1.SlotServiceClient, name, reason string) (*carillonv1.Slot, error) {
		resp, err := s.DiscardSlot(ctx, &carillonv1.DiscardSlotRequest{Name: name, Reason: reason})
		return resp.GetSlot(), err
	})
}

func newHandler(c *client) *cobra.Command {
	return newGroup("handler", "Read the catalog", &cobra.Command{
		Use: "list", Short: "List the handlers", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				handlers, err := allPages(0, func(token string, size int32) ([]*carillonv1.Handler, string, error) {
					resp, err := carillonv1.NewHandlerServiceClient(conn).ListHandlers(ctx, &carillonv1.ListHandlersRequest{PageSize: size, PageToken: token})
					return resp.GetHandlers(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				return c.printHandlers(cmd.OutOrStdout(), handlers)
			})
		},
	})
}

func (c *client) printHandlers(w io.Writer, handlers []*carillonv1.Handler) error {
	if c.output == "json" {
		return printJSONList(w, handlers)
	}
	rows := make([][]string, len(handlers))
	for i, h := range handlers {
		rows[i] = []string{lastPart(h.GetName()), fmt.Sprint(h.GetLiveWorkers()), timeCell(h.GetLastSeenTime())}
	}
	return table(w, "NAME WORKERS LAST_SEEN", rows)
}

func latenessCell(s *carillonv1.Slot) string {
	if s.GetLateness() == nil {
		return ""
	}
	return s.GetLateness().AsDuration().Round(100 * time.Microsecond).String()
}

func (c *client) printSlots(w io.Writer, slots []*carillonv1.Slot) error {
	if c.output == "json" {
		return printJSONList(w, slots)
	}
	rows := make([][]string, len(slots))
	for i, s := range slots {
		parts := strings.Split(s.GetName(), "/")
		rows[i] = []string{parts[3], parts[5], short(s.GetState().String(), "SLOT_STATE_"), short(s.GetTrigger().String(), "SLOT_TRIGGER_"),
			fmt.Sprintf("%d/%d", s.GetAttempt(), s.GetMaxAttempts()), latenessCell(s), s.GetWorker(), s.GetErrorMessage()}
	}
	return table(w, "JOB FIRE_TIME STATE TRIGGER ATTEMPT LATENESS WORKER ERROR", rows)
}

func (c *client) printSlot(w io.Writer, s *carillonv1.Slot) error {
	if c.output == "json" {
		return printJSON(w, s)
	}
	rows := [][]string{
		{"name", s.GetName()}, {"state", short(s.GetState().String(), "SLOT_STATE_")}, {"trigger", short(s.GetTrigger().String(), "SLOT_TRIGGER_")},
		{"fire time", timeCell(s.GetFireTime())}, {"handler", s.GetHandler()},
		{"attempt", fmt.Sprintf("%d, %d of %d failed", s.GetAttempt(), s.GetFailures(), s.GetMaxAttempts())},
		{"worker", s.GetWorker()}, {"created", timeCell(s.GetCreateTime())}, {"claimed", timeCell(s.GetClaimTime())},
		{"started", timeCell(s.GetStartTime())}, {"lateness", latenessCell(s)}, {"finished", timeCell(s.GetFinishTime())},
		{"not before", timeCell(s.GetNotBefore())}, {"deadline", timeCell(s.GetDeadline())}, {"lease ends", timeCell(s.GetLeaseEndTime())},
		{"outcome", short(s.GetOutcome().String(), "ATTEMPT_OUTCOME_")}, {"error", s.GetErrorMessage()}, {"result", s.GetResult().GetText()},
	}
	if p := s.GetProgress(); p != nil {
		rows = append(rows, []string{"progress", fmt.Sprintf("%d of %d %s", p.GetDone(), p.GetTotal(), p.GetNote())})
	}
	if err := fields(w, rows); err != nil || s.GetLog() == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "\nlog of attempt %d:\n%s\n", s.GetAttempt(), strings.TrimRight(s.GetLog(), "\n"))
	return err
}

func (c *client) printAttempts(w io.Writer, attempts []*carillonv1.Attempt) error {
	if c.output == "json" {
		return printJSONList(w, attempts)
	}
	rows := make([][]string, len(attempts))
	for i, a := range attempts {
		rows[i] = []string{fmt.Sprint(a.GetAttempt()), short(a.GetOutcome().String(), "ATTEMPT_OUTCOME_"), a.GetWorker(),
			timeCell(a.GetClaimTime()), timeCell(a.GetEndTime()), a.GetErrorMessage(), a.GetLateResult()}
	}
	return table(w, "ATTEMPT OUTCOME WORKER CLAIMED ENDED ERROR LATE_RESULT", rows)
}
