package capacity_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/capacity"
)

// design is the load of DESIGN.md §9.
var design = capacity.Load{Rate: 10_000, Burst: 100_000, Recurring: 10_000_000, Retention: 7 * 24 * time.Hour, Outage: time.Hour, Nodes: 4, Shards: 64, Replicas: 3}

var costs = capacity.Costs{SlotBytes: 400, JobBytes: 500, WALBytes: 700, NodeCPU: 0.02, WorkerCPU: 0.02, DatabaseCPU: 0.03, Speed: 7500, JobMemory: 800, SlotMemory: 300, LoadRate: 250_000}

func TestTheEstimatesOfTheDesign(t *testing.T) {
	p := capacity.Estimate(design, costs)
	for name, c := range map[string][2]float64{
		"row writes":     {p.RowWrites, 20_000},
		"WAL":            {p.WALBytes, 7e6},
		"slots a day":    {p.SlotsPerDay, 864e6},
		"slots kept":     {p.SlotsKept, 6.048e9},
		"data":           {p.DataBytes, 6.048e9*400 + 10e6*500},
		"replicated":     {p.ReplicaBytes, 3 * (6.048e9*400 + 10e6*500)},
		"ranges":         {p.Ranges, math.Ceil((6.048e9*400 + 10e6*500) / (512 << 20))},
		"of a shard":     {p.ShardRate, 156.25},
		"job memory":     {p.JobMemory, 2.5e6 * 800},
		"load":           {p.LoadSeconds, 10},
		"moved shards":   {p.MovedShards, 16},
		"burst":          {float64(p.BurstDrain), 5},
		"burst, 3 nodes": {float64(p.BurstDrainFewer), 8},
		"burst memory":   {p.BurstMemory, 25_000 * 300},
		"owed":           {p.OutageOwed, 36e6},
		"outage":         {float64(p.OutageDrain), 1800},
		"node cores":     {p.NodeCores, 200},
		"database cores": {p.DatabaseCores, 300},
		"deletes":        {p.Deletes, 10_000},
	} {
		if strings.HasSuffix(name, "cores") {
			c[1] /= 1000
		}
		if math.Abs(c[0]-c[1]) > 1e-9*math.Abs(c[1]) {
			t.Errorf("%s: %v, want %v", name, c[0], c[1])
		}
	}
}

// Jobs that fire once are written, kept as long as their slots, and deleted; attempts
// that fail cost a row, an update and another claim.
func TestOnceJobsAndFailures(t *testing.T) {
	l := design
	l.Recurring, l.OnceShare, l.Failing, l.Payload = 0, 0.5, 0.2, 1000
	p := capacity.Estimate(l, costs)
	if p.RowWrites != 10_000*(2+3*0.25+2*0.5) || p.JobsKept != p.SlotsKept/2 || p.Deletes != 17_500 || p.Spare != 30_000-12_500 {
		t.Errorf("%+v", p)
	}
	if want := 10_000 * 0.5 * 900 / 4 * (800 + 1000.0); p.JobMemory != want {
		t.Errorf("memory for jobs %v, want %v", p.JobMemory, want)
	}
	if want := drainOf(100_000*1.25, p.Spare); math.Abs(float64(p.BurstDrain)-want) > 1e-9 {
		t.Errorf("burst %v, want %v", float64(p.BurstDrain), want)
	}
	if want := p.SlotsKept*(400+0.25*200) + p.JobsKept*1500; math.Abs(p.DataBytes-want) > 1 {
		t.Errorf("data %v, want %v", p.DataBytes, want)
	}
}

func drainOf(waiting, spare float64) float64 { return waiting / spare }

// No more waits in memory than the shards of a node may hold there, and no more jobs.
func TestMemoryIsBounded(t *testing.T) {
	l := design
	l.Burst, l.OnceShare, l.Rate, l.Recurring = 1e9, 1, 1e6, 0
	p := capacity.Estimate(l, costs)
	if p.BurstMemory != 16*5000*300 || p.JobMemory != 16*100_000*800 {
		t.Errorf("burst %v, jobs %v", p.BurstMemory, p.JobMemory)
	}
}

// More than is done never drains, and says so.
func TestWhatNeverDrains(t *testing.T) {
	l := design
	l.Rate = 40_000
	p := capacity.Estimate(l, costs)
	if !p.BurstDrain.Never() || p.OutageDrain.String() != "never" {
		t.Errorf("burst %v, outage %v", p.BurstDrain, p.OutageDrain)
	}
	l.Burst, l.Outage = 0, 0
	if p := capacity.Estimate(l, costs); p.BurstDrain.Never() || p.OutageDrain != 0 {
		t.Errorf("nothing waits, and yet: %v, %v", p.BurstDrain, p.OutageDrain)
	}
	if s := capacity.Drain(90.04).String(); s != "1m30s" {
		t.Error(s)
	}
}

func TestWhatMakesNoSenseIsNamed(t *testing.T) {
	if err := design.Check(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*capacity.Load){
		"rate":      func(l *capacity.Load) { l.Rate = -1 },
		"burst":     func(l *capacity.Load) { l.Burst = math.NaN() },
		"recurring": func(l *capacity.Load) { l.Recurring = math.Inf(1) },
		"once":      func(l *capacity.Load) { l.OnceShare = 1.1 },
		"failing":   func(l *capacity.Load) { l.Failing = 1 },
		"retention": func(l *capacity.Load) { l.Retention = time.Hour },
		"outage":    func(l *capacity.Load) { l.Outage = -time.Second },
		"nodes":     func(l *capacity.Load) { l.Nodes = 65 },
		"shards":    func(l *capacity.Load) { l.Shards = 0 },
		"replicas":  func(l *capacity.Load) { l.Replicas = 0 },
	} {
		l := design
		change(&l)
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
