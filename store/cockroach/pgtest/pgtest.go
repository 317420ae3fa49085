// Package pgtest starts a throwaway PostgreSQL for tests, from the installed
// binaries: one server for a test binary, on a private socket, without network and
// without durability, and one database for each test.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrMissing says that PostgreSQL is not installed, and what to run.
var ErrMissing = errors.New("PostgreSQL is not installed: run `apt-get install postgresql`")

// Server is a running server.
type Server struct {
	dir  string
	cmd  *exec.Cmd
	user string
	last int
}

const startTimeout = 20 * time.Second

// Start starts a server. Stop ends it and removes its files.
func Start(ctx context.Context) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "carillon-pg")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, user: "carillon"}
	cred, err := credential(dir)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", s.user, "-D", data)
	initdb.SysProcAttr, initdb.Dir = cred, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w\n%s", err, out), s.Stop())
	}
	s.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-F", "-c", "listen_addresses=", "-c", "synchronous_commit=off",
		"-c", "full_page_writes=off", "-c", "max_connections=200", "-c", "deadlock_timeout=100ms")
	s.cmd.SysProcAttr, s.cmd.Dir = cred, dir
	logs, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	defer logs.Close()
	s.cmd.Stdout, s.cmd.Stderr = logs, logs
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return nil, errors.Join(err, s.Stop())
	}
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// await waits until the server takes connections.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not come up: %w", err)
		}
	}
}

// URL is the address of a database of the server.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres:///%s?host=%s&user=%s", database, s.dir, s.user)
}

// NewDatabase makes a database, as a copy of template if it is not empty, and
// returns its name. Callers take turns.
func (s *Server) NewDatabase(ctx context.Context, template string) (string, error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx) // it has told what it had to tell
	s.last++
	name := "db" + strconv.Itoa(s.last)
	if template == "" {
		template = "template0"
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template)
	return name, err
}

// Stop ends the server at once and removes its files. Stopping twice is fine.
func (s *Server) Stop() error {
	var err error
	if s.cmd != nil {
		// SIGQUIT is the immediate shutdown: there is nothing to keep.
		err = s.cmd.Process.Signal(syscall.SIGQUIT)
		_ = s.cmd.Wait() // its exit code says only that it was told to
		s.cmd = nil
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// binaries finds the folder of the newest installed server.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the distribution's versioned folders
	if err != nil || len(found) == 0 {
		return "", ErrMissing
	}
	best, bestVersion := "", -1
	for _, path := range found {
		version, err := strconv.Atoi(strings.Split(path, "/")[4])
		if err == nil && version > bestVersion {
			best, bestVersion = filepath.Dir(path), version
		}
	}
	return best, nil
}

// credential makes the server run as another user if this process is root, whom
// PostgreSQL refuses.
func credential(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{}
	if os.Getuid() != 0 {
		return attr, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return nil, err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return attr, os.Chown(dir, uid, gid)
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}
