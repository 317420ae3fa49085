package core

import (
	"bytes"
	"container/heap"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// gapState is a gap that is being filled: a walk over its occurrences in the
// order (fire time, uid), of which only the next one of each job is known at a
// time. A gap of a year costs no more memory than one of a second.
type gapState struct {
	store.Gap
	started bool
	walk    walkHeap
	page    []job.Job // jobs of one fire time, in order
	allOnce bool      // no further page
	reading bool
	made    int
	skipped int64
	since   job.Instant               // when its filling began here
	keeps   map[*jobState]job.Instant // what keepFrom found, of jobs for which that takes a search
	allowed float64                   // slots that its rate lets be made now
	fed     job.Instant               // when allowed was last raised
}

// requested reports whether a person asked for the gap: a backfill of a job.
func (g *gapState) requested() bool { return g.Options.RequestedAt != 0 }

// walkHeap orders jobs by their next occurrence in a gap.
type walkHeap []walkStep

type walkStep struct {
	at   job.Instant
	job  *jobState
	keep job.Instant // what is earlier isn't made up for, by the job's policy
}

func (h walkHeap) Len() int      { return len(h) }
func (h walkHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h walkHeap) Less(i, j int) bool {
	return h.key(i).Less(h.key(j))
}
func (h walkHeap) key(i int) job.SlotKey { return job.SlotKey{FireTime: h[i].at, UID: h[i].job.uid} }
func (h *walkHeap) Push(x any)           { *h = append(*h, x.(walkStep)) }
func (h *walkHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// concerns reports whether a gap may owe slots of a job.
func (g *gapState) concerns(j *jobState) bool {
	return (g.Key.UID.IsZero() || g.Key.UID == j.uid) && j.effectiveFrom < g.Key.To &&
		(j.endedAt == 0 || j.endedAt >= g.Cursor.FireTime)
}

// loadGaps takes up the open gaps, and makes one of the time in which nobody
// owned the shard.
func (s *Shard) loadGaps(open []store.Gap, watermark job.Instant) {
	for _, g := range open {
		s.gaps = append(s.gaps, &gapState{Gap: g, allOnce: !g.Key.UID.IsZero()})
	}
	if s.firedTo > watermark {
		s.openGap(store.GapKey{To: s.firedTo}, watermark)
	}
}

// openGap makes a gap: the next batch records it.
func (s *Shard) openGap(key store.GapKey, from job.Instant) {
	g := store.Gap{Key: key, From: from, Cursor: lastKeyOf(from), MadeAt: s.now}
	s.gaps = append(s.gaps, &gapState{Gap: g, allOnce: !key.UID.IsZero()})
	s.forgetKeeps()
	s.pending.rows.GapPuts = append(s.pending.rows.GapPuts, g)
}

func (s *Shard) hasGapWork() bool { return s.gapToFill() != nil }

// gapToFill returns the gap of which the next slots are made, or nil: the oldest one of a
// downtime, while it isn't being read for; else a requested one whose rate allows it.
func (s *Shard) gapToFill() *gapState {
	downtime := false
	for _, g := range s.gaps {
		switch {
		case !g.requested() && downtime:
		case !g.requested():
			downtime = true
			if !g.reading && !g.needsPage() {
				return g
			}
		case g.Options.Rate == 0 || g.feed(s.now) >= max(1, float64(g.Options.Rate)/20): // not one by one
			return g
		}
	}
	return nil
}

// feed raises what a gap's rate allows, up to a second's worth, and returns it.
func (g *gapState) feed(now job.Instant) float64 {
	rate := float64(g.Options.Rate)
	g.allowed = min(g.allowed+rate*now.Sub(g.fed).Seconds(), rate)
	g.fed = now
	return g.allowed
}

// needsPage reports whether the walk can't go on without the database.
func (g *gapState) needsPage() bool { return len(g.page) == 0 && !g.allOnce }

// gapReads asks for the next jobs of one fire time of the oldest gap.
func (s *Shard) gapReads() []Read {
	at := slices.IndexFunc(s.gaps, func(g *gapState) bool { return !g.requested() })
	if at < 0 || s.gaps[at].reading || !s.gaps[at].needsPage() {
		return nil
	}
	g := s.gaps[at]
	g.reading = true
	return []Read{{Kind: ReadGapOnce, Gap: g.Key, After: g.Cursor, Until: g.Key.To, Limit: s.cfg.PageLimit}}
}

// GapOnceLoaded answers a read of a gap's jobs of one fire time.
type GapOnceLoaded struct {
	Read Read
	Jobs []job.Job
}

func (e GapOnceLoaded) apply(s *Shard) {
	s.reads.open--
	g := s.gap(e.Read.Gap)
	if g == nil {
		return
	}
	for i := range e.Jobs {
		s.patchEnd(&e.Jobs[i])
	}
	g.reading, g.page = false, e.Jobs
	g.allOnce = len(e.Jobs) < e.Read.Limit
}

// gap returns the open gap with a key, or nil.
func (s *Shard) gap(key store.GapKey) *gapState {
	at := slices.IndexFunc(s.gaps, func(g *gapState) bool { return g.Key == key })
	if at < 0 {
		return nil
	}
	return s.gaps[at]
}

// fillGaps makes the next slots of the oldest gap, and moves its cursor in the
// same batch. It does so only after all live work is in the batch.
func (s *Shard) fillGaps(b *Batch, room int) {
	if len(s.pending.dirty) > 0 {
		return
	}
	g := s.gapToFill()
	if g == nil {
		return
	}
	if !g.started {
		s.startWalk(g)
	}
	from := g.Cursor
	budget := min(s.cfg.GapChunk, room-b.Rows.Rows())
	budget -= s.rush(budget)
	if g.Options.Rate > 0 {
		budget = min(budget, int(g.allowed))
	}
	closed := false
	for n := 0; n < budget; n++ {
		key, state, j, ok := s.nextOwed(g)
		if !ok {
			closed = !g.needsPage()
			break
		}
		g.Cursor = key
		g.allowed--
		if j != nil {
			state = s.owing(j)
		}
		if state != nil {
			s.makeOwed(g, key, state)
		}
	}
	b.Rows.Skips, s.pending.rows.Skips = append(b.Rows.Skips, s.pending.rows.Skips...), nil
	s.unblock()
	// The cursor moves only with all slots up to it: also if they push others out of memory,
	// which are written, too.
	s.writeDirty(b, math.MaxInt)
	if closed {
		s.closeGap(g)
	}
	if closed || g.Cursor != from {
		b.Rows.GapMoves = append(b.Rows.GapMoves, store.GapMove{Key: g.Key, From: from, To: g.Cursor, Closed: closed})
	}
}

// startWalk finds the next occurrence of every recurring job after the cursor.
func (s *Shard) startWalk(g *gapState) {
	g.started, g.since = true, s.now
	for j := range s.jobsOf(g) {
		if j.recurs() && g.concerns(j) {
			s.pushWalk(g, j, max(g.Cursor.FireTime-job.Second, j.effectiveFrom))
		}
	}
	heap.Init(&g.walk)
}

// jobsOf yields the jobs in memory that a gap may concern.
func (s *Shard) jobsOf(g *gapState) iter.Seq[*jobState] {
	if g.Key.UID.IsZero() {
		return s.jobs.all()
	}
	return func(yield func(*jobState) bool) {
		if j := s.jobs.get(g.Key.UID); j != nil {
			yield(j)
		}
	}
}

// pushWalk adds a job's first occurrence after an instant that lies beyond the
// gap's cursor.
func (s *Shard) pushWalk(g *gapState, j *jobState, after job.Instant) {
	for {
		at, ok := j.nextAfter(after)
		if !ok || at > g.Key.To {
			return
		}
		if g.Cursor.Less(job.SlotKey{FireTime: at, UID: j.uid}) {
			g.walk = append(g.walk, walkStep{at, j, s.keepFrom(g, j)})
			return
		}
		after = at
	}
}

// nextOwed takes the next occurrence of the walk, with its job: one that fires once may
// not be in memory. It returns false at the walk's end, and where the database must be
// asked first.
func (s *Shard) nextOwed(g *gapState) (key job.SlotKey, state *jobState, j *job.Job, ok bool) {
	if g.needsPage() {
		return key, nil, nil, false
	}
	var once job.SlotKey
	if len(g.page) > 0 {
		once = job.SlotKey{FireTime: g.page[0].Schedule.At, UID: g.page[0].UID}
		if len(g.walk) == 0 || once.Less(g.walk.key(0)) {
			j := &g.page[0]
			g.page = g.page[1:]
			return once, nil, j, true
		}
	}
	if len(g.walk) == 0 {
		return key, nil, nil, false
	}
	key, state = g.walk.key(0), g.walk[0].job
	made, after := state, key.FireTime
	if keep := g.walk[0].keep; key.FireTime < keep && state.endedAt == 0 {
		made, after = nil, s.skipRange(g, state, key.FireTime, keep)
	}
	if at, ok := state.nextAfter(after); ok && at <= g.Key.To {
		g.walk[0].at = at
		heap.Fix(&g.walk, 0)
	} else {
		heap.Pop(&g.walk)
	}
	return key, made, nil, true
}

// owing returns the state of a job that was read for a gap, or nil if it can't fire.
func (s *Shard) owing(j *job.Job) *jobState {
	if j.Quarantine != "" {
		return nil
	}
	state, err := s.addJob(j)
	if err != nil {
		s.quarantine(j.UID, err.Error())
		return nil
	}
	state.endedAt = max(state.endedAt, j.EndedAt)
	return state
}

// makeOwed makes one slot of a gap. What a job that has ended still owes is
// recorded as cancelled.
func (s *Shard) makeOwed(g *gapState, key job.SlotKey, j *jobState) {
	if s.slots[key] != nil || j.aside {
		return
	}
	switch c := g.catchUp(j); {
	case j.endedAt != 0:
		s.makeCancelled(j, key, job.TriggerBackfill)
	case g.requested():
		s.makeRequested(j, key)
		g.made++
		return
	case !j.recurs() && (c.Mode == job.CatchUpNone || c.MaxAge > 0 && key.FireTime < g.Key.To.Add(-c.MaxAge)):
		s.makeSkipped(j, key, job.TriggerBackfill, job.CodeNotCaughtUp, "it was missed, and its job doesn't make up for it")
	case s.make(j, key, job.TriggerBackfill).row.State == job.Skipped:
	default:
		g.made++
		return
	}
	g.skipped++
}

// closeGap ends a gap and lets go of the jobs that only it needed.
func (s *Shard) closeGap(g *gapState) {
	s.dropGap(g)
	if g.made > 0 || g.skipped > 0 {
		s.note(store.EventGapClosed, g.Key.UID, 0, fmt.Sprintf("made up for %d occurrences of %s to %s, and left out %d", g.made, g.From, g.Key.To, g.skipped))
	}
	s.unblock()
}

// dropGap forgets a gap, and the jobs that only it needed.
func (s *Shard) dropGap(g *gapState) {
	s.gaps = slices.DeleteFunc(s.gaps, func(o *gapState) bool { return o == g })
	s.forgetKeeps()
	for j := range s.jobsOf(g) {
		if j.endedAt != 0 {
			s.dropJob(j)
		}
	}
}

// owes reports whether a gap may still need a job that has ended.
func (s *Shard) owes(j *jobState) bool {
	for _, g := range s.gaps {
		if j.recurs() && g.concerns(j) {
			return true
		}
	}
	return false
}

// reloadGaps gives up on gaps whose cursor stands elsewhere: somebody else moved
// it, which only a broken fence allows.
func (s *Shard) reloadGaps(keys []store.GapKey) {
	s.fault = fmt.Errorf("the cursor of %d gaps was moved by somebody else", len(keys))
}

// keepFrom returns the first instant of a gap whose occurrence of a recurring job is made
// up for. It depends on nothing but the job and what gaps there are, so that whoever goes
// on with the gap finds the same.
func (s *Shard) keepFrom(g *gapState, j *jobState) job.Instant {
	p, catchUp := &j.spec.policies, g.catchUp(j)
	keep := job.MinInstant
	if g.requested() {
		return keep
	}
	if catchUp.MaxAge > 0 {
		keep = g.Key.To.Add(-catchUp.MaxAge)
	}
	limit, limited := catchUp.Limit()
	if mode := p.Overlap.Mode; mode == job.OverlapSkip || mode == job.OverlapReplace {
		// Of what was missed, each occurrence would have been left out for another one.
		if !limited {
			limit, limited = 1, true
		}
		limit = min(limit, 1)
	}
	if !limited {
		return keep
	}
	if at, known := g.keeps[j]; known {
		return at
	}
	plan := j.plan()
	to := g.Key.To.Seconds()
	for _, newer := range s.gaps {
		if newer.Key.To > g.Key.To && !newer.requested() && newer.concerns(j) && limit > 0 {
			limit -= min(limit, plan.CountRuns(max(to, newer.From.Seconds(), j.effectiveFrom.Seconds()), newer.Key.To.Seconds()))
		}
	}
	if first, more := lastRuns(plan, g.From.Seconds(), to, limit); more {
		keep = max(keep, job.AtSecond(first))
	}
	if g.keeps == nil {
		g.keeps = map[*jobState]job.Instant{}
	}
	g.keeps[j] = keep
	return keep
}

// forgetKeeps forgets what keepFrom found: there are other gaps, or other rules.
func (s *Shard) forgetKeeps() {
	for _, g := range s.gaps {
		g.keeps = nil
	}
}

// lastRuns returns the first of the last so many runs of a plan in the range of seconds
// (from, to], or to + 1 if that are none; and false if there aren't more runs than that.
func lastRuns(plan schedule.Plan, from, to, limit int64) (first int64, more bool) {
	extra := plan.CountRuns(from, to) - limit
	if extra <= 0 {
		return from, false
	}
	if first, more = plan.NthRun(from, extra+1); !more || limit == 0 {
		first = to + 1
	}
	return first, true
}

// skipRange records that what a job owes of a gap, from one occurrence on and before
// another instant, isn't made up for. It returns the last of them.
func (s *Shard) skipRange(g *gapState, j *jobState, from, keep job.Instant) job.Instant {
	plan, upTo := j.plan(), min(keep-1, g.Key.To)
	last, _ := plan.Prev(upTo.Seconds() + 1) // the first one there is, at least
	k := store.Skip{UID: j.uid, From: from, To: job.AtSecond(last), Count: plan.Count(from.Seconds()-1, last), Code: job.CodeNotCaughtUp, MadeAt: s.now}
	if g.catchUp(j) == (job.CatchUp{}) {
		k.Code = job.CodeOverlaps
	}
	s.pending.rows.Skips = append(s.pending.rows.Skips, k)
	g.skipped += k.Count
	return k.To
}

// owesBefore reports whether gaps may still owe an occurrence of a job before an instant.
func (s *Shard) owesBefore(j *jobState, fire job.Instant) bool {
	for _, g := range s.gaps {
		if at, owes := s.nextOwedOf(g, j); owes && at < fire {
			return true
		}
	}
	return false
}

// nextOwedOf returns the next occurrence of a recurring job that a gap still owes.
func (s *Shard) nextOwedOf(g *gapState, j *jobState) (job.Instant, bool) {
	if !j.recurs() || g.requested() || !g.concerns(j) {
		return 0, false
	}
	after := max(g.Cursor.FireTime-1, j.effectiveFrom, s.keepFrom(g, j)-1)
	if l := s.lanes[j.uid]; l != nil {
		after = max(after, min(l.madeTo, g.Key.To))
	}
	for {
		at, ok := j.nextAfter(after)
		if !ok || at > g.Key.To {
			return 0, false
		}
		if g.Cursor.Less(job.SlotKey{FireTime: at, UID: j.uid}) {
			return at, true
		}
		after = at
	}
}

// rush makes what gaps owe of the jobs whose slots wait for that, before anything else of
// a gap: a job that runs in order must not wait for others. It returns how many it made.
func (s *Shard) rush(budget int) (n int) {
	for _, uid := range s.blockedLanes() {
		l := s.lanes[uid]
		for _, g := range s.gaps {
			for j := l.lines[0].slots[0].job; n < budget && len(l.lines[0].slots) < 2*s.cfg.LineLimit; n++ {
				at, owes := s.nextOwedOf(g, j)
				if !owes {
					break
				}
				l.madeTo = at
				if key := (job.SlotKey{FireTime: at, UID: uid}); s.slots[key] == nil {
					s.makeOwed(g, key, j)
				}
			}
		}
	}
	return n
}

// blockedLanes lists the lanes that wait for what gaps owe, in order.
func (s *Shard) blockedLanes() []job.UID {
	var uids []job.UID
	for uid, l := range s.lanes {
		if l.blocked && len(l.lines[0].slots) > 0 {
			uids = append(uids, uid)
		}
	}
	slices.SortFunc(uids, func(a, b job.UID) int { return bytes.Compare(a[:], b[:]) })
	return uids
}

// unblock looks at the lanes anew that wait for what gaps owe.
func (s *Shard) unblock() {
	for _, uid := range s.blockedLanes() {
		if l := s.lanes[uid]; l != nil {
			s.advanceLane(l)
		}
	}
}

// GapInfo is an open gap, for people.
type GapInfo struct {
	store.Gap
	Shard   shard.ID
	JobName string // of the one job that it is of, with its namespace; empty if it is of all
	Made    int    // slots, since the shard was loaded
	Skipped int64  // occurrences that were left out since then
	Age     time.Duration
	Rate    float64 // occurrences that were settled each second since then
}

// Gaps lists the open gaps, the one that is being filled first.
func (s *Shard) Gaps() []GapInfo {
	out := make([]GapInfo, len(s.gaps))
	for i, g := range s.gaps {
		out[i] = GapInfo{Gap: g.Gap, Shard: s.proof.Shard, Made: g.made, Skipped: g.skipped, Age: s.now.Sub(g.From)}
		if j := s.jobs.get(g.Key.UID); j != nil {
			name := job.Job{Namespace: j.spec.namespace, Name: j.name}
			out[i].JobName = name.ResourceName()
		}
		if took := s.now.Sub(g.since); g.started && took > 0 {
			out[i].Rate = float64(int64(g.made)+g.skipped) / took.Seconds()
		}
	}
	return out
}
