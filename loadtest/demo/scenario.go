package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/freeport"
	"github.com/carillon-scheduler/carillon/loadtest/process"
)

const (
	probes        = 20
	outageTime    = 5 * time.Second
	afterRestart  = 5 * time.Second  // how long it runs on before the books are closed
	settleTimeout = 30 * time.Second // for the last due slot to become final
	startTimeout  = 15 * time.Second
	tableEvery    = 200 * time.Millisecond
	tableSlots    = 200 // that the table looks at; more can't change between two looks
)

// errVerdict says that the demo ran to its end and not all was as it must be.
var errVerdict = errors.New("not all expectations hold")

// demo is one performance.
type demo struct {
	carillon string // the binary
	live     time.Duration
	screen   *screen
	dir      string
	log      *os.File

	ports          freeport.Ports
	grpc, http     string // the server's addresses
	server, worker *process.Process
	api            *api

	kill      time.Time // when the server is to be killed
	outage    outage
	jobs      []*job // acknowledged, in this order
	latencies []time.Duration
	books     world    // what was found at the end
	wrong     []string // every expectation that doesn't hold
}

// play plays the story and leaves nothing running. The temporary folder stays if
// something went wrong.
func play(ctx context.Context, carillon string, live time.Duration, s *screen) (err error) {
	d := &demo{carillon: carillon, live: live, screen: s}
	if err := d.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(err == nil || ctx.Err() != nil)) }()
	if err := d.perform(ctx); err != nil {
		return err
	}
	d.summary()
	if len(d.wrong) > 0 {
		return errVerdict
	}
	return nil
}

func (d *demo) open() (err error) {
	if d.dir, err = os.MkdirTemp("", "carillon-demo-"); err != nil {
		return err
	}
	if d.log, err = os.Create(filepath.Join(d.dir, "demo.log")); err != nil {
		return err
	}
	if d.grpc, err = d.ports.Reserve(); err != nil {
		return err
	}
	d.http, err = d.ports.Reserve()
	return err
}

// close ends what still runs and clears up.
func (d *demo) close(remove bool) error {
	var errs []error
	for _, c := range []*process.Process{d.worker, d.server} {
		if c != nil && !c.Gone() {
			errs = append(errs, c.Stop())
		}
	}
	if d.api != nil {
		errs = append(errs, d.api.conn.Close())
	}
	errs = append(errs, d.log.Close(), d.ports.Close())
	if remove {
		errs = append(errs, os.RemoveAll(d.dir))
	} else {
		d.screen.say("data and logs are kept in %s", d.dir)
	}
	return errors.Join(errs...)
}

// perform runs the acts one after the other, the middle ones beside the live table.
func (d *demo) perform(ctx context.Context) error {
	for _, act := range []func(context.Context) error{d.startAll, d.createAll, d.measure} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	if err := d.besideTable(ctx, d.runLive, d.die, d.rise, d.settle); err != nil {
		return err
	}
	if err := d.check(ctx); err != nil {
		return err
	}
	d.stopAll()
	return nil
}

// startAll starts the server and the worker, and waits for the catalog.
func (d *demo) startAll(ctx context.Context) (err error) {
	if err := d.startServer(ctx); err != nil {
		return err
	}
	d.screen.say("carillon dev is up: gRPC %s, REST http://%s/v1 (pid %d)", d.grpc, d.http, d.server.PID())
	if d.api, err = dial(d.grpc); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if d.worker, err = d.spawn("worker", d.log, self, "worker", "--address", d.grpc); err != nil {
		return err
	}
	if err := d.awaitWorker(ctx); err != nil {
		return err
	}
	d.screen.say("a worker serves %v (pid %d)", allHandlers, d.worker.PID())
	return nil
}

// spawn starts a program whose stderr goes to the log.
func (d *demo) spawn(what string, stdout io.Writer, name string, args ...string) (*process.Process, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = stdout, d.log
	return process.Start(what, cmd)
}

// startServer starts the server.
func (d *demo) startServer(ctx context.Context) (err error) {
	b := process.NewBanner(d.log)
	d.server, err = d.spawn("server", b, d.carillon, "dev", "--data", filepath.Join(d.dir, "data"), "--grpc", d.grpc, "--http", d.http)
	if err != nil {
		return err
	}
	late := time.NewTimer(startTimeout)
	defer late.Stop()
	select {
	case <-b.Found():
		return nil
	case <-d.server.Ended():
		return fmt.Errorf("the server ended at its start: %s", d.server.Ending())
	case <-late.C:
		return fmt.Errorf("the server did not print its addresses within %s", startTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *demo) awaitWorker(ctx context.Context) error {
	return d.until(ctx, "the worker's handlers to be registered", startTimeout, 20*time.Millisecond, func() (bool, error) {
		n, err := d.api.liveHandlers(ctx)
		return n == len(allHandlers), err
	})
}

// createAll creates the cast and says who is who.
func (d *demo) createAll(ctx context.Context) error {
	now := time.Now()
	d.kill = now.Add(d.live)
	for _, j := range cast(now, d.kill) {
		if err := d.create(ctx, j); err != nil {
			return err
		}
		next := ""
		if !j.nextFire.IsZero() {
			next = ", next at " + j.nextFire.Format("2006-01-02 15:04:05 UTC")
		}
		d.screen.say("created %-13s %s%s", j.id, j.about, next)
	}
	return nil
}

func (d *demo) create(ctx context.Context, j *job) error {
	if err := d.api.create(ctx, j); err != nil {
		return err
	}
	d.jobs = append(d.jobs, j)
	if text := j.checkAcknowledged(); text != "" {
		d.wrong = append(d.wrong, text)
	}
	return nil
}

// measure creates immediate jobs one after the other. Latency is from the create
// call to the handler's first line, by the clock that both processes share.
func (d *demo) measure(ctx context.Context) error {
	for i := range probes {
		j := probe(i)
		if err := d.create(ctx, j); err != nil {
			return err
		}
		start, err := d.started(ctx, j)
		if err != nil {
			return err
		}
		d.latencies = append(d.latencies, start.Sub(j.called))
	}
	d.screen.say("%d immediate jobs, one after the other: create → handler p50 %s", probes, short(sorted(d.latencies, 50)))
	return nil
}

// started waits for the first line of a job's only slot.
func (d *demo) started(ctx context.Context, j *job) (start time.Time, err error) {
	err = d.until(ctx, "the handler of "+j.id+" to start", startTimeout, 5*time.Millisecond, func() (bool, error) {
		slots, err := d.api.slotsOf(ctx, j.name)
		if err != nil || len(slots) == 0 || slots[0].GetStartTime() == nil {
			return false, err
		}
		start = slots[0].GetStartTime().AsTime()
		return true, nil
	})
	return start, err
}

// besideTable runs acts while the table is refreshed.
func (d *demo) besideTable(ctx context.Context, acts ...func(context.Context) error) error {
	watching, end := context.WithCancel(ctx)
	var table sync.WaitGroup
	table.Go(func() { d.watch(watching) })
	defer d.screen.keep()
	defer table.Wait()
	defer end()
	for _, act := range acts {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watch refreshes the table until ctx ends. While no server answers, it stays as it is.
func (d *demo) watch(ctx context.Context) {
	tick := time.NewTicker(tableEvery)
	defer tick.Stop()
	for {
		if slots, err := d.api.newest(ctx, tableSlots); err == nil {
			d.screen.show(rowsOf(slots))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (d *demo) runLive(ctx context.Context) error {
	return d.sleep(ctx, time.Until(d.kill), d.server, d.worker)
}

// die kills the server as soon as it has acknowledged one more job, and waits.
func (d *demo) die(ctx context.Context) error {
	last := immediate("last-words", "is acknowledged just before the kill")
	if err := d.create(ctx, last); err != nil {
		return err
	}
	pid := d.server.PID()
	if err := d.server.Kill(); err != nil {
		return err
	}
	d.outage.from = time.Now() // what fired while the signal was on its way is not of the outage
	d.screen.say("created %s and killed the server (pid %d) with SIGKILL; nothing runs for %s", last.id, pid, outageTime)
	return d.sleep(ctx, outageTime, d.worker)
}

// rise starts the server again and lets it run on.
func (d *demo) rise(ctx context.Context) error {
	d.outage.to = time.Now()
	if err := d.startServer(ctx); err != nil {
		return err
	}
	d.screen.say("started the server again on the same data and ports (pid %d): the missed seconds are made up for", d.server.PID())
	return d.sleep(ctx, afterRestart, d.server, d.worker)
}

// settle closes the books: it waits until each slot up to now is final. One that
// never becomes so is for the check to name.
func (d *demo) settle(ctx context.Context) error {
	d.books = world{jobs: d.jobs, end: time.Now(), outage: d.outage}
	d.screen.say("waiting for every slot up to %s to be final", stamp(d.books.end))
	limited, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := d.until(limited, "all due slots to be final", settleTimeout, tableEvery, func() (bool, error) {
		records, err := d.api.records(limited, false)
		d.books.records = records
		return err == nil && d.books.pending() == 0, err
	})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		d.wrong = append(d.wrong, fmt.Sprintf("not every due slot was final after %s", settleTimeout))
		return nil
	}
	return err
}

// check lists everything and holds it against what must be there.
func (d *demo) check(ctx context.Context) (err error) {
	if d.books.records, err = d.api.records(ctx, true); err != nil {
		return err
	}
	d.books.listed = time.Now()
	d.wrong = append(d.wrong, d.books.verify()...)
	for _, j := range d.jobs {
		before := time.Now()
		m, err := d.api.job(ctx, j.name)
		if err != nil {
			d.wrong = append(d.wrong, fmt.Sprintf("%s: was acknowledged and is not there after the SIGKILL: %v", j.name, err))
			continue
		}
		d.wrong = append(d.wrong, j.verifyStored(m, before, time.Now())...)
	}
	return nil
}

// stopAll stops the processes; how they stop is part of the verdict.
func (d *demo) stopAll() {
	for _, c := range []*process.Process{d.worker, d.server} {
		if err := c.Stop(); err != nil {
			d.wrong = append(d.wrong, err.Error())
		}
	}
}

// until polls for a condition, with a deadline.
func (d *demo) until(ctx context.Context, what string, limit, pause time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := holds()
		if err != nil || ok {
			return err
		}
		if err := d.sleep(ctx, pause, d.server, d.worker); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
	}
}

// sleep waits, and fails at once if a process that must live doesn't.
func (d *demo) sleep(ctx context.Context, pause time.Duration, alive ...*process.Process) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	gone := make([]<-chan struct{}, 2)
	for i, c := range alive {
		gone[i] = c.Ended()
	}
	select {
	case <-timer.C:
		return nil
	case <-gone[0]:
		return fmt.Errorf("the %s ended by itself: %s", alive[0].What(), alive[0].Ending())
	case <-gone[1]:
		return fmt.Errorf("the %s ended by itself: %s", alive[1].What(), alive[1].Ending())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
