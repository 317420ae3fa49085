package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const good = `{"name": "GetJob", "endReason": "timeout", "count": 3, "rps": 1.5,
	"statusCodeDistribution": {"OK": 3}, "errorDistribution": {},
	"latencyDistribution": [{"percentage": 50, "latency": 1230000}, {"percentage": 99, "latency": 4560000}]}`

// A result is good only if calls were made, for the whole time, and all were answered
// with OK.
func TestTheVerdict(t *testing.T) {
	for text, wrong := range map[string]string{
		good: "",
		strings.Replace(good, `"count": 3`, `"count": 4`, 1):                                       "1 of 4 calls failed",
		strings.Replace(good, `"OK": 3`, `"OK": 2, "Unavailable": 1`, 1):                           "1 of 3 calls failed",
		strings.Replace(good, `"errorDistribution": {}`, `"errorDistribution": {"EOF": 1}`, 1):     "EOF",
		strings.Replace(good, `"timeout"`, `"cancel"`, 1):                                          "before its time",
		`{"name": "GetJob", "endReason": "timeout", "count": 0}`:                                   "no call was made",
		strings.NewReplacer(`"count": 3`, `"count": 0`, `"OK": 3`, `"OK": 0`).Replace(good) + "\n": "no call was made",
	} {
		var r report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		err := r.verdict()
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s\nverdict: %v, want %q", text, err, wrong)
		}
	}
}

func TestTheTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	printTable(&out, []report{r})
	if want := "GetJob      3        2  1.23ms  4.56ms       0"; !strings.Contains(out.String(), want) {
		t.Errorf("the table lacks %q:\n%s", want, out.String())
	}
}

// Each call has its scenario, and each scenario is one that ghz can take by itself.
func TestTheScenarios(t *testing.T) {
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) != len(scenarios) {
		t.Fatalf("%v are not the scenarios that are played, %v (%v)", files, scenarios, err)
	}
	calls := map[string]bool{}
	for _, file := range scenarios {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Name, Call, Host string
			Stop             string `json:"duration-stop"`
		}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !strings.HasSuffix(s.Call, "."+s.Name) || s.Host == "" || s.Stop != "wait" {
			t.Errorf("%s is %+v", file, s)
		}
		calls[s.Name] = true
	}
	for _, name := range []string{"CreateJob", "BatchCreateJobs", "ListSlots", "GetJob"} {
		if !calls[name] {
			t.Errorf("%s has no scenario", name)
		}
	}
}

func TestSettings(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 3 * time.Second, "7": 7 * time.Second, "0": 0, "3601": 0, "2s": 0} {
		if got, err := forEach(value); got != want || (err == nil) != (want > 0) {
			t.Errorf("GHZ_SECONDS=%q is %s, %v", value, got, err)
		}
	}
	t.Setenv("TMPDIR", t.TempDir()) // what went wrong is kept
	if err := run(context.Background(), []string{"--carillon", "/nonexistent"}, io.Discard); err == nil {
		t.Error("a server that isn't there was loaded")
	}
}
