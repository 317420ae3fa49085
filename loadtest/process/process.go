// Package process starts the programs that a demo, a benchmark or a chaos run is made
// of, and ends them: in order, or with SIGKILL. What it started dies with it.
package process

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

// Process is a process that was started here, the only kind that is ended here.
type Process struct {
	what string
	cmd  *exec.Cmd
	done chan struct{} // closed once the process is gone
	err  error         // of its end; read after done
}

// Start starts a program; what is its name in errors. On Linux it dies with this
// process, whatever that dies of.
func Start(what string, cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", what, err)
	}
	p := &Process{what: what, cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process; Stop and Kill wait for it
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// What returns the name that the process was given.
func (p *Process) What() string { return p.what }

// PID returns its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed once the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Gone reports whether the process has ended.
func (p *Process) Gone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the %s: %w", p.what, err)
	}
	<-p.done
	return nil
}

// Pause stops the process where it is, with SIGSTOP; Resume lets it go on.
func (p *Process) Pause() error { return p.signal("pause", syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Process) Resume() error { return p.signal("resume", syscall.SIGCONT) }

func (p *Process) signal(verb string, sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%s the %s: %w", verb, p.what, err)
	}
	return nil
}

// Stop asks the process to end and says what was wrong with how it did: it must
// exit 0 in time. A process that doesn't is killed.
func (p *Process) Stop() error { return p.StopWithin(stopTimeout) }

// StopWithin is Stop for a process that may take another time to its end.
func (p *Process) StopWithin(timeout time.Duration) error {
	if p.Gone() {
		return fmt.Errorf("the %s had ended before it was told to: %v", p.what, p.Ending())
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(fmt.Errorf("stop the %s: %w", p.what, err), p.Kill())
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-p.done:
	case <-late.C:
		return errors.Join(fmt.Errorf("the %s did not exit within %s of SIGTERM", p.what, timeout), p.Kill())
	}
	if p.err != nil {
		return fmt.Errorf("the %s did not exit cleanly after SIGTERM: %w", p.what, p.err)
	}
	return nil
}

// Ending says how a process that is gone ended.
func (p *Process) Ending() string {
	if p.err == nil {
		return "exit status 0"
	}
	return p.err.Error()
}

// Banner reads a server's first lines for its addresses and passes all on.
type Banner struct {
	to    io.Writer
	found chan struct{} // closed once both addresses are known

	mu         sync.Mutex
	text       strings.Builder // guarded by mu; what was printed until both were found
	grpc, http string          // guarded by mu
}

// NewBanner returns one that passes on to a writer.
func NewBanner(to io.Writer) *Banner { return &Banner{to: to, found: make(chan struct{})} }

// Found is closed once both addresses are known.
func (b *Banner) Found() <-chan struct{} { return b.found }

// Addresses returns host:port of gRPC and of REST, once they are found.
func (b *Banner) Addresses() (grpc, http string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grpc, b.http
}

// Write implements io.Writer.
func (b *Banner) Write(p []byte) (int, error) {
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
