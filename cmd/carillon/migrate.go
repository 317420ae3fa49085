package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/controlplane/config"
	"github.com/carillon-scheduler/carillon/store/cockroach"
)

// newMigrate builds the commands for the schema of CockroachDB or PostgreSQL.
func newMigrate() *cobra.Command {
	var f storeFlag
	cmd := newGroup("migrate", "Bring the schema of the database up to date, or back", newMigrateUp(&f), newMigrateStatus(&f), newMigrateDown(&f))
	f.register(cmd.PersistentFlags())
	return cmd
}

// server is the database of the flag, which must be one with migrations.
func (f *storeFlag) server() (config.Store, error) {
	a, err := f.resolve()
	if err == nil && a.File != "" {
		err = invalidInput("a SQLite file is brought up to date when it is opened")
	}
	return a, err
}

func newMigrateUp(f *storeFlag) *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Take all steps that are not taken yet", Args: exactly(0),
		Long: "Takes all steps of the schema that are not taken yet. It may be killed at any time and run again;\n" +
			"of several at the same time, one does the work. Servers of the version before go on working.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := f.server()
			if err != nil {
				return err
			}
			if err := cockroach.Migrate(cmd.Context(), a.URL); err != nil {
				return err
			}
			return printMigrations(cmd, a)
		},
	}
}

func newMigrateStatus(f *storeFlag) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "List the steps, and which are taken", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := f.server()
			if err != nil {
				return err
			}
			return printMigrations(cmd, a)
		},
	}
}

func newMigrateDown(f *storeFlag) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "down-to VERSION", Short: "Take steps back until VERSION is the newest", Args: exactly(1),
		Long: "Takes steps back until VERSION is the newest. What the steps added is lost, the whole content if\n" +
			"VERSION is 0, so it must be confirmed by --yes. Stop the servers first.",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := f.server()
			if err != nil {
				return err
			}
			version, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || version < 0 {
				return invalidInput("VERSION must be the number of a step, or 0, is %q", args[0])
			}
			if !yes {
				return invalidInput("what the steps after %d added would be lost: confirm by --yes", version)
			}
			if err := cockroach.MigrateDownTo(cmd.Context(), a.URL, version); err != nil {
				return err
			}
			return printMigrations(cmd, a)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that data is lost")
	return cmd
}

func printMigrations(cmd *cobra.Command, a config.Store) error {
	list, err := cockroach.Migrations(cmd.Context(), a.URL)
	if err != nil {
		return err
	}
	missing := 0
	for _, m := range list {
		state := "taken"
		if !m.Applied {
			state = "missing"
			missing++
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%5d  %-8s %s\n", m.Version, state, m.Name)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d of %d steps are taken\n", a.Public, len(list)-missing, len(list))
	return err
}
