package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/carillon-scheduler/carillon/loadtest/site"
)

// describe prints what runs where, and what may be done with it.
func describe(out io.Writer, s *site.Site, carillon string) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nPROCESS\tPID\tWHERE")
	for _, m := range s.Etcd {
		fmt.Fprintf(t, "%s\t%d\tclients %s\n", m.Name, m.PID(), m.Client)
	}
	fmt.Fprintf(t, "%s\t%d\t%s\n", site.DatabaseName, s.Database.PID(), s.Database.Address)
	for _, n := range s.Nodes {
		fmt.Fprintf(t, "%s\t%d\tgRPC %s, REST http://%s/v1, metrics http://%s/metrics\n", n.Name, n.PID(), n.GRPC, n.HTTP, n.HTTP)
	}
	for _, w := range s.Workers {
		fmt.Fprintf(t, "%s\t%d\tserves %s\n", w.Name, w.PID(), handler)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "logs in %s\n", s.Logs())
	first, second := s.Nodes[0], s.Nodes[1]
	c := carillon + " --address " + first.GRPC
	_, err := fmt.Fprintf(out, `
Look at it. Any node answers:
  %[1]s cluster status
  %[1]s cluster shards

Have it do something, and see it done:
  %[1]s job create hello --handler %[2]s --cron '* * * * * *' --params '{"name":"world"}'
  tail -f %[3]s/worker-*.log

Kill a node. After %[4]s the others have its shards, and what was missed is made up for:
  kill -9 %[5]d
  %[1]s cluster shards

Start it again, here or in another terminal (it stays in the foreground):
  %[6]s

Have a node hand its shards over, and take some again. Or move one shard:
  %[1]s cluster drain %[7]s
  %[1]s cluster drain %[7]s --undo
  %[1]s cluster transfer 12 %[8]s

Ctrl-C stops all of it.
`, c, handler, s.Logs(), sessionTTL, second.PID(), second.Command(), s.Nodes[2].Name, first.Name)
	return err
}
