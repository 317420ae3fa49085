package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func newAdvance(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "advance DURATION|TIME",
		Short: "Let simulated time pass in a `dev --clock=sim`, with all that is due in it",
		Example: "  carillon dev advance 24h\n" +
			"  carillon dev advance 2027-01-01T00:00:00Z",
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.follow(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				return c.advance(ctx, cmd, carillonv1.NewClockServiceClient(conn), args[0])
			})
		},
	}
}

// advance asks again until the time has come.
func (c *client) advance(ctx context.Context, cmd *cobra.Command, clock carillonv1.ClockServiceClient, to string) error {
	began, err := clock.GetClock(ctx, &carillonv1.GetClockRequest{})
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("the server at %s runs on real time: start one with `carillon dev --clock=sim`", c.address)
	}
	if err != nil {
		return err
	}
	now := began.GetTime().AsTime()
	until, err := whenToStop(to, now)
	if err != nil {
		return err
	}
	for running := int32(0); running > 0 || now.Before(until); {
		resp, err := clock.AdvanceClock(ctx, &carillonv1.AdvanceClockRequest{Until: timestamppb.New(until)})
		if err != nil {
			return err
		}
		if now, running = resp.GetTime().AsTime(), resp.GetRunning(); running > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "it is %s; time waits for %d attempts that run\n", now.Format(time.RFC3339), running)
		}
	}
	fmt.Fprintln(cmd.OutOrStdout(), now.Format(time.RFC3339))
	return nil
}

func whenToStop(to string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(to); err == nil {
		if d < 0 {
			return now, invalidInput("DURATION must not be negative, is %s", to)
		}
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, to)
	if err != nil {
		return now, invalidInput("%q is neither a duration, such as 24h, nor a time, such as 2027-01-01T00:00:00Z", to)
	}
	if at.Before(now) {
		return now, invalidInput("%s has passed: it is %s", to, now.Format(time.RFC3339))
	}
	return at, nil
}
