package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Every scenario runs to its end with real processes, is judged, and counts all that was
// due. The numbers are for nobody: these runs are too short, and disturb each other.
func TestBench(t *testing.T) {
	for args, expected := range map[string]int{ // 0: as many as there were
		"steady --rate 50 --store sqlite --work 5ms":                     50,
		"steady --rate 50 --store sqlite --once --payload 2000":          50,
		"burst --burst 500 --rate 10 --store sqlite --warmup 4s":         500,
		"immediate --rate 20 --store sqlite --runs 2":                    20,
		"immediate --rate 20 --store sqlite --via rest":                  20,
		"create --store sqlite --callers 4":                              0,
		"create --store sqlite --callers 4 --via rest":                   0,
		"create --store sqlite --via batch --batch 20":                   0,
		"create --store sqlite --via stream --callers 2":                 0,
		"recurring --rate 20 --idle-jobs 500 --store sqlite":             20,
		"workers --rate 50 --workers 5 --idle-workers 20 --store sqlite": 50,
		"mixed --rate 100 --store sqlite":                                100,
		"steady --rate 50 --store postgres":                              50,
	} {
		t.Run(args, func(t *testing.T) {
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
			checkResult(t, file, expected)
			table, err := exec.Command(binary, "bench", "table", file).CombinedOutput()
			if err != nil || strings.Count(string(table), "\n") != 3 {
				t.Errorf("table: %v\n%s", err, table)
			}
		})
	}
}

func checkResult(t *testing.T, file string, expected int) {
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
	if r.Expected == 0 || expected != 0 && r.Expected != expected || r.Executions != r.Expected || r.NeverBegan != 0 {
		t.Errorf("%d of %d, and %d that never began", r.Executions, r.Expected, r.NeverBegan)
	}
	if r.Latency["p50"] <= 0 || r.Latency["max"] < r.Latency["p99"] {
		t.Errorf("latency %v", r.Latency)
	}
	if len(r.CPU) < 2 || *r.Database["rows"] <= 0 || *r.Database["statements"] <= 0 {
		t.Errorf("CPU %v, rows %v, statements %v", r.CPU, *r.Database["rows"], *r.Database["statements"])
	}
	_, known := r.CPU["postgres"] // which may have used less than the clock's tick
	if r.Store == "postgres" && (!known || r.Database["wal_bytes"] == nil || *r.Database["wal_bytes"] <= 0) {
		t.Errorf("PostgreSQL used %v, %v", r.CPU, r.Database)
	}
}

// A program that dies in the middle of a run ends it, with its name, and leaves nothing
// behind.
func TestBenchEndsWithAProgramThatDies(t *testing.T) {
	for _, victim := range []string{"server", "bench-worker"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			cmd := exec.Command(binary, "bench", "create", "--store", "sqlite", "--duration", "60s")
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			var err error
			for killed := false; ; {
				select {
				case err = <-ended:
				case <-time.After(20 * time.Millisecond):
					// The worker comes last: with it, all is under way.
					if pids := children(t, cmd.Process.Pid); !killed && pids["bench-worker"] != 0 {
						killed = syscall.Kill(pids[victim], syscall.SIGKILL) == nil
					}
					continue
				}
				break
			}
			if err == nil || !strings.Contains(out.String(), "ended: signal: killed") {
				t.Errorf("%v\n%s", err, out.String())
			}
		})
	}
}

// children are the processes that another one started, by their first argument.
func children(t *testing.T, parent int) map[string]int {
	t.Helper()
	pids := map[string]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		args := strings.Split(string(cmdline), "\x00")
		if err != nil || len(fields) < 2 || fields[1] != strconv.Itoa(parent) || len(args) < 2 {
			continue
		}
		if pids[args[1]], err = strconv.Atoi(filepath.Base(filepath.Dir(stat))); err != nil {
			t.Fatal(err)
		}
	}
	return pids
}

// What can't be measured is said with the flag that is wrong, before anything starts.
func TestBenchRefusesWhatMakesNoSense(t *testing.T) {
	for args, says := range map[string]string{
		"sprint":                        "there is no scenario",
		"steady --rate -1":              "--rate",
		"steady --duration 10ms":        "--duration",
		"steady --duration 1500ms":      "--duration",
		"steady --runs 0":               "--runs",
		"steady --runs 2 --store x:y":   "--runs",
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
	for _, want := range []string{"203 thousand/s", "8.64 billion", "the last for never"} {
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
