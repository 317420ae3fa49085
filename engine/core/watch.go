package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// watch is what a shard says of its own accord, once, before or after something waits for
// too long: a handler whose slots nobody takes, and one that nobody serves although jobs of it
// are about to fire.
type watch struct {
	next     job.Instant
	stalled  map[string]bool // handlers that were told of
	unserved map[string]bool
}

// watchEvery is how often a shard looks.
const watchEvery = 15 * time.Second

// lookAround looks for what waits too long, or will.
func (s *Shard) lookAround() {
	w := &s.watch
	if s.now < w.next || !s.Live() {
		return
	}
	w.next = s.now.Add(watchEvery)
	s.watchStalled()
	s.watchUnserved()
}

// watchStalled tells of the handlers of which a slot that may run waits for too long. It is
// not dropped: it goes on waiting.
func (s *Shard) watchStalled() {
	stalled := map[string]bool{}
	for _, handler := range slices.Sorted(maps.Keys(s.queues)) {
		since, waits := s.waitsSince(handler)
		if !waits || s.now.Sub(since) < s.cfg.StalledAfter {
			continue
		}
		stalled[handler] = true
		if !s.watch.stalled[handler] {
			workers, free := s.workers.Serving(handler)
			s.note(store.EventHandlerStalled, job.UID{}, 0, fmt.Sprintf("slots of the handler %s have waited for a worker since %s; %d workers serve it, %d of them are free", handler, since, workers, free))
			s.pending.messages = append(s.pending.messages, Observation{Kind: HandlerStalled, Handler: handler})
		}
	}
	s.watch.stalled = stalled
}

// waitsSince returns since when the first slot in a handler's queue could have run. The first
// in the heap is the most urgent one, not the oldest. What waits in the backlog came later.
func (s *Shard) waitsSince(handler string) (since job.Instant, waits bool) {
	since = job.MaxInstant
	for _, slot := range s.queues[handler].ready {
		if slot.queued {
			since, waits = min(since, readyAt(&slot.row)), true
		}
	}
	return since, waits
}

// watchUnserved tells of the handlers that no worker serves and of which a job is about to
// fire.
func (s *Shard) watchUnserved() {
	first := map[string]*jobState{}
	soon := s.now.Add(s.cfg.UnservedAhead)
	for j := range s.jobs.all() {
		if !j.live || j.next == 0 || j.next > soon {
			continue
		}
		if workers, _ := s.workers.Serving(j.spec.handler); workers > 0 {
			continue
		}
		if o := first[j.spec.handler]; o == nil || j.next < o.next {
			first[j.spec.handler] = j
		}
	}
	unserved := map[string]bool{}
	for _, handler := range slices.Sorted(maps.Keys(first)) {
		unserved[handler] = true
		if j := first[handler]; !s.watch.unserved[handler] {
			s.note(store.EventHandlerUnserved, j.uid, j.next, fmt.Sprintf("no worker serves the handler %s; the job %s fires at %s", handler, j.name, j.next))
			s.pending.messages = append(s.pending.messages, Observation{Kind: HandlerUnserved, Handler: handler})
		}
	}
	s.watch.unserved = unserved
}

// watchLongRun tells of a job whose next slot is due while the one before it still runs.
func (s *Shard) watchLongRun(j *jobState, before job.Instant) {
	if j.open == 0 || before == 0 {
		return
	}
	slot := s.slots[job.SlotKey{FireTime: before, UID: j.uid}]
	if slot == nil || slot.row.State != job.Running {
		return
	}
	s.pending.messages = append(s.pending.messages, Observation{Kind: RunTooLong, Handler: j.spec.handler})
	if !j.warned {
		j.warned = true
		s.note(store.EventRunTooLong, j.uid, before, fmt.Sprintf("attempt %d, claimed at %s, still runs although the next slot of %s is due", slot.row.Attempt, slot.row.ClaimedAt, j.name))
	}
}

// Attention is what a shard warns of.
type Attention struct {
	Stalled  []string // handlers of which a slot waits for too long
	Unserved []string // handlers that no worker serves and of which a job is about to fire
}

// Attention lists what the shard warns of at the moment, in order.
func (s *Shard) Attention() Attention {
	return Attention{Stalled: slices.Sorted(maps.Keys(s.watch.stalled)), Unserved: slices.Sorted(maps.Keys(s.watch.unserved))}
}
