package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// databaseHost is the database's name in the network.
const databaseHost = "database"

// database is the store as the processes reach it: over links that may be cut, with answers that may be
// lost, transactions that may stand still, and a service that may be away or slow. What it holds is
// never lost: it answers for nothing that it hasn't made durable.
type database struct {
	w    *world
	kept store.Store
	dice dice.Dice

	mu     sync.Mutex                 // guards what follows
	up     chan struct{}              // closed once it serves again; nil: it does
	flaky  float64                    // of all calls: how many meet a fault of their own
	slow   time.Duration              // more than the usual for each call
	locked map[shard.ID]chan struct{} // by a transaction that stands still; closed when it ends
	ahead  time.Duration              // of its clock
}

func newDatabase(w *world) *database {
	return &database{w: w, dice: w.dice.For("database"), locked: map[shard.ID]chan struct{}{}}
}

// now is the database's clock.
func (d *database) now() job.Instant {
	d.mu.Lock()
	defer d.mu.Unlock()
	return job.At(time.Now().Add(d.ahead))
}

// stop has it serve nobody: what is under way fails.
func (d *database) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.up == nil {
		d.up = make(chan struct{})
	}
}

func (d *database) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.up != nil {
		close(d.up)
		d.up = nil
	}
}

func (d *database) set(change func(*database)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// Times of the database.
const (
	minService, maxService = 200 * time.Microsecond, 4 * time.Millisecond
	// a transaction that stands still ends the latest after the database's own timeouts for
	// statements, locks and idle transactions
	longestStall = 8 * time.Second
	// a write that its caller has given up may come so late: it was under way in the network, or on a
	// frozen machine
	latestWrite = 25 * time.Second
)

// fate is what befalls one call.
type fate int

const (
	well         fate = iota
	lostBefore        // it never comes there
	lostAfter         // it is done, and its answer is lost
	late              // it is done long after its caller has been told that it failed
	stalled           // it holds its shards for a while, and then is done
	stalledAbort      // it holds its shards for a while, and then is rolled back
	refused           // the database says at once that it can't
	fates
)

var fateNames = [fates]string{"", "lost before", "lost after", "late", "stalled", "stalled and rolled back", "refused"}

// link is the database as one process has it.
type link struct {
	database *database
	process  *simnet.Process

	mu    sync.Mutex
	calls map[string]uint64 // guarded by mu
}

func (d *database) link(p *simnet.Process) *link {
	return &link{database: d, process: p, calls: map[string]uint64{}}
}

var errGone = fmt.Errorf("%w: connection lost", store.ErrUnavailable)

// call makes one call: write says which shards it locks, if it writes. keep copies what the call was given.
func (l *link) call(ctx context.Context, what string, write []shard.ID, do func() error, keep ...func()) error {
	l.process.Gate(what)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	l.mu.Lock()
	l.calls[what]++
	dice := l.database.dice.For(l.process.ID).For(what).At(l.calls[what])
	l.mu.Unlock()
	d := l.database
	d.mu.Lock()
	f := well
	if d.flaky > 0 && dice.For("fate").Chance(d.flaky) {
		f = fate(1 + dice.For("which").N(int(fates)-1))
		if write == nil && (f == late || f == stalled || f == stalledAbort) {
			f = lostAfter
		}
	}
	slow := d.slow
	d.mu.Unlock()
	if f != well {
		d.w.covered("database " + fateNames[f])
		d.w.trace(l.process.ID, "database: %s is %s", what, fateNames[f])
	}
	service := dice.For("service").Between(minService, maxService) + dice.For("slow").Between(slow/2, slow)
	switch f {
	case lostBefore, refused:
		if f == lostBefore {
			l.wait(ctx, dice.For("silence").Between(time.Millisecond, 3*time.Second))
		} else {
			l.wait(ctx, service)
		}
		return errGone
	case late:
		for _, k := range keep {
			k() // what it is given is the caller's
		}
		after := dice.For("late").Between(50*time.Millisecond, latestWrite)
		time.AfterFunc(after, func() {
			d.w.trace(l.process.ID, "database: %s comes %s late", what, after.Round(time.Millisecond))
			d.execute(write, do)
		})
		l.wait(ctx, service)
		return errGone
	}
	if err := l.cross(ctx, l.process.Name, databaseHost, dice.For("there")); err != nil {
		return err
	}
	if err := l.wait(ctx, service); err != nil && write == nil {
		return err // a write that was sent is done, whoever waits for it
	}
	if f == stalled || f == stalledAbort {
		if !d.hold(write, dice.For("stall").Between(100*time.Millisecond, longestStall)) || f == stalledAbort {
			return errGone
		}
	}
	if d.serves() != nil {
		return errGone
	}
	err := d.execute(write, do)
	if f == lostAfter {
		l.wait(ctx, dice.For("silence").Between(time.Millisecond, 3*time.Second))
		return errGone
	}
	if lost := l.cross(ctx, databaseHost, l.process.Name, dice.For("back")); lost != nil {
		return lost
	}
	return err
}

func (d *database) serves() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.up != nil {
		return errGone
	}
	return nil
}

// hold keeps shards locked for a while. It returns false if the database went away meanwhile.
func (d *database) hold(ids []shard.ID, long time.Duration) bool {
	d.await(ids)
	d.mu.Lock()
	free := make(chan struct{})
	for _, id := range ids {
		if d.locked[id] == nil {
			d.locked[id] = free
		}
	}
	d.mu.Unlock()
	time.Sleep(long)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if d.locked[id] == free {
			delete(d.locked, id)
		}
	}
	close(free)
	return d.up == nil
}

// await waits until nobody else holds shards.
func (d *database) await(ids []shard.ID) {
	for {
		var held chan struct{}
		d.mu.Lock()
		for _, id := range ids {
			if c := d.locked[id]; c != nil {
				held = c
				break
			}
		}
		d.mu.Unlock()
		if held == nil {
			return
		}
		<-held
	}
}

func (d *database) execute(write []shard.ID, do func() error) error {
	d.await(write)
	return do()
}

// cross takes a message over the link.
func (l *link) cross(ctx context.Context, from, to string, dice dice.Dice) error {
	if err := l.database.w.net.Cross(ctx, l.process, from, to, dice); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil
}

// wait lets time pass, unless the caller stops waiting.
func (l *link) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	case <-l.process.Ended():
		return errGone
	}
}
