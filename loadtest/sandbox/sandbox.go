// Package sandbox runs a Carillon that is thrown away: `carillon dev` and a worker, as
// processes of their own, on free ports and in a folder that the caller names. Load
// tools are pointed at it.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/loadtest/process"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Handler is the handler that the worker serves. It does nothing.
const Handler = "bench.run"

const (
	startTimeout   = 30 * time.Second
	askEvery       = 50 * time.Millisecond
	workerCapacity = 1000 // attempts at the same time; each takes no time
)

// Sandbox is a running server with its worker.
type Sandbox struct {
	GRPC, HTTP string           // host:port of either
	Conn       *grpc.ClientConn // to GRPC

	dir          string
	log          *os.File
	node, worker *process.Process
}

// Start starts the server, of the binary that is named, and the worker. The folder
// holds their data and their log; it is the caller's to remove.
func Start(ctx context.Context, carillon, dir string) (*Sandbox, error) {
	s := &Sandbox{dir: dir}
	if err := s.start(ctx, carillon); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Sandbox) start(ctx context.Context, carillon string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("server and worker are not up after %s", startTimeout))
	defer cancel()
	if s.log, err = os.Create(filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	if err := s.startNode(ctx, carillon); err != nil {
		return err
	}
	if s.Conn, err = grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	return s.startWorker(ctx, carillon)
}

func (s *Sandbox) startNode(ctx context.Context, carillon string) (err error) {
	banner := process.NewBanner(s.log)
	s.node, err = s.spawn("server", banner, carillon, "dev", "--data", filepath.Join(s.dir, "data"),
		"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "warn")
	if err != nil {
		return err
	}
	select {
	case <-banner.Found():
		s.GRPC, s.HTTP = banner.Addresses()
	case <-s.node.Ended():
		return s.ended(s.node)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return s.until(ctx, s.node, s.ready) // its shards are loaded after it listens
}

// ready asks whether the server owns all of its shards.
func (s *Sandbox) ready(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+"/readyz", nil)
	if err != nil {
		return false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusOK, resp.Body.Close()
}

// startWorker starts the worker and waits until the catalog has its handler.
func (s *Sandbox) startWorker(ctx context.Context, carillon string) (err error) {
	s.worker, err = s.spawn("worker", s.log, carillon, "bench-worker", "--address", s.GRPC,
		"--capacity", strconv.Itoa(workerCapacity), "--file", filepath.Join(s.dir, "executions"))
	if err != nil {
		return err
	}
	return s.until(ctx, s.worker, func(ctx context.Context) (bool, error) {
		resp, err := carillonv1.NewHandlerServiceClient(s.Conn).ListHandlers(ctx, &carillonv1.ListHandlersRequest{})
		return len(resp.GetHandlers()) > 0, err
	})
}

// until asks for something that a process brings about.
func (s *Sandbox) until(ctx context.Context, p *process.Process, holds func(context.Context) (bool, error)) error {
	again := time.NewTicker(askEvery)
	defer again.Stop()
	for {
		ok, err := holds(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || ok {
			return err
		}
		select {
		case <-again.C:
		case <-p.Ended():
			return s.ended(p)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// spawn starts a program whose stderr goes to the log.
func (s *Sandbox) spawn(what string, stdout io.Writer, name string, args ...string) (*process.Process, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = stdout, s.log
	return process.Start(what, cmd)
}

// ended says how a process ended that should run, and what it said.
func (s *Sandbox) ended(p *process.Process) error {
	text, err := os.ReadFile(s.log.Name())
	return errors.Join(fmt.Errorf("the %s ended: %s\n%s", p.What(), p.Ending(), text), err)
}

// Stop ends all that was started, what came last first, and says what didn't end as
// it should. Stopping twice is fine.
func (s *Sandbox) Stop() error {
	var errs []error
	if s.Conn != nil {
		errs = append(errs, s.Conn.Close())
		s.Conn = nil
	}
	for _, p := range []**process.Process{&s.worker, &s.node} {
		if *p != nil {
			errs = append(errs, (*p).Stop())
			*p = nil
		}
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
		s.log = nil
	}
	return errors.Join(errs...)
}
