package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/process"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
)

// rig is a running Carillon with its clients.
type rig struct {
	cfg      Config
	address  string // of the database
	pg       *pgtest.Server
	node     *process.Process
	worker   *process.Process
	log      *os.File
	conn     *grpc.ClientConn
	jobs     carillonv1.JobServiceClient
	slots    carillonv1.SlotServiceClient
	handlers carillonv1.HandlerServiceClient

	mu    sync.Mutex
	acked map[string]job.UID // by the last part of the name
}

const startTimeout = 30 * time.Second

// start starts the database, the node and the worker, one after the other.
func start(ctx context.Context, cfg Config) (*rig, error) {
	r := &rig{cfg: cfg, acked: map[string]job.UID{}}
	var err error
	if r.log, err = os.Create(filepath.Join(cfg.Dir, "log")); err != nil {
		return r, err
	}
	if err := r.startStore(ctx); err != nil {
		return r, err
	}
	if err := r.startNode(ctx); err != nil {
		return r, err
	}
	return r, r.startWorker(ctx)
}

func (r *rig) startStore(ctx context.Context) (err error) {
	switch r.cfg.Store {
	case "sqlite":
		r.address = "sqlite:" + filepath.Join(r.cfg.Dir, "carillon.db")
	case "postgres":
		if r.pg, err = pgtest.StartReal(ctx); err != nil {
			return err
		}
		name, err := r.pg.NewDatabase(ctx, "")
		if err != nil {
			return err
		}
		r.address = r.pg.URL(name)
	default:
		r.address = r.cfg.Store
	}
	return nil
}

func (r *rig) startNode(ctx context.Context) (err error) {
	cmd := exec.Command(r.cfg.Carillon, "server", "--migrate", "--node", "bench", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "warn")
	cmd.Env = append(os.Environ(), "CARILLON_STORE="+r.address) // it may hold a password
	banner := process.NewBanner(r.log)
	cmd.Stdout, cmd.Stderr = banner, r.log
	if r.node, err = process.Start("node", cmd); err != nil {
		return err
	}
	if err := r.await(ctx, "the node is up", r.node, banner.Found()); err != nil {
		return err
	}
	target, _ := banner.Addresses()
	if r.conn, err = grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true))); err != nil {
		return err
	}
	r.jobs, r.slots, r.handlers = carillonv1.NewJobServiceClient(r.conn), carillonv1.NewSlotServiceClient(r.conn), carillonv1.NewHandlerServiceClient(r.conn)
	return nil
}

func (r *rig) startWorker(ctx context.Context) (err error) {
	cmd := exec.Command(r.cfg.Carillon, "bench-worker", "--address", r.conn.Target(), "--capacity", strconv.Itoa(r.cfg.Capacity),
		"--work", r.cfg.Work.String(), "--file", r.notesFile())
	cmd.Stdout, cmd.Stderr = r.log, r.log
	if r.worker, err = process.Start("worker", cmd); err != nil {
		return err
	}
	return r.eventually(ctx, startTimeout, "the worker is there", func(ctx context.Context) (bool, error) {
		resp, err := r.handlers.ListHandlers(ctx, &carillonv1.ListHandlersRequest{})
		return len(resp.GetHandlers()) > 0, err
	})
}

// await waits for something that a process does.
func (r *rig) await(ctx context.Context, what string, p *process.Process, done <-chan struct{}) error {
	late := time.NewTimer(startTimeout)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-p.Ended():
		return fmt.Errorf("the %s ended: %s; its log is %s", p.What(), p.Ending(), r.log.Name())
	case <-late.C:
		return fmt.Errorf("it never came that %s", what)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// eventually asks until a condition holds.
func (r *rig) eventually(ctx context.Context, within time.Duration, what string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it never came within %s that %s", within, what))
	defer cancel()
	for {
		ok, err := holds(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || ok {
			return err
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// stopAll ends all that was started, what came last first. Stopping twice is fine.
func (r *rig) stopAll() error {
	var errs []error
	for _, p := range []**process.Process{&r.worker, &r.node} {
		if *p != nil {
			errs = append(errs, (*p).Stop())
			*p = nil
		}
	}
	if r.conn != nil {
		errs = append(errs, r.conn.Close())
		r.conn = nil
	}
	if r.log != nil {
		errs = append(errs, r.log.Close())
		r.log = nil
	}
	return errors.Join(errs...)
}

// close ends the database, whose content was needed until now.
func (r *rig) close() error {
	if r.pg == nil {
		return nil
	}
	err := r.pg.Stop()
	r.pg = nil
	return err
}
