package core

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// retention deletes what need not be kept any longer, and ends the jobs that have
// ended by themselves, so that their names are free. It walks in passes, one read
// each time that the watermark is due, so that it never competes with live work.
//
// A pass goes over the slots that were due before a line: old enough, and older than
// whatever a gap may still make. Final slots go by when they finished, not by when
// they were due: what was made up for late is kept as long as everything else. A
// full pass sees all slots below the line, and so knows which jobs still have some;
// those between go on where the last one ended.
type retention struct {
	next    job.Instant // when the next pass begins
	full    job.Instant // when it is a full one
	stepped job.Instant // when it was last read for
	line    job.Instant // of the newest pass
	done    store.EndedQuery
	oldest  store.Old // nothing of the kind is older
	pass    *pass
}

// pass is one walk of the retention.
type pass struct {
	phase   ReadKind
	full    bool
	after   job.SlotKey
	ended   store.EndedQuery
	kept    map[job.UID]struct{} // jobs of slots that stay; nil if there are too many
	reading bool
}

const (
	// maxKept bounds what a full pass remembers. Beyond it, no job goes in that pass.
	maxKept = 100_000
	// passSpread keeps the shards of a node from beginning all at once.
	passSpread = time.Second
)

// startRetention sets when the first pass begins.
func (s *Shard) startRetention(retainedFrom job.Instant) {
	s.retain.line = retainedFrom
	s.retain.next = s.now.Add(s.cfg.PassEvery + time.Duration(s.proof.Shard%60)*passSpread)
	s.retain.full = s.retain.next
}

// settled is the instant before which nothing is owed any more.
func (s *Shard) settled() job.Instant {
	at := min(s.watermark, s.firedTo)
	for _, g := range s.gaps {
		at = min(at, g.Cursor.FireTime)
	}
	return at
}

// retainReads asks for what the pass looks at next.
func (s *Shard) retainReads() []Read {
	r := &s.retain
	inboxEmpty := !s.reads.inbox && !s.reads.inboxWanted && len(s.pending.adopted) == 0
	if r.pass == nil && s.now >= r.next && inboxEmpty {
		s.beginPass()
	}
	p := r.pass
	if p == nil || p.reading || s.behind || s.now.Sub(r.stepped) < s.cfg.WatermarkEvery*9/10 {
		return nil
	}
	p.reading, r.stepped = true, s.now
	read := Read{Kind: p.phase, Limit: s.cfg.PageLimit / 2}
	switch p.phase {
	case ReadOldSlots:
		read.After, read.Until = p.after, r.line
	case ReadEndedJobs:
		read.Ended = p.ended
	case ReadDoneJobs:
		read.Ended = r.done
		read.Ended.Before = min(s.now.Add(-s.cfg.NameRetention), s.settled())
	case ReadOldest:
		read.Oldest = r.oldest
	}
	read.Ended.Limit = read.Limit
	return []Read{read}
}

// beginPass raises the line, in the database too, before anything below it goes.
func (s *Shard) beginPass() {
	r := &s.retain
	r.next = s.now.Add(s.cfg.PassEvery)
	p := &pass{phase: ReadOldSlots, after: lastKeyOf(r.line)}
	if s.now >= r.full {
		r.full = s.now.Add(s.cfg.FullPassEvery)
		r.done = store.EndedQuery{}
		p.full, p.kept, p.after = true, map[job.UID]struct{}{}, job.SlotKey{}
	}
	r.pass = p
	if line := min(s.now.Add(-s.cfg.Retention), s.settled()); line > r.line {
		r.line = line
		s.pending.rows.RetainedFrom = line
	}
	// A slot that was triggered as its job ended may be due a little later than the end.
	p.ended.Before = min(r.line, s.now.Add(-max(s.cfg.Retention, s.cfg.NameRetention))).Add(-time.Minute)
}

// enter goes on to the next phase of the pass; after the last one it is over.
func (s *Shard) enter(phase ReadKind) {
	p := s.retain.pass
	p.phase = phase
	if phase == ReadEndedJobs && p.kept == nil {
		p.phase = ReadDoneJobs // which jobs have slots is not known
	}
}

// OldSlotsLoaded answers a read of the slots below the line.
type OldSlotsLoaded struct {
	Read  Read
	Slots []store.PruneSlot
}

func (e OldSlotsLoaded) apply(s *Shard) {
	s.reads.open--
	p := s.retain.pass
	p.reading = false
	for _, slot := range e.Slots {
		p.after = slot.Key
		if s.outlived(slot) {
			s.pending.rows.SlotPrunes = append(s.pending.rows.SlotPrunes, slot.SlotPrune)
		} else if p.kept != nil {
			p.kept[slot.Key.UID] = struct{}{}
		}
	}
	if len(p.kept) > maxKept {
		p.kept = nil
	}
	if len(e.Slots) < e.Read.Limit {
		s.enter(ReadEndedJobs)
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
		return slot.FinishedAt < s.now.Add(-s.cfg.Retention)
	case slot.State == job.Dead:
		return slot.FinishedAt < s.now.Add(-s.cfg.DeadRetention)
	}
	return false
}

// EndedJobsLoaded answers a read of the jobs that ended long ago.
type EndedJobsLoaded struct {
	Read Read
	Jobs []store.EndedJob
}

func (e EndedJobsLoaded) apply(s *Shard) {
	s.reads.open--
	p := s.retain.pass
	p.reading = false
	for _, j := range e.Jobs {
		p.ended.AfterTime, p.ended.AfterUID = j.At, j.UID
		if _, kept := p.kept[j.UID]; !kept && s.jobs[j.UID] == nil {
			s.pending.rows.JobPrunes = append(s.pending.rows.JobPrunes, j.UID)
		}
	}
	if len(e.Jobs) < e.Read.Limit {
		s.enter(ReadDoneJobs)
	}
}

// DoneJobsLoaded answers a read of the jobs that fire once and have.
type DoneJobsLoaded struct {
	Read Read
	Jobs []store.EndedJob
}

func (e DoneJobsLoaded) apply(s *Shard) {
	s.reads.open--
	r := &s.retain
	r.pass.reading = false
	for _, j := range e.Jobs {
		r.done.AfterTime, r.done.AfterUID = j.At, j.UID
		if s.jobs[j.UID] == nil && s.endOf(j.UID) == 0 && !s.triggering(j.UID) {
			end := max(s.firedTo, s.watermark)
			s.noteEnd(j.UID, end) // for a call that has read it as live
			s.pending.rows.Ends = append(s.pending.rows.Ends, store.JobEnd{UID: j.UID, EndedAt: end})
		}
	}
	if len(e.Jobs) < e.Read.Limit {
		s.enter(ReadOldest)
	}
}

// triggering reports whether a slot of a job is about to be made.
func (s *Shard) triggering(uid job.UID) bool {
	return slices.ContainsFunc(s.pending.triggers, func(t *triggerState) bool { return t.event.Job.UID == uid })
}

// OldestLoaded answers a read of the oldest request and event.
type OldestLoaded struct {
	Read   Read
	Oldest store.Old
}

func (e OldestLoaded) apply(s *Shard) {
	s.reads.open--
	r := &s.retain
	r.pass.reading = false
	r.oldest = e.Oldest
	old := e.Oldest
	old.RequestsBefore = before(old.RequestsFrom, s.now.Add(-max(s.cfg.Retention, s.cfg.NameRetention)))
	old.EventsBefore = before(old.EventsFrom, s.now.Add(-s.cfg.EventRetention))
	if old.RequestsBefore == 0 && old.EventsBefore == 0 {
		r.pass = nil
		return
	}
	s.pending.rows.Old = old
}

// before returns the end of what is to be deleted, or zero if nothing is.
func before(oldest, until job.Instant) job.Instant {
	if oldest == 0 || oldest >= until {
		return 0
	}
	return until
}
