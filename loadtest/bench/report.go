package bench

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is the result of a run. Its JSON keys stay as they are.
type Report struct {
	Scenario   string             `json:"scenario"`
	Store      string             `json:"store"`
	Machine    Machine            `json:"machine"`
	What       string             `json:"what"`
	Rate       int                `json:"rate_per_second"`
	Burst      int                `json:"burst"`
	Seconds    float64            `json:"seconds"`
	Expected   int                `json:"expected"`
	Executions int                `json:"executions"`
	PerSecond  float64            `json:"per_second"`
	Latency    Quantiles          `json:"latency_milliseconds"`
	Drained    float64            `json:"drained_seconds"` // from the beginning of the window to the last start
	CPU        map[string]float64 `json:"cpu_seconds_per_1000"`
	Memory     map[string]float64 `json:"memory_mebibytes"`
	Timeline   []Second           `json:"timeline"`
}

// Machine is what the run was made on.
type Machine struct {
	CPUs int    `json:"cpus"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
	Go   string `json:"go"`
}

// Quantiles of a latency, in milliseconds.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Second is the lateness of what was due in one second.
type Second struct {
	Second int     `json:"second"`
	Starts int     `json:"starts"`
	P50    float64 `json:"p50_milliseconds"`
	Max    float64 `json:"max_milliseconds"`
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, (30 * time.Minute).Microseconds(), 3)
}

func quantiles(h *hdrhistogram.Histogram) Quantiles {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return Quantiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000}
}

func (r *rig) newReport(before, after usage, executions int) Report {
	rep := Report{Scenario: r.cfg.Scenario, Store: r.cfg.Store, Rate: r.cfg.Rate, Burst: r.cfg.Burst, Seconds: r.cfg.Duration.Seconds(),
		Machine: Machine{runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()}, CPU: map[string]float64{}, Memory: map[string]float64{}}
	for name, u := range after {
		if executions > 0 {
			rep.CPU[name] = (u.cpu - before[name].cpu).Seconds() * 1000 / float64(executions)
		}
		rep.Memory[name] = float64(u.memory) / (1 << 20)
	}
	return rep
}

// report reads the worker's notes of what is of the window. due is when an execution
// was due, if that isn't its fire time.
func (r *rig) report(w window, expected int, counts func(execution) bool, due func(execution) int64, before, after usage) (Report, error) {
	all, err := readNotes(r.notesFile())
	if err != nil {
		return Report{}, err
	}
	total := newHistogram()
	seconds := make([]*hdrhistogram.Histogram, int(w.until.Sub(w.from)/time.Second)+1)
	n, last := 0, w.from
	seen := map[[2]int64]bool{}
	for _, e := range all {
		key := [2]int64{e.Job, e.Fire}
		if !counts(e) || seen[key] {
			continue // a later attempt is no start
		}
		seen[key] = true
		n++
		at := e.Fire
		if due != nil {
			at = due(e)
		}
		if err := total.RecordValue(max(e.Began-at, 0)); err != nil {
			return Report{}, err
		}
		if i := int(time.UnixMicro(at).Sub(w.from) / time.Second); i >= 0 && i < len(seconds) {
			if seconds[i] == nil {
				seconds[i] = newHistogram()
			}
			if err := seconds[i].RecordValue(max(e.Began-at, 0)); err != nil {
				return Report{}, err
			}
		}
		if began := time.UnixMicro(e.Began); began.After(last) {
			last = began
		}
	}
	rep := r.newReport(before, after, n)
	rep.What, rep.Expected, rep.Executions = "starts", expected, n
	rep.PerSecond = float64(n) / w.until.Sub(w.from).Seconds()
	rep.Latency, rep.Drained = quantiles(total), last.Sub(w.from).Seconds()
	for i, h := range seconds {
		if h != nil {
			rep.Timeline = append(rep.Timeline, Second{i, int(h.TotalCount()), float64(h.ValueAtQuantile(50)) / 1000, float64(h.Max()) / 1000})
		}
	}
	if n != expected {
		return rep, fmt.Errorf("%d of %d executions were seen", n, expected)
	}
	return rep, nil
}

// Print writes a report for people.
func (rep Report) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%s on %s, %d CPUs\n", rep.Scenario, rep.Store, rep.Machine.CPUs)
	fmt.Fprintf(w, "  %-22s %d of %d in %.0f s: %.0f/s, the last %.2f s after the beginning\n", rep.What, rep.Executions, rep.Expected, rep.Seconds, rep.PerSecond, rep.Drained)
	q := rep.Latency
	fmt.Fprintf(w, "  %-22s p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f\n", "latency, ms", q.P50, q.P90, q.P99, q.P999, q.Max)
	for _, name := range []string{"node", "worker", "postgres"} {
		if cpu, ok := rep.CPU[name]; ok {
			fmt.Fprintf(w, "  %-22s %.3f CPU s per 1,000, %.0f MiB\n", name, cpu, rep.Memory[name])
		}
	}
	rep.plot(w)
}

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
