package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/loadtest/capacity"
	"github.com/carillon-scheduler/carillon/shard"
)

// newPlan estimates what a load needs.
func newPlan(c *client) *cobra.Command {
	var l capacity.Load
	costs := capacity.Measured
	cmd := &cobra.Command{
		Use: "plan", Short: "Estimate what a load needs: writes, disk, memory, and how long bursts and outages last", Args: exactly(0),
		Long: "Multiplies what docs/performance.md measured on two cores. Give your own costs once you have measured your own\n" +
			"machines; docs/capacity.md works through an example.",
		Example: "  carillon plan --rate 10000 --burst 100000 --recurring 10000000 --nodes 4 --replicas 3",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.Check(); err != nil {
				return invalidInput("--%w", err)
			}
			if costs.Speed <= 0 || costs.LoadRate <= 0 || costs.SlotBytes < 0 {
				return invalidInput("--speed and --load-rate must be positive, --slot-bytes not negative")
			}
			p := capacity.Estimate(l, costs)
			if c.output == "json" {
				text, err := json.MarshalIndent(p, "", "  ")
				if err != nil {
					return err
				}
				return writeJSON(cmd.OutOrStdout(), text)
			}
			return printPlan(cmd.OutOrStdout(), l, p)
		},
	}
	flags := cmd.Flags()
	flags.Float64Var(&l.Rate, "rate", 1000, "starts in a second, on average")
	flags.Float64Var(&l.Burst, "burst", 10_000, "additional ones that are due in one second")
	flags.Float64Var(&l.Recurring, "recurring", 100_000, "recurring jobs")
	flags.Float64Var(&l.OnceShare, "once", 0, "share of the starts that are of jobs that fire once, 0 to 1")
	flags.Float64Var(&l.Failing, "failing", 0.01, "share of the attempts that fail and are tried again")
	flags.Float64Var(&l.Payload, "payload", 100, "bytes of a job's parameters")
	flags.Float64Var(&l.Result, "result", 0, "bytes of a slot's result")
	flags.DurationVar(&l.Retention, "retention", 7*24*time.Hour, "how long slots are kept")
	flags.DurationVar(&l.Outage, "outage", time.Hour, "an outage that is to be made up for")
	flags.IntVar(&l.Nodes, "nodes", 1, "nodes")
	flags.IntVar(&l.Shards, "shards", shard.DefaultCount, "shards of the cluster")
	flags.IntVar(&l.Replicas, "replicas", 1, "copies that the database keeps; 3 in CockroachDB")
	flags.Float64Var(&costs.Speed, "speed", costs.Speed, "starts in a second that one node reaches")
	flags.Float64Var(&costs.SlotBytes, "slot-bytes", costs.SlotBytes, "bytes of a finished slot in the database")
	flags.Float64Var(&costs.LoadRate, "load-rate", costs.LoadRate, "recurring jobs in a second that a node loads")
	return cmd
}

func printPlan(w io.Writer, l capacity.Load, p capacity.Plan) error {
	perSecond := func(n float64) string {
		if n < 0 {
			return "nothing"
		}
		return count(n) + "/s"
	}
	rows := [][]string{
		{"rows written", perSecond(p.RowWrites), "two for each execution, more for failures and for jobs that fire once"},
		{"rows deleted", perSecond(p.Deletes), "once the retention is over"},
		{"WAL", bytesText(p.WALBytes) + "/s", "or what the database calls it"},
		{"cores", fmt.Sprintf("%.1f nodes, %.1f database, %.1f workers", p.NodeCores, p.DatabaseCores, p.WorkerCores), "workers: without what the handlers do"},
		{"starts at most", perSecond(p.Speed), fmt.Sprintf("%s beside the rate, if the database keeps up", perSecond(p.Spare))},
		{"slots in a day", count(p.SlotsPerDay), "one for each occurrence"},
		{"slots kept", count(p.SlotsKept), fmt.Sprintf("%s for each of %d shards", count(p.ShardSlots), l.Shards)},
		{"jobs kept", count(p.JobsKept), "a job that fires once stays as long as its slot"},
		{"data", bytesText(p.DataBytes), fmt.Sprintf("%s with %d copies; %s ranges in CockroachDB", bytesText(p.ReplicaBytes), l.Replicas, count(p.Ranges))},
		{"starts of a shard", perSecond(p.ShardRate), fmt.Sprintf("of %d shards", l.Shards)},
		{"memory for jobs", bytesText(p.JobMemory), fmt.Sprintf("in each of %d nodes, loaded in %.1f s", l.Nodes, p.LoadSeconds)},
		{"a node is lost", fmt.Sprintf("%.0f shards move", p.MovedShards), "each is live as soon as it is loaded"},
		{"burst", count(p.BurstDepth) + " wait", fmt.Sprintf("the last for %s, with a node less for %s; %s in each node's memory", p.BurstDrain, p.BurstDrainFewer, bytesText(p.BurstMemory))},
		{fmt.Sprintf("outage of %s", l.Outage), count(p.OutageOwed) + " owed", fmt.Sprintf("made up for in %s; %s", p.OutageDrain, bytesText(p.OutageBytes))},
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// scaled writes a number with the unit that suits it.
func scaled(n, base float64, units []string) string {
	i := 0
	for n >= base && i+1 < len(units) {
		n /= base
		i++
	}
	if n >= 100 || n == float64(int(n)) {
		return fmt.Sprintf("%.0f%s", n, units[i])
	}
	return fmt.Sprintf("%.3g%s", n, units[i])
}

func count(n float64) string {
	return scaled(n, 1000, []string{"", " thousand", " million", " billion", " trillion"})
}

func bytesText(n float64) string {
	return scaled(n, 1024, []string{" bytes", " KiB", " MiB", " GiB", " TiB", " PiB"})
}
