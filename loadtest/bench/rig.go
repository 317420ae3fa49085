package bench

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
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/internal/freeport"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/process"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
)

// rig is a running Carillon with its clients.
type rig struct {
	cfg        Config
	dir        string // for files
	address    string // of the database
	pg         *pgtest.Server
	node       *process.Process
	worker     *process.Process
	bare       int64 // resident bytes of the node before any worker came
	ports      freeport.Ports
	grpc, http string // host:port of the node
	log        *os.File
	web        *http.Client
	conn       *grpc.ClientConn
	jobs       carillonv1.JobServiceClient
	slots      carillonv1.SlotServiceClient

	fail     context.CancelCauseFunc // ends the run
	watchers sync.WaitGroup

	mu     sync.Mutex
	acked  map[string]job.UID        // by resource name; guarded by mu
	ending map[*process.Process]bool // that were told to end; guarded by mu
}

const (
	startTimeout = 30 * time.Second
	// readyTimeout is how long a node may take to load what it has to drive.
	readyTimeout = 3 * time.Minute
	// connectTimeout is how long all workers may take until they are there.
	connectTimeout = 2 * time.Minute
)

// start starts the database, the node and the workers, one after the other. A program
// that ends by itself ends the run, by fail: nothing waits for what it owes.
func start(ctx context.Context, cfg Config, dir string, fail context.CancelCauseFunc) (*rig, error) {
	r := &rig{cfg: cfg, dir: dir, fail: fail, acked: map[string]job.UID{}, ending: map[*process.Process]bool{}, web: newWebClient(cfg.Callers)}
	var err error
	if r.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return r, err
	}
	if err := r.startStore(ctx); err != nil {
		return r, err
	}
	if r.grpc, err = r.ports.Reserve(); err != nil {
		return r, err
	}
	if r.http, err = r.ports.Reserve(); err != nil {
		return r, err
	}
	if err := r.startNode(ctx); err != nil {
		return r, err
	}
	if err := r.connect(); err != nil {
		return r, err
	}
	if err := r.mustBeEmpty(ctx); err != nil {
		return r, err
	}
	if bare, ok := process.UsageOf(r.node.PID()); ok {
		r.bare = bare.Memory
	}
	return r, r.startWorker(ctx)
}

// mustBeEmpty refuses a database that holds jobs: they would run, and be judged, too.
func (r *rig) mustBeEmpty(ctx context.Context) error {
	resp, err := r.jobs.ListJobs(ctx, &carillonv1.ListJobsRequest{Parent: parent, PageSize: 1, ShowEnded: true})
	if err == nil && len(resp.GetJobs()) > 0 {
		return fmt.Errorf("the database holds jobs, such as %s: a run needs an empty one, which it fills", resp.GetJobs()[0].GetName())
	}
	return err
}

// watch ends the run if a process ends that was not told to.
func (r *rig) watch(p *process.Process) {
	r.watchers.Go(func() {
		<-p.Ended()
		r.mu.Lock()
		told := r.ending[p]
		r.mu.Unlock()
		if !told {
			r.fail(fmt.Errorf("the %s ended: %s; %s", p.What(), p.Ending(), r.lastWords()))
		}
	})
}

// end tells a process to end, and waits for it.
func (r *rig) end(p **process.Process) error {
	r.mu.Lock()
	r.ending[*p] = true
	r.mu.Unlock()
	err := (*p).Stop()
	*p = nil
	return err
}

func (r *rig) startStore(ctx context.Context) (err error) {
	switch r.cfg.Store {
	case "sqlite":
		r.address = "sqlite:" + filepath.Join(r.dir, "carillon.db")
	case "postgres":
		var settings []string
		if r.cfg.Profiles != "" {
			settings = statementSettings
		}
		if r.pg, err = pgtest.StartReal(ctx, settings...); err != nil {
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

// startNode starts the node and waits until it is ready.
func (r *rig) startNode(ctx context.Context) (err error) {
	args := []string{"server", "--migrate", "--node", "bench", "--grpc", r.grpc, "--http", r.http, "--log-level", "warn"}
	if r.cfg.Profiles != "" {
		args = append(args, "--pprof")
	}
	cmd := exec.Command(r.cfg.Carillon, args...)
	cmd.Env = append(os.Environ(), "CARILLON_STORE="+r.address) // it may hold a password
	banner := process.NewBanner(r.log)
	cmd.Stdout, cmd.Stderr = banner, r.log
	if r.node, err = process.Start("node", cmd); err != nil {
		return err
	}
	r.watch(r.node)
	if err := r.await(ctx, "the node is up", r.node, banner.Found()); err != nil {
		return err
	}
	err = r.eventually(ctx, readyTimeout, "the node is ready", func(ctx context.Context) (bool, error) {
		resp, err := r.get(ctx, "/readyz")
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, r.lastWords())
	}
	return nil
}

// connect opens the clients.
func (r *rig) connect() (err error) {
	r.conn, err = grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return err
	}
	r.jobs, r.slots = carillonv1.NewJobServiceClient(r.conn), carillonv1.NewSlotServiceClient(r.conn)
	return nil
}

// startWorker starts the process of all workers and waits until they are connected.
func (r *rig) startWorker(ctx context.Context) (err error) {
	args := []string{"bench-worker", "--address", r.grpc, "--workers", strconv.Itoa(r.cfg.Workers), "--idle", strconv.Itoa(r.cfg.IdleWorkers),
		"--capacity", strconv.Itoa(r.cfg.Capacity), "--work", r.cfg.Work.String(), "--file", r.notesFile()}
	if r.cfg.Profiles != "" {
		args = append(args, "--profile", filepath.Join(r.cfg.Profiles, "worker.pprof"))
	}
	cmd := exec.Command(r.cfg.Carillon, args...)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	if r.worker, err = process.Start("worker", cmd); err != nil {
		return err
	}
	r.watch(r.worker)
	return r.awaitWorkers(ctx)
}

// awaitWorkers waits until all workers are connected.
func (r *rig) awaitWorkers(ctx context.Context) error {
	want := float64(r.cfg.Workers + r.cfg.IdleWorkers)
	return r.eventually(ctx, connectTimeout, "the workers are there", func(ctx context.Context) (bool, error) {
		metrics, err := r.metrics(ctx)
		return metrics["carillon_workers_connected"] == want, err
	})
}

// killNode kills the node and starts it again, at the same addresses.
func (r *rig) killNode(ctx context.Context) error {
	r.mu.Lock()
	r.ending[r.node] = true
	r.mu.Unlock()
	if err := r.node.Kill(); err != nil {
		return err
	}
	return r.startNode(ctx)
}

// restartNode ends the node and starts it again, at the same addresses, and returns how
// long it took until it was ready.
func (r *rig) restartNode(ctx context.Context) (time.Duration, error) {
	if err := r.end(&r.node); err != nil {
		return 0, err
	}
	began := time.Now()
	err := r.startNode(ctx)
	return time.Since(began), err
}

// await waits for something that a process does.
func (r *rig) await(ctx context.Context, what string, p *process.Process, done <-chan struct{}) error {
	late := time.NewTimer(startTimeout)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-p.Ended():
		return fmt.Errorf("the %s ended: %s; %s", p.What(), p.Ending(), r.lastWords())
	case <-late.C:
		return fmt.Errorf("it never came that %s; %s", what, r.lastWords())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lastWords is the end of what the processes logged: their files are removed.
func (r *rig) lastWords() string {
	text, err := os.ReadFile(r.log.Name())
	if err != nil {
		return err.Error()
	}
	return "the last words of the log:\n" + string(text[max(0, len(text)-2000):])
}

// pollEvery is how often something is asked for that isn't measured by it.
const pollEvery = 20 * time.Millisecond

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
		sleep(ctx, pollEvery)
	}
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (r *rig) say(format string, args ...any) {
	fmt.Fprintf(r.cfg.Log, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func (r *rig) notesFile() string { return filepath.Join(r.dir, "executions") }

// newWebClient keeps a connection for each caller.
func newWebClient(callers int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: max(callers, 64), MaxConnsPerHost: 0}}
}

// get asks the node over HTTP.
func (r *rig) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.http+path, nil)
	if err != nil {
		return nil, err
	}
	return r.web.Do(req)
}

// save writes what the node serves at a path to a file.
func (r *rig) save(ctx context.Context, path, file string) error {
	resp, err := r.get(ctx, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

// stopAll ends all that was started, what came last first. Stopping twice is fine.
func (r *rig) stopAll() error {
	var errs []error
	for _, p := range []**process.Process{&r.worker, &r.node} {
		if *p != nil {
			errs = append(errs, r.end(p))
		}
	}
	r.watchers.Wait()
	r.web.CloseIdleConnections()
	if r.conn != nil {
		errs = append(errs, r.conn.Close())
		r.conn = nil
	}
	if r.log != nil {
		errs = append(errs, r.log.Close())
		r.log = nil
	}
	return errors.Join(append(errs, r.ports.Close())...)
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
