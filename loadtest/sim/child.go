package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// task is one run that a process of its own plays.
type task struct {
	seed  uint64
	keep  steps
	trace bool
	log   bool
}

// args are those by which it is asked for.
func (t task) args() []string {
	args := []string{"-" + prefix + "seed", fmt.Sprint(t.seed)}
	if t.keep != nil {
		args = append(args, "-"+prefix+"keep", t.keep.String())
	}
	if t.trace {
		args = append(args, "-"+prefix+"trace")
	}
	if t.log {
		args = append(args, "-"+prefix+"log")
	}
	return args
}

// player plays a run. What the run itself does wrong is in the result; text is its trace, if that was
// asked for. An error says that it can't be known what comes of the run.
type player func(ctx context.Context, t task) (r result, text string, err error)

// Limits of a child.
const (
	childTime   = time.Minute
	childMemory = 4 << 30 // bytes of data
	maxErrors   = 256 << 10
	shownErrors = 20 // lines
)

// childEnv leaves nothing to the runtime that may differ from run to run: goroutines take turns, and there
// is no collection before memory gets scarce.
var childEnv = []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=2500MiB"}

// children plays runs by processes of a program, which is this one.
type children struct {
	program string
	env     []string
	limit   time.Duration // of real time
	live    io.Writer     // gets what a child says on the way; nil: nobody does
}

// play implements player.
func (c *children) play(ctx context.Context, t task) (r result, text string, err error) {
	limited, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	args := append([]string{"-" + prefix + "child"}, t.args()...)
	if c.live != nil {
		args = append(args, "-"+prefix+"live")
	}
	cmd := exec.CommandContext(limited, c.program, args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // it says where its goroutines are
	cmd.WaitDelay = 2 * time.Second
	var out bytes.Buffer
	errs := &head{left: maxErrors}
	cmd.Stdout, cmd.Stderr = &out, errs
	if c.live != nil {
		cmd.Stderr = io.MultiWriter(c.live, errs)
	}
	if err := cmd.Start(); err != nil {
		return result{}, "", err
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return result{}, "", ctx.Err()
	}
	text, last := lastLine(out.String())
	if err == nil {
		err = json.Unmarshal([]byte(last), &r)
	}
	if err == nil {
		return r, text, nil
	}
	said := errs.String()
	if strings.TrimSpace(said) == "" {
		said = out.String()
	}
	what := "crashed: " + telling(said)
	if limited.Err() != nil {
		what = fmt.Sprintf("hung, and was ended after %s: %s", c.limit, telling(said))
	}
	return result{Seed: t.seed, Wrong: []string{fmt.Sprintf("%s\n%v", what, err)}}, text, nil
}

// lastLine takes the line with the result from what a child printed before it. Behind it there may be
// what the test itself says.
func lastLine(out string) (before, last string) {
	at := strings.LastIndex("\n"+out, "\n{")
	if at < 0 {
		return out, ""
	}
	last, _, _ = strings.Cut(out[at:], "\n")
	return out[:at], last
}

// telling takes from what a process said in the end the lines that tell most: a panic and what comes
// next, or else the last ones.
func telling(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:") || strings.HasPrefix(l, "SIGQUIT:") {
			return strings.Join(lines[i:min(i+shownErrors, len(lines))], "\n")
		}
	}
	return strings.Join(lines[max(0, len(lines)-shownErrors):], "\n")
}

// head keeps the beginning of what is written.
type head struct {
	bytes.Buffer
	left int
}

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	n := min(h.left, len(b))
	h.left -= n
	h.Buffer.Write(b[:n]) // never fails
	return len(b), nil
}

// limitMyself has the system end this process if it takes too much. Its parent sees to the time; should
// the parent be gone, the processor's time is bounded, too.
func limitMyself() error {
	seconds := uint64(childTime / time.Second)
	return errors.Join(
		syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: childMemory, Max: childMemory}),
		syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds + 1}),
	)
}

// tell prints a result as a child does.
func (r *result) tell(out io.Writer, trace bool) error {
	if trace {
		if err := write(out, r.lines); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "\n%s\n", r.picture); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(r)
}
