package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// report is what is read of ghz's JSON.
type report struct {
	Name      string
	EndReason string
	Count     int            // of calls that ended, whatever with
	Rps       float64        // calls in a second
	Statuses  map[string]int `json:"statusCodeDistribution"`
	Errors    map[string]int `json:"errorDistribution"`
	Latencies []struct {
		Percentage int
		Latency    time.Duration // nanoseconds
	} `json:"latencyDistribution"`
}

func readReport(file string) (report, error) {
	var r report
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read ghz's result %s: %w", file, err)
	}
	return r, nil
}

// failed is how many calls were not answered with OK.
func (r report) failed() int { return r.Count - r.Statuses["OK"] }

// percentile returns a latency, or 0 if the report lacks it.
func (r report) percentile(p int) time.Duration {
	for _, l := range r.Latencies {
		if l.Percentage == p {
			return l.Latency
		}
	}
	return 0
}

// verdict says what is wrong with a scenario's result.
func (r report) verdict() error {
	var errs []error
	if r.Count == 0 {
		errs = append(errs, fmt.Errorf("%s: no call was made", r.Name))
	}
	if r.EndReason != "timeout" { // ghz's word for: it went on for as long as it was told to
		errs = append(errs, fmt.Errorf("%s: it ended before its time: %q", r.Name, r.EndReason))
	}
	if r.failed() != 0 || len(r.Errors) != 0 {
		errs = append(errs, fmt.Errorf("%s: %d of %d calls failed: %v %v", r.Name, r.failed(), r.Count, r.Statuses, r.Errors))
	}
	return errors.Join(errs...)
}

func printTable(out io.Writer, reports []report) {
	if len(reports) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "CALL\tCALLS\tCALLS/S\tP50\tP99\tERRORS\t")
	for _, r := range reports {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\t%d\t\n", r.Name, r.Count, r.Rps,
			r.percentile(50).Round(10*time.Microsecond), r.percentile(99).Round(10*time.Microsecond), r.failed())
	}
	_ = w.Flush() // the exit code is the verdict, also where nobody reads
}
