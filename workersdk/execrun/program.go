package execrun

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Program is a program that is a handler. Make it with [New]; its [Program.Handle] is the
// handler.
type Program struct {
	path    string // absolute
	args    []string
	passed  []string      // names of variables
	look    time.Duration // how often output and checkpoint are looked at
	linger  time.Duration // how long what it started may go on after it
	respite time.Duration // between SIGTERM and SIGKILL
}

// Option changes a program.
type Option func(*Program)

// Args are the arguments of the program: none by default.
func Args(args ...string) Option { return func(p *Program) { p.args = append(p.args, args...) } }

// PassEnv names variables of the worker's environment that the program gets, if they are set.
func PassEnv(names ...string) Option {
	return func(p *Program) { p.passed = append(p.passed, names...) }
}

// ownPrefix begins the variables that tell of the attempt.
const ownPrefix = "CARILLON_"

// New makes a handler of the program at path, or of that name in PATH. It fails if there is
// none that may be executed.
func New(path string, opts ...Option) (*Program, error) {
	// The SDK wants a handler back within a second of its context's end.
	p := &Program{look: time.Second, linger: time.Second, respite: 500 * time.Millisecond}
	for _, opt := range opts {
		opt(p)
	}
	if err := supported(); err != nil {
		return nil, err
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return nil, fmt.Errorf("%q can't be executed: %w", path, errors.Unwrap(err))
	}
	if p.path, err = filepath.Abs(found); err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	for _, name := range p.passed {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return nil, fmt.Errorf("%q is no name of a variable", name)
		}
	}
	return p, nil
}

// basic are the variables that every program gets, if they are set.
var basic = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// environment is the worker's part of the program's environment.
func (p *Program) environment() (env []string) {
	for _, names := range [][]string{basic, p.passed} {
		for _, name := range names {
			if v, set := os.LookupEnv(name); set {
				env = append(env, name+"="+v)
			}
		}
	}
	return env
}
