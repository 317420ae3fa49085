package store

import (
	"context"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// Reader answers people's questions, from any node. What isn't there is
// ErrNotFound. Lists look at a bounded number of rows: next is where to go on, and is
// zero at the end, so that a page may be short, or empty, although more follows.
type Reader interface {
	// Job reads the live job of a name, or else the newest ended one.
	Job(ctx context.Context, id shard.ID, namespace, name string) (job.Job, error)
	// JobByUID reads a job by its uid, in whichever shard.
	JobByUID(ctx context.Context, namespace string, uid job.UID) (job.Job, error)
	// JobUIDs lists the uids that a name has had, newest first.
	JobUIDs(ctx context.Context, id shard.ID, namespace, name string) ([]job.UID, error)
	// JobByRequest reads the job that a request made.
	JobByRequest(ctx context.Context, id shard.ID, namespace, requestID string) (job.Job, error)
	// Jobs lists the jobs of a namespace by name and uid.
	Jobs(ctx context.Context, p JobsPage) (jobs []job.Job, next JobCursor, err error)
	// SlotsByKey reads slots of one shard by their keys; those that aren't there
	// are left out.
	SlotsByKey(ctx context.Context, id shard.ID, keys []job.SlotKey) ([]job.Slot, error)
	// KeysBefore lists the keys of a shard's slots before a place in their order,
	// newest first.
	KeysBefore(ctx context.Context, id shard.ID, before job.SlotKey, limit int) ([]job.SlotKey, error)
	// UnscheduledSlots lists the immediate and manual slots of a job before an
	// instant, newest first.
	UnscheduledSlots(ctx context.Context, id shard.ID, uid job.UID, before job.Instant, limit int) ([]job.Slot, error)
	// Slots lists slots of all jobs of a namespace, newest first.
	Slots(ctx context.Context, p SlotsPage) (slots []SlotOf, next SlotCursor, err error)
	// CountSlots counts the slots of a namespace by state: those that were due since an
	// instant, and of the older ones those that are dead or stand in the backlog.
	CountSlots(ctx context.Context, namespace string, since job.Instant) (SlotCounts, error)
	// Attempts lists the attempts that did not end their slot, oldest first.
	Attempts(ctx context.Context, id shard.ID, key job.SlotKey) ([]job.Attempt, error)
	// RetainedFrom returns the instant from which a shard's slots are complete.
	RetainedFrom(ctx context.Context, id shard.ID) (job.Instant, error)
	// GapsOf lists the open gaps of a shard.
	GapsOf(ctx context.Context, id shard.ID) ([]Gap, error)
	// DeadLetters lists dead letters by shard and key.
	DeadLetters(ctx context.Context, p DeadLettersPage) (letters []DeadLetterOf, next DeadCursor, err error)
	// DeadLetterGroups counts the dead letters of a namespace by what they have in
	// common, the largest group first.
	DeadLetterGroups(ctx context.Context, namespace string, limit int) ([]DeadLetterGroup, error)
	// Skips lists the skips of a job that end at an instant or later, the oldest first.
	Skips(ctx context.Context, id shard.ID, uid job.UID, from job.Instant, limit int) ([]Skip, error)
	// Events lists the newest events of a shard, newest first.
	Events(ctx context.Context, id shard.ID, limit int) ([]Event, error)
}

// JobFilter says which jobs are meant. What is empty matches all.
type JobFilter struct {
	Handler string
	Labels  map[string]string // all of them
	Kinds   []job.Kind
}

// Match reports whether j is meant.
func (f *JobFilter) Match(j *job.Job) bool {
	if f.Handler != "" && f.Handler != j.Handler || !among(f.Kinds, j.Schedule.Kind) {
		return false
	}
	for key, value := range f.Labels {
		if have, ok := j.Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// JobsPage asks for jobs in the order of their names.
type JobsPage struct {
	Namespace string
	ShowEnded bool
	Filter    JobFilter
	After     JobCursor // exclusive
	Limit     int
}

// JobCursor is a place in the order of the jobs of a namespace.
type JobCursor struct {
	Name string
	UID  job.UID
}

// SlotFilter says which slots are meant. What is empty matches all.
type SlotFilter struct {
	Job         JobFilter
	States      []job.State
	Triggers    []job.Trigger
	Outcomes    []job.Outcome
	From, Until job.Instant   // fire times: from, and before
	MinLateness time.Duration // started at least so much after the fire time
	ErrorText   string        // in the error's code or text, in any case of letters
}

// Match reports whether s is meant.
func (f *SlotFilter) Match(s *SlotOf) bool {
	slot := &s.Slot
	fire := slot.Key.FireTime
	if f.From != 0 && fire < f.From || f.Until != 0 && fire >= f.Until {
		return false
	}
	if !among(f.States, slot.State) || !among(f.Triggers, slot.Trigger) || !among(f.Outcomes, slot.Outcome) || !f.Job.Match(&s.Job) {
		return false
	}
	if f.MinLateness != 0 && (slot.StartedAt == 0 || slot.StartedAt.Sub(fire) < f.MinLateness) {
		return false
	}
	return f.ErrorText == "" || strings.Contains(strings.ToLower(slot.ErrorCode+" "+slot.ErrorText), strings.ToLower(f.ErrorText))
}

func among[T comparable](allowed []T, x T) bool {
	for _, a := range allowed {
		if a == x {
			return true
		}
	}
	return len(allowed) == 0
}

// SlotsPage asks for slots, newest first.
type SlotsPage struct {
	Namespace string
	Filter    SlotFilter
	Before    SlotCursor // exclusive; zero: from the newest
	Limit     int
}

// SlotCursor is a place in the order of all slots: fire time, then shard, then
// uid.
type SlotCursor struct {
	Key   job.SlotKey
	Shard shard.ID
}

// SlotCounts says how many slots there are of each state.
type SlotCounts struct {
	ByState map[job.State]int64
	// Since is from which fire time on all slots were counted: later than asked for if
	// there are too many. Open ones of the minutes before it may be missing.
	Since job.Instant
}

// DeadLettersPage asks for dead letters.
type DeadLettersPage struct {
	Namespace string
	Filter    DeadLetterFilter
	After     DeadCursor
	Limit     int
}

// DeadLetterFilter says which dead letters are meant. What is empty matches all.
type DeadLetterFilter struct {
	Handler     string
	UID         job.UID // of the job
	ErrorCode   string
	Fingerprint string
	Since       job.Instant // died at it or later
	Before      job.Instant // died before it
}

// Match reports whether d is meant.
func (f *DeadLetterFilter) Match(d *DeadLetter) bool {
	return (f.Handler == "" || f.Handler == d.Handler) && (f.UID.IsZero() || f.UID == d.Key.UID) &&
		(f.ErrorCode == "" || f.ErrorCode == d.ErrorCode) && (f.Fingerprint == "" || f.Fingerprint == d.Fingerprint) &&
		d.At >= f.Since && (f.Before == 0 || d.At < f.Before)
}

// DeadCursor is a place in the order of the dead letters: shard, then key.
type DeadCursor struct {
	Shard shard.ID
	Key   job.SlotKey
}

// DeadLetterOf is a dead letter with its shard.
type DeadLetterOf struct {
	Shard shard.ID
	DeadLetter
}

// DeadLetterGroup is how many dead letters have a handler and a fingerprint in
// common.
type DeadLetterGroup struct {
	Handler       string
	Fingerprint   string
	ErrorCode     string
	Sample        string // the beginning of one of their errors
	Count         int64
	First, Latest job.Instant // when they died
}
