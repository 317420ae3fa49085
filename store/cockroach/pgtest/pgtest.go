// Package pgtest starts a throwaway PostgreSQL for tests, from the installed
// binaries: one server for a test binary, on a private socket, without network and
// without durability, and one database for each test. A durable one can be treated
// badly: its processes killed, stopped and started again.
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
	bin  string
	args []string // beside those of every server
	// address is where it listens beside its socket; empty: nowhere.
	address string
	cmd     *exec.Cmd
	user    string
	last    int
}

const startTimeout = 20 * time.Second

// Start starts a server. Stop ends it and removes its files.
func Start(ctx context.Context) (*Server, error) {
	return start(ctx, "-F", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
}

// StartDurable starts a server that keeps what it has committed when its processes are
// killed: it leaves the disk to the operating system, which nobody kills.
func StartDurable(ctx context.Context) (*Server, error) { return start(ctx, "-F") }

// StartReal starts a server that waits for its disk, with the memory of a small one in
// production, and with more settings, each of them name=value.
func StartReal(ctx context.Context, settings ...string) (*Server, error) {
	args := []string{"-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB"}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return start(ctx, args...)
}

// StartServing starts a server like StartDurable that others reach by TCP, too, at an IP address
// that may be one of a network namespace, see [Server.AddressURL]. It trusts whoever reaches it.
func StartServing(ctx context.Context, address string) (*Server, error) {
	s, err := prepare(ctx, "-F", "-c", "listen_addresses="+address)
	if err != nil {
		return nil, err
	}
	s.address = address
	hba := filepath.Join(s.dir, "data", "pg_hba.conf")
	if err := os.WriteFile(hba, []byte("local all all trust\nhost all all samenet trust\n"), 0o600); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s.begin(ctx)
}

func start(ctx context.Context, args ...string) (*Server, error) {
	s, err := prepare(ctx, args...)
	if err != nil {
		return nil, err
	}
	return s.begin(ctx)
}

// begin runs a new server, or else takes it away.
func (s *Server) begin(ctx context.Context) (*Server, error) {
	if err := s.run(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// prepare makes the files of a server.
func prepare(ctx context.Context, args ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "carillon-pg")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin, args: args, user: "carillon"}
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
	return s, nil
}

// run starts the server on its data and waits until it takes connections.
func (s *Server) run(ctx context.Context) error {
	args := append([]string{"-D", filepath.Join(s.dir, "data"), "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=200", "-c", "deadlock_timeout=100ms"}, s.args...)
	cred, err := credential(s.dir)
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	dieWithParent(cred)
	cmd.SysProcAttr, cmd.Dir = cred, s.dir
	logs, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logs.Close()
	cmd.Stdout, cmd.Stderr = logs, logs
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return s.await(ctx)
}

// PID is the number of the server's first process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// RestartImmediate ends the server without any clean-up, as `pg_ctl restart -m
// immediate` does, and starts it again.
func (s *Server) RestartImmediate(ctx context.Context) error {
	if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return err
	}
	_ = s.cmd.Wait() // its exit code says only that it was told to
	return s.run(ctx)
}

// KillBackend kills one of the processes that serve a connection with SIGKILL. The
// server then ends all of them and recovers.
func (s *Server) KillBackend(ctx context.Context, application string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // it is lost by what follows
	var pid int
	err = conn.QueryRow(ctx, `SELECT pid FROM pg_stat_activity WHERE application_name = $1 ORDER BY query_start DESC LIMIT 1`, application).Scan(&pid)
	if err != nil {
		return fmt.Errorf("find a backend of %s: %w", application, err)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// Pause stops all processes of the server where they are; Resume lets them go on.
func (s *Server) Pause() error { return s.signalAll(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.signalAll(syscall.SIGCONT) }

// signalAll sends a signal to the server and its children.
func (s *Server) signalAll(sig syscall.Signal) error {
	main := s.cmd.Process.Pid
	if err := syscall.Kill(main, sig); err != nil {
		return err
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …; the name may hold anything but the last ')'.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(main) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
	return nil
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

// AddressURL is the address of a database of a server that was started by StartServing, by TCP.
func (s *Server) AddressURL(database string) string {
	return fmt.Sprintf("postgres://%s@%s:5432/%s", s.user, s.address, database)
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
		_ = s.Resume() // a server that is paused hears nothing
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
