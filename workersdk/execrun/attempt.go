package execrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// Exit codes that mean something, as sysexits.h has them.
const (
	exitDataError = 65 // EX_DATAERR
	exitTemporary = 75 // EX_TEMPFAIL: as any other, but sure to stay so
)

const (
	codeExecFailed = "exec_failed"
	codeBadResult  = "bad_result"
)

const maxCheckpointBytes = 64 << 10 // the contract's

// attempt is one run of a program.
type attempt struct {
	program *Program
	task    *worker.Task[json.RawMessage]
	dir     string // holds all that follows, and the working directory
	out     tail

	checkpoint []byte      // as it was last read
	seen       fs.FileInfo // the checkpoint's file when it was last looked at
}

// Handle runs the program for an attempt.
func (p *Program) Handle(ctx context.Context, t *worker.Task[json.RawMessage]) error {
	a := &attempt{program: p, task: t, checkpoint: t.Checkpoint()}
	if err := a.prepare(); err != nil {
		return worker.Coded(codeExecFailed, errors.Join(err, a.clear()))
	}
	state, stopped, err := a.run(ctx)
	a.lookAtOutput(true)
	a.lookAtCheckpoint(true)
	switch {
	case err != nil:
		err = worker.Coded(codeExecFailed, err)
	case stopped || !state.Success():
		err = a.failure(state, stopped)
	default:
		err = a.result()
	}
	if cleared := a.clear(); cleared != nil {
		t.Logger().Warn("the directory of an attempt can't be removed", "error", cleared)
	}
	return err
}

func (a *attempt) path(name string) string { return filepath.Join(a.dir, name) }

// prepare makes the files of the attempt. The parameters are a file, and no pipe that
// would have to be fed to a program that doesn't read it.
func (a *attempt) prepare() (err error) {
	if a.dir, err = os.MkdirTemp("", "carillon-exec-"); err != nil {
		return err
	}
	if err := os.Mkdir(a.path("work"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(a.path("params"), a.task.Params(), 0o600); err != nil {
		return err
	}
	if a.checkpoint == nil {
		return nil
	}
	return os.WriteFile(a.path("checkpoint"), a.checkpoint, 0o600)
}

func (a *attempt) clear() error {
	if a.dir == "" {
		return nil
	}
	return os.RemoveAll(a.dir)
}

// environment tells the program of its attempt.
func (a *attempt) environment(ctx context.Context) []string {
	t := a.task
	env := a.program.environment()
	set := func(name, value string) { env = append(env, ownPrefix+name+"="+value) }
	set("JOB", t.Job())
	set("SLOT", t.Slot())
	set("KEY", t.Key())
	set("FENCE", strconv.FormatInt(t.Fence(), 10))
	set("ATTEMPT", strconv.Itoa(t.Attempt()))
	set("MAX_ATTEMPTS", strconv.Itoa(t.MaxAttempts()))
	set("FIRE_TIME", t.FireTime().UTC().Format(time.RFC3339Nano))
	if deadline, ok := ctx.Deadline(); ok {
		set("DEADLINE", deadline.UTC().Format(time.RFC3339Nano))
	}
	set("TRIGGER", t.Trigger())
	set("LATENESS_SECONDS", strconv.FormatFloat(t.Lateness().Seconds(), 'f', 3, 64))
	set("CHECKPOINT", a.path("checkpoint"))
	set("RESULT", a.path("result"))
	return env
}

// run runs the program to its end, and leaves nothing of its group behind. It reports whether
// the program was told to stop.
func (a *attempt) run(ctx context.Context) (_ *os.ProcessState, stopped bool, _ error) {
	g, err := newGroup()
	if err != nil {
		return nil, false, err
	}
	defer g.end()
	cmd, out, err := a.start(ctx, g)
	if err != nil {
		return nil, false, err
	}
	defer out.Close()
	var children sync.WaitGroup
	drained, exited := make(chan struct{}), make(chan struct{})
	children.Go(func() {
		defer close(drained)
		_, _ = io.Copy(&a.out, out) // its end is EOF, or the deadline below
	})
	children.Go(func() {
		defer close(exited)
		_ = cmd.Wait() // the state says it
	})
	defer children.Wait()
	until := a.watch(ctx, g, cmd.Process, exited)
	stopped = !until.IsZero()
	if !stopped {
		until = time.Now().Add(a.program.linger)
	}
	if out.SetReadDeadline(until) != nil {
		_ = out.Close()
	}
	<-drained
	return cmd.ProcessState, stopped, nil
}

// start starts the program in its group, and returns the end of the pipe that it writes to.
func (a *attempt) start(ctx context.Context, g *group) (*exec.Cmd, *os.File, error) {
	params, err := os.Open(a.path("params"))
	if err != nil {
		return nil, nil, err
	}
	defer params.Close()
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	cmd := exec.Command(a.program.path, a.program.args...)
	cmd.Dir, cmd.Env = a.path("work"), a.environment(ctx)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = params, in, in
	g.join(cmd)
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	return cmd, out, nil
}

// watch waits for the program's end. If it had to be told to stop, it returns the instant
// until which the rest of its group may go on.
func (a *attempt) watch(ctx context.Context, g *group, program *os.Process, exited <-chan struct{}) (until time.Time) {
	look := time.NewTicker(a.program.look)
	defer look.Stop()
	stop := ctx.Done()
	var kill <-chan time.Time
	for {
		select {
		case <-exited:
			return until
		case <-look.C:
			a.lookAtOutput(false)
			a.lookAtCheckpoint(false)
		case <-stop:
			select {
			case <-exited:
				return until
			default:
			}
			g.terminate()
			until, stop, kill = time.Now().Add(a.program.respite), nil, time.After(a.program.respite)
		case <-kill:
			g.kill()
			_ = program.Kill() // should it have left its group; or it has ended
		}
	}
}

// failure says how the program ended, with the end of its output.
func (a *attempt) failure(state *os.ProcessState, stopped bool) error {
	how, code := fmt.Sprintf("exit status %d", state.ExitCode()), fmt.Sprintf("exit_%d", state.ExitCode())
	if name, killed := killedBy(state); killed {
		how, code = "killed by SIG"+name, "signal_"+name
	}
	if stopped {
		how += " after SIGTERM"
	}
	const room = 128 // of a failure's text, for what comes first
	if output := a.out.text(job.MaxErrorBytes - room); output != "" {
		how += "\n" + output
	}
	err := errors.New(how)
	if stopped {
		return err // the cause of the context's end is the code
	}
	err = worker.Coded(code, err)
	if state.ExitCode() == exitDataError {
		return worker.Permanent(err)
	}
	return err
}

// result takes the result that the program left, if it did.
func (a *attempt) result() error {
	doc, err := readFile(a.path("result"), job.MaxDocumentBytes)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(doc)) == 0 {
		return nil
	}
	if err == nil {
		err = job.CheckDocument(doc)
	}
	if err != nil {
		return worker.Coded(codeBadResult, fmt.Errorf("the result in CARILLON_RESULT: %w", err))
	}
	return a.task.SetResult(json.RawMessage(doc))
}

// lookAtOutput logs what the program has written: whole lines, and all of it at its end.
func (a *attempt) lookAtOutput(ended bool) {
	text, missed := a.out.take(ended)
	if missed > 0 {
		a.task.Logger().Info(fmt.Sprintf("… %d bytes of output were left out", missed))
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			a.task.Logger().Info(line)
		}
	}
}

// settled is how long a file hasn't changed when it is taken to be whole.
const settled = 100 * time.Millisecond

// lookAtCheckpoint keeps what the program has written as its checkpoint: while it runs, once
// that is whole. A file that took the place of another by a rename is whole at once.
func (a *attempt) lookAtCheckpoint(ended bool) {
	info, err := os.Stat(a.path("checkpoint"))
	if err != nil {
		return // there is none
	}
	renamed := a.seen != nil && !os.SameFile(a.seen, info)
	a.seen = info
	if !ended && !renamed && time.Since(info.ModTime()) < settled {
		return
	}
	data, err := readFile(a.path("checkpoint"), maxCheckpointBytes)
	if err == nil && bytes.Equal(data, a.checkpoint) {
		return
	}
	if err == nil {
		err = a.task.SetCheckpoint(data)
	}
	if a.checkpoint = data; err != nil {
		a.task.Logger().Warn("the checkpoint can't be kept", "error", err)
	}
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > int64(limit):
		return nil, fmt.Errorf("it has %d bytes, more than %d", info.Size(), limit)
	}
	return os.ReadFile(path)
}
