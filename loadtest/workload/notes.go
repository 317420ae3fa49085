package workload

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/carillon-scheduler/carillon/job"
)

// Execution is what the worker notes of one attempt, in its first and its last line.
// All times are microseconds of the worker's clock.
type Execution struct {
	Job     int64 // the number in the job's name
	Fire    int64
	Attempt int64
	Began   int64
	Done    int64 // 0: it failed, or was ended
}

// FireTime is when an execution was due.
func (e Execution) FireTime() job.Instant { return job.Instant(e.Fire) }

// notes gathers executions in memory, so that noting costs next to nothing.
type notes struct {
	mu  sync.Mutex
	all []Execution // guarded by mu
}

func (n *notes) add(e Execution) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
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

// ReadNotes reads what a worker wrote.
func ReadNotes(file string) ([]Execution, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := int64(binary.Size(Execution{}))
	if info.Size()%size != 0 {
		return nil, fmt.Errorf("%s ends in the middle of a record", file)
	}
	all := make([]Execution, info.Size()/size)
	if err := binary.Read(bufio.NewReader(f), binary.LittleEndian, all); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return all, nil
}
