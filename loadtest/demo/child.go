package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take from SIGTERM to its exit.
const stopTimeout = 10 * time.Second

// child is a process that the demo started, and the only kind that it ends.
type child struct {
	what string
	cmd  *exec.Cmd
	done chan struct{} // closed once the process is gone
	err  error         // of its end; read after done
}

// spawn starts a process whose stderr, and stdout unless it is given, go to log.
// On Linux the process dies with the demo, whatever the demo dies of.
func spawn(what string, stdout io.Writer, log *os.File, name string, args ...string) (*child, error) {
	if stdout == nil {
		stdout = log
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = stdout, log, dieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", what, err)
	}
	c := &child{what: what, cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process; stop and kill wait for it
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// gone reports whether the process has ended.
func (c *child) gone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// kill ends the process with SIGKILL and waits for its end.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the %s: %w", c.what, err)
	}
	<-c.done
	return nil
}

// stop asks the process to end and says what was wrong with how it did: it must
// exit 0 in time. A process that doesn't is killed.
func (c *child) stop() error {
	if c.gone() {
		return fmt.Errorf("the %s had ended before it was told to: %v", c.what, c.ending())
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(fmt.Errorf("stop the %s: %w", c.what, err), c.kill())
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-c.done:
	case <-late.C:
		return errors.Join(fmt.Errorf("the %s did not exit within %s of SIGTERM", c.what, stopTimeout), c.kill())
	}
	if c.err != nil {
		return fmt.Errorf("the %s did not exit cleanly after SIGTERM: %w", c.what, c.err)
	}
	return nil
}

// ending says how a process that is gone ended.
func (c *child) ending() string {
	if c.err == nil {
		return "exit status 0"
	}
	return c.err.Error()
}

// banner reads a server's first lines for its addresses and passes all on.
type banner struct {
	to    io.Writer
	found chan struct{} // closed once both addresses are known

	mu         sync.Mutex
	text       strings.Builder // guarded by mu; what was printed until both were found
	grpc, http string          // guarded by mu until found is closed, unchanged after
}

func newBanner(to io.Writer) *banner { return &banner{to: to, found: make(chan struct{})} }

// Write implements io.Writer.
func (b *banner) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grpc == "" || b.http == "" {
		b.text.Write(p)
		if b.grpc, b.http = addresses(b.text.String()); b.grpc != "" && b.http != "" {
			close(b.found)
		}
	}
	return b.to.Write(p)
}

// addresses finds host:port of gRPC and of REST in complete lines of a server's
// output; what isn't there is empty.
func addresses(text string) (grpc, http string) {
	complete := text[:strings.LastIndexByte(text, '\n')+1]
	for line := range strings.Lines(complete) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		switch fields[0] {
		case "gRPC":
			grpc = fields[1]
		case "REST":
			http, _, _ = strings.Cut(strings.TrimPrefix(fields[1], "http://"), "/")
		}
	}
	return grpc, http
}
