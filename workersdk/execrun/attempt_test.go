//go:build unix

package execrun

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

// victimEnv makes this test binary a worker that runs the program of that path, once.
const victimEnv = "CARILLON_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if path := os.Getenv(victimEnv); path != "" {
		fmt.Fprintln(os.Stderr, beVictim(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func beVictim(path string) error {
	p, err := New(path)
	if err != nil {
		return err
	}
	_, err = workersdktest.Run(context.Background(), p.Handle, nil)
	return err
}

// What attempts come to.
const (
	succeeded = "SUCCEEDED"
	failed    = "FAILED"
	cancelled = "CANCELLED"
	timedOut  = "TIMED_OUT"
	released  = "RELEASED"
)

// script writes a program.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// program makes a program of a script. Its temporary files must be gone in the end.
func program(t *testing.T, text string, opts ...Option) *Program {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	p, err := New(script(t, text), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return p
}

// do runs the program as the second attempt of a slot.
func do(ctx context.Context, t *testing.T, p *Program, opts ...workersdktest.RunOption) workersdktest.Outcome {
	t.Helper()
	o, err := workersdktest.Run(ctx, p.Handle, nil, append([]workersdktest.RunOption{
		workersdktest.Params(""), workersdktest.Attempt(2), workersdktest.FireTime(time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// runScript runs a script.
func runScript(t *testing.T, text string, opts ...Option) workersdktest.Outcome {
	t.Helper()
	return do(t.Context(), t, program(t, text, opts...))
}

func says(t *testing.T, o workersdktest.Outcome, state, code string, permanent bool, text string) {
	t.Helper()
	if o.State != state || o.Code != code || o.Permanent != permanent || !strings.Contains(o.Text, text) {
		t.Errorf("the outcome is %+v, want %s %q, permanent %v, with %q", o, state, code, permanent, text)
	}
}

// pipe makes a named pipe. A program that opens it is known to run; once everybody who holds
// it has ended, its reader sees its end.
func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open waits until a program has opened the other end of a pipe and written a line. It may
// be called by another goroutine than the test's.
func open(t *testing.T, path string) *bufio.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return bufio.NewReader(strings.NewReader(""))
	}
	t.Cleanup(func() { f.Close() })
	r := bufio.NewReader(f)
	if _, err := r.ReadString('\n'); err != nil {
		t.Error(err)
	}
	return r
}

// allEnded waits until nobody holds the pipe any more.
func allEnded(t *testing.T, r io.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(r); err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// onceUp runs end when the program has opened the pipe, and returns its reader when end did.
func onceUp(t *testing.T, path string, end func()) <-chan *bufio.Reader {
	group := make(chan *bufio.Reader, 1)
	go func() {
		r := open(t, path)
		end()
		group <- r
	}()
	return group
}

func TestWhatAProgramGets(t *testing.T) {
	t.Setenv("SECRET_OF_THE_WORKER", "s3cret")
	t.Setenv("PASSED_ON", "as it is")
	t.Setenv("TZ", "Europe/Berlin")
	p := program(t, `cat > "$CARILLON_RESULT"; env; echo "arguments $*"; echo "in $(pwd -P): $(ls -A)."`, Args("one", "two three"), PassEnv("PASSED_ON", "NOT_SET"))
	const params = `{"b":1.50,"a":"ü"}`
	o := do(t.Context(), t, p, workersdktest.Params(params))
	if o.State != succeeded || string(o.Result) != params {
		t.Fatalf("%+v", o)
	}
	for _, want := range []string{"CARILLON_JOB=namespaces/default/jobs/test\"", "CARILLON_SLOT=namespaces/default/jobs/test/slots/20261130T020000Z",
		"CARILLON_KEY=00000000-0000-7000-8000-000000000001/20261130T020000.000000Z", "CARILLON_FENCE=2", "CARILLON_ATTEMPT=2",
		"CARILLON_MAX_ATTEMPTS=5", "CARILLON_FIRE_TIME=2026-11-30T02:00:00Z", "CARILLON_DEADLINE=20", "CARILLON_TRIGGER=schedule", "CARILLON_LATENESS_SECONDS=",
		"CARILLON_CHECKPOINT=/", "CARILLON_RESULT=/", "PASSED_ON=as it is", "TZ=Europe/Berlin", "PATH=", "arguments one two three", "/work: ."} {
		if !strings.Contains(o.Log, want) {
			t.Errorf("%q isn't there:\n%s", want, o.Log)
		}
	}
	for _, secret := range []string{"s3cret", "NOT_SET", "GOROOT", "GOPATH"} {
		if strings.Contains(o.Log, secret) {
			t.Errorf("%q is there:\n%s", secret, o.Log)
		}
	}
}

func TestParametersThatNobodyReads(t *testing.T) {
	p := program(t, `exit 0`)
	says(t, do(t.Context(), t, p, workersdktest.Params(`"`+strings.Repeat("x", 200_000)+`"`)), succeeded, "", false, "")
	says(t, do(t.Context(), t, p), succeeded, "", false, "")
}

func TestHowProgramsEnd(t *testing.T) {
	for text, want := range map[string]struct {
		state     string
		code      string
		permanent bool
		says      string
	}{
		`echo fine`:                   {succeeded, "", false, ""},
		`echo wrong >&2; exit 1`:      {failed, "exit_1", false, "exit status 1\nwrong"},
		`echo a; echo b >&2; exit 75`: {failed, "exit_75", false, "exit status 75\na\nb"},
		`echo never; exit 65`:         {failed, "exit_65", true, "exit status 65\nnever"},
		`exit 255`:                    {failed, "exit_255", false, "exit status 255"},
		`nothing.there`:               {failed, "exit_127", false, "not found"},
		`kill -KILL $$`:               {failed, "signal_KILL", false, "killed by SIGKILL"},
		`kill -TERM $$`:               {failed, "signal_TERM", false, "killed by SIGTERM"},
	} {
		says(t, runScript(t, text), want.state, want.code, want.permanent, want.says)
	}
}

func TestProgramsThatCantBeStarted(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(dir, "none"): "no such file", plain: "permission denied", dir: "directory", "no.such.program": "not found"} {
		if _, err := New(path); err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, text)
		}
	}
	for _, name := range []string{"", "A=B"} {
		if _, err := New("sh", PassEnv(name)); err == nil {
			t.Errorf("the variable %q is taken", name)
		}
	}
	p := program(t, `exit 0`)
	if err := os.Remove(p.path); err != nil {
		t.Fatal(err)
	}
	says(t, do(t.Context(), t, p), failed, "exec_failed", false, "no such file")
}

// Of output without end, the end is kept.
func TestTheEndOfLongOutput(t *testing.T) {
	o := runScript(t, `i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done; exit 1`)
	text := o.Text
	if len(text) < 15<<10 || len(text) > 16<<10 || !strings.HasSuffix(text, "line 19999") || !strings.HasPrefix(text, "exit status 1\n…") {
		t.Errorf("the text has %d bytes: %.100q … %q", len(text), text, text[len(text)-20:])
	}
	if log := o.Log; len(log) > 16<<10 || !strings.Contains(log, `msg="line 19999"`) {
		t.Errorf("the log has %d bytes and ends with %q", len(log), log[max(0, len(log)-100):])
	}
}

func TestOutputThatIsNoText(t *testing.T) {
	o := runScript(t, `printf '\377\376 and \000 nul, no newline'; exit 1`)
	text, log := o.Text, o.Log
	if !utf8.ValidString(text) || !utf8.ValidString(log) || !strings.HasSuffix(text, "\uFFFD and \uFFFD nul, no newline") || !strings.Contains(log, "no newline") {
		t.Errorf("%q, %q", text, log)
	}
}

// watcher closes a channel when a text is logged.
type watcher struct {
	text string
	once sync.Once
	seen chan struct{}
}

func (w *watcher) Write(line []byte) (int, error) {
	if strings.Contains(string(line), w.text) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(line), nil
}

// release lets a program go on that reads the pipe.
func release(t *testing.T, when <-chan struct{}, path string) {
	go func() {
		<-when
		if err := os.WriteFile(path, []byte("second\n"), 0); err != nil {
			t.Error(err)
		}
	}()
}

// The log of a program can be read while it runs.
func TestTheLogOfARunningProgram(t *testing.T) {
	gate := pipe(t)
	p := program(t, `echo first; cat "$1"`, Args(gate), func(p *Program) { p.look = time.Millisecond })
	w := &watcher{text: "msg=first", seen: make(chan struct{})}
	release(t, w.seen, gate)
	o := do(t.Context(), t, p, workersdktest.WorkerOptions(worker.Logger(slog.New(slog.NewTextHandler(w, nil)))))
	if !strings.Contains(o.Log, "msg=first") || !strings.Contains(o.Log, "msg=second") {
		t.Errorf("the log is %q", o.Log)
	}
}

func TestCheckpoints(t *testing.T) {
	p := program(t, `cat "$CARILLON_CHECKPOINT" > "$CARILLON_RESULT"; echo '"two"' > "$CARILLON_CHECKPOINT"; exit $1`, Args("0"))
	if o := do(t.Context(), t, p, workersdktest.Checkpoint([]byte(`"one"`))); string(o.Result) != `"one"` || string(o.Checkpoint) != "\"two\"\n" {
		t.Errorf("%+v", o)
	}
	if o := runScript(t, `[ ! -e "$CARILLON_CHECKPOINT" ] || exit 1; echo half > "$CARILLON_CHECKPOINT"; exit 75`); o.Code != "exit_75" || string(o.Checkpoint) != "half\n" {
		t.Errorf("%+v", o)
	}
	if o := runScript(t, `exit 0`); o.Checkpoint != nil {
		t.Errorf("%+v", o)
	}
	if o := runScript(t, `head -c 65537 /dev/zero > "$CARILLON_CHECKPOINT"`); o.State != succeeded || o.Checkpoint != nil || !strings.Contains(o.Log, "65537 bytes, more than 65536") {
		t.Errorf("%+v", o)
	}
}

// The script of the documentation goes on where the attempt before it stopped.
func TestTheScriptOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/worker-run.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := bytes.Cut(text, []byte("```sh\n#!/bin/sh\n"))
	text, _, ended := bytes.Cut(text, []byte("```\n"))
	if !found || !ended {
		t.Fatal("it has no script")
	}
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "copy-file"), []byte("#!/bin/sh\necho copies $1; [ $1 != $FAILS ]"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	t.Setenv("FAILS", "97")
	p := program(t, string(text), PassEnv("FAILS"))
	first := do(t.Context(), t, p)
	says(t, first, failed, "exit_75", false, "copies 97")
	if string(first.Checkpoint) != "96\n" {
		t.Errorf("the checkpoint is %q", first.Checkpoint)
	}
	t.Setenv("FAILS", "none")
	second := do(t.Context(), t, p, workersdktest.Checkpoint(first.Checkpoint))
	if string(second.Result) != `{"copied":100}` || strings.Contains(second.Log, "copies 96") || !strings.Contains(second.Log, "copies 97") {
		t.Errorf("%+v", second)
	}
}

// saves is a codec that changes nothing, and closes a channel when a checkpoint is kept.
type saves struct {
	once sync.Once
	seen chan struct{}
}

func (s *saves) Decode(_ string, data []byte) ([]byte, error) { return data, nil }
func (s *saves) Encode(about string, data []byte) ([]byte, error) {
	if strings.HasPrefix(about, "checkpoint") {
		s.once.Do(func() { close(s.seen) })
	}
	return data, nil
}

// A checkpoint is kept while the program runs: renamed into its place, or left alone.
func TestTheCheckpointOfARunningProgram(t *testing.T) {
	for _, write := range []string{`echo new > "$CARILLON_CHECKPOINT"`, `echo new > next; mv next "$CARILLON_CHECKPOINT"`} {
		gate := pipe(t)
		p := program(t, write+`; cat "$1"; rm "$CARILLON_CHECKPOINT"`, Args(gate), func(p *Program) { p.look = time.Millisecond })
		c := &saves{seen: make(chan struct{})}
		release(t, c.seen, gate)
		if o := do(t.Context(), t, p, workersdktest.WorkerOptions(worker.UseCodec(c))); o.State != succeeded || string(o.Checkpoint) != "new\n" {
			t.Errorf("%s: %+v", write, o)
		}
	}
}

func TestResults(t *testing.T) {
	for text, want := range map[string]string{`echo '{"rows": [1, 2]}' > "$CARILLON_RESULT"`: `{"rows":[1,2]}`, `exit 0`: ``, `: > "$CARILLON_RESULT"`: ``, `echo > "$CARILLON_RESULT"`: ``} {
		if o := runScript(t, text); o.State != succeeded || string(o.Result) != want {
			t.Errorf("%s: %+v", text, o)
		}
	}
	for text, why := range map[string]string{`echo '{' > "$CARILLON_RESULT"`: "valid JSON", `head -c 262145 /dev/zero > "$CARILLON_RESULT"`: "262145 bytes",
		`mkdir "$CARILLON_RESULT"`: "regular file", `printf '"\\u0000"' > "$CARILLON_RESULT"`: "NUL", `echo 1 2 > "$CARILLON_RESULT"`: "JSON"} {
		says(t, runScript(t, text), failed, "bad_result", false, why)
	}
	if o := runScript(t, `echo 1 > "$CARILLON_RESULT"; exit 1`); o.Code != "exit_1" || o.Result != nil {
		t.Errorf("%+v", o)
	}
}

// stubborn starts a child that ignores SIGTERM, as its parent does, and holds its output and
// the pipe.
const stubborn = `trap '' TERM; exec 3>"$1"; sleep 1000 & echo up >&3; `

// At the end of its attempt's context the whole group is killed, with whoever ignores
// SIGTERM and holds the output.
func TestTheWholeGroupIsKilled(t *testing.T) {
	up, cancel := pipe(t), make(chan struct{})
	p := program(t, stubborn+`echo output; wait`, Args(up))
	group := onceUp(t, up, func() { close(cancel) })
	says(t, do(t.Context(), t, p, workersdktest.CancelWhen(cancel)), cancelled, "cancelled", false, "killed by SIGKILL after SIGTERM\noutput")
	allEnded(t, <-group)
}

func TestTimeouts(t *testing.T) {
	says(t, do(t.Context(), t, program(t, `sleep 1000`), workersdktest.AttemptTimeout(300*time.Millisecond)), timedOut, "timeout", false, "after SIGTERM")
}

// What a program leaves in its group may finish its output, and is killed.
func TestWhatIsLeftBehindIsKilled(t *testing.T) {
	up := pipe(t)
	group := onceUp(t, up, func() {})
	says(t, runScript(t, stubborn+`exit 0`, Args(up), func(p *Program) { p.linger = 10 * time.Millisecond }), succeeded, "", false, "")
	allEnded(t, <-group)

	if o := runScript(t, `(sleep 0.1; echo late) & exit 0`); o.State != succeeded || !strings.Contains(o.Log, "late") {
		t.Errorf("output that comes late: %+v", o)
	}
}

// Whoever was told to stop has not done its work, even if it ends well.
func TestAShutdownBurnsNoAttempt(t *testing.T) {
	up := pipe(t)
	p := program(t, `exec 3>"$1"; trap 'echo more > "$CARILLON_CHECKPOINT"; exit 0' TERM; echo up >&3; while :; do sleep 0.01; done`, Args(up))
	ctx, shutdown := context.WithCancel(t.Context())
	group := onceUp(t, up, shutdown)
	o := do(ctx, t, p)
	says(t, o, released, "shutdown", false, "exit status 0 after SIGTERM")
	if string(o.Checkpoint) != "more\n" {
		t.Errorf("the checkpoint is %q", o.Checkpoint)
	}
	allEnded(t, <-group)
}

// A worker that is killed leaves nothing running, not even what ignores SIGTERM.
func TestAKilledWorkerLeavesNothingBehind(t *testing.T) {
	up := pipe(t)
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), victimEnv+"="+script(t, strings.ReplaceAll(stubborn, "$1", up)+`wait`), "TMPDIR="+t.TempDir())
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	group := open(t, up)
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	allEnded(t, group)
	_ = victim.Wait() // it was killed
}
