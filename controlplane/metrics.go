package controlplane

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
)

// Metrics names every metric of a node, in this one file. The labels are bounded:
// never a job, a slot or a worker.
type Metrics struct {
	Registry *prometheus.Registry

	slotsMade       *prometheus.CounterVec
	slotsFinished   *prometheus.CounterVec
	attemptsEnded   *prometheus.CounterVec
	startLateness   *prometheus.HistogramVec
	resultsRefused  prometheus.Counter
	objectives      *prometheus.CounterVec
	stalled         *prometheus.CounterVec
	unserved        *prometheus.CounterVec
	longRuns        *prometheus.CounterVec
	cancels         *prometheus.CounterVec
	clockSkew       *prometheus.GaugeVec
	clockJumps      prometheus.Counter
	leasesExpired   prometheus.Counter
	commits         prometheus.Counter
	commitsFailed   prometheus.Counter
	commitSeconds   prometheus.Histogram
	commitRows      prometheus.Histogram
	statements      prometheus.Counter
	fencesLost      prometheus.Counter
	shardsOwned     prometheus.Gauge
	requestsHandled *prometheus.CounterVec
}

var _ engine.Observer = (*Metrics)(nil)

// NewMetrics makes the metrics in a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		slotsMade: counterVec("carillon_slots_made_total",
			"Slots recorded, by handler and trigger.", "handler", "trigger"),
		slotsFinished: counterVec("carillon_slots_finished_total",
			"Slots that became final or dead, by handler and state.", "handler", "state"),
		attemptsEnded: counterVec("carillon_attempts_ended_total",
			"Attempts that ended, by handler and outcome.", "handler", "outcome"),
		startLateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                        "carillon_start_lateness_seconds",
			Help:                        "First line of the handler minus the scheduled fire time, of first attempts.",
			Buckets:                     []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 60, 600, 3600},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"handler", "trigger"}),
		resultsRefused: counter("carillon_results_refused_total", "Results that came after their attempt was over."),
		stalled: counterVec("carillon_handlers_stalled_total",
			"Times that slots of a handler began to wait for a worker for more than five minutes, once for each shard.", "handler"),
		unserved: counterVec("carillon_handlers_unserved_total",
			"Times that no worker served a handler of which a job was about to fire, once for each shard.", "handler"),
		longRuns: counterVec("carillon_runs_too_long_total", "Slots that were due while the one before it still ran, by handler.", "handler"),
		cancels:  counterVec("carillon_cancels_total", "Attempts whose slot was cancelled while they ran, by whether their worker said in time that they stopped.", "obeyed"),
		objectives: counterVec("carillon_objectives_missed_total",
			"Slots that missed an objective of their job, by handler and objective.", "handler", "objective"),
		clockSkew: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "carillon_clock_skew_seconds",
			Help: "How far another clock was ahead of the node's at the last comparison, by clock: database, wall."}, []string{"clock"}),
		clockJumps:    counter("carillon_clock_jumps_total", "Times that the node's clock was set, since the machine's and the database's agreed on another time."),
		leasesExpired: counter("carillon_worker_leases_expired_total", "Workers that were silent for longer than their lease."),
		commits:       counter("carillon_commits_total", "Group commits."),
		commitsFailed: counter("carillon_commits_failed_total", "Tries of a group commit that failed."),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_commit_seconds", Help: "Duration of a group commit.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		commitRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "carillon_commit_rows", Help: "Rows of a group commit.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		}),
		statements:  counter("carillon_commit_statements_total", "Statements that group commits took."),
		fencesLost:  counter("carillon_fences_lost_total", "Shards that another owner took while this node still had them."),
		shardsOwned: prometheus.NewGauge(prometheus.GaugeOpts{Name: "carillon_shards_owned", Help: "Shards that this node drives."}),
		requestsHandled: counterVec("carillon_rpcs_total",
			"Calls of the API, and each create of a stream of them, by method and code.", "method", "code"),
	}
	m.Registry.MustRegister(m.slotsMade, m.slotsFinished, m.attemptsEnded, m.startLateness, m.resultsRefused, m.leasesExpired, m.objectives, m.stalled, m.unserved, m.longRuns, m.cancels, m.clockSkew, m.clockJumps,
		m.commits, m.commitsFailed, m.commitSeconds, m.commitRows, m.statements, m.fencesLost, m.shardsOwned, m.requestsHandled,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// triggerLabels are the values of the label trigger.
var triggerLabels = map[job.Trigger]string{
	job.TriggerSchedule: "schedule", job.TriggerImmediate: "immediate", job.TriggerManual: "manual", job.TriggerBackfill: "backfill",
}

// objectiveLabels are the values of the label objective.
var objectiveLabels = map[job.Breach]string{job.BreachStart: "start_within", job.BreachFinish: "finish_within"}

// Observe implements engine.Observer.
func (m *Metrics) Observe(o core.Observation) {
	switch o.Kind {
	case core.SlotMade:
		m.slotsMade.WithLabelValues(o.Handler, triggerLabels[o.Trigger]).Inc()
	case core.AttemptStarted:
		m.startLateness.WithLabelValues(o.Handler, triggerLabels[o.Trigger]).Observe(o.Lateness.Seconds())
	case core.AttemptEnded:
		m.attemptsEnded.WithLabelValues(o.Handler, o.Outcome.String()).Inc()
	case core.SlotFinished:
		m.slotsFinished.WithLabelValues(o.Handler, o.State.String()).Inc()
	case core.ResultRefused:
		m.resultsRefused.Inc()
	case core.HandlerStalled:
		m.stalled.WithLabelValues(o.Handler).Inc()
	case core.HandlerUnserved:
		m.unserved.WithLabelValues(o.Handler).Inc()
	case core.RunTooLong:
		m.longRuns.WithLabelValues(o.Handler).Inc()
	case core.CancelConfirmed:
		m.cancels.WithLabelValues("yes").Inc()
	case core.CancelIgnored:
		m.cancels.WithLabelValues("no").Inc()
	case core.ObjectiveMissed:
		m.objectives.WithLabelValues(o.Handler, objectiveLabels[o.Breach]).Inc()
	}
}

// Committed implements engine.Observer.
func (m *Metrics) Committed(rows, statements int, took time.Duration) {
	m.commits.Inc()
	m.commitSeconds.Observe(took.Seconds())
	m.commitRows.Observe(float64(rows))
	m.statements.Add(float64(statements))
}

// CommitFailed implements engine.Observer.
func (m *Metrics) CommitFailed() { m.commitsFailed.Inc() }

// FenceLost implements engine.Observer.
func (m *Metrics) FenceLost() { m.fencesLost.Inc() }

// LeaseExpired implements engine.Observer.
func (m *Metrics) LeaseExpired() { m.leasesExpired.Inc() }

// ClocksCompared implements engine.Observer.
func (m *Metrics) ClocksCompared(v clock.Verdict) {
	m.clockSkew.WithLabelValues("database").Set(v.Database.Seconds())
	m.clockSkew.WithLabelValues("wall").Set(v.Wall.Seconds())
	if v.Jump != 0 {
		m.clockJumps.Inc()
	}
}

// ShardOwned implements engine.Observer.
func (m *Metrics) ShardOwned(owned bool) {
	if owned {
		m.shardsOwned.Inc()
	} else {
		m.shardsOwned.Dec()
	}
}

// nodeCollector reads a node's numbers when the metrics are scraped.
type nodeCollector struct {
	node  *engine.Node
	now   func() job.Instant
	descs [8]*prometheus.Desc
}

// scrapeTimeout bounds how long a scrape waits for the node's loop.
const scrapeTimeout = 2 * time.Second

func newNodeCollector(node *engine.Node, now func() job.Instant) *nodeCollector {
	gauge := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &nodeCollector{node: node, now: now, descs: [8]*prometheus.Desc{
		gauge("carillon_slots_ready", "READY slots in memory."),
		gauge("carillon_slots_running", "RUNNING slots."),
		gauge("carillon_slots_backlog", "READY slots that wait in the database."),
		gauge("carillon_jobs_in_memory", "Jobs in memory."),
		gauge("carillon_timers_armed", "Timers armed."),
		gauge("carillon_gaps_open", "Ranges of fire times whose slots are still to be made."),
		gauge("carillon_workers_connected", "Workers connected to this node."),
		gauge("carillon_lag_seconds", "Age of the oldest due slot that waits for a worker."),
	}}
}

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A node that doesn't answer in time
// leaves its numbers out.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	st, err := c.node.Stats(ctx)
	if err != nil {
		return
	}
	lag := 0.0
	if st.OldestReady != 0 {
		lag = max(c.now().Sub(st.OldestReady).Seconds(), 0)
	}
	for i, v := range []float64{float64(st.Ready), float64(st.Running), float64(st.Backlog), float64(st.Jobs),
		float64(st.Timers), float64(st.Gaps), float64(st.Workers), lag} {
		ch <- prometheus.MustNewConstMetric(c.descs[i], prometheus.GaugeValue, v)
	}
}

// clusterCollector reads what this node knows of its cluster when the metrics are scraped.
type clusterCollector struct {
	cluster Cluster
	descs   [5]*prometheus.Desc
}

func newClusterCollector(c Cluster) *clusterCollector {
	gauge := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &clusterCollector{cluster: c, descs: [5]*prometheus.Desc{
		gauge("carillon_coordination_connected", "1 while the coordination answers this node; else no shard moves."),
		gauge("carillon_coordination_member", "1 while this node takes part."),
		gauge("carillon_cluster_members", "Nodes that take part, as this one knows."),
		gauge("carillon_cluster_members_unfit", "Nodes of them that can't drive shards."),
		gauge("carillon_cluster_shards_unheld", "Shards that no node holds, as this one knows."),
	}}
}

// Describe implements prometheus.Collector.
func (c *clusterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *clusterCollector) Collect(ch chan<- prometheus.Metric) {
	st, members := c.cluster.Status(), c.cluster.Members()
	unfit, unheld := 0, 0
	for _, m := range members {
		if m.Unfit {
			unfit++
		}
	}
	for _, h := range c.cluster.Holders() {
		if h.Node == "" {
			unheld++
		}
	}
	for i, v := range []float64{oneIf(st.Connected), oneIf(st.Session), float64(len(members)), float64(unfit), float64(unheld)} {
		ch <- prometheus.MustNewConstMetric(c.descs[i], prometheus.GaugeValue, v)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
