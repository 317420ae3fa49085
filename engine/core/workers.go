package core

import (
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// Workers is what a node knows of the workers that are connected to it, and of
// the work that they ask for. It belongs to the node and is shared by its shards,
// which all run in the node's one loop.
type Workers struct {
	byID   map[string]*Worker
	pools  map[string]*pool
	paused bool
	// offered are the handlers for which credit came in: what waits for them is to be
	// dispatched.
	offered map[string]bool
	waiting map[string]*waiting // by handler
	changes uint64              // of what workers want, or might
}

// waiting counts the slots of one handler, in all shards of the node, that may run now and have no
// worker. It is kept, not counted: there are many handlers, and many shards.
type waiting struct {
	slots   int
	changes *uint64 // nil: nobody looks any more
}

func (n *waiting) add(slots int) {
	n.slots += slots
	if n.changes != nil {
		*n.changes++
	}
}

// Worker is one connected, or lately connected, worker.
type Worker struct {
	Key        WorkerKey
	Handlers   []string
	Capacity   int
	LeaseUntil job.Instant
	Draining   bool
	credit     int
	silent     bool // it gets no credit any more
	pools      []*pool
	registry   *Workers
}

// pool is the workers of one handler.
type pool struct {
	workers []*Worker
	next    int // where the search for credit begins
	free    int // workers with credit
	waiting *waiting
}

// NewWorkers returns an empty registry.
func NewWorkers() *Workers {
	return &Workers{byID: map[string]*Worker{}, pools: map[string]*pool{}, offered: map[string]bool{}, waiting: map[string]*waiting{}}
}

// waitingOf returns the count of a handler's waiting slots.
func (w *Workers) waitingOf(handler string) *waiting {
	n := w.waiting[handler]
	if n == nil {
		n = &waiting{changes: &w.changes}
		w.waiting[handler] = n
	}
	return n
}

// Changes grows whenever what Wanted returns may have changed.
func (w *Workers) Changes() uint64 { return w.changes }

// Wanted returns how many slots wait now that a worker could run, if it had given credit for them:
// at most its capacity.
func (w *Workers) Wanted(worker *Worker) int {
	if w.paused || worker.silent || worker.credit > 0 {
		return 0
	}
	n := 0
	for _, p := range worker.pools {
		if n += p.waiting.slots; n >= worker.Capacity {
			return worker.Capacity
		}
	}
	return n
}

// Join adds a worker, or takes it back after a broken stream, with the credit
// that it says it has. Less than none is what it owes: of what it gives next.
func (w *Workers) Join(key WorkerKey, handlers []string, capacity, credit int, leaseUntil job.Instant) *Worker {
	w.Remove(key.ID)
	worker := &Worker{Key: key, Handlers: handlers, Capacity: capacity, LeaseUntil: leaseUntil, registry: w}
	for _, h := range handlers {
		p := w.pools[h]
		if p == nil {
			p = &pool{waiting: w.waitingOf(h)}
			w.pools[h] = p
		}
		p.workers = append(p.workers, worker)
		worker.pools = append(worker.pools, p)
	}
	w.byID[key.ID] = worker
	w.changes++
	worker.addCredit(min(credit, capacity))
	return worker
}

// Remove forgets a worker.
func (w *Workers) Remove(id string) {
	worker := w.byID[id]
	if worker == nil {
		return
	}
	worker.addCredit(-worker.credit)
	for i, p := range worker.pools {
		p.workers = slices.DeleteFunc(p.workers, func(o *Worker) bool { return o == worker })
		p.next = 0
		if len(p.workers) == 0 {
			delete(w.pools, worker.Handlers[i])
		}
	}
	delete(w.byID, id)
}

// Get returns the worker with this id, or nil.
func (w *Workers) Get(id string) *Worker { return w.byID[id] }

// All returns every worker.
func (w *Workers) All() map[string]*Worker { return w.byID }

// AddCredit lets a worker take n more attempts, never more than its capacity; or less, if it
// was sent some that it doesn't know of.
func (w *Workers) AddCredit(worker *Worker, n int) {
	if !worker.silent {
		worker.addCredit(min(n, worker.Capacity-worker.credit))
	}
}

// Refund gives back the credit of an attempt that was never sent.
func (w *Workers) Refund(key WorkerKey) {
	if worker := w.byID[key.ID]; worker != nil && worker.Key == key {
		w.AddCredit(worker, 1)
	}
}

// Reclaim takes back up to n credits that are still free, and returns how many.
func (w *Workers) Reclaim(worker *Worker, n int) int {
	taken := min(max(n, 0), max(worker.credit, 0))
	worker.addCredit(-taken)
	return taken
}

// Silence takes all credit from a worker whose stream is gone or that drains, for
// good: also what is refunded later.
func (w *Workers) Silence(worker *Worker) {
	worker.silent = true
	worker.addCredit(-worker.credit)
}

// Pause stops all claims, for the node's own shutdown.
func (w *Workers) Pause() {
	w.paused = true
	w.changes++
}

// Serving returns how many workers serve a handler, and how many of them have
// credit.
func (w *Workers) Serving(handler string) (workers, free int) {
	if p := w.pools[handler]; p != nil {
		return len(p.workers), p.free
	}
	return 0, 0
}

// Offered returns the handlers for which credit came in since the last call.
func (w *Workers) Offered() []string {
	handlers := slices.Sorted(maps.Keys(w.offered))
	clear(w.offered)
	return handlers
}

// OfferAll has everything dispatched that waits, for a shard that has just become
// live.
func (w *Workers) OfferAll() {
	for handler, p := range w.pools {
		if p.free > 0 {
			w.offered[handler] = true
		}
	}
}

// take uses up one credit of a worker that serves the handler, going round among
// them. It returns nil if there is none.
func (w *Workers) take(handler string) *Worker {
	p := w.pools[handler]
	if w.paused || p == nil || p.free == 0 {
		return nil
	}
	for range p.workers {
		worker := p.workers[p.next]
		p.next = (p.next + 1) % len(p.workers)
		if worker.credit > 0 {
			worker.addCredit(-1)
			return worker
		}
	}
	return nil
}

// addCredit changes the credit and keeps the pools' counts of free workers true.
func (w *Worker) addCredit(n int) {
	if n > 0 {
		for _, h := range w.Handlers {
			w.registry.offered[h] = true
		}
	}
	had := w.credit > 0
	w.credit += n
	if has := w.credit > 0; has != had {
		w.registry.changes++
		for _, p := range w.pools {
			if has {
				p.free++
			} else {
				p.free--
			}
		}
	}
}
