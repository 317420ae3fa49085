package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/job"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// The handler that is measured, and the one of workers without work.
const (
	handlerName = "bench.run"
	idleHandler = "bench.idle"
)

// execution is what the worker notes of one attempt, in its first and its last line.
// All times are microseconds of the worker's clock.
type execution struct {
	Job     int64 // the number in the job's name
	Fire    int64
	Attempt int64
	Began   int64
	Done    int64 // 0: it failed, or was ended
}

// notes gathers executions in memory, so that noting costs next to nothing.
type notes struct {
	mu  sync.Mutex
	all []execution // guarded by mu
}

func (n *notes) add(e execution) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
}

// WorkerConfig says what the process of the workers does.
type WorkerConfig struct {
	Address  string        // of the node
	Workers  int           // that run what is measured, each with a connection of its own
	Idle     int           // that are connected and have nothing to do
	Capacity int           // attempts at the same time, of all workers together
	Work     time.Duration // that each attempt takes
	File     string        // for what was noted
	Profile  string        // file for a CPU profile; empty: none is taken
}

// errFails is what an attempt that has to fail ends with.
var errFails = errors.New("this attempt fails, as it should")

// ServeWorkers runs workers until ctx ends, and then writes what they noted to a file.
func ServeWorkers(ctx context.Context, cfg WorkerConfig) (err error) {
	if cfg.Profile != "" {
		stop, profileErr := startProfile(cfg.Profile)
		if profileErr != nil {
			return profileErr
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	n := &notes{all: make([]execution, 0, 1<<20)}
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range cfg.Workers + cfg.Idle {
		w, err := worker.Dial(ctx, cfg.Address, worker.ID("bench-"+strconv.Itoa(i)), worker.Capacity(cfg.Capacity/cfg.Workers), worker.ShutdownGrace(time.Second))
		if err != nil {
			return err
		}
		name := handlerName
		if i >= cfg.Workers {
			name = idleHandler
		}
		worker.Handle(w, name, n.handler(cfg.Work), worker.Concurrency(cfg.Capacity/cfg.Workers))
		group.Go(func() error { return w.Run(groupCtx) })
	}
	return errors.Join(group.Wait(), n.write(cfg.File))
}

func startProfile(file string) (stop func() error, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

// handler is what is measured: its first line is the time at which an execution began.
func (n *notes) handler(work time.Duration) func(context.Context, *worker.Task[json.RawMessage]) error {
	return func(ctx context.Context, t *worker.Task[json.RawMessage]) error {
		e := execution{Began: time.Now().UnixMicro(), Fire: t.FireTime().UnixMicro(), Attempt: int64(t.Attempt()), Job: numberOf(t.Job())}
		defer func() { n.add(e) }()
		if work > 0 {
			select {
			case <-time.After(work):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if t.Attempt() == 1 && bytes.HasPrefix(t.Args, []byte(failing)) {
			return errFails
		}
		e.Done = time.Now().UnixMicro()
		return nil
	}
}

// failing begins the parameters of a job whose first attempts fail.
const failing = `{"fail":true`

// params are parameters of a size, in bytes, if it isn't too small.
func params(size int, fails bool) string {
	begin := `{"tenant":"acme","n":12345`
	if fails {
		begin = failing
	}
	if pad := size - len(begin) - len(`,"pad":""}`); pad > 0 {
		return begin + `,"pad":"` + strings.Repeat("x", pad) + `"}`
	}
	return begin + "}"
}

// jobName is the name of a job by its number.
func jobName(n int) string { return "bench-" + strconv.Itoa(n) }

// numberOf reads the number out of a job's resource name, or -1.
func numberOf(resource string) int64 {
	_, digits, ok := strings.Cut(resource, "/jobs/bench-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return -1
	}
	return n
}

func (n *notes) write(file string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	err = binary.Write(out, binary.LittleEndian, n.all)
	return errors.Join(err, out.Flush(), f.Close())
}

// readNotes reads what a worker wrote.
func readNotes(file string) ([]execution, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := int64(binary.Size(execution{}))
	if info.Size()%size != 0 {
		return nil, fmt.Errorf("%s ends in the middle of a record", file)
	}
	all := make([]execution, info.Size()/size)
	if err := binary.Read(bufio.NewReader(f), binary.LittleEndian, all); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return all, nil
}

// fireTime is when an execution was due.
func (e execution) fireTime() job.Instant { return job.Instant(e.Fire) }
