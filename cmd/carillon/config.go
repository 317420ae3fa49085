package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/controlplane/config"
)

// newConfig builds the commands that say what a server would be told.
func newConfig() *cobra.Command {
	return newGroup("config", "Check or print the settings of a server", newConfigCheck(), newConfigPrint())
}

func newConfigCheck() *cobra.Command {
	return configCommand("check", "Say all that is wrong with the settings, or ok", func(cmd *cobra.Command, _ *config.Loaded) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "ok")
		return err
	})
}

func newConfigPrint() *cobra.Command {
	return configCommand("print", "Print the settings as a file, with the source of each", func(cmd *cobra.Command, l *config.Loaded) error {
		return l.WriteYAML(cmd.OutOrStdout())
	})
}

// configCommand takes what `carillon server` takes.
func configCommand(use, short string, run func(*cobra.Command, *config.Loaded) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: exactly(0),
		Long: short + ". It takes the flags of `carillon server`, and reads its\nenvironment and file; it connects to nothing."}
	f := config.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load(cmd, f)
		if err != nil {
			return err
		}
		return run(cmd, loaded)
	}
	return cmd
}
