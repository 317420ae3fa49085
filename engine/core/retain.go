package core

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// retention deletes what need not be kept any longer, and ends the jobs that have
// ended by themselves, so that their names are free. Five walks do it, one read at a
// time, in turns: none of them holds up another one, or live work.
//
//	slots    over the slots that were due before a line
//	ended    over the jobs that ended long ago; follows a full walk over the slots
//	done     over the jobs that fire once and have
//	oldest   over requests and events, the oldest first
//	spent    over the recurring jobs that have no further fire time
//
// The line is old enough, and older than whatever a gap may still make. Final slots go
// by when they finished, not by when they were due: what was made up for late is kept
// as long as everything else. A full walk begins at the oldest slot, and so knows which
// jobs still have some; those between go on where the last one ended.
type retention struct {
	walks   [5]walk
	turn    int
	stepped job.Instant // when it was last read for
	reading bool
	full    job.Instant // when the next walk over the slots is a full one

	line    job.Instant
	after   job.SlotKey
	isFull  bool                 // the walk over the slots that is under way, or was the last
	kept    map[job.UID]struct{} // jobs of slots that stay; nil if they are too many, or not known
	holds   map[job.UID]struct{} // what the last full walk kept, for the walk over the ended jobs
	held    job.Instant          // the line of that walk
	ended   store.EndedQuery
	done    store.EndedQuery
	oldest  store.Old
	spent   []job.UID // jobs that have no further fire time
	asking  []job.UID // those of them that the walk is still to ask about
	expired prunes
}

// walk is whether and when one of the five goes on.
type walk struct {
	kind   ReadKind
	active bool
	next   job.Instant // when it begins again
}

// The walks by their places.
const (
	walkSlots = iota
	walkEnded
	walkDone
	walkOldest
	walkSpent
)

// prunes wait for room in a batch.
type prunes struct {
	slots []store.SlotPrune
	jobs  []job.UID
	old   store.Old
}

func (x *prunes) empty() bool {
	return len(x.slots)+len(x.jobs) == 0 && x.old == (store.Old{})
}

const (
	// maxKept bounds what a full walk remembers. Beyond it, no job goes that hour.
	maxKept = 100_000
	// stepPause is the least time from one read to the next.
	stepPause = 200 * time.Millisecond
	// passSpread keeps the shards of a node from beginning all at once.
	passSpread = time.Second
)

// startRetention sets when the walks begin.
func (s *Shard) startRetention(retainedFrom job.Instant) {
	r := &s.retain
	r.line = retainedFrom
	first := s.now.Add(s.cfg.PassEvery + time.Duration(s.proof.Shard%60)*passSpread)
	r.full = first
	for i, kind := range []ReadKind{ReadOldSlots, ReadEndedJobs, ReadDoneJobs, ReadOldest, ReadSpent} {
		r.walks[i] = walk{kind: kind, next: first}
	}
	r.walks[walkEnded].next = job.MaxInstant // it follows a full walk over the slots
}

// settled is the instant before which nothing is owed any more.
func (s *Shard) settled() job.Instant {
	at := min(s.watermark, s.firedTo)
	for _, g := range s.gaps {
		at = min(at, g.Cursor.FireTime)
	}
	return at
}

// retainWake is when the retention wants to go on.
func (s *Shard) retainWake() job.Instant {
	r := &s.retain
	active := slices.ContainsFunc(r.walks[:], func(w walk) bool { return w.active })
	if !active || s.retainHeld() {
		return job.MaxInstant // what holds it up wakes the shard when it ends
	}
	return r.stepped.Add(stepPause)
}

// retainHeld reports whether the retention waits for something else.
func (s *Shard) retainHeld() bool {
	r := &s.retain
	inbox := s.reads.inbox || s.reads.inboxWanted || len(s.pending.adopted) > 0
	return r.reading || s.behind || inbox || s.inflight != nil || !r.expired.empty()
}

// retainReads asks for what the next walk looks at.
func (s *Shard) retainReads() []Read {
	r := &s.retain
	if s.retainHeld() || s.now.Sub(r.stepped) < stepPause {
		return nil
	}
	for i := range r.walks {
		if w := &r.walks[i]; !w.active && s.now >= w.next {
			s.beginWalk(i)
		}
	}
	for range r.walks {
		r.turn = (r.turn + 1) % len(r.walks)
		if r.walks[r.turn].active {
			r.reading, r.stepped = true, s.now
			return []Read{s.walkRead(r.turn)}
		}
	}
	return nil
}

// beginWalk sets where a walk begins. The line is raised, in the database too, before
// anything below it goes.
func (s *Shard) beginWalk(i int) {
	r := &s.retain
	r.walks[i].active, r.walks[i].next = true, s.now.Add(s.cfg.PassEvery)
	switch i {
	case walkSlots:
		r.after, r.isFull, r.kept = lastKeyOf(r.line), false, nil
		if s.now >= r.full {
			r.full = s.now.Add(s.cfg.FullPassEvery)
			r.after, r.isFull, r.kept, r.done = job.SlotKey{}, true, map[job.UID]struct{}{}, store.EndedQuery{}
		}
		if line := min(s.now.Add(-s.cfg.Retention), s.settled()); line > r.line {
			r.line = line
			s.pending.rows.RetainedFrom = line
		}
	case walkSpent:
		r.asking = s.spentFor(s.cfg.NameRetention)
		r.walks[i].active = len(r.asking) > 0
	case walkEnded:
		r.walks[i].next = job.MaxInstant
		// A slot that was triggered as its job ended may be due a little later than the end.
		r.ended = store.EndedQuery{Before: min(r.held, s.now.Add(-max(s.cfg.Retention, s.cfg.NameRetention))).Add(-time.Minute)}
	}
}

func (s *Shard) walkRead(i int) Read {
	r := &s.retain
	read := Read{Kind: r.walks[i].kind, Limit: s.cfg.PageLimit / 2}
	switch i {
	case walkSlots:
		read.After, read.Until = r.after, r.line
	case walkEnded:
		read.Ended = r.ended
	case walkDone:
		read.Ended = r.done
		read.Ended.Before = min(s.now.Add(-s.cfg.NameRetention), s.settled())
	case walkOldest:
		read.Oldest = r.oldest
	case walkSpent:
		read.UID, read.Until = r.asking[0], s.now.Add(-s.cfg.NameRetention)
		if j := s.jobs.get(read.UID); j != nil {
			read.After.FireTime, _ = s.lastFire(j)
		}
	}
	read.Ended.Limit = read.Limit
	return read
}

// walked ends a read; more says that its walk isn't over.
func (s *Shard) walked(i int, more bool) {
	s.reads.open--
	s.retain.reading = false
	s.retain.walks[i].active = more
}

// RetainFailed says that a read of the retention failed. It is repeated a minute later:
// nothing waits for it.
type RetainFailed struct{ Read Read }

func (e RetainFailed) apply(s *Shard) {
	for i, w := range s.retain.walks {
		if w.kind == e.Read.Kind {
			s.walked(i, true)
			s.retain.stepped = s.now.Add(s.cfg.PassEvery)
		}
	}
}

// OldSlotsLoaded answers a read of the slots below the line.
type OldSlotsLoaded struct {
	Read  Read
	Slots []store.PruneSlot
}

func (e OldSlotsLoaded) apply(s *Shard) {
	r := &s.retain
	s.walked(walkSlots, len(e.Slots) == e.Read.Limit)
	for _, slot := range e.Slots {
		r.after = slot.Key
		if s.outlived(slot) {
			r.expired.slots = append(r.expired.slots, slot.SlotPrune)
		} else if r.kept != nil {
			r.kept[slot.Key.UID] = struct{}{}
		}
	}
	if len(r.kept) > maxKept {
		r.kept = nil
	}
	if full := r.isFull && r.kept != nil; full && !r.walks[walkSlots].active && !r.walks[walkEnded].active {
		r.holds, r.held, r.kept, r.walks[walkEnded].next = r.kept, r.line, nil, s.now
	}
}

// outlived reports whether a slot need not be kept: it is final for long enough, and
// nobody works on it.
func (s *Shard) outlived(slot store.PruneSlot) bool {
	if s.slots[slot.Key] != nil || len(s.reads.results[slot.Key]) > 0 {
		return false
	}
	switch {
	case slot.State.Final():
		return slot.FinishedAt < s.now.Add(-max(s.cfg.Retention, slot.Retention))
	case slot.State == job.Dead:
		return slot.FinishedAt < s.now.Add(-max(s.cfg.DeadRetention, slot.Retention))
	}
	return false
}

// EndedJobsLoaded answers a read of the jobs that ended long ago.
type EndedJobsLoaded struct {
	Read Read
	Jobs []store.EndedJob
}

func (e EndedJobsLoaded) apply(s *Shard) {
	r := &s.retain
	s.walked(walkEnded, len(e.Jobs) == e.Read.Limit)
	for _, j := range e.Jobs {
		r.ended.AfterTime, r.ended.AfterUID = j.At, j.UID
		if _, kept := r.holds[j.UID]; !kept && s.jobs.get(j.UID) == nil {
			r.expired.jobs = append(r.expired.jobs, j.UID)
		}
	}
}

// DoneJobsLoaded answers a read of the jobs that fire once.
type DoneJobsLoaded struct {
	Read Read
	Jobs []store.DoneJob
}

func (e DoneJobsLoaded) apply(s *Shard) {
	r := &s.retain
	s.walked(walkDone, len(e.Jobs) == e.Read.Limit)
	for _, j := range e.Jobs {
		r.done.AfterTime, r.done.AfterUID = j.At, j.UID
		if !j.Done || s.jobs.get(j.UID) != nil || s.endOf(j.UID) != 0 || s.triggering(j.UID) {
			continue
		}
		end := max(s.firedTo, s.watermark)
		s.noteEnd(j.UID, end) // for a call that has read it as live
		s.pending.rows.Ends = append(s.pending.rows.Ends, store.JobEnd{UID: j.UID, EndedAt: end, ByItself: true})
	}
}

// spentFor lists the jobs whose last fire time passed a while ago and of which nothing
// is open in memory, and forgets those that aren't spent any more.
func (s *Shard) spentFor(while time.Duration) (old []job.UID) {
	s.retain.spent = slices.DeleteFunc(s.retain.spent, func(uid job.UID) bool {
		j := s.jobs.get(uid)
		if j == nil || !j.live || j.next != 0 {
			return true
		}
		if s.isSpent(j, while) {
			old = append(old, uid)
		}
		return false
	})
	return old
}

// isSpent reports whether the last fire time of a job that has no further one passed a
// while ago, and nothing of it is owed, open in memory, or about to be made. What of its
// handler waits in the backlog may be the job's: then it isn't asked for, but awaited.
func (s *Shard) isSpent(j *jobState, while time.Duration) bool {
	last, _ := s.lastFire(j)
	return last.Add(while) <= s.now && last < s.settled() && j.open == 0 && !j.held && !s.owes(j) && !s.triggering(j.uid) &&
		!s.queue(j.spec.handler).backlogged()
}

// lastFire returns the newest occurrence of a recurring job up to now; without one, the
// instant from which its schedule counts.
func (s *Shard) lastFire(j *jobState) (at job.Instant, ok bool) {
	sec, ok := j.plan().Prev(s.now.Seconds() + 1)
	if at = job.AtSecond(sec); !ok || at <= j.effectiveFrom {
		return j.effectiveFrom, false
	}
	return at, true
}

// SpentLoaded answers the question whether nothing keeps a job from ending.
type SpentLoaded struct {
	Read Read
	Done bool
}

func (e SpentLoaded) apply(s *Shard) {
	r := &s.retain
	r.asking = r.asking[1:]
	s.walked(walkSpent, len(r.asking) > 0)
	j := s.jobs.get(e.Read.UID)
	if !e.Done || j == nil || !j.live || j.next != 0 || !s.isSpent(j, s.cfg.NameRetention) {
		return
	}
	end := max(s.firedTo, s.watermark)
	s.noteEnd(j.uid, end)
	s.pending.rows.Ends = append(s.pending.rows.Ends, store.JobEnd{UID: j.uid, EndedAt: end, ByItself: true})
	s.endJob(j, end, "its job ended")
}

// triggering reports whether a slot of a job is about to be made, or was since the
// reads under way were asked for.
func (s *Shard) triggering(uid job.UID) bool {
	return s.reads.triggered[uid] || slices.ContainsFunc(s.pending.triggers, func(t *triggerState) bool { return t.event.Job.UID == uid })
}

// OldestLoaded answers a read of the oldest request and event.
type OldestLoaded struct {
	Read   Read
	Oldest store.Old
}

func (e OldestLoaded) apply(s *Shard) {
	old := e.Oldest
	s.retain.oldest = old
	old.RequestsBefore = before(old.RequestsFrom, s.now.Add(-max(s.cfg.Retention, s.cfg.NameRetention)))
	old.EventsBefore = before(old.EventsFrom, s.now.Add(-s.cfg.EventRetention))
	old.SkipsBefore = before(old.SkipsFrom, min(s.now.Add(-s.cfg.Retention), s.retain.line))
	more := old.RequestsBefore != 0 || old.EventsBefore != 0 || old.SkipsBefore != 0
	if more {
		s.retain.expired.old = old
	}
	s.walked(walkOldest, more)
}

// before returns the end of what is to be deleted, or zero if nothing is.
func before(oldest, until job.Instant) job.Instant {
	if oldest == 0 || oldest >= until {
		return 0
	}
	return until
}

// Prune adds to the rows of a batch that Ready made what has outlived, and returns how
// many rows that are. A node asks for it once it has the live work of all its shards:
// deleting delays nobody. They are at most room, but that requests and events, whose
// number isn't known, may go beyond it by what one statement deletes: else they would
// never find room on a busy node.
func (s *Shard) Prune(rows *store.ShardBatch, room int) int {
	x := &s.retain.expired
	slots, jobs := min(len(x.slots), room), 0
	rows.SlotPrunes, x.slots = x.slots[:slots:slots], x.slots[slots:]
	if len(x.slots) == 0 {
		jobs = min(len(x.jobs), room-slots)
		rows.JobPrunes, x.jobs = x.jobs[:jobs:jobs], x.jobs[jobs:]
	}
	n := slots + jobs
	if old := (store.ShardBatch{Old: x.old}); old.Rows() > 0 && n+old.Rows() <= max(room, 2*store.MaxOldRows) {
		rows.Old, x.old = x.old, store.Old{}
		n += old.Rows()
	}
	return n
}
