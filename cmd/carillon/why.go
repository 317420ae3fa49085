package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func newWhy(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "why JOB[/TIME]",
		Short: "Tell why a slot is where it is",
		Long: `Tell why a slot is where it is, the deciding reason first. Without a time it is
the job's newest slot, or its next fire time where it has none.

Exit code 0: it runs or is done, or is not due. 3: something keeps it waiting, or
it failed.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewSlotServiceClient(conn).ExplainSlot(ctx, &carillonv1.ExplainSlotRequest{Name: c.slotName(args[0])})
				if err != nil {
					return err
				}
				if err := c.printReasons(cmd, resp); err != nil {
					return err
				}
				if blocked(resp) {
					return exitError{code: exitBlocked}
				}
				return nil
			})
		},
	}
}

func (c *client) printReasons(cmd *cobra.Command, resp *carillonv1.ExplainSlotResponse) error {
	w := cmd.OutOrStdout()
	if c.output == "json" {
		return printJSON(w, resp)
	}
	if s := resp.GetSlot(); s != nil {
		fmt.Fprintf(w, "%s is %s\n", s.GetName(), short(s.GetState().String(), "SLOT_STATE_"))
	}
	for _, r := range resp.GetReasons() {
		fmt.Fprintf(w, "%s: %s\n", short(r.GetCode().String(), "REASON_CODE_"), r.GetMessage())
		if r.GetHint() != "" {
			fmt.Fprintf(w, "  %s\n", r.GetHint())
		}
	}
	return nil
}

// blocked reports whether the deciding reason is one that somebody should look
// at.
func blocked(resp *carillonv1.ExplainSlotResponse) bool {
	if len(resp.GetReasons()) == 0 {
		return false
	}
	switch resp.GetReasons()[0].GetCode() {
	case carillonv1.ReasonCode_REASON_CODE_SUCCEEDED, carillonv1.ReasonCode_REASON_CODE_LEASE_HELD,
		carillonv1.ReasonCode_REASON_CODE_NOT_DUE, carillonv1.ReasonCode_REASON_CODE_CANCELLED,
		carillonv1.ReasonCode_REASON_CODE_NOT_SCHEDULED, carillonv1.ReasonCode_REASON_CODE_JOB_ENDED:
		return false
	}
	return true
}
