// Package mysqltest starts a throwaway MariaDB for tests, from the installed program: one
// server for a test binary, on a private socket, without network, users and durability,
// and one database for each test.
package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// ErrMissing says that MariaDB is not installed, and what to run.
var ErrMissing = errors.New("MariaDB is not installed: run `apt-get install --no-install-recommends mariadb-server-core`")

// Server is a running server.
type Server struct {
	dir  string
	cmd  *exec.Cmd
	last atomic.Int64
}

const startTimeout = 20 * time.Second

// Start starts a server. Stop ends it and removes its files.
func Start(ctx context.Context) (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "carillon-mysql")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if err := s.run(ctx, program); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// run starts the server. Without privilege tables it needs no tables of its own, so that
// it begins with an empty folder.
func (s *Server) run(ctx context.Context, program string) error {
	data := filepath.Join(s.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	cred, err := credential(s.dir, data)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "--no-defaults", "--datadir="+data, "--socket="+s.socket(), "--pid-file="+filepath.Join(s.dir, "pid"),
		"--skip-networking", "--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M")
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

func (s *Server) socket() string { return filepath.Join(s.dir, "socket") }

// await waits until the server takes connections.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := s.open("")
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			logs, _ := os.ReadFile(filepath.Join(s.dir, "log")) // what there is of them
			return fmt.Errorf("MariaDB did not come up: %w\n%s", err, logs)
		}
	}
}

// open opens a database. What the driver would print of connections that aren't up yet, or
// that a test cut off, is nobody's concern.
func (s *Server) open(database string) (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = "carillon", "unix", s.socket(), database
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// NewDatabase makes a database and opens it.
func (s *Server) NewDatabase(ctx context.Context) (*sql.DB, error) {
	admin, err := s.open("")
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	name := "db" + strconv.FormatInt(s.last.Add(1), 10)
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	return s.open(name)
}

// Stop ends the server at once and removes its files. Stopping twice is fine.
func (s *Server) Stop() error {
	var err error
	if s.cmd != nil {
		err = s.cmd.Process.Kill() // there is nothing to keep
		_ = s.cmd.Wait()           // its exit code says only that it was killed
		s.cmd = nil
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// find finds the program, which stands outside of many users' paths.
func find() (string, error) {
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

// credential makes the server run as another user if this process is root, whom MariaDB
// refuses.
func credential(folders ...string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{}
	if os.Getuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, fmt.Errorf("MariaDB refuses to run as root: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	for _, dir := range folders {
		err = errors.Join(err, os.Chown(dir, uid, gid))
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, err
}
