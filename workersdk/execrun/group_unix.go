//go:build unix

package execrun

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// shell is what every Unix has; guarding is what it does in a group.
const (
	shell    = "/bin/sh"
	guarding = `trap '' HUP INT QUIT TERM; read -r line; kill -KILL 0`
)

// group is a process group that doesn't outlive this process.
type group struct {
	guard *exec.Cmd // its leader
	leash *os.File  // the guard kills the group when this is closed
}

func supported() error {
	if _, err := exec.LookPath(shell); err != nil {
		return fmt.Errorf("programs need %s beside them: %w", shell, errors.Unwrap(err))
	}
	return nil
}

// newGroup makes a group; end it.
func newGroup() (*group, error) {
	held, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer held.Close()
	g := &group{guard: exec.Command(shell, "-c", guarding), leash: leash}
	g.guard.Stdin, g.guard.Dir, g.guard.Env = held, "/", []string{}
	g.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.guard.Start(); err != nil {
		return nil, errors.Join(err, leash.Close())
	}
	return g, nil
}

// join makes a command that isn't started yet one of the group.
func (g *group) join(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.guard.Process.Pid}
}

func (g *group) terminate() { g.signal(syscall.SIGTERM) }
func (g *group) kill()      { g.signal(syscall.SIGKILL) }

// signal reaches whoever is left; that nobody is, is no failure.
func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.guard.Process.Pid, s) }

// end kills the group. Only then is its leader reaped, and its number free.
func (g *group) end() {
	g.kill()
	_ = g.leash.Close()
	_ = g.guard.Wait() // it was killed
}

// killedBy returns the signal that ended a process, without its SIG.
func killedBy(state *os.ProcessState) (name string, killed bool) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return "", false
	}
	if name = strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG"); name == "" {
		name = fmt.Sprint(int(status.Signal()))
	}
	return name, true
}
