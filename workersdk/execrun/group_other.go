//go:build !unix

package execrun

import (
	"errors"
	"os"
	"os/exec"
)

// errUnsupported: without process groups, what a program starts could outlive its attempt.
var errUnsupported = errors.New("programs need a Unix")

type group struct{}

func supported() error { return errUnsupported }

func newGroup() (*group, error) { return nil, errUnsupported }

func (*group) join(*exec.Cmd) {}
func (*group) terminate()     {}
func (*group) kill()          {}
func (*group) end()           {}

func killedBy(*os.ProcessState) (name string, killed bool) { return "", false }
