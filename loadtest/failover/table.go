package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// printTable shows results as a table in Markdown, a line for each kind of round.
func printTable(w io.Writer, all []result) error {
	fmt.Fprintln(w, "| round | passed | executions | lost or doubled | latest start before, then | more than one attempt | take-overs | slowest call | measured |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|")
	for _, r := range rounds {
		var of []result
		for _, one := range all {
			if one.Round == r.name {
				of = append(of, one)
			}
		}
		if len(of) > 0 {
			fmt.Fprintln(w, tableLine(r, of))
		}
	}
	return nil
}

// tableLine sums up the rounds of one name: what is worst of each.
func tableLine(r round, of []result) string {
	var passed, executions, violations, again int
	var before, then, slowest float64
	overs := []int{}
	for _, one := range of {
		if one.passed() {
			passed++
		}
		executions += one.Executions
		violations += len(one.Violations)
		for n, slots := range one.Attempts {
			if n != "1" {
				again += slots
			}
		}
		for _, l := range one.Lateness {
			switch l.Phase {
			case "warm-up":
			case "before", "before, with long work":
				before = max(before, l.Max)
			default:
				then = max(then, l.Max)
			}
		}
		for _, p := range one.Probes {
			slowest = max(slowest, p.SlowestS)
		}
		overs = append(overs, one.TakeOvers)
	}
	return fmt.Sprintf("| %s: %s | %d of %d | %d | %d | %.0f ms, %.1f s | %d | %s | %.1f s | %s |", r.name, r.about, passed, len(of), executions, violations,
		before, then/1000, again, span(overs), slowest, measured(of))
}

// measured are the facts of rounds, each with its least and its most.
func measured(of []result) string {
	facts := map[string][]float64{}
	for _, one := range of {
		for name, f := range one.Facts {
			facts[name] = append(facts[name], f)
		}
	}
	var out []string
	for _, name := range sortedKeys(facts) {
		out = append(out, strings.ReplaceAll(name, "_", " ")+" "+span(facts[name]))
	}
	return strings.Join(out, ", ")
}

// span is the least and the most of some numbers, or the number that they all are.
func span[N cmp.Ordered](all []N) string {
	least, most := slices.Min(all), slices.Max(all)
	if least == most {
		return number(least)
	}
	return number(least) + " to " + number(most)
}

func number(n any) string {
	if f, ok := n.(float64); ok && f != float64(int64(f)) {
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%v", n)
}
