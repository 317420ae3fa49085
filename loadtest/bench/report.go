package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/carillon-scheduler/carillon/loadtest/workload"
)

// Report is the result of a run, or the medians of several. Its JSON keys stay as they
// are.
type Report struct {
	Scenario string   `json:"scenario"`
	Store    string   `json:"store"` // postgres, sqlite, or "given" for an address, which may hold a password
	Machine  Machine  `json:"machine"`
	Settings Settings `json:"settings"`

	What       string `json:"what"`       // that is counted: starts or creates
	Expected   int    `json:"expected"`   // of them
	Executions int    `json:"executions"` // that were made
	NeverBegan int    `json:"never_began"`
	// PerSecond are the starts in the window, of a burst those from its time to its last
	// start, or the creates that were answered.
	PerSecond float64 `json:"per_second"`
	// Latency of starts is from when they were due to the first line of the handler, of
	// creates from the call to its answer.
	Latency Quantiles            `json:"latency_milliseconds"`
	ByKind  map[string]Quantiles `json:"latency_milliseconds_by_kind"`
	Drained float64              `json:"drained_seconds"` // from the beginning of the window to the last start

	CPU      map[string]float64 `json:"cpu_seconds_per_1000"` // by program
	Memory   map[string]float64 `json:"memory_mebibytes"`     // by program
	Database Database           `json:"database_per_execution"`
	Facts    map[string]float64 `json:"facts"` // what only one scenario knows
	Timeline []Second           `json:"timeline"`

	Runs []Report `json:"runs,omitempty"` // whose medians these are
}

// Settings are what was asked for.
type Settings struct {
	Rate        int     `json:"rate_per_second"`
	Burst       int     `json:"burst"`
	Seconds     float64 `json:"seconds"`
	Warmup      float64 `json:"warmup_seconds"`
	Work        float64 `json:"work_seconds"`
	Payload     int     `json:"payload_bytes"`
	Once        bool    `json:"once"`
	Via         Via     `json:"via"`
	Callers     int     `json:"callers"`
	Batch       int     `json:"batch"`
	Capacity    int     `json:"capacity"`
	Workers     int     `json:"workers"`
	IdleWorkers int     `json:"idle_workers"`
	IdleJobs    int     `json:"idle_jobs"`
}

// Quantiles of a latency, in milliseconds.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Database is what the database had to do for one execution. What isn't known is null.
type Database struct {
	Rows       float64  `json:"rows"`       // written
	Statements float64  `json:"statements"` // of group commits
	Commits    float64  `json:"commits"`    // group commits
	WALBytes   *float64 `json:"wal_bytes"`
	Written    *float64 `json:"written_bytes"` // by the node, to its file and to its sockets, if the database is inside of it
	HotShare   *float64 `json:"hot_update_share"`
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

// report says what came of a run: of what the workers noted, and of what was used.
func (r *rig) report(m measured, noted []workload.Execution, neverBegan int) (Report, error) {
	rep := Report{Scenario: r.cfg.Scenario, Store: r.cfg.publicStore(), Machine: thisMachine(), Settings: r.cfg.settings(),
		What: m.what, Expected: m.expected, NeverBegan: neverBegan, Facts: m.facts}
	starts := m.expected // in the window, of whatever job: they used what was used in it
	if m.calls != nil {
		rep.Executions, rep.Latency = m.expected, quantiles(m.calls)
	} else {
		first := firstStarts(noted)
		if err := rep.count(m, first); err != nil {
			return rep, err
		}
		starts = m.startsIn(first)
	}
	if m.reads != nil {
		rep.kinds()["reads"] = quantiles(m.reads)
	}
	rep.PerSecond = float64(starts) / m.until.Sub(m.from).Seconds()
	if m.atOnce && rep.Drained > 0 {
		rep.PerSecond = float64(rep.Executions) / rep.Drained
	}
	rep.use(m.before, m.after, float64(starts))
	if rep.Executions+neverBegan != m.expected {
		return rep, fmt.Errorf("%d of %d executions were seen, and %d never began", rep.Executions, m.expected, neverBegan)
	}
	return rep, nil
}

func (rep *Report) kinds() map[string]Quantiles {
	if rep.ByKind == nil {
		rep.ByKind = map[string]Quantiles{}
	}
	return rep.ByKind
}

// firstStarts returns the first attempt of each slot, in the order in which they began.
func firstStarts(noted []workload.Execution) (first []workload.Execution) {
	noted = slices.SortedFunc(slices.Values(noted), func(a, b workload.Execution) int { return cmp.Compare(a.Began, b.Began) })
	seen := make(map[[2]int64]bool, len(noted))
	for _, e := range noted {
		key := [2]int64{e.Job, e.Fire}
		if !seen[key] {
			seen[key] = true
			first = append(first, e)
		}
	}
	return first
}

// startsIn counts what began in the window.
func (m *measured) startsIn(first []workload.Execution) (n int) {
	for _, e := range first {
		if m.holds(e.Began) {
			n++
		}
	}
	return n
}

// count takes what was measured of the first attempts.
func (rep *Report) count(m measured, first []workload.Execution) error {
	total, byKind := newHistogram(), map[string]*hdrhistogram.Histogram{}
	seconds := make([]*hdrhistogram.Histogram, int(m.until.Sub(m.from)/time.Second)+1)
	last := m.from
	for _, e := range first {
		if !m.counts(e) {
			continue
		}
		rep.Executions++
		due := e.Fire
		if m.due != nil {
			due = m.due(e)
		}
		histograms := []*hdrhistogram.Histogram{total}
		if i := int(time.UnixMicro(due).Sub(m.from) / time.Second); i >= 0 && i < len(seconds) {
			histograms = append(histograms, of(seconds, i))
		}
		if m.kind != nil {
			kind := m.kind(e)
			if byKind[kind] == nil {
				byKind[kind] = newHistogram()
			}
			histograms = append(histograms, byKind[kind])
		}
		for _, h := range histograms {
			if err := h.RecordValue(max(e.Began-due, 0)); err != nil {
				return err
			}
		}
		if began := time.UnixMicro(e.Began); began.After(last) {
			last = began
		}
	}
	rep.Latency, rep.Drained = quantiles(total), last.Sub(m.from).Seconds()
	for kind, h := range byKind {
		rep.kinds()[kind] = quantiles(h)
	}
	for i, h := range seconds {
		if h != nil {
			rep.Timeline = append(rep.Timeline, Second{i, int(h.TotalCount()), float64(h.ValueAtQuantile(50)) / 1000, float64(h.Max()) / 1000})
		}
	}
	return nil
}

// of returns a histogram of a list, which is made when it is first needed: each is large.
func of(all []*hdrhistogram.Histogram, i int) *hdrhistogram.Histogram {
	if all[i] == nil {
		all[i] = newHistogram()
	}
	return all[i]
}

// use says what was used between two snapshots, for each of the n executions of that
// time.
func (rep *Report) use(before, after snapshot, n float64) {
	rep.CPU, rep.Memory = map[string]float64{}, map[string]float64{}
	for name, u := range after.programs {
		rep.Memory[name] = float64(u.Memory) / (1 << 20)
	}
	if n == 0 {
		return
	}
	for name, u := range after.programs {
		rep.CPU[name] = (u.CPU - before.programs[name].CPU).Seconds() * 1000 / n
	}
	grown := func(metric string) float64 { return (after.metrics[metric] - before.metrics[metric]) / n }
	rep.Database = Database{Rows: grown("carillon_commit_rows_sum"), Statements: grown("carillon_commit_statements_total"), Commits: grown("carillon_commits_total")}
	if written := after.programs["node"].Written - before.programs["node"].Written; rep.Store == "sqlite" && written > 0 {
		rep.Database.Written = new(float64(written) / n)
	}
	if after.wal != nil && before.wal != nil {
		rep.Database.WALBytes = new(float64(after.wal.bytes-before.wal.bytes) / n)
		if updates := after.wal.updates - before.wal.updates; updates > 0 {
			rep.Database.HotShare = new(float64(after.wal.hot-before.wal.hot) / float64(updates))
		}
	}
}

// publicStore names the store; an address may hold a password.
func (c Config) publicStore() string {
	if c.Store == "postgres" || c.Store == "sqlite" {
		return c.Store
	}
	return "given"
}

func (c Config) settings() Settings {
	return Settings{Rate: c.Rate, Burst: c.Burst, Seconds: c.Duration.Seconds(), Warmup: c.Warmup.Seconds(), Work: c.Work.Seconds(), Payload: c.Payload,
		Once: c.Once, Via: c.Via, Callers: c.Callers, Batch: c.Batch, Capacity: c.Capacity, Workers: c.Workers, IdleWorkers: c.IdleWorkers, IdleJobs: c.IdleJobs}
}

// Median takes the median of each number of several reports of the same kind. The
// timeline is that of the run with the median p99.
func Median(all []Report) Report {
	if len(all) == 1 {
		return all[0]
	}
	m := all[0]
	for i := range all {
		if all[i].Latency.P99 == median(all, func(r *Report) float64 { return r.Latency.P99 }) {
			m.Timeline = all[i].Timeline
		}
	}
	count := func(of func(*Report) int) int {
		return int(median(all, func(r *Report) float64 { return float64(of(r)) }))
	}
	m.Expected = count(func(r *Report) int { return r.Expected })
	m.Executions = count(func(r *Report) int { return r.Executions })
	for i := range all { // one run that didn't keep up is enough
		m.NeverBegan = max(m.NeverBegan, all[i].NeverBegan)
	}
	m.PerSecond = median(all, func(r *Report) float64 { return r.PerSecond })
	m.Drained = median(all, func(r *Report) float64 { return r.Drained })
	m.Latency = medianQuantiles(all, func(r *Report) Quantiles { return r.Latency })
	m.ByKind = nil
	for kind := range all[0].ByKind {
		m.kinds()[kind] = medianQuantiles(all, func(r *Report) Quantiles { return r.ByKind[kind] })
	}
	m.CPU = medianMap(all, func(r *Report) map[string]float64 { return r.CPU })
	m.Memory = medianMap(all, func(r *Report) map[string]float64 { return r.Memory })
	m.Facts = medianMap(all, func(r *Report) map[string]float64 { return r.Facts })
	m.Database = Database{
		Rows:       median(all, func(r *Report) float64 { return r.Database.Rows }),
		Statements: median(all, func(r *Report) float64 { return r.Database.Statements }),
		Commits:    median(all, func(r *Report) float64 { return r.Database.Commits }),
		WALBytes:   medianOf(all, func(r *Report) *float64 { return r.Database.WALBytes }),
		Written:    medianOf(all, func(r *Report) *float64 { return r.Database.Written }),
		HotShare:   medianOf(all, func(r *Report) *float64 { return r.Database.HotShare }),
	}
	m.Runs = all
	return m
}

func medianMap(all []Report, of func(*Report) map[string]float64) map[string]float64 {
	m := map[string]float64{}
	for key := range maps.Keys(of(&all[0])) {
		m[key] = median(all, func(r *Report) float64 { return of(r)[key] })
	}
	return m
}

func medianQuantiles(all []Report, of func(*Report) Quantiles) Quantiles {
	each := func(get func(Quantiles) float64) float64 {
		return median(all, func(r *Report) float64 { return get(of(r)) })
	}
	return Quantiles{
		P50:  each(func(q Quantiles) float64 { return q.P50 }),
		P90:  each(func(q Quantiles) float64 { return q.P90 }),
		P99:  each(func(q Quantiles) float64 { return q.P99 }),
		P999: each(func(q Quantiles) float64 { return q.P999 }),
		Max:  each(func(q Quantiles) float64 { return q.Max }),
	}
}
