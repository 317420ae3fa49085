package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/job/schedule"
)

// previewOutput is the JSON of `schedule preview`.
type previewOutput struct {
	FireTimes   []string `json:"fire_times"`
	Description string   `json:"description"`
	Warnings    []string `json:"warnings"`
}

const maxPreview = 100_000

func newSchedule(c *client) *cobra.Command {
	var from string
	var count int
	preview := &cobra.Command{
		Use: "preview EXPR", Short: "Show when a cron expression fires", Args: exactly(1),
		Example: "  carillon schedule preview '0 2 * * *' -n 10",
		RunE: func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			if from != "" {
				t, err := parseTime("--from", from)
				if err != nil {
					return err
				}
				start = t.AsTime()
			}
			if count < 1 || count > maxPreview {
				return invalidInput("-n must be 1 to %d, is %d", maxPreview, count)
			}
			out, err := previewCron(args[0], start, count)
			if err != nil {
				return err
			}
			return c.printPreview(cmd, out)
		},
	}
	preview.Flags().StringVar(&from, "from", "", "show fire times after this one, RFC 3339 (default: now)")
	preview.Flags().IntVarP(&count, "count", "n", 3, "how many")
	return newGroup("schedule", "Look at schedules, without a server", preview)
}

func previewCron(expr string, from time.Time, count int) (previewOutput, error) {
	r, err := schedule.ParseCron(expr)
	if err != nil {
		return previewOutput{}, exitError{exitInvalid, err}
	}
	out := previewOutput{FireTimes: []string{}, Description: r.Describe(), Warnings: []string{}}
	out.Warnings = append(out.Warnings, r.Warnings()...)
	at := from.Unix()
	if from.Unix() < schedule.MinSecond || from.Unix() > schedule.MaxSecond {
		return out, exitError{exitInvalid, errors.New("--from must be in the years 1 to 9999")}
	}
	for range count {
		next, ok := r.Next(at)
		if !ok {
			break
		}
		out.FireTimes = append(out.FireTimes, time.Unix(next, 0).UTC().Format(time.RFC3339))
		at = next
	}
	return out, nil
}

func (c *client) printPreview(cmd *cobra.Command, out previewOutput) error {
	w := cmd.OutOrStdout()
	if c.output == "json" {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(out)
	}
	fmt.Fprintln(w, out.Description)
	for _, t := range out.FireTimes {
		fmt.Fprintln(w, " ", t)
	}
	if len(out.FireTimes) == 0 {
		fmt.Fprintln(w, "  no further fire time before the year 10000")
	}
	for _, warning := range out.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	return nil
}
