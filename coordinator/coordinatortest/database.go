package coordinatortest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// Database decides between rival owners as the real one does, in memory.
type Database struct {
	mu   sync.Mutex
	rows []row
	down bool
}

type row struct {
	owner     string
	epoch     int64
	gen, rev  int64
	committed time.Time
	takeOvers int
}

var (
	errFenced     = errors.New("fenced")
	errSuperseded = errors.New("superseded")
	errDown       = errors.New("the database doesn't answer")
)

// NewDatabase returns the database of a new cluster.
func NewDatabase(shards int) *Database { return &Database{rows: make([]row, shards)} }

// Down has no call succeed, or lets them succeed again.
func (d *Database) Down(down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = down
}

// Owner is what the database says of a shard.
type Owner struct {
	Shard    shard.ID
	Node     string
	Gen, Rev int64
}

// Owners lists all shards.
func (d *Database) Owners() ([]Owner, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return nil, errDown
	}
	owners := make([]Owner, len(d.rows))
	for i, r := range d.rows {
		owners[i] = Owner{shard.ID(i), r.owner, r.gen, r.rev}
	}
	return owners, nil
}

func (d *Database) with(id shard.ID, do func(*row) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return errDown
	}
	return do(&d.rows[id])
}

func (d *Database) takeOver(node string, c coordinator.Change) (epoch int64, err error) {
	err = d.with(c.Shard, func(r *row) error {
		if r.owner == node && r.gen == c.Gen && r.rev == c.Rev {
			epoch = r.epoch
			return nil
		}
		if c.Gen < r.gen || c.Gen == r.gen && c.Rev <= r.rev {
			return errSuperseded
		}
		r.owner, r.gen, r.rev = node, c.Gen, c.Rev
		r.epoch++
		r.takeOvers++
		r.committed = time.Now()
		epoch = r.epoch
		return nil
	})
	return epoch, err
}

func (d *Database) renew(node string, epoch int64, c coordinator.Change) error {
	return d.with(c.Shard, func(r *row) error {
		if r.owner != node || r.epoch != epoch {
			return errFenced
		}
		if c.Gen > r.gen || c.Gen == r.gen && c.Rev > r.rev {
			r.gen, r.rev = c.Gen, c.Rev
		}
		return nil
	})
}

func (d *Database) commit(id shard.ID, epoch int64, last bool) error {
	return d.with(id, func(r *row) error {
		if r.epoch != epoch {
			return errFenced
		}
		r.committed = time.Now()
		if last {
			r.owner = ""
			r.epoch++
		}
		return nil
	})
}

// TakeOvers counts those of all shards.
func (d *Database) TakeOvers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, r := range d.rows {
		n += r.takeOvers
	}
	return n
}

// Owned counts the shards by owners.
func (d *Database) Owned() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := map[string]int{}
	for _, r := range d.rows {
		n[r.owner]++
	}
	return n
}

// LongestSilence is how long the shard with the oldest commit has had none.
func (d *Database) LongestSilence() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	longest := time.Duration(0)
	for _, r := range d.rows {
		longest = max(longest, time.Since(r.committed))
	}
	return longest
}

// Wait polls until something holds, or fails the test.
func Wait(t *testing.T, what string, within time.Duration, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > within {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}
