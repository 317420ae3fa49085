// Package capacity estimates what a Carillon needs: writes, disk, memory, and how long
// bursts and outages last. It multiplies what docs/performance.md measured; whoever has
// measured their own machines gives their own costs.
package capacity

import (
	"fmt"
	"math"
	"time"
)

// Load is what is asked of a cluster.
type Load struct {
	Rate      float64       // starts in a second, on average
	Burst     float64       // additional ones that are due in one second
	Recurring float64       // recurring jobs
	OnceShare float64       // share of the starts that are of jobs that fire once, 0 to 1
	Failing   float64       // share of attempts that fail and are tried again, 0 to 1
	Payload   float64       // bytes of a job's parameters
	Result    float64       // bytes of a slot's result
	Retention time.Duration // of slots
	Outage    time.Duration // of all nodes, or of the database
	Nodes     int
	Shards    int
	Replicas  int // of the database's data
}

// Costs are what one thing costs.
type Costs struct {
	SlotBytes   float64 // of a finished slot in the database, with its keys
	JobBytes    float64 // of a job in the database, with its keys, without its parameters
	WALBytes    float64 // of one execution
	NodeCPU     float64 // seconds for 1,000 executions
	WorkerCPU   float64 // likewise, with handlers that do nothing
	DatabaseCPU float64 // likewise
	Speed       float64 // starts in a second that one node reaches
	JobMemory   float64 // bytes of a recurring job in its node, without its parameters
	SlotMemory  float64 // bytes of a slot that waits, in its node
	LoadRate    float64 // recurring jobs in a second that a node loads
}

// Measured are the costs on the machine of docs/performance.md, on PostgreSQL.
var Measured = Costs{
	SlotBytes: 480, JobBytes: 760, WALBytes: 610, NodeCPU: 0.018, WorkerCPU: 0.018, DatabaseCPU: 0.017,
	Speed: 20_000, JobMemory: 350, SlotMemory: 1500, LoadRate: 150_000,
}

const (
	attemptBytes = 200       // of an attempt that failed
	onceWrites   = 2         // of a job that fires once: its insert, and its end a day later
	rangeBytes   = 512 << 20 // of a range of CockroachDB, as it is set at first
	// maxWaiting is how many slots that wait for one handler and priority a shard keeps in
	// memory; the others wait in the database.
	maxWaiting = 5_000
	// onceWindow and maxOnce are how far ahead, and how many, jobs of one fire time are in
	// a shard's memory.
	onceWindow = 15 * time.Minute
	maxOnce    = 100_000
	day        = 24 * time.Hour
)

// Check says what makes no sense, with the name of the field.
func (l Load) Check() error {
	for _, f := range []struct {
		name         string
		value, least float64
	}{{"rate", l.Rate, 0}, {"burst", l.Burst, 0}, {"recurring", l.Recurring, 0}, {"once", l.OnceShare, 0}, {"failing", l.Failing, 0}, {"payload", l.Payload, 0},
		{"result", l.Result, 0}, {"outage", l.Outage.Seconds(), 0}, {"retention", l.Retention.Hours(), 24}, {"nodes", float64(l.Nodes), 1},
		{"shards", float64(l.Shards), 1}, {"replicas", float64(l.Replicas), 1}} {
		if math.IsNaN(f.value) || math.IsInf(f.value, 0) || f.value < f.least {
			return fmt.Errorf("%s must be at least %g, is %g", f.name, f.least, f.value)
		}
	}
	if l.OnceShare > 1 || l.Failing >= 1 {
		return fmt.Errorf("once must be at most 1 and failing less than 1, are %g and %g", l.OnceShare, l.Failing)
	}
	if l.Nodes > l.Shards {
		return fmt.Errorf("nodes must be at most the shards, %d: a shard has one owner", l.Shards)
	}
	return nil
}

// Plan is what a load needs. All of it is of the whole cluster, unless it says otherwise.
type Plan struct {
	RowWrites     float64 `json:"row_writes_per_second"`
	Deletes       float64 `json:"deletes_per_second"` // of what is older than it is kept
	WALBytes      float64 `json:"wal_bytes_per_second"`
	NodeCores     float64 `json:"node_cores"`
	WorkerCores   float64 `json:"worker_cores"` // for handlers that do nothing
	DatabaseCores float64 `json:"database_cores"`
	Speed         float64 `json:"starts_per_second_at_most"`
	Spare         float64 `json:"spare_starts_per_second"` // beside the rate

	SlotsPerDay  float64 `json:"slots_per_day"`
	SlotsKept    float64 `json:"slots_kept"`
	JobsKept     float64 `json:"jobs_kept"`
	DataBytes    float64 `json:"data_bytes"`
	ReplicaBytes float64 `json:"replicated_bytes"`
	Ranges       float64 `json:"ranges"` // of CockroachDB

	ShardRate   float64 `json:"starts_per_second_per_shard"`
	ShardSlots  float64 `json:"slots_kept_per_shard"`
	MovedShards float64 `json:"shards_moved_when_a_node_is_lost"`
	JobMemory   float64 `json:"job_memory_bytes_per_node"`
	LoadSeconds float64 `json:"load_seconds_per_node"`

	BurstDepth      float64 `json:"burst_queue_depth"`
	BurstMemory     float64 `json:"burst_memory_bytes_per_node"`
	BurstDrain      Drain   `json:"burst_drain_seconds"`
	BurstDrainFewer Drain   `json:"burst_drain_seconds_one_node_lost"`
	OutageOwed      float64 `json:"outage_slots_owed"`
	OutageBytes     float64 `json:"outage_bytes"`
	OutageDrain     Drain   `json:"outage_drain_seconds"`
}

// Drain is how many seconds it takes until nothing waits any more; negative: never,
// since more comes in than is done.
type Drain float64

// Never reports whether it never ends.
func (d Drain) Never() bool { return d < 0 }

func (d Drain) String() string {
	if d.Never() {
		return "never"
	}
	return time.Duration(float64(d) * float64(time.Second)).Round(100 * time.Millisecond).String()
}

// Estimate says what a load needs, at the given costs.
func Estimate(l Load, c Costs) Plan {
	nodes, shards := float64(l.Nodes), float64(l.Shards)
	// An attempt that fails is a row of its own, an update of the slot, and its next claim.
	retries := l.Failing / (1 - l.Failing)
	p := Plan{
		RowWrites: l.Rate * (2 + 3*retries + onceWrites*l.OnceShare), WALBytes: l.Rate * ((c.WALBytes+l.Result)*(1+retries) + l.OnceShare*(c.JobBytes+l.Payload)),
		NodeCores: l.Rate * (1 + retries) * c.NodeCPU / 1000, WorkerCores: l.Rate * (1 + retries) * c.WorkerCPU / 1000, DatabaseCores: l.Rate * (1 + retries) * c.DatabaseCPU / 1000,
		Speed: nodes * c.Speed, SlotsPerDay: l.Rate * day.Seconds(), SlotsKept: l.Rate * l.Retention.Seconds(),
		ShardRate: l.Rate / shards, Deletes: l.Rate * (1 + retries + l.OnceShare),
	}
	p.Spare = p.Speed - l.Rate*(1+retries)
	p.ShardSlots = p.SlotsKept / shards
	p.JobsKept = l.Recurring + l.Rate*l.OnceShare*l.Retention.Seconds() // a job stays as long as its slot
	p.DataBytes = p.SlotsKept*(c.SlotBytes+l.Result+retries*attemptBytes) + p.JobsKept*(c.JobBytes+l.Payload)
	p.ReplicaBytes = p.DataBytes * float64(l.Replicas)
	p.Ranges = math.Ceil(p.DataBytes / rangeBytes)
	once := min(l.Rate*l.OnceShare*onceWindow.Seconds(), maxOnce*shards)
	p.JobMemory = (l.Recurring + once) / nodes * (c.JobMemory + l.Payload)
	p.LoadSeconds = l.Recurring / nodes / c.LoadRate
	p.MovedShards = math.Ceil(shards / nodes)
	p.BurstDepth = l.Burst
	p.BurstMemory = math.Min(l.Burst/nodes, maxWaiting*math.Ceil(shards/nodes)) * (c.SlotMemory + l.Payload)
	p.BurstDrain = drain(l.Burst*(1+retries), p.Spare)
	p.BurstDrainFewer = drain(l.Burst*(1+retries), p.Spare-c.Speed)
	p.OutageOwed = l.Rate * l.Outage.Seconds()
	p.OutageBytes = p.OutageOwed * c.SlotBytes
	p.OutageDrain = drain(p.OutageOwed*(1+retries), p.Spare)
	return p
}

func drain(waiting, spare float64) Drain {
	switch {
	case waiting == 0:
		return 0
	case spare <= 0:
		return -1
	}
	return Drain(waiting / spare)
}
