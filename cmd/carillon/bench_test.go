package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every scenario runs to its end with real processes, is judged, and counts all that was
// due. The numbers are for nobody: these runs are too short, and disturb each other.
func TestBench(t *testing.T) {
	for name, args := range map[string]string{
		"steady":           "steady --rate 50 --store sqlite --work 5ms",
		"steady, once":     "steady --rate 50 --store sqlite --once --payload 2000",
		"burst":            "burst --burst 500 --rate 10 --store sqlite --warmup 4s",
		"immediate":        "immediate --rate 20 --store sqlite --runs 2",
		"immediate, REST":  "immediate --rate 20 --store sqlite --via rest",
		"create":           "create --store sqlite --callers 4",
		"create, REST":     "create --store sqlite --callers 4 --via rest",
		"create, batches":  "create --store sqlite --via batch --batch 20",
		"create, streams":  "create --store sqlite --via stream --callers 2",
		"recurring":        "recurring --rate 20 --idle-jobs 500 --store sqlite",
		"workers":          "workers --rate 50 --workers 5 --idle-workers 20 --store sqlite",
		"mixed":            "mixed --rate 100 --store sqlite",
		"on PostgreSQL":    "steady --rate 50 --store postgres",
		"PostgreSQL, runs": "create --store postgres --via stream --runs 3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "result.json")
			args := append([]string{"bench"}, strings.Fields(args)...)
			if !strings.Contains(strings.Join(args, " "), "--warmup") {
				args = append(args, "--warmup", "1s")
			}
			out, err := exec.Command(binary, append(args, "--duration", "1s", "--json", file)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			checkResult(t, file)
			table, err := exec.Command(binary, "bench", "table", file).CombinedOutput()
			if err != nil || strings.Count(string(table), "\n") != 3 {
				t.Errorf("table: %v\n%s", err, table)
			}
		})
	}
}

func checkResult(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Store                string
		Expected, Executions int
		NeverBegan           int                 `json:"never_began"`
		Latency              map[string]float64  `json:"latency_milliseconds"`
		CPU                  map[string]float64  `json:"cpu_seconds_per_1000"`
		Database             map[string]*float64 `json:"database_per_execution"`
		Facts                map[string]float64
		Runs                 []json.RawMessage
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Expected == 0 || r.Executions+r.NeverBegan != r.Expected {
		t.Errorf("%d of %d, and %d that never began", r.Executions, r.Expected, r.NeverBegan)
	}
	if r.Latency["p50"] <= 0 || r.Latency["max"] < r.Latency["p99"] {
		t.Errorf("latency %v", r.Latency)
	}
	if r.CPU["node"] <= 0 || *r.Database["rows"] <= 0 || *r.Database["statements"] <= 0 {
		t.Errorf("CPU %v, rows %v, statements %v", r.CPU, *r.Database["rows"], *r.Database["statements"])
	}
	if r.Store == "postgres" && (r.CPU["postgres"] <= 0 || r.Database["wal_bytes"] == nil || *r.Database["wal_bytes"] <= 0) {
		t.Errorf("PostgreSQL used %v, %v", r.CPU, r.Database)
	}
}

// What can't be measured is said with the flag that is wrong, before anything starts.
func TestBenchRefusesWhatMakesNoSense(t *testing.T) {
	for args, says := range map[string]string{
		"sprint":                        "there is no scenario",
		"steady --rate -1":              "--rate",
		"steady --duration 10ms":        "--duration",
		"steady --runs 0":               "--runs",
		"create --via carrier":          "--via",
		"immediate --via batch":         "--via",
		"create --batch 1001":           "--batch",
		"steady --payload 1000000":      "--payload",
		"workers --idle-workers 200000": "--idle-workers",
	} {
		out, err := exec.Command(binary, append([]string{"bench"}, strings.Fields(args)...)...).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), says) {
			t.Errorf("bench %s: %v, %s", args, err, out)
		}
	}
}

func TestPlan(t *testing.T) {
	out, err := exec.Command(binary, strings.Fields("plan --rate 10000 --burst 0 --retention 168h -o json")...).CombinedOutput()
	var p map[string]float64
	if err != nil || json.Unmarshal(out, &p) != nil || p["slots_kept"] != 6.048e9 || p["burst_drain_seconds"] != 0 {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command(binary, strings.Fields("plan --rate 100000 --nodes 2")...).CombinedOutput()
	for _, want := range []string{"100 thousand/s", "8.64 billion", "the last for never"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: no %q in\n%s", err, want, out)
		}
	}
	for args, says := range map[string]string{"--rate -1": "--rate must be", "--failing 1": "failing", "--retention 1h": "--retention", "--nodes 100": "--nodes", "--speed 0": "--speed"} {
		out, err := exec.Command(binary, append([]string{"plan"}, strings.Fields(args)...)...).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), says) {
			t.Errorf("plan %s: %v, %s", args, err, out)
		}
	}
}
