package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// workerRun starts `carillon worker run`.
func (d *dev) workerRun(args ...string) *process {
	d.t.Helper()
	cmd := exec.Command(binary, append([]string{"worker", "run", "--address", d.grpc}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	p := launch(d.t, cmd)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "serves") {
		d.t.Fatalf("it says %q: %v\n%s", line, err, p.logs)
	}
	return p
}

// createJob creates a job over the command line.
func (d *dev) createJob(name, handler, params string, more ...string) *carillonv1.Job {
	d.t.Helper()
	args := append([]string{"job", "create", name, "--handler", handler, "--now", "--allow-unregistered", "--params", params, "--backoff", "10ms"}, more...)
	if out, code := run(d.t, d.grpc, args...); code != 0 {
		d.t.Fatalf("job create %s: exit %d: %s", name, code, out)
	}
	return &carillonv1.Job{Name: parent + "/jobs/" + name}
}

// program writes a shell script.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// namedPipe makes a pipe whose reader sees its end once every program that holds it has
// ended.
func namedPipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openPipe waits until a program has written a line into the pipe.
func openPipe(t *testing.T, path string) (*bufio.Reader, string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r := bufio.NewReader(f)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return r, strings.TrimSpace(line)
}

const dead = carillonv1.SlotState_SLOT_STATE_DEAD

// Requests and programs, from the command line to the stored results, without a line of Go.
func TestAWorkerThatNeedsNoCode(t *testing.T) {
	t.Parallel()
	keys := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		switch {
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusGone)
		case r.URL.Path == "/busy" && r.Header.Get("Carillon-Attempt") == "1":
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"got": %s}`, body)
		}
	}))
	defer receiver.Close()
	_, port, err := net.SplitHostPort(receiver.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d := startDev(t)
	d.workerRun("--http", "--allow-host", "127.0.0.1:"+port, "--allow-private", "127.0.0.1/32", "--concurrency", "http.request=4",
		"--exec", "upper="+program(t, `tr a-z A-Z > "$CARILLON_RESULT"; echo "$1 $CARILLON_KEY"`), "--exec-arg", "upper=working on",
		"--exec", "never="+program(t, `echo "no such thing" >&2; exit 65`))

	slot := d.becomes(20*time.Second, d.createJob("busy", "http.request", fmt.Sprintf(`{"url": "%s/busy", "body": {"n": 1}}`, receiver.URL)), succeeded)
	if first, second := <-keys, <-keys; first != second || !strings.HasPrefix(first, slot.GetJobUid()+"/") {
		t.Errorf("the keys are %q and %q", first, second)
	}
	if attempts := d.attempts(slot); len(attempts) != 2 || attempts[0].GetErrorCode() != "http_503" || !strings.Contains(slot.GetResult().GetText(), `"body":{"got":{"n":1}}`) {
		t.Errorf("%v, %v", slot, attempts)
	}
	slot = d.becomes(20*time.Second, d.createJob("gone", "http.request", fmt.Sprintf(`{"url": "%s/gone"}`, receiver.URL)), dead)
	if slot.GetErrorCode() != "http_410" || slot.GetAttempt() != 1 {
		t.Errorf("%v", slot)
	}
	slot = d.becomes(20*time.Second, d.createJob("elsewhere", "http.request", fmt.Sprintf(`{"url": "http://%s/v1/namespaces/default/jobs"}`, d.http)), dead)
	if slot.GetErrorCode() != "blocked_host" {
		t.Errorf("%v", slot)
	}

	slot = d.becomes(20*time.Second, d.createJob("upper", "upper", `{"a":"b"}`), succeeded)
	if slot.GetResult().GetText() != `{"A":"B"}` || !strings.Contains(slot.GetLog(), "working on "+slot.GetJobUid()) {
		t.Errorf("%v", slot)
	}
	slot = d.becomes(20*time.Second, d.createJob("never", "never", `{}`), dead)
	if slot.GetErrorCode() != "exit_65" || slot.GetErrorMessage() != "exit status 65\nno such thing" {
		t.Errorf("%v", slot)
	}
}

// A deploy burns no attempt: what runs ends in the grace, or is stopped, handed back, and
// goes on from its checkpoint.
func TestSIGTERMOfAWorkerThatNeedsNoCode(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	up := namedPipe(t)
	script := program(t, `exec 3>"$1"
if [ -s "$CARILLON_CHECKPOINT" ]; then cat "$CARILLON_CHECKPOINT" > "$CARILLON_RESULT"; exit 0; fi
echo '"half done"' > next && mv next "$CARILLON_CHECKPOINT"
echo up >&3
trap 'exit 0' TERM
while :; do sleep 1000 & wait; done`)
	args := []string{"--id", "w", "--grace", "100ms", "--exec", "long=" + script, "--exec-arg", "long=" + up}
	first := d.workerRun(args...)
	job := d.createJob("j", "long", `{}`, "--max-attempts", "1")
	group, _ := openPipe(t, up)
	if err := first.kill(syscall.SIGTERM); err != nil {
		t.Fatalf("exit: %v", err)
	}
	if rest, err := io.ReadAll(group); err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if slot := d.becomes(5*time.Second, job, ready); slot.GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED || slot.GetFailures() != 0 {
		t.Errorf("after the stop: %v", slot)
	}
	again, err := os.OpenFile(up, os.O_RDWR, 0) // the second run waits for no reader
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	d.workerRun(args...)
	if slot := d.becomes(20*time.Second, job, succeeded); slot.GetAttempt() != 2 || slot.GetFailures() != 0 || slot.GetResult().GetText() != `"half done"` {
		t.Errorf("in the end: %v", slot)
	}
}

// kill -9 of a worker leaves nothing of its programs behind.
func TestKill9OfAWorkerEndsItsPrograms(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	up := namedPipe(t)
	w := d.workerRun("--exec", "p="+program(t, `trap '' TERM; exec 3>"$1"; sleep 1000 & echo up >&3; wait`), "--exec-arg", "p="+up)
	d.createJob("j", "p", `{}`)
	group, _ := openPipe(t, up)
	w.kill(syscall.SIGKILL)
	if rest, err := io.ReadAll(group); err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestFlagsOfAWorker(t *testing.T) {
	t.Parallel()
	plain := write(t, "plain", "")
	for args, says := range map[string]string{
		"":                                "--http",
		"--http":                          "--allow-host",
		"--allow-host a.b":                "need --http",
		"--allow-private 10.0.0.0/8":      "need --http",
		"--http --allow-host a.b:x":       "a.b:x",
		"--http --allow-host *.10.0.0.1":  "*.10.0.0.1",
		"--http --allow-host https://a.b": "https://a.b",
		"--http --allow-host * --allow-private 10":     `"10"`,
		"--http --allow-host * --http-proxy a:1":       "proxy",
		"--exec report":                                "NAME=PATH",
		"--exec report=":                               "the path is empty",
		"--exec a_=/bin/sh":                            "the name",
		"--exec report=/no/such/program":               "--exec report=/no/such/program: ",
		"--exec report=" + plain:                       "permission denied",
		"--exec a=sh --exec a=sh":                      "twice",
		"--http --allow-host * --exec http.request=sh": "twice",
		"--exec a=sh --exec-arg b=1":                   "--exec-arg",
		"--exec a=sh --exec-env A=B":                   "A=B",
		"--exec-env A":                                 "--exec-env",
		"--exec a=sh --concurrency a=0":                "--concurrency",
		"--exec a=sh --concurrency b=1":                "--concurrency",
		"--exec a=sh --capacity 0":                     "capacity",
		"--exec a=sh --id a/b":                         "id",
		"--exec a=sh --log-level loud":                 "--log-level",
		"--exec a=sh more":                             "usage",
	} {
		if out, code := run(t, "", append([]string{"worker", "run"}, strings.Fields(args)...)...); code != 2 || !strings.Contains(out, says) {
			t.Errorf("%s: exit %d, want 2 and %q: %s", args, code, says, out)
		}
	}
}
