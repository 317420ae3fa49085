package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// catchUp returns which occurrences of a job a gap makes up for: as an operator said, or as
// the job's policy does.
func (g *gapState) catchUp(j *jobState) job.CatchUp {
	if len(g.Options.CatchUp) > 0 {
		if c, set := g.Options.CatchUp[j.uid.String()]; set {
			return c
		}
	}
	return j.spec.policies.CatchUp
}

// Errors of what is asked of gaps.
var (
	// ErrNoGap: there is no such gap, or it is filled.
	ErrNoGap = errors.New("there is no such gap; it may be filled")
	// ErrNotRequested: what was missed is made up for; only a backfill that somebody asked
	// for can be cancelled.
	ErrNotRequested = errors.New("the gap is of a downtime; it can't be cancelled, but its jobs' catch-up can be changed")
	// ErrBackfillRange: the range of a backfill holds no occurrence that may be made.
	ErrBackfillRange = errors.New("the range of the backfill")
)

// Backfill asks for the slots of a past range of a recurring job: those from an instant on
// and before another one. Slots that exist stay as they are, so that it may be asked for
// again. It is answered by a Reply with Gap.
type Backfill struct {
	Tag         uint64
	Job         job.Job
	From, Until job.Instant
	Rate        int32
	Reason      string
	Check       bool // it is only to be said what would be made
}

func (e Backfill) apply(s *Shard) {
	s.patchEnd(&e.Job)
	j := s.jobs.get(e.Job.UID)
	fail := func(err error) { s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: err}) }
	switch {
	case j == nil || !j.recurs() || j.endedAt != 0 || j.aside:
		fail(ErrJobEnded)
		return
	case e.From < s.retain.line:
		fail(fmt.Errorf("%w begins before %s, from when on slots are kept", ErrBackfillRange, s.retain.line))
		return
	case e.Until > s.firedTo+1:
		fail(fmt.Errorf("%w ends in the future", ErrBackfillRange))
		return
	}
	from, to := max(e.From-1, j.effectiveFrom), e.Until-1
	g := store.Gap{Key: store.GapKey{To: to, UID: j.uid}, From: from, Cursor: lastKeyOf(from), MadeAt: s.now,
		Options: store.GapOptions{RequestedAt: s.now, Rate: e.Rate}}
	for s.gapKeyTaken(g.Key) {
		if other := s.gap(g.Key); other != nil && other.requested() && other.From == from {
			info := s.gapInfo(other) // the same again
			s.pending.replies = append(s.pending.replies, Reply{Tag: e.Tag, Gap: &info})
			return
		}
		g.Key.To-- // occurrences fall on whole seconds: it is the same range
	}
	owed := j.plan().Count(from.Seconds(), to.Seconds())
	info := GapInfo{Gap: g, Shard: s.proof.Shard, JobName: e.Job.ResourceName()}
	switch {
	case owed == 0:
		fail(fmt.Errorf("%w holds no occurrence of the job", ErrBackfillRange))
		return
	case e.Check:
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Gap: &info})
		return
	}
	s.gaps = append(s.gaps, &gapState{Gap: g, allOnce: true, fed: s.now})
	s.pending.rows.GapPuts = append(s.pending.rows.GapPuts, g)
	s.note(store.EventBackfill, j.uid, 0, fmt.Sprintf("%d occurrences from %s on and before %s; %s", owed, e.From, e.Until, e.Reason))
	s.pending.replies = append(s.pending.replies, Reply{Tag: e.Tag, Gap: &info})
}

// gapKeyTaken reports whether there is a gap with a key, or one that ends with the next batch:
// to record another one then would come to nothing.
func (s *Shard) gapKeyTaken(key store.GapKey) bool {
	return s.gap(key) != nil || slices.ContainsFunc(s.pending.rows.GapMoves, func(m store.GapMove) bool { return m.Key == key })
}

// makeRequested makes a slot that a person asked for.
func (s *Shard) makeRequested(j *jobState, key job.SlotKey) {
	s.requestedAt = s.now
	s.make(j, key, job.TriggerBackfill)
	s.requestedAt = 0
}

// CancelBackfill ends a backfill that somebody asked for: what is made stays. It is answered
// by a Reply with Gap, as it was.
type CancelBackfill struct {
	Tag    uint64
	Key    store.GapKey
	Reason string
}

func (e CancelBackfill) apply(s *Shard) {
	g := s.gap(e.Key)
	switch {
	case g == nil:
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: ErrNoGap})
		return
	case !g.requested():
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: ErrNotRequested})
		return
	}
	info := s.gapInfo(g)
	s.dropGap(g)
	s.pending.rows.GapMoves = append(s.pending.rows.GapMoves, store.GapMove{Key: g.Key, From: g.Cursor, To: g.Cursor, Closed: true})
	s.note(store.EventBackfillEnded, g.Key.UID, 0, fmt.Sprintf("made up to %s of %s to %s; %s", g.Cursor.FireTime, g.From, g.Key.To, e.Reason))
	s.pending.replies = append(s.pending.replies, Reply{Tag: e.Tag, Gap: &info})
}

// ChangeCatchUp changes what a gap makes up for of one job, from now on. It is answered by a
// Reply with Gap.
type ChangeCatchUp struct {
	Tag     uint64
	Key     store.GapKey
	UID     job.UID
	CatchUp job.CatchUp
	Reason  string
}

func (e ChangeCatchUp) apply(s *Shard) {
	g, j := s.gap(e.Key), s.jobs.get(e.UID)
	switch {
	case g == nil || g.requested():
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: ErrNoGap})
		return
	case j == nil || !j.recurs():
		s.outbox = append(s.outbox, Reply{Tag: e.Tag, Err: ErrJobEnded})
		return
	}
	changed := maps.Clone(g.Options.CatchUp)
	if changed == nil {
		changed = map[string]job.CatchUp{}
	}
	changed[e.UID.String()] = e.CatchUp
	g.Options.CatchUp = changed
	s.forgetKeeps()
	for i := range g.walk {
		if g.walk[i].job == j {
			g.walk[i].keep = s.keepFrom(g, j)
		}
	}
	s.pending.rows.GapChanges = append(s.pending.rows.GapChanges, store.GapChange{Key: g.Key, Options: g.Options})
	s.note(store.EventGapChanged, e.UID, 0, fmt.Sprintf("the catch-up in the gap to %s is %+v now; %s", g.Key.To, e.CatchUp, e.Reason))
	info := s.gapInfo(g)
	s.pending.replies = append(s.pending.replies, Reply{Tag: e.Tag, Gap: &info})
}

// Owed is what a gap still owes of a job.
type Owed struct {
	UID     job.UID
	Name    string // its resource name
	CatchUp job.CatchUp
	Changed bool  // by an operator
	Make    int64 // occurrences that will have a slot
	Leave   int64 // occurrences that will be left out
}

// OwedBy lists what a gap owes of its recurring jobs, the most first, at most so many of
// them; and how many jobs and occurrences there are in all. Jobs that fire once aren't counted:
// they are read page by page.
func (s *Shard) OwedBy(key store.GapKey, most int) (top []Owed, jobs int, occurrences, left int64) {
	g := s.gap(key)
	if g == nil {
		return nil, 0, 0, 0
	}
	for j := range s.jobsOf(g) {
		if !j.recurs() || !g.concerns(j) || j.aside {
			continue
		}
		plan, to := j.plan(), g.Key.To
		if j.endedAt != 0 {
			to = min(to, j.endedAt)
		}
		from := max(g.Cursor.FireTime-1, j.effectiveFrom).Seconds()
		all := plan.Count(from, to.Seconds())
		if all <= 0 {
			continue
		}
		name := job.Job{Namespace: j.spec.namespace, Name: j.name}
		o := Owed{UID: j.uid, Name: name.ResourceName(), CatchUp: g.catchUp(j), Make: all}
		_, o.Changed = g.Options.CatchUp[j.uid.String()]
		if keep := s.keepFrom(g, j); keep > job.MinInstant && j.endedAt == 0 {
			o.Make = max(0, plan.Count(max(from, keep.Seconds()-1), to.Seconds()))
			o.Leave = all - o.Make
		}
		jobs, occurrences, left = jobs+1, occurrences+o.Make, left+o.Leave
		top = append(top, o)
	}
	slices.SortFunc(top, func(a, b Owed) int {
		if a.Make != b.Make {
			return int(min(max(b.Make-a.Make, -1), 1))
		}
		return slices.Compare(a.UID[:], b.UID[:])
	})
	return top[:min(len(top), most)], jobs, occurrences, left
}

func (s *Shard) gapInfo(g *gapState) GapInfo {
	for _, info := range s.Gaps() {
		if info.Key == g.Key {
			return info
		}
	}
	return GapInfo{Gap: g.Gap, Shard: s.proof.Shard}
}
