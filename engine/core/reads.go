package core

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// ReadKind says what a Read asks for.
type ReadKind int8

// The kinds.
const (
	ReadOnce    ReadKind = iota + 1 // jobs of one fire time, for the window; answered by OnceLoaded
	ReadGapOnce                     // the same for a gap; answered by GapOnceLoaded
	ReadWaiting                     // the backlog; answered by WaitingLoaded
	ReadInbox                       // the inbox; answered by InboxLoaded
	ReadSlot                        // one slot with its job; answered by SlotLoaded
)

// Read is what a shard needs from the database. It is read after every earlier
// batch has ended, under the shard's proof.
type Read struct {
	Kind     ReadKind
	After    job.SlotKey // ReadOnce, ReadGapOnce
	Until    job.Instant
	Gap      store.GapKey // ReadGapOnce
	Handler  string       // ReadWaiting, of a handler and priority
	Priority int32
	From     store.BacklogKey
	UID      job.UID     // ReadWaiting, of one job
	Key      job.SlotKey // ReadSlot
	Limit    int
}

// readState is what is being read.
type readState struct {
	once               bool
	inbox, inboxWanted bool
	results            map[job.SlotKey][]Result // wait for their slot's row
	asked              map[job.SlotKey]bool
	ended              *job.UID // whose waiting slots are being cancelled
	endedJobs          []job.UID
}

// Reads returns what the shard wants to read now. Every read is answered by one
// event, or the shard is thrown away. It returns nothing while a batch is under
// way: a read must see it.
func (s *Shard) Reads() []Read {
	if s.inflight != nil || !s.opened {
		return nil
	}
	var reads []Read
	if !s.reads.once && s.wantsOnce() {
		s.reads.once = true
		s.once.issued = s.now.Add(s.cfg.OnceWindow)
		reads = append(reads, Read{Kind: ReadOnce, After: s.once.to, Until: s.once.issued, Limit: s.cfg.PageLimit * 10})
	}
	if !s.reads.inbox && s.reads.inboxWanted {
		s.reads.inbox, s.reads.inboxWanted = true, false
		reads = append(reads, Read{Kind: ReadInbox, Limit: s.cfg.PageLimit})
	}
	reads = append(reads, s.gapReads()...)
	for handler, q := range s.queues {
		for p := range q.waiting {
			if s.wantsWaiting(q, int32(p)) {
				q.waiting[p].reading = true
				reads = append(reads, Read{Kind: ReadWaiting, Handler: handler, Priority: int32(p), From: q.waiting[p].after, Limit: min(s.cfg.PageLimit, s.cfg.ReadyLimit/2)})
			}
		}
	}
	if s.reads.ended == nil && len(s.reads.endedJobs) > 0 {
		uid := s.reads.endedJobs[0]
		s.reads.endedJobs = s.reads.endedJobs[1:]
		s.reads.ended = &uid
		reads = append(reads, Read{Kind: ReadWaiting, UID: uid, Limit: s.cfg.PageLimit})
	}
	for key := range s.reads.results {
		if !s.reads.asked[key] {
			s.reads.asked[key] = true
			reads = append(reads, Read{Kind: ReadSlot, Key: key})
		}
	}
	return reads
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
	held := s.reads.results[e.Key]
	delete(s.reads.results, e.Key)
	delete(s.reads.asked, e.Key)
	for _, r := range held {
		s.resolveResult(r, e.Found)
	}
}
