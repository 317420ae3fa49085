package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// ReadKind says what a Read asks for.
type ReadKind int8

// The kinds.
const (
	ReadOnce      ReadKind = iota + 1 // jobs of one fire time, for the window; answered by OnceLoaded
	ReadGapOnce                       // the same for a gap; answered by GapOnceLoaded
	ReadWaiting                       // the backlog; answered by WaitingLoaded
	ReadInbox                         // the inbox; answered by InboxLoaded
	ReadSlot                          // one slot with its job; answered by SlotLoaded
	ReadOldSlots                      // slots below the line of retention; answered by OldSlotsLoaded
	ReadEndedJobs                     // jobs that ended long ago; answered by EndedJobsLoaded
	ReadDoneJobs                      // jobs that ended by themselves; answered by DoneJobsLoaded
	ReadOldest                        // the oldest request and event; answered by OldestLoaded
	ReadSpent                         // whether nothing keeps a recurring job from ending; answered by SpentLoaded
)

// Retains reports whether a read only looks for what is old.
func (k ReadKind) Retains() bool { return k >= ReadOldSlots }

// Read is what a shard needs from the database. It is read after every earlier
// batch has ended, under the shard's proof.
type Read struct {
	Kind     ReadKind
	After    job.SlotKey // ReadOnce, ReadGapOnce, ReadOldSlots; ReadSpent: the last fire time
	Until    job.Instant
	Gap      store.GapKey // ReadGapOnce
	Handler  string       // ReadWaiting, of a handler and priority
	Priority int32
	Fairness string
	From     store.BacklogKey
	Checks   bool        // ReadWaiting, of the slots that are to be checked
	UID      job.UID     // ReadWaiting, of one job; ReadSpent
	Key      job.SlotKey // ReadSlot
	Ended    store.EndedQuery
	Oldest   store.Old
	Limit    int
}

// readState is what is being read.
type readState struct {
	once               bool
	inbox, inboxWanted bool
	results            map[job.SlotKey][]Result // wait for their slot's row
	asked              map[job.SlotKey]bool
	cancelling         *job.UID // whose waiting slots are being cancelled
	endedJobs          []job.UID
	cancelsUnwritten   bool // the last page of them would be read again
	// ended are the jobs that ended since endedFrom, endedBefore those of the time
	// before: what comes back from a read may not know of it.
	ended, endedBefore map[job.UID]job.Instant
	endedFrom          job.Instant
	triggered          map[job.UID]bool // jobs of which slots were made since the reads under way were asked for
	open               int              // reads that aren't answered yet
}

// Reads returns what the shard wants to read now. Every read is answered by one
// event, or the shard is thrown away. It returns nothing while a batch is under way:
// a read must see every batch that was written before it was asked for. Those that
// come later it may see or not.
func (s *Shard) Reads() []Read {
	if s.inflight != nil || !s.Live() {
		return nil
	}
	if s.reads.open == 0 && s.now.Sub(s.reads.endedFrom) > endedMemory {
		// Whatever is read or asked from now on knows of those before.
		s.reads.endedBefore, s.reads.ended, s.reads.endedFrom = s.reads.ended, nil, s.now
	}
	var reads []Read
	// What was adopted and not written yet is in the inbox still, which a read of the window passes
	// over; a job that came too early for the window would be lost to both.
	if !s.reads.once && s.wantsOnce() && len(s.pending.adopted) == 0 {
		s.reads.once = true
		s.once.issued = s.now.Add(s.cfg.OnceWindow)
		reads = append(reads, Read{Kind: ReadOnce, After: s.once.to, Until: s.once.issued, Limit: s.cfg.PageLimit * 10})
	}
	// What was adopted and not written yet would be read again, and again.
	if !s.reads.inbox && s.reads.inboxWanted && len(s.pending.adopted) == 0 {
		s.reads.inbox, s.reads.inboxWanted = true, false
		reads = append(reads, Read{Kind: ReadInbox, Limit: s.cfg.PageLimit})
	}
	reads = append(reads, s.gapReads()...)
	reads = append(reads, s.waitingReads()...)
	reads = append(reads, s.laneReads()...)
	reads = append(reads, s.checkReads()...)
	if s.reads.cancelling == nil && !s.reads.cancelsUnwritten && len(s.reads.endedJobs) > 0 {
		uid := s.reads.endedJobs[0]
		s.reads.endedJobs = s.reads.endedJobs[1:]
		s.reads.cancelling = &uid
		reads = append(reads, Read{Kind: ReadWaiting, UID: uid, Limit: s.cfg.PageLimit})
	}
	if len(s.reads.results) > 0 { // this runs at every turn of the loop: the iterator alone would cost
		for _, key := range slices.SortedFunc(maps.Keys(s.reads.results), compareKeys) {
			if !s.reads.asked[key] {
				s.reads.asked[key] = true
				reads = append(reads, Read{Kind: ReadSlot, Key: key})
			}
		}
	}
	if s.reads.open == 0 {
		s.reads.triggered = nil
	}
	reads = append(reads, s.retainReads()...)
	s.reads.open += len(reads)
	return reads
}

// waitingReads returns the reads of the backlog, in an order that doesn't depend on the
// map's.
func (s *Shard) waitingReads() (reads []Read) {
	for handler, q := range s.queues {
		for n, p := range q.tiers() {
			if s.wantsWaiting(p) {
				p.read()
				reads = append(reads, Read{Kind: ReadWaiting, Handler: handler, Priority: n, From: p.after, Limit: min(s.cfg.PageLimit, s.cfg.ReadyLimit/2)})
			}
		}
	}
	slices.SortFunc(reads, func(a, b Read) int {
		return cmp.Or(cmp.Compare(a.Handler, b.Handler), cmp.Compare(a.Priority, b.Priority))
	})
	return reads
}

// endedMemory is longer than any call may take: it may have read its job before
// that ended.
const endedMemory = time.Minute

// noteEnd remembers that a job ended, for what is being read.
func (s *Shard) noteEnd(uid job.UID, at job.Instant) {
	if s.reads.ended == nil {
		s.reads.ended = map[job.UID]job.Instant{}
	}
	s.reads.ended[uid] = at
	for _, g := range s.gaps {
		for i := range g.page {
			s.patchEnd(&g.page[i])
		}
	}
}

// endOf returns when a job ended that ended lately, or 0.
func (s *Shard) endOf(uid job.UID) job.Instant {
	if at := s.reads.ended[uid]; at != 0 {
		return at
	}
	return s.reads.endedBefore[uid]
}

// patchEnd tells a job that was read what the database may not have known.
func (s *Shard) patchEnd(j *job.Job) {
	if at := s.endOf(j.UID); at != 0 && j.EndedAt == 0 {
		j.EndedAt = at
	}
}

// maxHeldResults bounds the results that wait for a row of the database. Beyond
// it they are dropped: their worker sends them again.
const maxHeldResults = 10_000

// holdResult keeps a result until the database's row of its slot is known.
func (s *Shard) holdResult(r Result) {
	if s.reads.results == nil {
		s.reads.results, s.reads.asked = map[job.SlotKey][]Result{}, map[job.SlotKey]bool{}
	}
	if len(s.reads.results) < maxHeldResults {
		s.reads.results[r.Token.Key] = append(s.reads.results[r.Token.Key], r)
	}
}

// SlotLoaded answers a read of one slot. Found is nil if there is none.
type SlotLoaded struct {
	Key   job.SlotKey
	Found *store.SlotOf
}

func (e SlotLoaded) apply(s *Shard) {
	s.reads.open--
	if e.Found != nil {
		s.patchEnd(&e.Found.Job)
	}
	held := s.reads.results[e.Key]
	delete(s.reads.results, e.Key)
	delete(s.reads.asked, e.Key)
	for _, r := range held {
		s.resolveResult(r, e.Found)
	}
}
