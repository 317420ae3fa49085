package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// result is a line of the file of results.
type result struct {
	Round      string             `json:"round"`
	Number     int                `json:"number"`
	At         time.Time          `json:"at"`
	Seconds    float64            `json:"seconds"`
	Rate       int                `json:"rate"`
	Executions int                `json:"executions"`
	Violations []string           `json:"violations"` // of what must hold after anything
	Failed     []string           `json:"failed"`     // of what the round allows
	Attempts   map[string]int     `json:"attempts"`   // slots by their attempts
	TakeOvers  int                `json:"take_overs"` // shards that got another owner
	Lateness   []lateness         `json:"lateness"`
	Facts      map[string]float64 `json:"facts"`
	Probes     map[string]probed  `json:"probes"`
}

// mostKept bounds what a result lists of each kind of fault: a broken round has very many.
const mostKept = 20

func (v *verdict) result(r round, number int, began time.Time) result {
	probes, _ := v.prober.sum()
	res := result{Round: r.name, Number: number, At: began.UTC(), Seconds: time.Since(began).Seconds(), Rate: v.rate, Executions: len(v.runs),
		Violations: bounded(v.violations), Failed: bounded(v.failed), Attempts: v.attempts(), TakeOvers: v.takeOvers(began), Facts: v.facts, Probes: probes}
	for _, p := range v.phases {
		res.Lateness = append(res.Lateness, v.lateness(p))
	}
	return res
}

func bounded(all []string) []string {
	if len(all) > mostKept {
		return append(slices.Clone(all[:mostKept]), fmt.Sprintf("and %d more", len(all)-mostKept))
	}
	return all
}

func (r *result) passed() bool { return len(r.Violations)+len(r.Failed) == 0 }

// append adds the result to a file.
func (r *result) append(file string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// readResults reads a file of results; one that isn't there is empty.
func readResults(file string) (all []result, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, lines.Err()
}

// print says what came of a round.
func (r *result) print(w io.Writer) {
	word := "passed"
	if !r.passed() {
		word = "FAILED"
	}
	fmt.Fprintf(w, "%s %s %d: %.0f s, %d executions, slots by attempts %v, %d take-overs\n", word, r.Round, r.Number+1, r.Seconds, r.Executions, r.Attempts, r.TakeOvers)
	for _, l := range r.Lateness {
		fmt.Fprintf(w, "  %-24s %5.1f s %7d starts, late by %6.0f ms p50, %6.0f ms p99, %6.0f ms at most\n", l.Phase, l.Seconds, l.Starts, l.P50, l.P99, l.Max)
	}
	for _, name := range sortedKeys(r.Facts) {
		fmt.Fprintf(w, "  %-24s %.3f\n", name, r.Facts[name])
	}
	for _, name := range sortedKeys(r.Probes) {
		p := r.Probes[name]
		fmt.Fprintf(w, "  %-24s %d calls, %d excused, %.2f s the slowest\n", name, p.Calls, p.Excused, p.SlowestS)
	}
	for _, text := range r.Violations {
		fmt.Fprintln(w, "  violation:", text)
	}
	for _, text := range r.Failed {
		fmt.Fprintln(w, "  failed:", text)
	}
}
