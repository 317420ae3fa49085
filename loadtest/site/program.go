package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/process"
)

// Bounds of what a program may take.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
)

// Program is one process of a site, under the same name and at the same place however often it
// is started.
type Program struct {
	Name  string
	site  *Site
	args  func() []string             // the program and its arguments
	env   func() []string             // beside that of this process; nil: none
	ready func(context.Context) error // waits until it does what it is for; nil: it does so at once

	mu     sync.Mutex
	p      *process.Process // nil: it doesn't run
	paused bool
}

// Start starts the program and waits until it is ready.
func (p *Program) Start(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	return p.Ready(ctx)
}

// Launch starts the program and waits for nothing.
func (p *Program) Launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.p != nil {
		return fmt.Errorf("%s runs already", p.Name)
	}
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	args := p.args()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, bareEnvironment()
	if p.env != nil {
		cmd.Env = append(cmd.Env, p.env()...)
	}
	return p.site.in(p.Name, func() (err error) {
		p.p, err = process.Start(p.Name, cmd)
		return err
	})
}

// bareEnvironment is this process's environment without the settings of a Carillon.
func bareEnvironment() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CARILLON_") {
			env = append(env, v)
		}
	}
	return env
}

// in runs what starts a process where the process of a name is to be.
func (s *Site) in(name string, start func() error) error {
	if s.network == nil {
		return start()
	}
	return s.network.in(name, start)
}

// Ready waits until the program does what it is for, or has ended.
func (p *Program) Ready(ctx context.Context) error {
	if p.ready == nil {
		return nil
	}
	running := p.current()
	if running == nil {
		return fmt.Errorf("%s doesn't run", p.Name)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with this call or with the process
		select {
		case <-running.Ended():
			cancel(fmt.Errorf("%s ended: %s; %s", p.Name, running.Ending(), p.LastWords()))
		case <-ctx.Done():
		}
	}()
	return p.ready(ctx)
}

func (p *Program) current() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p
}

// Running reports whether the program runs; one that is paused does.
func (p *Program) Running() bool {
	running := p.current()
	return running != nil && !running.Gone()
}

// PID is the number of its process; zero if it doesn't run.
func (p *Program) PID() int {
	if running := p.current(); running != nil && !running.Gone() {
		return running.PID()
	}
	return 0
}

// Kill ends the program with SIGKILL.
func (p *Program) Kill() error {
	running := p.forget()
	if running == nil {
		return fmt.Errorf("%s doesn't run", p.Name)
	}
	return running.Kill()
}

// forget makes the program one that doesn't run.
func (p *Program) forget() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	running := p.p
	p.p = nil
	if running != nil && p.paused {
		p.paused = false
		_ = running.Resume() // it may have ended
	}
	return running
}

// Stop ends the program with SIGTERM and returns how long that took. It must exit 0 within 30 s.
func (p *Program) Stop() (time.Duration, error) {
	running := p.forget()
	if running == nil {
		return 0, fmt.Errorf("%s doesn't run", p.Name)
	}
	began := time.Now()
	err := running.StopWithin(stopTimeout)
	if err != nil {
		err = fmt.Errorf("%w; %s", err, p.LastWords())
	}
	return time.Since(began), err
}

// close ends the program if it runs.
func (p *Program) close() error {
	if running := p.current(); running == nil || running.Gone() && p.site.cfg.MayEnd {
		return nil
	}
	_, err := p.Stop()
	return err
}

// Pause stops the program where it is; Resume lets it go on.
func (p *Program) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.p == nil {
		return errors.New(p.Name + " doesn't run")
	}
	p.paused = true
	return p.p.Pause()
}

// Resume ends a Pause.
func (p *Program) Resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.p == nil {
		return errors.New(p.Name + " doesn't run")
	}
	p.paused = false
	return p.p.Resume()
}

// Log is the file of what it prints, through all its starts.
func (p *Program) Log() string { return filepath.Join(p.site.logs(), p.Name+".log") }

// Logged is all that it has printed.
func (p *Program) Logged() (string, error) {
	text, err := os.ReadFile(p.Log())
	return string(text), err
}

// LastWords is the end of its log.
func (p *Program) LastWords() string {
	text, err := p.Logged()
	if err != nil {
		return err.Error()
	}
	return "the last words of its log:\n" + text[max(0, len(text)-2000):]
}

// Command is how to start the program by hand, in a shell.
func (p *Program) Command() string {
	var words []string
	if p.env != nil {
		for _, v := range p.env() {
			name, value, _ := strings.Cut(v, "=")
			words = append(words, name+"='"+value+"'")
		}
	}
	return strings.Join(append(words, p.args()...), " ")
}
