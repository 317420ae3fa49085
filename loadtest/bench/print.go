package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Print writes a report for people.
func (rep Report) Print(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(w, "\n%s on %s, %d CPUs\n", rep.title(), rep.Store, rep.Machine.CPUs)
	if n := len(rep.Runs); n > 0 {
		line("medians of", "%d runs; p99 from %.1f to %.1f ms", n, rep.least().Latency.P99, rep.most().Latency.P99)
	}
	line(rep.What, "%d of %d in %.0f s: %.0f/s", rep.Executions, rep.Expected, rep.Settings.Seconds, rep.PerSecond)
	if rep.NeverBegan > 0 {
		line("IT DID NOT KEEP UP", "%d never began before their jobs were ended", rep.NeverBegan)
	}
	line("latency, ms", "%s", rep.Latency)
	for _, kind := range slices.Sorted(maps.Keys(rep.ByKind)) {
		line("  "+kind, "%s", rep.ByKind[kind])
	}
	for _, name := range slices.Sorted(maps.Keys(rep.CPU)) {
		line(name, "%.3f CPU s per 1,000, %.0f MiB", rep.CPU[name], rep.Memory[name])
	}
	line("database, for each", "%s", rep.Database)
	for _, name := range slices.Sorted(maps.Keys(rep.Facts)) {
		line(strings.ReplaceAll(name, "_", " "), "%.4g", rep.Facts[name])
	}
	rep.plot(w)
}

func (q Quantiles) String() string {
	return fmt.Sprintf("p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f", q.P50, q.P90, q.P99, q.P999, q.Max)
}

func (d Database) String() string {
	text := fmt.Sprintf("%.2f rows, %.3f statements, %.4f commits", d.Rows, d.Statements, d.Commits)
	if d.WALBytes != nil {
		text += fmt.Sprintf(", %.0f bytes of WAL", *d.WALBytes)
	}
	if d.Written != nil {
		text += fmt.Sprintf(", %.0f bytes written", *d.Written)
	}
	if d.HotShare != nil {
		text += fmt.Sprintf(", %.0f %% of updates HOT", 100**d.HotShare)
	}
	return text
}

// title names a scenario with the settings that tell it from others of its kind.
func (rep Report) title() string {
	s := rep.Settings
	switch rep.Scenario {
	case "burst":
		return fmt.Sprintf("burst %d over %d/s", s.Burst, s.Rate)
	case "create":
		if s.Via == ByBatch {
			return fmt.Sprintf("create by batches of %d, %d callers", s.Batch, s.Callers)
		}
		return fmt.Sprintf("create by %s, %d callers", s.Via, s.Callers)
	case "immediate":
		return fmt.Sprintf("immediate %d/s by %s", s.Rate, s.Via)
	case "recurring":
		return fmt.Sprintf("recurring %d/s beside %d idle jobs", s.Rate, s.IdleJobs)
	case "workers":
		return fmt.Sprintf("workers %d/s on %d beside %d idle ones", s.Rate, s.Workers, s.IdleWorkers)
	case "steady":
		if s.Once {
			return fmt.Sprintf("steady %d/s, jobs that fire once", s.Rate)
		}
	}
	return fmt.Sprintf("%s %d/s", rep.Scenario, s.Rate)
}

func (rep Report) least() Report { return slices.MinFunc(rep.Runs, byP99) }
func (rep Report) most() Report  { return slices.MaxFunc(rep.Runs, byP99) }

func byP99(a, b Report) int { return cmp.Compare(a.Latency.P99, b.Latency.P99) }

// plot draws the largest lateness of each second as a row of blocks.
func (rep Report) plot(w io.Writer) {
	if len(rep.Timeline) < 2 {
		return
	}
	top := 0.0
	for _, s := range rep.Timeline {
		top = max(top, s.Max)
	}
	var line strings.Builder
	blocks := []rune("▁▂▃▄▅▆▇█")
	for _, s := range rep.Timeline {
		line.WriteRune(blocks[min(len(blocks)-1, int(s.Max/max(top, 1e-9)*float64(len(blocks)-1)))])
	}
	fmt.Fprintf(w, "  %-22s %s  to %.0f ms\n", "max of each second", line.String(), top)
}

// Table writes reports as a table in Markdown.
func Table(w io.Writer, all []Report) {
	fmt.Fprintln(w, "| scenario | store | per second | p50 ms | p99 ms | p99.9 ms | max ms | p99 of the runs | CPU s per 1,000: node, worker, PostgreSQL | rows | statements | bytes written | memory of the node, MiB |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|---|---|--:|--:|--:|--:|")
	for _, rep := range all {
		q, spread, kept := rep.Latency, "", ""
		if len(rep.Runs) > 0 {
			spread = fmt.Sprintf("%.4g–%.4g", rep.least().Latency.P99, rep.most().Latency.P99)
		}
		if rep.NeverBegan > 0 {
			kept = fmt.Sprintf(" (of %d; **did not keep up**)", rep.Expected/max(1, int(rep.Settings.Seconds)))
		}
		cpu := fmt.Sprintf("%.3f, %.3f", rep.CPU["node"], rep.CPU["worker"])
		if pg, ok := rep.CPU["postgres"]; ok {
			cpu += fmt.Sprintf(", %.3f", pg)
		}
		wal := "–"
		if rep.Database.WALBytes != nil {
			wal = fmt.Sprintf("%.0f", *rep.Database.WALBytes)
		} else if rep.Database.Written != nil {
			wal = fmt.Sprintf("%.0f", *rep.Database.Written)
		}
		fmt.Fprintf(w, "| %s | %s | %.0f%s | %.4g | %.4g | %.4g | %.4g | %s | %s | %.2f | %.3f | %s | %.0f |\n", rep.title(), rep.Store, rep.PerSecond, kept,
			q.P50, q.P99, q.P999, q.Max, spread, cpu, rep.Database.Rows, rep.Database.Statements, wal, rep.Memory["node"])
	}
}
