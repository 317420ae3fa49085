package core

import (
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// lane orders the slots of one job whose overlap is limited. A slot that waits stands in
// line until the lane gives it a place; only then does it wait for a worker, like any
// other. What waits in line keeps no worker from anybody, and nobody waits behind it but
// slots of its own job.
//
// In memory are the slots that have a place, and the first of the line. The rest waits in
// the backlog, under the job's own fairness key. The first of the line are known to be the
// first: no slot in the backlog comes before one that stands in line.
//
// Who is left out, or ended, because another slot is open is decided when a slot comes to
// the line, and when places become free: see judge.
type lane struct {
	uid     job.UID
	spec    *spec // nil until a slot of the job is in memory
	handler string
	placed  map[*slotState]struct{}
	left    []*slotState // are to be written no later than those that have a place
	// Allow parts live work, which goes first, from what is made up for. Skip and replace
	// part what they judge from what somebody asked for: each gets a place in turn.
	lines   [2]line
	turn    int  // whose line got the last place
	blocked bool // the first of the line comes after what a gap owes
	madeTo  job.Instant
}

// line are the slots that wait for a place.
type line struct {
	slots []*slotState // in order
	far   backlogStats
	stale bool // a slot of the backlog may come before those in memory
	tier  int32
}

// lineOf returns which of a lane's lines a slot belongs to, as the trigger that stands for
// it, and false if the job has no lane.
func lineOf(s *job.Slot, sp *spec) (line job.Trigger, limited bool) {
	if _, limited = sp.policies.Overlap.Limit(); !limited {
		return 0, false
	}
	switch mode := sp.policies.Overlap.Mode; {
	case mode == job.OverlapAllow:
		return s.Trigger, true
	case mode != job.OverlapQueue && s.RequestedAt != 0:
		return job.TriggerBackfill, true
	}
	return job.TriggerSchedule, true
}

// limited reports whether a slot needs a place in its job's lane.
func (s *slotState) limited() bool {
	_, limited := s.job.spec.policies.Overlap.Limit()
	return limited
}

// lane returns the lane of a job, which it makes if there is none.
func (s *Shard) lane(uid job.UID) *lane {
	l := s.lanes[uid]
	if l == nil {
		l = &lane{uid: uid, placed: map[*slotState]struct{}{}}
		s.lanes[uid] = l
	}
	return l
}

// laneOf returns the lane of a slot that needs a place.
func (s *Shard) laneOf(slot *slotState) *lane {
	l := s.lane(slot.row.Key.UID)
	if l.spec == nil {
		sp := slot.job.spec
		l.spec, l.handler = sp, sp.handler
		l.lines[0].tier, l.lines[1].tier = tierOf(sp.policies.Priority, job.TriggerSchedule), tierOf(sp.policies.Priority, job.TriggerBackfill)
	}
	return l
}

// loadLane notes the slots of a lane that wait in the backlog.
func (s *Shard) loadLane(c store.BacklogCount) {
	uid, err := job.ParseUID(c.Fairness)
	if err != nil {
		return
	}
	l := s.lane(uid)
	l.handler = c.Handler
	n := &l.lines[c.Priority&1]
	s.deep[uid] = l
	n.tier, n.stale, n.far = c.Priority, true, backlogStats{rows: c.Rows, wakeAt: c.WakeAt}
}

// line returns the number of the line of s in its lane.
func (s *slotState) line() int {
	class, _ := lineOf(&s.row, s.job.spec)
	return int(tierOf(0, class) & 1)
}

// lineFor returns the line of a slot.
func (l *lane) lineFor(slot *slotState) *line { return &l.lines[slot.line()] }

// standInLine gives a READY slot of a limited job its way on: a place, or one in line.
func (s *Shard) standInLine(slot *slotState) {
	l := s.laneOf(slot)
	n := l.lineFor(slot)
	s.yield(l, n, slot)
	last := len(n.slots) - 1
	switch behind := last < 0 || n.slots[last].row.Key.Less(slot.row.Key); {
	case s.refilling: // it comes from the backlog, in its turn
	case behind && (n.far.rows > 0 || len(n.slots) >= s.cfg.LineLimit):
		s.displaceInLine(n, slot)
		s.advanceLane(l)
		return
	case len(n.slots) >= s.cfg.LineLimit:
		worst := n.slots[last]
		s.leaveLine(worst)
		s.displaceInLine(n, worst)
	}
	n.insert(slot)
	if !s.refilling {
		s.advanceLane(l)
	}
}

// yield takes their places from the slots that would run out of turn, now that an older one
// has come, and that no worker has yet.
func (s *Shard) yield(l *lane, n *line, older *slotState) {
	if l.spec.policies.Overlap.Mode != job.OverlapQueue {
		return
	}
	for _, slot := range inOrder(maps.Keys(l.placed)) {
		if slot.row.State == job.Ready && older.row.Key.Less(slot.row.Key) {
			s.queue(slot.job.spec.handler).leave(slot)
			s.wheel.Cancel(slot.timer)
			slot.timer, slot.placed = 0, false
			delete(l.placed, slot)
			n.insert(slot)
		}
	}
}

// insert puts a slot into its place in line.
func (n *line) insert(slot *slotState) {
	at, _ := slices.BinarySearchFunc(n.slots, slot, func(a, b *slotState) int { return compareKeys(a.row.Key, b.row.Key) })
	n.slots = slices.Insert(n.slots, at, slot)
	slot.lined = true
}

// displaceInLine sends a slot to the backlog.
func (s *Shard) displaceInLine(n *line, slot *slotState) {
	slot.displaced = true
	n.far.add(wakeAt(&slot.row))
	s.deep[slot.row.Key.UID] = s.lane(slot.row.Key.UID)
	s.markDirty(slot)
}

// leaveLine takes a slot out of its line.
func (s *Shard) leaveLine(slot *slotState) {
	if !slot.lined {
		return
	}
	slot.lined = false
	n := s.lane(slot.row.Key.UID).lineFor(slot)
	if at := slices.Index(n.slots, slot); at >= 0 {
		n.slots = slices.Delete(n.slots, at, at+1)
	}
}

// noteLeft notes that a slot has left its lane: it is to be written no later than who runs
// in its stead.
func (s *Shard) noteLeft(slot *slotState) {
	if slot.dirty {
		l := s.laneOf(slot)
		l.left = append(l.left, slot)
	}
}

// sleepsFreely reports whether a slot that waits for its not-before may do so without its
// place: only so many may, for memory's sake.
func (s *Shard) sleepsFreely(slot *slotState) bool {
	return slot.job.spec.policies.Overlap.Mode == job.OverlapAllow && s.queue(slot.job.spec.handler).tierOf(slot).asleep < s.cfg.ReadyLimit
}

// overtaken reports whether another slot of its job has come meanwhile that goes before one
// that is to be tried again: an older one where they run in order, or one that may take its
// place.
func (s *Shard) overtaken(slot *slotState) bool {
	if !slot.placed {
		return false
	}
	n := s.laneOf(slot).lineFor(slot)
	switch slot.job.spec.policies.Overlap.Mode {
	case job.OverlapQueue:
		return len(n.slots) > 0 && n.slots[0].row.Key.Less(slot.row.Key)
	case job.OverlapReplace:
		return slot.row.RequestedAt == 0 && !n.empty()
	}
	return false
}

// freePlace takes a slot's place from it, and gives it to the next one.
func (s *Shard) freePlace(slot *slotState) {
	if !slot.placed {
		return
	}
	slot.placed = false
	l := s.lane(slot.row.Key.UID)
	delete(l.placed, slot)
	s.noteLeft(slot)
	s.advanceLane(l)
}

// advanceLane decides about who stands in line, and gives free places to the first.
func (s *Shard) advanceLane(l *lane) {
	l.blocked = false
	if l.spec == nil {
		s.dropLane(l)
		return
	}
	s.judge(l)
	limit, _ := l.spec.policies.Overlap.Limit()
	for len(l.placed) < limit {
		slot := s.first(l)
		if slot == nil {
			break
		}
		s.leaveLine(slot)
		slot.placed, l.turn = true, slot.line()
		l.placed[slot] = struct{}{}
		if slot.dirty && slot.storedState != job.Running { // it is to be written after the one whose place it got
			s.forgetDirty(slot)
			s.markDirty(slot)
		}
		s.enqueue(slot)
	}
	s.dropLane(l)
}

// dropLane forgets a lane in which nothing is.
func (s *Shard) dropLane(l *lane) {
	l.left = slices.DeleteFunc(l.left, func(slot *slotState) bool { return !slot.dirty })
	if len(l.placed)+len(l.left) == 0 && l.lines[0].empty() && l.lines[1].empty() {
		delete(s.lanes, l.uid)
	}
}

func (n *line) empty() bool { return len(n.slots) == 0 && n.far.rows == 0 }

// first returns the slot that gets the next place, or nil if there is none, or it isn't
// known yet which one it is.
func (s *Shard) first(l *lane) *slotState {
	for i := range l.lines {
		if mode := l.spec.policies.Overlap.Mode; mode == job.OverlapSkip || mode == job.OverlapReplace {
			i = (l.turn + 1 + i) % len(l.lines)
		}
		n := &l.lines[i]
		if n.empty() {
			continue
		}
		if len(n.slots) == 0 || !n.known() {
			return nil
		}
		slot := n.slots[0]
		if l.spec.policies.Overlap.Mode == job.OverlapQueue && s.owesBefore(slot.job, slot.row.Key.FireTime) {
			l.blocked = true
			return nil
		}
		return slot
	}
	return nil
}

// known reports whether no slot of the backlog comes before those in memory.
func (n *line) known() bool {
	return n.far.rows == 0 || n.far.unwritten == 0 && !n.stale
}

// wantsSlots reports whether slots of the line should come back to memory.
func (s *Shard) wantsSlots(n *line) bool {
	return n.far.rows > 0 && !n.far.reading && !n.far.paused && (n.stale || len(n.slots) < max(1, s.cfg.LineLimit/2))
}

// laneReads returns the reads of lines, in an order that doesn't depend on the map's.
func (s *Shard) laneReads() (reads []Read) {
	var wanting []*lane // this runs at every turn of the loop: most deep lanes want nothing
	for uid, l := range s.deep {
		if s.lanes[uid] != l || l.lines[0].far.rows+l.lines[1].far.rows == 0 {
			delete(s.deep, uid)
		} else if s.wantsSlots(&l.lines[0]) || s.wantsSlots(&l.lines[1]) {
			wanting = append(wanting, l)
		}
	}
	slices.SortFunc(wanting, func(a, b *lane) int { return slices.Compare(a.uid[:], b.uid[:]) })
	for _, l := range wanting {
		for i := range l.lines {
			n := &l.lines[i]
			if len(reads) >= maxLaneReads || !s.wantsSlots(n) {
				continue
			}
			n.far.read()
			reads = append(reads, Read{Kind: ReadWaiting, Handler: l.handler, Priority: n.tier, Fairness: l.uid.String(), From: n.far.after, Limit: s.cfg.LineLimit})
		}
	}
	return reads
}

// maxLaneReads bounds the lines that are read for at a time.
const maxLaneReads = 16

// lineLoaded takes slots of a line back to memory.
func (s *Shard) lineLoaded(e WaitingLoaded) {
	uid, err := job.ParseUID(e.Read.Fairness)
	if err != nil {
		return
	}
	l := s.lane(uid)
	n := &l.lines[e.Read.Priority&1]
	whole := true
	s.refilling = true
	for i := range e.Slots {
		w := &e.Slots[i]
		if slot := s.slots[w.Slot.Key]; slot != nil && slot.displaced {
			n.far.paused, whole = true, false // it hasn't left memory yet: go on from here once it has
			break
		}
		n.far.took(w.Row.Key)
		s.takeWaiting(w)
	}
	s.refilling = false
	n.stale = n.far.answered() || n.stale && !whole
	if whole && len(e.Slots) < e.Read.Limit {
		n.far.end()
	}
	s.advanceLane(l)
}

// judge leaves out, or ends, the slots of a lane that its job's policy doesn't let run
// beside another one. It waits until all of them are known. What a person asked for isn't
// judged: it stands in the other line.
func (s *Shard) judge(l *lane) {
	n := &l.lines[0]
	if n.far.rows > 0 {
		return
	}
	switch l.spec.policies.Overlap.Mode {
	case job.OverlapSkip:
		s.judgeSkip(l, n)
	case job.OverlapReplace:
		s.judgeReplace(l, n)
	}
}

// judgeSkip skips what came while another slot is open. A slot that was made up for never
// causes that: one live slot waits for it.
func (s *Shard) judgeSkip(l *lane, n *line) {
	var open *slotState // for which live slots don't wait
	held := false       // by something, or by somebody who waits for it
	for slot := range l.placed {
		held = true
		if slot.row.Trigger != job.TriggerBackfill && slot.row.RequestedAt == 0 {
			open = slot
		}
	}
	for _, slot := range slices.Clone(n.slots) {
		made := slot.row.Trigger == job.TriggerBackfill
		switch {
		case open != nil:
			s.skip(slot, job.CodeOverlaps, "the slot of "+open.row.Key.FireTime.String()+" was open")
		case made && held:
			s.skip(slot, job.CodeOverlaps, "another slot was open")
		case made:
			held = true
		default:
			open, held = slot, true
		}
	}
}

// judgeReplace lets the newest slot end all others.
func (s *Shard) judgeReplace(l *lane, n *line) {
	var newest *slotState
	for _, slot := range slices.Concat(slices.Collect(maps.Keys(l.placed)), n.slots) {
		if slot.row.RequestedAt == 0 && (newest == nil || newest.row.Key.Less(slot.row.Key)) {
			newest = slot
		}
	}
	if newest == nil {
		return
	}
	by := "the slot of " + newest.row.Key.FireTime.String() + " took its place"
	for _, slot := range slices.Clone(n.slots) {
		switch {
		case slot == newest:
		case slot.row.CreatedAt >= newest.row.CreatedAt && !slot.stored:
			s.skip(slot, job.CodeSuperseded, "the slot of "+newest.row.Key.FireTime.String()+" is newer")
		default:
			s.cancelAs(slot, job.CodeReplaced, by)
		}
	}
	for _, slot := range inOrder(maps.Keys(l.placed)) {
		switch {
		case slot == newest || slot.row.RequestedAt != 0:
		case slot.row.State == job.Running && !slot.doomed:
			// It frees its place when its end is known, and not before: two attempts of the
			// job never run at a time.
			slot.doomed = true
			s.stop(slot, StopCancelled)
			s.markDirty(slot)
		case slot.row.State == job.Ready:
			s.cancelAs(slot, job.CodeReplaced, by)
		}
	}
}

// skip leaves out a slot that waits.
func (s *Shard) skip(slot *slotState, code, why string) {
	slot.row.ErrorCode, slot.row.ErrorText = code, why
	s.finish(slot, job.Skipped)
}
