// Package model keeps Carillon's state in memory, as the database of a simulation does:
// each call is one step that nothing else overtakes, time is what the caller says, and
// equal calls have equal answers.
//
// It promises what package store does, but for what no simulation asks of it: nothing
// survives the process. What it answers is what store/sqlite answers, and the differential
// test of the two is the proof. It differs where no batch of an owner goes:
//
//   - A job or a slot that is too large refuses its batch even if its row had not been
//     written, because another one stands in its way. So a batch is refused before anything
//     of it is written, and nothing need be undone.
//   - A shard that isn't there has no owner and takes no rows, whatever the proof; and a job
//     is stored in the shard of the batch that creates it.
//   - A job whose end is at instant zero lives on.
//
// Rows that it returns are copies. Their bytes (parameters, results, notes) are shared: the
// whole program treats them as values, and replaces rather than changes them.
package model

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// Store is a database in memory. It has all roles of package store.
type Store struct {
	now func() job.Instant

	mu       sync.Mutex // guards all below, and the rows of the shards
	closed   bool
	revision int64
	shards   []*rows
	names    ordered[jobKey, *job.Job]
	handlers ordered[string, *store.Handler]
	days     ordered[calendarKey, store.Calendar]
}

var _ store.Store = (*Store)(nil)

// New makes an empty database, whose clock is now.
func New(now func() job.Instant) *Store {
	return &Store{
		now:      now,
		names:    newOrdered[jobKey, *job.Job](compareJobs),
		handlers: newOrdered[string, *store.Handler](strings.Compare),
		days:     newOrdered[calendarKey, store.Calendar](compareCalendars),
	}
}

// rows are the rows of one shard: the shard's own, and for each table an order by its key
// with those by which else it is read.
type rows struct {
	id                                shard.ID
	owner                             string
	epoch                             shard.Epoch
	gen, rev                          int64
	try                               int64 // of the newest repeat under the epoch
	watermark, openFrom, retainedFrom job.Instant
	epochs                            []store.TakeOver

	jobs      ordered[job.UID, *job.Job]
	live      map[nameKey]*job.Job    // by name
	asked     map[requestKey]*job.Job // by request id, if it has one
	recurring set[job.UID]            // that live
	once      set[job.SlotKey]        // by fire time
	single    set[job.SlotKey]        // that live and don't recur, by fire time or else creation
	ended     set[job.SlotKey]        // by end
	inbox     set[job.UID]

	slots       ordered[job.SlotKey, *job.Slot]
	unscheduled ordered[slotOfJob, *job.Slot] // immediate and manual ones
	attempts    ordered[attemptKey, *job.Attempt]

	backlog       ordered[store.BacklogKey, store.BacklogRow]
	backlogSlots  set[backlogSlot]
	backlogChecks set[backlogCheck]
	dead          ordered[job.SlotKey, store.DeadLetter]
	deadOf        map[job.UID]int // how many each job has

	gaps        ordered[store.GapKey, *store.Gap]
	requests    map[requestKey]store.Request
	requestAges set[requestAge]
	events      ordered[eventKey, store.Event]
	eventAges   set[eventAge]
	skips       ordered[skipKey, store.Skip]
	skipAges    set[skipAge]
}

func newRows(id shard.ID) *rows {
	return &rows{
		id:            id,
		jobs:          newOrdered[job.UID, *job.Job](compareUIDs),
		live:          map[nameKey]*job.Job{},
		asked:         map[requestKey]*job.Job{},
		recurring:     newSet(compareUIDs),
		once:          newSet(compareSlotKeys),
		single:        newSet(compareSlotKeys),
		ended:         newSet(compareSlotKeys),
		inbox:         newSet(compareUIDs),
		slots:         newOrdered[job.SlotKey, *job.Slot](compareSlotKeys),
		unscheduled:   newOrdered[slotOfJob, *job.Slot](compareSlotsOfJobs),
		attempts:      newOrdered[attemptKey, *job.Attempt](compareAttempts),
		backlog:       newOrdered[store.BacklogKey, store.BacklogRow](compareBacklog),
		backlogSlots:  newSet(compareBacklogSlots),
		backlogChecks: newSet(compareChecks),
		dead:          newOrdered[job.SlotKey, store.DeadLetter](compareSlotKeys),
		deadOf:        map[job.UID]int{},
		gaps:          newOrdered[store.GapKey, *store.Gap](compareGaps),
		requests:      map[requestKey]store.Request{},
		requestAges:   newSet(compareRequestAges),
		events:        newOrdered[eventKey, store.Event](compareEvents),
		eventAges:     newSet(compareEventAges),
		skips:         newOrdered[skipKey, store.Skip](compareSkips),
		skipAges:      newSet(compareSkipAges),
	}
}

var errClosed = errors.New("the database is closed")

// enter begins a call, which ends with leave. It fails if the caller doesn't wait any more.
func (m *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return unavailable(errClosed)
	}
	return nil
}

func (m *Store) leave() { m.mu.Unlock() }

// shard returns the rows of a shard, or nil if there is no such shard.
func (m *Store) shard(id shard.ID) *rows {
	if id < 0 || int(id) >= len(m.shards) {
		return nil
	}
	return m.shards[id]
}

// read begins a read that nobody owns. A shard that isn't there holds nothing.
func (m *Store) read(ctx context.Context, id shard.ID) (*rows, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	if s := m.shard(id); s != nil {
		return s, nil
	}
	return newRows(id), nil
}

func unavailable(err error) error { return fmt.Errorf("model: %w: %w", store.ErrUnavailable, err) }

func notFound(format string, args ...any) error {
	return fmt.Errorf("model: %s: %w", fmt.Sprintf(format, args...), store.ErrNotFound)
}

// clusterID is the one of every simulated cluster: they never meet.
const clusterID = 1 << 62

// ClusterID implements store.Shards.
func (m *Store) ClusterID(ctx context.Context) (string, error) {
	if err := m.enter(ctx); err != nil {
		return "", err
	}
	defer m.leave()
	return storekit.ClusterID(clusterID), nil
}

// Now implements store.Clock.
func (m *Store) Now(context.Context) (job.Instant, error) { return m.now(), nil }

// Close implements store.Store. Every later call fails.
func (m *Store) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
