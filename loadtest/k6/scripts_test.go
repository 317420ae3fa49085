// Package k6 holds scripts for the load generator k6, and this test of them. k6 is
// under the AGPL and is no part of Carillon: the scripts run here in the JavaScript
// engine that k6 uses, with modules that stand in for k6's own and send every request
// to a live server. It is a module of its own, so that the product doesn't depend on
// that engine.
package k6

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/carillon-scheduler/carillon/loadtest/sandbox"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	vus        = 3 // of each scenario
	iterations = 4 // of each VU

	batch, readJobs, readSlots = 3, 2, 2
)

// live is the server that all tests share, each in a namespace of its own.
var (
	live       *sandbox.Sandbox
	namespaces atomic.Int64
)

func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// withServer builds Carillon, and has a server while something runs.
func withServer(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "carillon-k6-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	carillon := filepath.Join(dir, "carillon")
	build := exec.Command("go", "build", "-o", carillon, "./cmd/carillon")
	build.Dir, build.Stderr = "../..", os.Stderr
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("build carillon: %w", err)
	}
	if live, err = sandbox.Start(context.Background(), carillon, dir); err != nil {
		return 1, err
	}
	code = run()
	return code, live.Stop()
}

// play executes a script in a namespace of its own, and looks up what it left there.
func play(ctx context.Context, files fs.FS, script string) error {
	namespace, address := fmt.Sprintf("n%d", namespaces.Add(1)), live.GRPC
	if script == "rest.js" {
		address = live.HTTP
	}
	r := &run{ctx: ctx, files: files, script: script, env: map[string]string{
		"ADDRESS": address, "NAMESPACE": namespace, "BATCH": strconv.Itoa(batch),
		"READ_JOBS": strconv.Itoa(readJobs), "READ_SLOTS": strconv.Itoa(readSlots), "RATE": "1", "DURATION": "1s",
	}}
	return errors.Join(r.execute(vus, iterations), r.expectCalls(), expectJobs(ctx, namespace))
}

// expectCalls says whether each scenario made its call in every iteration.
func (r *run) expectCalls() error {
	const each = vus * iterations
	want := map[string]int{"JobService/CreateJob": each, "JobService/BatchCreateJobs": each, "JobService/GetJob": each, "SlotService/ListSlots": each}
	if got := r.sent(); !maps.Equal(got, want) {
		return fmt.Errorf("calls of the scenarios: %v, want %v", got, want)
	}
	return nil
}

// expectJobs counts what is stored. A name that is not unique shows here only: the
// server takes its request for a repeat.
func expectJobs(ctx context.Context, namespace string) error {
	resp, err := carillonv1.NewJobServiceClient(live.Conn).ListJobs(ctx, &carillonv1.ListJobsRequest{
		Parent: "namespaces/" + namespace, PageSize: 1000, ShowEnded: true})
	if err != nil {
		return err
	}
	if got, want := len(resp.GetJobs()), readJobs+vus*iterations*(1+batch); got != want {
		return fmt.Errorf("%d jobs are stored, want %d", got, want)
	}
	for _, j := range resp.GetJobs() {
		if strings.Contains(j.GetName(), "-read-") && j.GetState() != carillonv1.JobState_JOB_STATE_DELETED {
			return fmt.Errorf("%s is left as %s", j.GetName(), j.GetState())
		}
	}
	return nil
}

func TestScripts(t *testing.T) {
	for _, script := range []string{"grpc.js", "rest.js"} {
		t.Run(script, func(t *testing.T) {
			if err := play(t.Context(), os.DirFS("."), script); err != nil {
				t.Error(err)
			}
		})
	}
}

// Every mistake is seen: each of these makes one in a copy of the scripts.
func TestMistakesAreSeen(t *testing.T) {
	tests := []struct {
		name, script, file, from, to string
		seen                         string // in the error
	}{
		{"a field that isn't there", "grpc.js", "shared.js", "handler: HANDLER", "handlr: HANDLER", `unknown field "handlr"`},
		{"a field that isn't there", "rest.js", "shared.js", "handler: HANDLER", "handlr: HANDLER", "answered with 400"},
		{"no handler", "grpc.js", "shared.js", "handler: HANDLER, ", "", "InvalidArgument"},
		{"no handler", "rest.js", "shared.js", "handler: HANDLER, ", "", "answered with 400"},
		{"a query that isn't there", "rest.js", "shared.js", "{ job_id: id", "{ id: id", "answered with 400"},
		{"a method that isn't there", "grpc.js", "grpc.js", "JobService/GetJob", "JobService/ReadJob", `"carillon.v1.JobService/ReadJob" is not known`},
		{"a path that isn't there", "rest.js", "rest.js", "jobs:batchCreate", "jobs:create", "answered with 404"},
		{"names that aren't unique", "grpc.js", "shared.js", "-${exec.scenario.iterationInTest}", "", "jobs are stored"},
		{"names that VUs share", "rest.js", "shared.js", "-${exec.scenario.iterationInTest}", "-${exec.scenario.iterationInTest % 4}", "jobs are stored"},
		{"jobs that are left", "rest.js", "rest.js", "'DELETE'", "'GET'", "is left as"},
		{"a check that fails", "grpc.js", "grpc.js", "r.message.slots.length >= READ_SLOTS", "r.message.slots.length > 1000", `check "ListSlots answers slots" failed 12 of 12`},
		{"a scenario of no function", "grpc.js", "shared.js", "scenario('getJob')", "scenario('readJob')", `exports no function "readJob"`},
		{"a scenario that calls another method", "grpc.js", "shared.js", "scenario('getJob')", "scenario('listSlots')", "calls of the scenarios"},
		{"an option that isn't there", "rest.js", "shared.js", "preAllocatedVUs:", "allocatedVUs:", `unknown field "allocatedVUs"`},
		{"an executor that isn't there", "rest.js", "shared.js", "'constant-arrival-rate'", "'constant-rate'", `executor is "constant-rate"`},
		{"a threshold that isn't understood", "rest.js", "shared.js", "p(99)<", "p99<", "doesn't understand"},
		{"a threshold of no metric", "grpc.js", "grpc.js", "'grpc_req_duration'", "'grpc_duration'", `no metric "grpc_duration"`},
		{"a threshold of no request", "grpc.js", "grpc.js", "}, 'GetJob');", "}, 'GetJobs');", "{name:GetJob} is about no request"},
		{"a parameter that isn't there", "grpc.js", "grpc.js", "{ tags: {", "{ tag: {", `unknown field "tag"`},
		{"a connection without reflection", "grpc.js", "grpc.js", "reflect: true", "reflect: false", "is not known"},
		{"a connection for each call", "grpc.js", "grpc.js", "connected = check", "check", "the old connection would be lost"},
		{"a call in the init stage", "grpc.js", "grpc.js", "let connected = false;", "client.connect(ADDRESS);\nlet connected = false;", "while the script is evaluated"},
		{"a function that isn't there", "rest.js", "rest.js", "http.request(", "http.send(", "k6/http has no send"},
		{"a property that isn't there", "rest.js", "shared.js", "exec.scenario.name", "exec.scenario.title", "exec.scenario has no title"},
		{"an import that isn't there", "rest.js", "rest.js", "import { check } from 'k6'", "import { chek as check } from 'k6'", "chek"},
		{"a module that isn't there", "rest.js", "rest.js", "'k6/http'", "'k6/https'", `no module "k6/https"`},
	}
	for _, tt := range tests {
		t.Run(tt.name+" in "+tt.script, func(t *testing.T) {
			files := fstest.MapFS{}
			for _, name := range []string{"shared.js", tt.script} {
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				files[name] = &fstest.MapFile{Data: text}
			}
			wrong := strings.ReplaceAll(string(files[tt.file].Data), tt.from, tt.to)
			if wrong == string(files[tt.file].Data) {
				t.Fatalf("%s lacks %q", tt.file, tt.from)
			}
			files[tt.file].Data = []byte(wrong)
			err := play(t.Context(), files, tt.script)
			if err == nil || !strings.Contains(err.Error(), tt.seen) {
				t.Errorf("%q is not in: %v", tt.seen, err)
			}
		})
	}
}
