// Command carillon is the one binary: the servers, the migrations of their database,
// a worker that needs no code, and the command line of the API.
//
// Exit codes: 0 success; 1 failure; 2 invalid input; 3 `why`: the slot is not
// running and not done.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Exit codes beside success.
const (
	exitFailure = 1
	exitInvalid = 2
	exitBlocked = 3
)

// exitError ends the program with a code. Its error may be nil: everything was
// said.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return fmt.Sprint(e.err) }
func (e exitError) Unwrap() error { return e.err }

// invalidInput is the error of what a user typed.
func invalidInput(format string, args ...any) error {
	return exitError{exitInvalid, fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(report(err))
}

// report prints an error with its reason and fields, and returns the exit code.
func report(err error) int {
	if err == nil {
		return 0
	}
	exit := exitError{code: exitFailure, err: err}
	errors.As(err, &exit)
	if exit.err == nil {
		return exit.code
	}
	st, ok := status.FromError(exit.err)
	if !ok {
		fmt.Fprintln(os.Stderr, "error:", exit.err)
		return exit.code
	}
	printStatus(st)
	switch st.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange:
		return exitInvalid
	}
	return exit.code
}

func printStatus(st *status.Status) {
	reason := ""
	var fields []*errdetails.BadRequest_FieldViolation
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = " (" + d.GetReason() + ")"
		case *errdetails.BadRequest:
			fields = d.GetFieldViolations()
		}
	}
	fmt.Fprintf(os.Stderr, "error: %s%s\n", st.Message(), reason)
	if len(fields) > 1 {
		for _, f := range fields {
			fmt.Fprintf(os.Stderr, "  %s: %s\n", f.GetField(), f.GetDescription())
		}
	}
	if st.Code() == codes.Unavailable {
		fmt.Fprintln(os.Stderr, "Is the server running? `carillon dev` starts one; --address or CARILLON_ADDRESS names another.")
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "carillon",
		Short:         "A distributed job scheduler: one slot for every occurrence, at most one success.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // RunE says what is wrong with them
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return invalidInput("unknown command %q; see carillon --help", args[0])
			}
			return cmd.Help()
		},
	}
	c := &client{}
	flags := root.PersistentFlags()
	flags.StringVar(&c.address, "address", envOr("CARILLON_ADDRESS", "127.0.0.1:7070"), "gRPC address of a node (CARILLON_ADDRESS)")
	flags.StringVarP(&c.namespace, "namespace", "N", envOr("CARILLON_NAMESPACE", "default"), "namespace (CARILLON_NAMESPACE)")
	c.addTLS(flags)
	flags.StringVarP(&c.output, "output", "o", "table", "output: table or json")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if c.output != "table" && c.output != "json" {
			return invalidInput("--output must be table or json, is %q", c.output)
		}
		return nil
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitError{exitInvalid, err} })
	root.AddCommand(newDev(c), newServer(), newConfig(), newTLS(), newEtcd(), newWorker(c), newMigrate(), newBench(), newBenchWorker(), newPlan(c), newJob(c), newSlot(c), newHandler(c), newWhy(c), newDeadLetter(c), newGap(c), newCalendar(c), newSchedule(c), newClusterGroup(c), newVersion())
	return root
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// exactly and atMost are cobra's checks with this program's exit code.
func exactly(n int) cobra.PositionalArgs { return checkArgs(cobra.ExactArgs(n)) }
func atMost(n int) cobra.PositionalArgs  { return checkArgs(cobra.MaximumNArgs(n)) }

func checkArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return exitError{exitInvalid, fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

// newGroup builds a command that only holds others.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return invalidInput("%s has no command %q; see carillon %s --help", use, args[0], use)
		}
		return cmd.Help()
	}}
	cmd.AddCommand(commands...)
	return cmd
}

// newVersion tells what was built.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "carillon %s %s\n", version(), runtime.Version())
			return err
		},
	}
}
