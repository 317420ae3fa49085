package store

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// Store is all roles together: what an adapter's Open returns. Consumers ask for
// the roles that they need.
type Store interface {
	Shards
	Committer
	Loader
	Inbox
	Reader
	Catalog
	Calendars
	Auditor
	Clock
	// Close ends all work; calls that are under way fail.
	Close() error
}

// Clock tells the database's time, to hold others against.
type Clock interface {
	Now(ctx context.Context) (job.Instant, error)
}

// Claim asks for a shard. (Gen, Rev) orders rival owners: a claim that isn't
// later than the one in the database is refused.
type Claim struct {
	Shard shard.ID
	Node  string
	Gen   int64 // a configured number, raised when the coordinator's revisions restart
	Rev   int64 // the coordinator's revision of this ownership
}

// Later reports whether the claim is later than another one.
func (c Claim) Later(gen, rev int64) bool { return c.Gen > gen || c.Gen == gen && c.Rev > rev }

// Owned is what a take-over returns.
type Owned struct {
	Proof        shard.Proof
	Watermark    job.Instant
	OpenFrom     job.Instant
	RetainedFrom job.Instant // what was due before it may have been deleted; zero: nothing was
}

// Owner is who owns a shard, for those who decide who should.
type Owner struct {
	Shard     shard.ID
	Node      string // empty: nobody; the last owner has given it up
	Epoch     shard.Epoch
	Gen, Rev  int64 // of the newest claim
	Watermark job.Instant
}

// Shards decides who may write.
type Shards interface {
	// ClusterID returns what tells the cluster from every other one, and is made with it.
	ClusterID(ctx context.Context) (string, error)
	// InitShards makes the rows of a new cluster with count shards, and returns
	// how many the cluster has: what an earlier call decided stays.
	InitShards(ctx context.Context, count int) (int, error)
	// NextRevision returns a number that only ever grows, for a coordinator that
	// has no revisions of its own.
	NextRevision(ctx context.Context) (int64, error)
	// TakeOver makes the claimant the owner under a new epoch. It fails with
	// ErrSuperseded if another claim is at least as late. Repeating the claim that
	// stands answers the same epoch.
	TakeOver(ctx context.Context, c Claim) (Owned, error)
	// Reload raises the epoch of a shard that the caller owns: whatever may still
	// be in flight under the old one is refused from then on.
	Reload(ctx context.Context, p shard.Proof) (Owned, error)
	// Renew puts a later claim of the owner in the place of the one under which it took
	// the shard. The epoch stays. It fails with a *FencedError if the epoch is not the
	// proof's or the node isn't the owner's, and with ErrSuperseded if the claim isn't later.
	// Repeating it is harmless.
	Renew(ctx context.Context, p shard.Proof, c Claim) error
	// Owners lists the owners of all shards, in order.
	Owners(ctx context.Context) ([]Owner, error)
}

// Committer writes what the shards of one node decided.
type Committer interface {
	// Commit writes a batch in one transaction. See the package comment for what
	// it promises and how it fails. The shards of b must be in ascending order.
	Commit(ctx context.Context, b Batch) (Outcome, error)
}

// MaxBatchRows bounds the rows of one batch, so that a take-over never waits
// long behind a commit.
const MaxBatchRows = 2000

// Batch is one group commit: the rows of several shards.
type Batch struct {
	Now job.Instant // of the writer's clock: one instant for all rows
	// Try grows whenever the writer sends a batch again without knowing what became of it, which
	// Repeat says. Once a repeat is written, what was sent of its shards with a lower Try is refused
	// like a batch of an older epoch: it may be under way still, long after its writer gave it up,
	// and undo what was written since. Try begins anew with each epoch.
	Try    int64
	Repeat bool
	Shards []ShardBatch
}

// ShardBatch is the part of a batch that belongs to one shard. The lists are
// applied in the order of the fields. An attempt is put only if its slot is there, and a row of the
// backlog or of the dead letters only if its slot then stands as the row says, in its state and (in the
// backlog) with its trigger and the instant from which it may run: one whose slot
// was not written leaves nothing behind.
type ShardBatch struct {
	Proof        shard.Proof
	Watermark    job.Instant // zero: unchanged
	OpenFrom     job.Instant // zero: unchanged
	RetainedFrom job.Instant // zero: unchanged; raised before anything is pruned

	Creates     []Create
	Ends        []JobEnd
	Quarantines []JobQuarantine
	Requests    []Request
	Slots       []job.Slot   // to insert
	Updates     []SlotUpdate // to compare and set
	Attempts    []SlotAttempt
	Lates       []LateResult
	BacklogDels []BacklogKey
	BacklogPuts []BacklogRow
	DeadPuts    []DeadLetter
	DeadDels    []job.SlotKey
	GapPuts     []Gap
	GapMoves    []GapMove
	GapChanges  []GapChange
	Skips       []Skip
	InboxDels   []job.UID
	Events      []Event

	SlotPrunes []SlotPrune
	JobPrunes  []job.UID // of jobs that have ended
	Old        Old

	// GiveUp is the end of the ownership: nobody owns the shard once the batch is
	// committed, and its epoch is one higher, which fences the writer itself. The next
	// owner's claim must be later than the writer's, as any other.
	GiveUp bool
}

// Rows returns how many rows s writes, for the bound of a batch.
func (s *ShardBatch) Rows() int {
	n := len(s.Ends) + len(s.Quarantines) + len(s.Requests) + len(s.Slots) + len(s.Updates) +
		len(s.Attempts) + len(s.Lates) + len(s.BacklogDels) + len(s.BacklogPuts) + len(s.DeadPuts) + len(s.DeadDels) +
		len(s.GapPuts) + len(s.GapMoves) + len(s.GapChanges) + len(s.Skips) + len(s.InboxDels) + len(s.Events) + len(s.SlotPrunes) + len(s.JobPrunes) + s.Old.rows()
	for i := range s.Creates {
		n += 1 + len(s.Creates[i].Slots)
	}
	return n
}

// Without returns s without the rows of one job, for a job whose rows the
// database can't store. Its events stay.
func (s ShardBatch) Without(uid job.UID) ShardBatch {
	s.Creates = reject(s.Creates, func(c Create) bool { return c.Job.UID == uid })
	s.Ends = reject(s.Ends, func(e JobEnd) bool { return e.UID == uid })
	s.Quarantines = reject(s.Quarantines, func(q JobQuarantine) bool { return q.UID == uid })
	s.Requests = reject(s.Requests, func(r Request) bool { return r.Key.UID == uid })
	s.Slots = reject(s.Slots, func(r job.Slot) bool { return r.Key.UID == uid })
	s.Updates = reject(s.Updates, func(u SlotUpdate) bool { return u.Slot.Key.UID == uid })
	s.Attempts = reject(s.Attempts, func(a SlotAttempt) bool { return a.Key.UID == uid })
	s.Lates = reject(s.Lates, func(l LateResult) bool { return l.Key.UID == uid })
	s.BacklogDels = reject(s.BacklogDels, func(k BacklogKey) bool { return k.Slot.UID == uid })
	s.BacklogPuts = reject(s.BacklogPuts, func(r BacklogRow) bool { return r.Key.Slot.UID == uid })
	s.DeadPuts = reject(s.DeadPuts, func(d DeadLetter) bool { return d.Key.UID == uid })
	s.DeadDels = reject(s.DeadDels, func(k job.SlotKey) bool { return k.UID == uid })
	s.Skips = reject(s.Skips, func(k Skip) bool { return k.UID == uid })
	return s
}

// Jobs lists the jobs that have rows in s, some of them more than once.
func (s *ShardBatch) Jobs() []job.UID {
	var uids []job.UID
	add := func(uid job.UID) { uids = append(uids, uid) }
	for i := range s.Creates {
		add(s.Creates[i].Job.UID)
	}
	for _, r := range s.Ends {
		add(r.UID)
	}
	for _, r := range s.Quarantines {
		add(r.UID)
	}
	for i := range s.Requests {
		add(s.Requests[i].Key.UID)
	}
	for i := range s.Slots {
		add(s.Slots[i].Key.UID)
	}
	for i := range s.Updates {
		add(s.Updates[i].Slot.Key.UID)
	}
	for i := range s.Attempts {
		add(s.Attempts[i].Key.UID)
	}
	for _, r := range s.Lates {
		add(r.Key.UID)
	}
	for _, r := range s.BacklogPuts {
		add(r.Key.Slot.UID)
	}
	for _, r := range s.DeadPuts {
		add(r.Key.UID)
	}
	for _, r := range s.Skips {
		add(r.UID)
	}
	return uids
}

func reject[T any](rows []T, match func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(rows), match)
}

// Create is a new job with the slots that are made with it. The slots are
// written if and only if the job is.
type Create struct {
	Job   job.Job
	Slots []job.Slot
}

// JobEnd ends a live job.
type JobEnd struct {
	UID      job.UID
	EndedAt  job.Instant
	ByItself bool // it had fired for the last time, long ago
}

// JobQuarantine sets a job aside.
type JobQuarantine struct {
	UID    job.UID
	Reason string
}

// Request remembers the effect of a request id that made no job: a trigger.
type Request struct {
	Namespace string
	RequestID string
	Hash      string
	Key       job.SlotKey
}

// SlotPrune deletes a slot that has ended, with its attempts and its dead letter, if
// it stands as the writer read it.
type SlotPrune struct {
	Key     job.SlotKey
	State   job.State
	Attempt int32
}

// Old deletes the oldest requests, events and skips, MaxOldRows of each at most: those
// from an instant on, the oldest that there is, and before another one.
type Old struct {
	RequestsFrom, RequestsBefore job.Instant // RequestsBefore is zero: none
	EventsFrom, EventsBefore     job.Instant // EventsBefore is zero: none
	SkipsFrom, SkipsBefore       job.Instant // by when they were made; SkipsBefore is zero: none
}

// MaxOldRows bounds the rows of each kind that one batch deletes by their age.
const MaxOldRows = 250

func (o Old) rows() int {
	n := 0
	if o.RequestsBefore != 0 {
		n += MaxOldRows
	}
	if o.EventsBefore != 0 {
		n += MaxOldRows
	}
	if o.SkipsBefore != 0 {
		n += MaxOldRows
	}
	return n
}

// SlotUpdate replaces a slot's row if it stands as From says.
type SlotUpdate struct {
	Slot        job.Slot
	FromState   job.State
	FromAttempt int32
}

// SlotAttempt is an attempt that did not end its slot.
type SlotAttempt struct {
	Key     job.SlotKey
	Attempt job.Attempt
}

// LateResult is what a worker reported of an attempt that was over.
type LateResult struct {
	Key     job.SlotKey
	Attempt int32
	Text    string
}

// BacklogKey orders the open slots that are not in memory, and those that are
// too old to be found by a scan. The claimed ones come first, since all of them
// must be loaded.
type BacklogKey struct {
	Waiting  bool // not claimed
	Handler  string
	Priority int32
	Fairness string      // parts the slots that wait for each other from the others; empty: those that wait for a worker
	Rank     job.Instant // of slots that are equal so far, the lower one comes first
	Slot     job.SlotKey
}

// BacklogRow is one row of the backlog.
type BacklogRow struct {
	Key     BacklogKey
	WakeAt  job.Instant // the earlier of not-before and deadline
	CheckAt job.Instant // when the slot expires or misses an objective, if it waits that long; zero: never

	// Of the slot, for the check; they aren't stored.
	ReadyAt job.Instant // its not-before, or else its created-at
	Trigger job.Trigger
}

// DeadLetter is a slot whose retries are exhausted.
type DeadLetter struct {
	Key         job.SlotKey
	Namespace   string
	Handler     string
	At          job.Instant
	ErrorCode   string
	Fingerprint string // what the errors of one cause have in common
	Sample      string // the error's beginning
}

// Gap is a range of fire times, (From, To], whose slots are still to be made, of
// one job or of all jobs of the shard. Everything up to the cursor is made.
type Gap struct {
	Key     GapKey
	From    job.Instant
	Cursor  job.SlotKey
	MadeAt  job.Instant
	Options GapOptions
}

// GapOptions say how a gap is filled.
type GapOptions struct {
	// RequestedAt is when a person asked for a backfill of a job; zero: it is of a downtime.
	RequestedAt job.Instant `json:"requested_at,omitempty"`
	// Rate is how many slots are made each second at most; zero: as many as there is room
	// for.
	Rate int32 `json:"rate,omitempty"`
	// CatchUp replaces the catch-up policies of jobs, by their uids.
	CatchUp map[string]job.CatchUp `json:"catch_up,omitempty"`
}

// GapKey names a gap within its shard.
type GapKey struct {
	To  job.Instant
	UID job.UID // zero: all jobs
}

// GapMove moves a gap's cursor if it stands at From, or closes the gap.
type GapMove struct {
	Key      GapKey
	From, To job.SlotKey
	Closed   bool
}

// Skip records the occurrences of a job, from one to another, that its policies left out
// together: none of them gets a slot. Those that had one before keep it: what an owner made
// beyond the watermark before it died isn't known to the next one. A job has one at most that
// ends at an instant.
type Skip struct {
	UID      job.UID
	From, To job.Instant // the first and the last of them
	Count    int64
	Code     string // why, for programs
	MadeAt   job.Instant
}

// GapChange replaces the options of a gap.
type GapChange struct {
	Key     GapKey
	Options GapOptions
}

// EventKind says what an event tells.
type EventKind string

// The kinds of events.
const (
	EventShardTaken      EventKind = "shard_taken"
	EventGapClosed       EventKind = "gap_closed"
	EventDeadLetter      EventKind = "dead_letter"
	EventLateResult      EventKind = "late_result_refused"
	EventJobQuarantined  EventKind = "job_quarantined"
	EventJobDeleted      EventKind = "job_deleted"
	EventSlotCancelled   EventKind = "slot_cancelled"
	EventSlotRedriven    EventKind = "slot_redriven"
	EventSlotDiscarded   EventKind = "slot_discarded"
	EventAttemptLost     EventKind = "attempt_lost"
	EventDocumentChanged EventKind = "document_changed"
	EventCancelIgnored   EventKind = "cancel_ignored"
	EventGapChanged      EventKind = "gap_changed"
	EventBackfill        EventKind = "backfill_requested"
	EventBackfillEnded   EventKind = "backfill_cancelled"
	EventHandlerStalled  EventKind = "handler_stalled"
	EventHandlerUnserved EventKind = "handler_unserved"
	EventRunTooLong      EventKind = "run_too_long"
	EventEscalated       EventKind = "escalated"
	EventObjectiveMissed EventKind = "objective_missed"
)

// Event is something that an operator may want to know. Events are appended and
// never changed; none is written for an execution that went well. (shard, epoch,
// Seq) names an event, so that a batch that is sent again doubles none.
type Event struct {
	Seq    int64
	At     job.Instant
	Kind   EventKind
	Job    job.UID     // zero: none
	Fire   job.Instant // zero: none
	Detail string
}

// Outcome says for each row of a committed batch that was not written what stood
// in its way. A row that is not mentioned was written, by this batch or by an
// earlier send of it.
type Outcome struct {
	Shards     []ShardOutcome // in the order of the batch
	Statements int            // that the database was sent for it, BEGIN and COMMIT apart
}

// ShardOutcome is the part of an outcome that belongs to one shard.
type ShardOutcome struct {
	Creates  map[job.UID]job.Job      // the job that has the name or the request id
	Slots    map[job.SlotKey]job.Slot // the row as it stands; StateNone: there is none
	Requests map[string]Request       // by namespace + "/" + request id
	Gaps     []GapKey                 // moved by somebody else
}

// SlotOf is a slot with the job that it belongs to.
type SlotOf struct {
	Slot job.Slot
	Job  job.Job
}

// Handler is an entry of the catalog.
type Handler struct {
	Name       string
	CreatedAt  job.Instant
	LastSeenAt job.Instant
}

// Loaded is what a shard's owner needs before it can go on.
type Loaded struct {
	// Recurring are the live recurring jobs, and those that ended after an open gap's
	// cursor, without what their owner doesn't need: labels, request, and when they were made.
	Recurring []job.Job
	Open      []SlotOf // not final, from open-from on
	Claimed   []SlotOf // RUNNING slots of the backlog
	Gaps      []Gap
	Backlog   []BacklogCount
	CheckAt   job.Instant // the smallest of the waiting slots of the backlog; zero: none has one
}

// BacklogCount says how much of a handler waits in the backlog.
type BacklogCount struct {
	Handler  string
	Priority int32
	Fairness string
	Rows     int
	WakeAt   job.Instant // the smallest
}

// BacklogQuery asks for waiting slots of the backlog in its order: of one handler,
// priority and fairness key after a place in that order; or all of one job; or those that
// have a CheckAt, the earliest first.
type BacklogQuery struct {
	Handler  string
	Priority int32
	Fairness string
	After    BacklogKey
	UID      job.UID // if not zero, all of this job instead
	Checks   bool    // those that have a CheckAt instead
	Limit    int
}

// BacklogSlot is a waiting slot with its place in the backlog.
type BacklogSlot struct {
	Row BacklogRow
	SlotOf
}

// PruneQuery asks for the slots after a place in the order of keys whose fire times
// lie before an instant.
type PruneQuery struct {
	After job.SlotKey
	Until job.Instant
	Limit int
}

// PruneSlot is what must be known of a slot to decide whether it is kept.
type PruneSlot struct {
	SlotPrune
	FinishedAt job.Instant
	Retention  time.Duration // of its job; zero: none of its own
}

// EndedQuery asks for jobs that ended after a place in the order (ended at, uid),
// and before an instant.
type EndedQuery struct {
	AfterTime job.Instant
	AfterUID  job.UID
	Before    job.Instant
	Limit     int
}

// EndedJob is a job with the instant by which it is ordered.
type EndedJob struct {
	UID job.UID
	At  job.Instant
}

// DoneJob is a job that fires once.
type DoneJob struct {
	EndedJob
	Done bool
}

// Loader reads what an owner needs. Every read first sees the owner's epoch and
// fails with a *FencedError otherwise.
type Loader interface {
	// Load reads a shard after its take-over. The recurring jobs overwrite what room holds,
	// as far as that reaches; it may be nil.
	Load(ctx context.Context, p shard.Proof, room []job.Job) (Loaded, error)
	// OnceJobs reads jobs of one fire time, in the order (fire time, uid), after a
	// place in that order and with fire times up to until: those that live, and
	// those that ended at their fire time or later, which may still owe a slot.
	OnceJobs(ctx context.Context, p shard.Proof, after job.SlotKey, until job.Instant, limit int) ([]job.Job, error)
	// Waiting reads waiting slots of the backlog.
	Waiting(ctx context.Context, p shard.Proof, q BacklogQuery) ([]BacklogSlot, error)
	// InboxShards lists the shards whose inbox isn't empty, in order.
	InboxShards(ctx context.Context) ([]shard.ID, error)
	// SlotOf reads one slot with its job, or returns ErrNotFound.
	SlotOf(ctx context.Context, p shard.Proof, key job.SlotKey) (SlotOf, error)
	// Drain reads rows of the shard's inbox.
	Drain(ctx context.Context, p shard.Proof, limit int) ([]job.Job, error)
	// OldSlots reads slots in the order of their keys, for retention.
	OldSlots(ctx context.Context, p shard.Proof, q PruneQuery) ([]PruneSlot, error)
	// EndedJobs reads jobs that ended, in the order of their ends, for retention.
	EndedJobs(ctx context.Context, p shard.Proof, q EndedQuery) ([]EndedJob, error)
	// Oldest finds the oldest request, event and skip that are not older than
	// those of from; zero: there is none. The other fields stay empty.
	Oldest(ctx context.Context, p shard.Proof, from Old) (Old, error)
	// SpentJob reports whether a recurring job, which fired for the last time at last, may
	// end by itself, as far as its owner can't know: none of its slots is dead, and neither
	// the last one nor one that a user asked for is open or has finished at an instant or
	// later. Other open slots are in the owner's memory, or in the backlog.
	SpentJob(ctx context.Context, p shard.Proof, uid job.UID, last, before job.Instant) (bool, error)
	// DoneJobs reads jobs that fire once, that live, that were not set aside, and whose
	// instant (their fire time, or their creation if they are immediate) lies in the
	// query's range. Done are those that have ended by themselves: none of their slots
	// is open or dead, or has finished at the end of the range or later.
	DoneJobs(ctx context.Context, p shard.Proof, q EndedQuery) ([]DoneJob, error)
}

// Inbox takes jobs without being their shards' owner.
type Inbox interface {
	// Submit stores all jobs with an inbox row each, or none. It sets their
	// CreatedAt and EffectiveFrom to the database's time. It returns for each job nil, or the job that has its
	// name or request id; if any is not nil and differs from what was asked for
	// (another hash or no request id), nothing was written and stored is false.
	Submit(ctx context.Context, jobs []job.Job) (existing []*job.Job, stored bool, err error)
}

// Catalog keeps the handlers that workers registered.
type Catalog interface {
	// RegisterHandlers notes that handlers are served.
	RegisterHandlers(ctx context.Context, names []string, now job.Instant) error
	// Handler reads one entry.
	Handler(ctx context.Context, name string) (Handler, error)
	// Handlers lists the catalog by name.
	Handlers(ctx context.Context, after string, limit int) ([]Handler, error)
}
