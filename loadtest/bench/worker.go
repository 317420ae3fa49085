package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// handlerName is the handler that is measured.
const handlerName = "bench.run"

// execution is what the worker notes of one attempt, in its first and its last line.
// All times are microseconds of the worker's clock.
type execution struct {
	Job     int64 // the number in the job's name
	Fire    int64
	Attempt int64
	Began   int64
	Done    int64
}

// notes gathers executions in memory, so that noting costs next to nothing.
type notes struct {
	mu  sync.Mutex
	all []execution
}

func (n *notes) add(e execution) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
}

// ServeWorker runs the worker process of a benchmark until ctx ends, and then writes
// what it noted to a file. work is how long each attempt takes.
func ServeWorker(ctx context.Context, address string, capacity int, work time.Duration, file string) error {
	w, err := worker.Dial(ctx, address, worker.ID("bench"), worker.Capacity(capacity), worker.ShutdownGrace(time.Second))
	if err != nil {
		return err
	}
	n := &notes{all: make([]execution, 0, 1<<20)}
	worker.Handle(w, handlerName, func(ctx context.Context, t *worker.Task[json.RawMessage]) error {
		e := execution{Began: time.Now().UnixMicro(), Fire: t.FireTime().UnixMicro(), Attempt: int64(t.Attempt()), Job: numberOf(t.Job())}
		if work > 0 {
			select {
			case <-time.After(work):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		e.Done = time.Now().UnixMicro()
		n.add(e)
		return nil
	}, worker.Concurrency(capacity))
	return errors.Join(w.Run(ctx), n.write(file))
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
