package core

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// model is a database of one shard in memory, with the store's semantics as far
// as a shard can see them. It also checks, at every commit, what must hold.
type model struct {
	t         *testing.T
	epoch     shard.Epoch
	watermark job.Instant
	openFrom  job.Instant
	jobs      map[job.UID]job.Job
	slots     map[job.SlotKey]job.Slot
	attempts  map[job.SlotKey][]job.Attempt
	late      []store.LateResult
	events    []store.Event
	backlog   map[store.BacklogKey]store.BacklogRow
	skips     map[[2]any]store.Skip // by job and end
	dead      map[job.SlotKey]bool
	gaps      map[store.GapKey]store.Gap
	inbox     map[job.UID]bool
	requests  map[string]store.Request
	successes map[job.SlotKey]int
	writes    int

	givenUp  bool
	retained job.Instant
	pruned   map[job.SlotKey]bool
	prunes   map[string]int // by what went
}

func newModel(t *testing.T, at job.Instant) *model {
	return &model{t: t, watermark: at, openFrom: at, jobs: map[job.UID]job.Job{}, slots: map[job.SlotKey]job.Slot{},
		attempts: map[job.SlotKey][]job.Attempt{}, backlog: map[store.BacklogKey]store.BacklogRow{}, skips: map[[2]any]store.Skip{}, dead: map[job.SlotKey]bool{},
		gaps: map[store.GapKey]store.Gap{}, inbox: map[job.UID]bool{}, requests: map[string]store.Request{}, successes: map[job.SlotKey]int{},
		pruned: map[job.SlotKey]bool{}, prunes: map[string]int{}}
}

func (m *model) commit(b store.ShardBatch) (out store.ShardOutcome) {
	if m.givenUp {
		m.t.Fatalf("the shard was given up, and then written: %+v", b)
	}
	m.givenUp = b.GiveUp
	m.writes += b.Rows()
	out = store.ShardOutcome{Creates: map[job.UID]job.Job{}, Slots: map[job.SlotKey]job.Slot{}, Requests: map[string]store.Request{}}
	for _, c := range b.Creates {
		m.create(c, &out)
	}
	for _, e := range b.Ends {
		if j := m.jobs[e.UID]; j.EndedAt == 0 {
			j.EndedAt, j.EndedByItself = e.EndedAt, e.ByItself
			m.jobs[e.UID] = j
		}
	}
	lost := map[job.SlotKey]bool{}
	for _, r := range b.Requests {
		if old, ok := m.requests[r.Namespace+"/"+r.RequestID]; ok && old.Key != r.Key {
			out.Requests[r.Namespace+"/"+r.RequestID] = old
			lost[r.Key] = true
			continue
		}
		m.requests[r.Namespace+"/"+r.RequestID] = r
	}
	for _, s := range b.Slots {
		if !lost[s.Key] {
			m.insert(s, &out)
		}
	}
	for _, u := range b.Updates {
		m.update(u, &out)
	}
	for _, a := range b.Attempts {
		m.attempts[a.Key] = append(m.attempts[a.Key], a.Attempt)
	}
	m.late = append(m.late, b.Lates...)
	m.events = append(m.events, b.Events...)
	for _, k := range b.BacklogDels {
		delete(m.backlog, k)
	}
	for _, r := range b.BacklogPuts {
		if s := m.slots[r.Key.Slot]; (s.State == job.Ready && r.Key.Waiting || s.State == job.Running && !r.Key.Waiting) && readyAt(&s) == r.ReadyAt && s.Trigger == r.Trigger {
			if _, there := m.backlog[r.Key]; !there {
				m.backlog[r.Key] = r
			}
		}
	}
	for _, d := range b.DeadPuts {
		if m.slots[d.Key].State == job.Dead {
			m.dead[d.Key] = true
		}
	}
	for _, k := range b.DeadDels {
		delete(m.dead, k)
	}
	for _, g := range b.GapPuts {
		m.gaps[g.Key] = g
	}
	for _, c := range b.GapChanges {
		g, ok := m.gaps[c.Key]
		if !ok {
			m.t.Fatalf("gap %v was changed, and isn't there", c.Key)
		}
		g.Options = c.Options
		m.gaps[c.Key] = g
	}
	for _, mv := range b.GapMoves {
		g, ok := m.gaps[mv.Key]
		if !ok || g.Cursor != mv.From {
			m.t.Fatalf("gap %v moved from %v, stands at %v", mv.Key, mv.From, g.Cursor)
		}
		g.Cursor = mv.To
		m.gaps[mv.Key] = g
		if mv.Closed {
			delete(m.gaps, mv.Key)
		}
	}
	for _, k := range b.Skips {
		if _, there := m.skips[[2]any{k.UID, k.To}]; !there {
			m.skips[[2]any{k.UID, k.To}] = k
		}
	}
	for _, uid := range b.InboxDels {
		delete(m.inbox, uid)
	}
	if b.Watermark != 0 && b.Watermark < m.watermark {
		m.t.Fatalf("the watermark fell from %v to %v", m.watermark, b.Watermark)
	}
	m.prune(b)
	m.watermark, m.openFrom = max(m.watermark, b.Watermark), max(m.openFrom, b.OpenFrom)
	m.check(b)
	return out
}

// prune deletes what a batch says, and asserts that it may go.
func (m *model) prune(b store.ShardBatch) {
	m.retained = max(m.retained, b.RetainedFrom)
	for _, g := range m.gaps {
		if b.RetainedFrom > g.Cursor.FireTime {
			m.t.Fatalf("the line %v lies beyond what is still to be made: %+v", b.RetainedFrom, g)
		}
	}
	for _, p := range b.SlotPrunes {
		s, ok := m.slots[p.Key]
		if !ok || s.State != p.State || s.Attempt != p.Attempt {
			continue
		}
		if s.State.Open() || p.Key.FireTime >= m.retained {
			m.t.Fatalf("slot %+v was pruned, the line is %v", s, m.retained)
		}
		delete(m.slots, p.Key)
		delete(m.attempts, p.Key)
		delete(m.dead, p.Key)
		m.pruned[p.Key] = true
		m.prunes[s.State.String()]++
	}
	for _, uid := range b.JobPrunes {
		j := m.jobs[uid]
		for key := range m.slots {
			if key.UID == uid {
				m.t.Fatalf("job %s was pruned with its slot %v", j.Name, key)
			}
		}
		if j.EndedAt == 0 || m.inbox[uid] {
			m.t.Fatalf("job %+v was pruned", j)
		}
		delete(m.jobs, uid)
		m.prunes["job"]++
	}
	for id, r := range m.requests {
		if r.Key.FireTime < b.Old.RequestsBefore {
			delete(m.requests, id)
			m.prunes["request"]++
		}
	}
}

func (m *model) create(c store.Create, out *store.ShardOutcome) {
	for _, uid := range slices.SortedFunc(maps.Keys(m.jobs), func(a, b job.UID) int { return slices.Compare(a[:], b[:]) }) {
		j := m.jobs[uid]
		sameName := j.Name == c.Job.Name && j.EndedAt == 0
		if sameName || j.RequestID != "" && j.RequestID == c.Job.RequestID {
			out.Creates[c.Job.UID] = j
			return
		}
	}
	m.jobs[c.Job.UID] = c.Job
	for _, s := range c.Slots {
		m.insert(s, out)
	}
}

func (m *model) insert(s job.Slot, out *store.ShardOutcome) {
	if stands, ok := m.slots[s.Key]; ok {
		out.Slots[s.Key] = stands
		return
	}
	m.put(s)
}

func (m *model) update(u store.SlotUpdate, out *store.ShardOutcome) {
	stands := m.slots[u.Slot.Key]
	if stands.State != u.FromState || stands.Attempt != u.FromAttempt {
		stands.Key = u.Slot.Key
		out.Slots[u.Slot.Key] = stands
		return
	}
	if !stands.State.CanBecome(u.Slot.State) {
		m.t.Fatalf("slot %v went from %v to %v", stands.Key, stands.State, u.Slot.State)
	}
	m.put(u.Slot)
}

func (m *model) put(s job.Slot) {
	if m.pruned[s.Key] {
		m.t.Fatalf("slot %v was made again after it was pruned", s.Key)
	}
	m.slots[s.Key] = s
	if s.State == job.Succeeded {
		m.successes[s.Key]++
	}
}

// check asserts the invariants that a reader of the database may rely on.
func (m *model) check(b store.ShardBatch) {
	for key, n := range m.successes {
		if n > 1 {
			m.t.Fatalf("slot %v succeeded %d times", key, n)
		}
	}
	listed := map[job.SlotKey]bool{}
	for k := range m.backlog {
		listed[k.Slot] = true
	}
	for key, s := range m.slots {
		if s.State.Open() && key.FireTime < m.openFrom && !listed[key] {
			m.t.Fatalf("open slot %+v lies before open-from %v and not in the backlog; batch %+v", s, m.openFrom, b)
		}
		if (s.State == job.Dead) != m.dead[key] {
			m.t.Fatalf("slot %v is %v, dead letter %v", key, s.State, m.dead[key])
		}
	}
	for uid, j := range m.jobs {
		if !m.inbox[uid] && j.Quarantine == "" {
			m.checkWatermark(j)
		}
	}
	for key, s := range m.slots {
		m.checkExcluded(key, s)
	}
	m.checkClaims(b)
}

// checkClaims asserts that the claims of a batch are such that their jobs' policies allow.
func (m *model) checkClaims(b store.ShardBatch) {
	for _, s := range b.Slots {
		if stands := m.slots[s.Key]; s.State == job.Running && stands.Same(&s) {
			m.checkClaim(s)
		}
	}
	for _, u := range b.Updates {
		if stands := m.slots[u.Slot.Key]; u.Slot.State == job.Running && u.FromState != job.Running && stands.Same(&u.Slot) {
			m.checkClaim(u.Slot)
		}
	}
}

func (m *model) checkClaim(s job.Slot) {
	j := m.jobs[s.Key.UID]
	p := j.Policies
	before := s
	before.State, before.StartedAt = job.Ready, 0
	if p.ExpiresAt(&before) < s.ClaimedAt {
		m.t.Fatalf("slot %+v was claimed beyond its deadline %v", s, p.ExpiresAt(&before))
	}
	limit, limited := p.Overlap.Limit()
	if !limited {
		return
	}
	running := 0
	for key, o := range m.slots {
		if key.UID != s.Key.UID || key == s.Key || !o.State.Open() {
			continue
		}
		if o.State == job.Running {
			running++
		}
		switch older := key.Less(s.Key); {
		case max(o.RequestedAt, o.CreatedAt) >= s.ClaimedAt: // it came later
		case p.Overlap.Mode == job.OverlapQueue && older:
			m.t.Fatalf("slot %v was claimed before %+v", s.Key, o)
		case p.Overlap.Mode == job.OverlapReplace && !older && o.CreatedAt < s.ClaimedAt && o.RequestedAt == 0 && s.RequestedAt == 0:
			m.t.Fatalf("slot %v was claimed although there is a newer one, %+v", s.Key, o)
		}
	}
	if running >= limit {
		m.t.Fatalf("%d others run beside slot %v of a job with the limit %d: %+v", running, s.Key, limit, p)
	}
	if p.Overlap.Mode == job.OverlapQueue && j.Schedule.Kind.Recurring() && s.RequestedAt == 0 {
		for _, at := range expected(m.t, j, s.Key.FireTime-1) {
			key := job.SlotKey{FireTime: at, UID: j.UID}
			if _, made := m.slots[key]; !made && !m.pruned[key] && !m.skipped(key) && m.owed(p, key) {
				m.t.Fatalf("slot %v was claimed before the gap's %v was made", s.Key, at)
			}
		}
	}
}

// owed reports whether an occurrence that isn't made yet lies in a gap and may be made up
// for.
func (m *model) owed(p job.Policies, key job.SlotKey) bool {
	return p.CatchUp == job.CatchUp{} && m.inGap(key)
}

// checkWatermark asserts invariant W for a job.
func (m *model) checkWatermark(j job.Job) {
	for at := range m.owedUpTo(j, m.watermark) {
		key := job.SlotKey{FireTime: at, UID: j.UID}
		if _, ok := m.slots[key]; !ok && !m.pruned[key] {
			m.t.Fatalf("occurrence %v of %s lies before the watermark %v and has neither slot nor gap: %+v gaps %v", at, j.Name, m.watermark, j, m.gaps)
		}
	}
}

// owedUpTo yields the occurrences of a job up to an instant that lie neither in a gap nor in
// a range that was left out: those it leaps over, for they may be millions.
func (m *model) owedUpTo(j job.Job, until job.Instant) iter.Seq[job.Instant] {
	return func(yield func(job.Instant) bool) {
		if !j.Schedule.Kind.Recurring() {
			for _, at := range expected(m.t, j, until) {
				if key := (job.SlotKey{FireTime: at, UID: j.UID}); !m.inGap(key) {
					yield(at)
				}
			}
			return
		}
		p, err := j.Plan()
		if err != nil {
			m.t.Fatal(err)
		}
		if j.EndedAt != 0 {
			until = min(until, j.EndedAt)
		}
		for after := j.EffectiveFrom; ; {
			sec, ok := p.Next(after.Seconds())
			at := job.AtSecond(sec)
			if !ok || at > until {
				return
			}
			end, left := m.leap(job.SlotKey{FireTime: at, UID: j.UID})
			if !left && !yield(at) {
				return
			}
			after = end
		}
	}
}

// leap returns the end of the gap or the range in which an occurrence lies, and whether it
// lies in one.
func (m *model) leap(key job.SlotKey) (job.Instant, bool) {
	for _, k := range m.skips {
		if k.UID == key.UID && k.From <= key.FireTime && key.FireTime <= k.To {
			return k.To, true
		}
	}
	for _, g := range m.gaps {
		if (g.Key.UID.IsZero() || g.Key.UID == key.UID) && key.FireTime <= g.Key.To && g.Cursor.Less(key) {
			return g.Key.To, true
		}
	}
	return key.FireTime, false
}

// checkExcluded asserts that what a calendar excludes is skipped, and nothing else. Jobs
// that have ended owe their occurrences as cancelled ones.
func (m *model) checkExcluded(key job.SlotKey, s job.Slot) {
	j := m.jobs[key.UID]
	if s.Trigger != job.TriggerSchedule && s.Trigger != job.TriggerBackfill || s.State == job.Cancelled {
		return
	}
	except, err := schedule.ParseExclusions(j.Schedule.Calendars)
	if excluded := except.By(key.FireTime.Seconds()) != nil; err != nil || excluded != (s.State == job.Skipped && s.ErrorCode == job.CodeExcluded) {
		m.t.Fatalf("slot %v is %v; excluded: %v (%v)", key, s.State, excluded, err)
	}
}

// skipped reports whether an occurrence lies in a range that was left out.
func (m *model) skipped(key job.SlotKey) bool {
	for _, k := range m.skips {
		if k.UID == key.UID && k.From <= key.FireTime && key.FireTime <= k.To {
			return true
		}
	}
	return false
}

func (m *model) inGap(key job.SlotKey) bool {
	for _, g := range m.gaps {
		if (g.Key.UID.IsZero() || g.Key.UID == key.UID) && key.FireTime <= g.Key.To && g.Cursor.Less(key) {
			return true
		}
	}
	return false
}

// expected lists the occurrences of a job up to an instant.
func expected(t *testing.T, j job.Job, until job.Instant) []job.Instant {
	if j.EndedAt != 0 {
		until = min(until, j.EndedAt)
	}
	if j.Schedule.Kind == job.KindOnce {
		if j.Schedule.At <= until {
			return []job.Instant{j.Schedule.At}
		}
		return nil
	}
	if !j.Schedule.Kind.Recurring() {
		return nil
	}
	p, err := j.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var out []job.Instant
	for at := range p.Between(j.EffectiveFrom.Seconds(), until.Seconds()) {
		out = append(out, job.AtSecond(at))
	}
	return out
}

func (m *model) load() (o store.Owned, l store.Loaded) {
	m.epoch++
	m.givenUp = false
	oldest := m.watermark
	for _, g := range m.gaps {
		l.Gaps = append(l.Gaps, g)
		oldest = min(oldest, g.Cursor.FireTime)
	}
	slices.SortFunc(l.Gaps, func(a, b store.Gap) int { return cmp.Compare(a.Key.To, b.Key.To) })
	for uid, j := range m.jobs {
		if j.Schedule.Kind.Recurring() && !m.inbox[uid] && (j.EndedAt == 0 || j.EndedAt >= oldest) {
			l.Recurring = append(l.Recurring, j)
		}
	}
	counts := map[[3]any]*store.BacklogCount{}
	waiting := map[job.SlotKey]bool{}
	for k, row := range m.backlog {
		if !k.Waiting {
			s := m.slots[k.Slot]
			l.Claimed = append(l.Claimed, store.SlotOf{Slot: s, Job: m.jobs[k.Slot.UID]})
			continue
		}
		waiting[k.Slot] = true
		group := [3]any{k.Handler, k.Priority, k.Fairness}
		c := counts[group]
		if c == nil {
			c = &store.BacklogCount{Handler: k.Handler, Priority: k.Priority, Fairness: k.Fairness, WakeAt: row.WakeAt}
			counts[group] = c
		}
		c.Rows++
		c.WakeAt = min(c.WakeAt, row.WakeAt)
		if row.CheckAt != 0 && (l.CheckAt == 0 || row.CheckAt < l.CheckAt) {
			l.CheckAt = row.CheckAt
		}
	}
	for _, c := range counts {
		l.Backlog = append(l.Backlog, *c)
	}
	defer func() {
		byKey := func(a, b store.SlotOf) int { return compareKeys(a.Slot.Key, b.Slot.Key) }
		slices.SortFunc(l.Open, byKey)
		slices.SortFunc(l.Claimed, byKey)
		slices.SortFunc(l.Recurring, func(a, b job.Job) int { return slices.Compare(a.UID[:], b.UID[:]) })
	}()
	for key, s := range m.slots {
		if s.State.Open() && key.FireTime >= m.openFrom && !waiting[key] {
			l.Open = append(l.Open, store.SlotOf{Slot: s, Job: m.jobs[key.UID]})
		}
	}
	return store.Owned{Proof: shard.Proof{Shard: 3, Epoch: m.epoch}, Watermark: m.watermark, OpenFrom: m.openFrom, RetainedFrom: m.retained}, l
}

func (m *model) answer(r Read) Event {
	switch r.Kind {
	case ReadOnce:
		return OnceLoaded{Read: r, Jobs: m.onceJobs(r)}
	case ReadGapOnce:
		return GapOnceLoaded{Read: r, Jobs: m.onceJobs(r)}
	case ReadInbox:
		var jobs []job.Job
		for uid := range m.inbox {
			jobs = append(jobs, m.jobs[uid])
		}
		slices.SortFunc(jobs, func(a, b job.Job) int { return slices.Compare(a.UID[:], b.UID[:]) })
		return InboxLoaded{Read: r, Jobs: jobs}
	case ReadSlot:
		if s, ok := m.slots[r.Key]; ok {
			return SlotLoaded{Key: r.Key, Found: &store.SlotOf{Slot: s, Job: m.jobs[r.Key.UID]}}
		}
		return SlotLoaded{Key: r.Key}
	case ReadOldSlots:
		return OldSlotsLoaded{Read: r, Slots: m.oldSlots(r)}
	case ReadEndedJobs:
		return EndedJobsLoaded{Read: r, Jobs: m.endedJobs(r, func(j job.Job) (job.Instant, bool) { return j.EndedAt, j.EndedAt != 0 })}
	case ReadDoneJobs:
		var jobs []store.DoneJob
		for _, j := range m.endedJobs(r, m.single) {
			jobs = append(jobs, store.DoneJob{EndedJob: j, Done: m.done(m.jobs[j.UID], r.Ended.Before)})
		}
		return DoneJobsLoaded{Read: r, Jobs: jobs}
	case ReadSpent:
		return SpentLoaded{Read: r, Done: m.spent(r)}
	case ReadOldest:
		var old store.Old
		for _, q := range m.requests {
			if old.RequestsFrom == 0 || q.Key.FireTime < old.RequestsFrom {
				old.RequestsFrom = q.Key.FireTime
			}
		}
		return OldestLoaded{Read: r, Oldest: old}
	}
	return WaitingLoaded{Read: r, Slots: m.waiting(r)}
}

// spent reports whether nothing of a recurring job keeps it from ending.
func (m *model) spent(r Read) bool {
	for key, s := range m.slots {
		lately := s.FinishedAt >= r.Until && (s.Trigger == job.TriggerManual || key.FireTime == r.After.FireTime)
		if key.UID == r.UID && (s.State.Open() || s.State == job.Dead || lately) {
			return false
		}
	}
	return true
}

func (m *model) oldSlots(r Read) (slots []store.PruneSlot) {
	for key, s := range m.slots {
		if r.After.Less(key) && key.FireTime < r.Until {
			slots = append(slots, store.PruneSlot{SlotPrune: store.SlotPrune{Key: key, State: s.State, Attempt: s.Attempt}, FinishedAt: s.FinishedAt, Retention: m.jobs[key.UID].Policies.Retention})
		}
	}
	slices.SortFunc(slots, func(a, b store.PruneSlot) int { return compareKeys(a.Key, b.Key) })
	return slots[:min(len(slots), r.Limit)]
}

// single reports whether a job lives and fires once, and when it was due.
func (m *model) single(j job.Job) (job.Instant, bool) {
	due := j.CreatedAt
	if j.Schedule.Kind == job.KindOnce {
		due = j.Schedule.At
	}
	return due, !j.Schedule.Kind.Recurring() && j.EndedAt == 0
}

// done reports whether such a job has ended by itself before an instant.
func (m *model) done(j job.Job, before job.Instant) bool {
	for key, s := range m.slots {
		if key.UID == j.UID && (s.State.Open() || s.State == job.Dead || s.FinishedAt >= before) {
			return false
		}
	}
	return j.Quarantine == "" && !m.inbox[j.UID]
}

func (m *model) endedJobs(r Read, which func(job.Job) (job.Instant, bool)) (jobs []store.EndedJob) {
	for uid, j := range m.jobs {
		at, ok := which(j)
		after := at > r.Ended.AfterTime || at == r.Ended.AfterTime && r.Ended.AfterUID.Less(uid)
		if ok && after && at < r.Ended.Before {
			jobs = append(jobs, store.EndedJob{UID: uid, At: at})
		}
	}
	slices.SortFunc(jobs, func(a, b store.EndedJob) int {
		return cmp.Or(cmp.Compare(a.At, b.At), slices.Compare(a.UID[:], b.UID[:]))
	})
	return jobs[:min(len(jobs), r.Ended.Limit)]
}

func (m *model) onceJobs(r Read) (jobs []job.Job) {
	for uid, j := range m.jobs {
		key := job.SlotKey{FireTime: j.Schedule.At, UID: uid}
		if j.Schedule.Kind == job.KindOnce && (j.EndedAt == 0 || j.EndedAt >= j.Schedule.At) && !m.inbox[uid] && r.After.Less(key) && j.Schedule.At <= r.Until {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b job.Job) int {
		return cmp.Or(cmp.Compare(a.Schedule.At, b.Schedule.At), slices.Compare(a.UID[:], b.UID[:]))
	})
	return jobs[:min(len(jobs), r.Limit)]
}

func (m *model) waiting(r Read) (slots []store.BacklogSlot) {
	for k, row := range m.backlog {
		match := k.Handler == r.Handler && k.Priority == r.Priority && k.Fairness == r.Fairness && backlogLess(r.From, k)
		switch {
		case !r.UID.IsZero():
			match = k.Slot.UID == r.UID
		case r.Checks:
			match = row.CheckAt != 0
		}
		if k.Waiting && match {
			slots = append(slots, store.BacklogSlot{Row: row, SlotOf: store.SlotOf{Slot: m.slots[k.Slot], Job: m.jobs[k.Slot.UID]}})
		}
	}
	slices.SortFunc(slots, func(a, b store.BacklogSlot) int {
		if r.Checks {
			return cmp.Compare(a.Row.CheckAt, b.Row.CheckAt)
		}
		if backlogLess(a.Row.Key, b.Row.Key) {
			return -1
		}
		return 1
	})
	return slots[:min(len(slots), r.Limit)]
}

func backlogLess(a, b store.BacklogKey) bool {
	if a.Rank != b.Rank {
		return a.Rank < b.Rank
	}
	return a.Slot.Less(b.Slot)
}

// rig drives a shard against a model.
type rig struct {
	*model
	s       *Shard
	cfg     Config
	workers *Workers
	now     job.Instant
	said    []Message
	lastUID byte
	room    func() int
	hold    bool // batches stay under way
	eager   func() bool
	answers []Event // of reads that were asked for before the batch under way
	held    *Batch
	deaf    func(Read) bool // reads that are not answered
	unheard []Read
}

const t0 = 1_800_000_000 // Unix seconds

func newRig(t *testing.T) *rig {
	r := &rig{now: job.AtSecond(t0), workers: NewWorkers(), room: func() int { return store.MaxBatchRows }, eager: func() bool { return false }, cfg: DefaultConfig(func() float64 { return 0 })}
	r.cfg.Shards = 8
	r.model = newModel(t, r.now)
	r.restart()
	return r
}

// restart throws the shard away, as a crash does, and loads it anew.
func (r *rig) restart() {
	owned, loaded := r.load()
	r.held, r.answers = nil, nil
	r.s = New(r.cfg, owned, loaded, r.workers, r.now)
	r.pump()
}

// step gives the shard an event and then runs everything that follows from it.
func (r *rig) step(e Event) {
	r.t.Helper()
	r.s.Step(r.now, e)
	r.pump()
}

// sleep lets time go by, wake by wake.
func (r *rig) sleep(d time.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	idle := 0
	for r.now < end {
		if wake := r.s.NextWake(); wake <= r.now && !r.hold {
			if idle++; idle > 20 {
				r.t.Fatalf("the shard spins: it wants to be woken at %s, now is %s", wake, r.now)
			}
		} else {
			idle = 0
		}
		r.now = min(max(r.s.NextWake(), r.now+1000), end)
		for key := range r.workers.All() { // heartbeats
			r.workers.Get(key).LeaseUntil = r.now.Add(r.cfg.Lease)
		}
		r.step(Tick{})
	}
}

func (r *rig) pump() {
	r.t.Helper()
	for range 10_000 {
		r.said = append(r.said, r.s.Messages()...)
		if err := r.s.Fault(); err != nil {
			r.t.Fatalf("false step: %v", err)
		}
		for handler := range r.s.queues {
			for r.s.Dispatch(handler) {
			}
		}
		if r.eager() { // a node may ask for reads before it commits, or after
			for _, read := range r.s.Reads() {
				r.answers = append(r.answers, r.answer(read))
			}
		}
		b := r.s.Ready(r.now, r.room())
		if b != nil {
			r.s.Prune(&b.Rows, r.room())
		}
		if b != nil && r.hold {
			r.held = b
			return
		}
		if b != nil {
			r.s.Step(r.now, Committed{Outcome: r.commit(b.Rows)})
			r.deliver()
			continue
		}
		r.deliver()
		reads := r.s.Reads()
		for _, read := range reads {
			if r.deaf != nil && r.deaf(read) {
				r.unheard = append(r.unheard, read)
				continue
			}
			r.s.Step(r.now, r.answer(read))
		}
		if len(reads) == 0 && len(r.s.outbox) == 0 {
			for _, slot := range r.s.slots {
				if !r.s.armed(slot) {
					r.t.Fatalf("nothing ends the wait of slot %+v", slot.row)
				}
			}
			return
		}
	}
	r.t.Fatal("the shard never comes to rest")
}

// deliver hands over what was read before a batch, and perhaps did not see it.
func (r *rig) deliver() {
	answers := r.answers
	r.answers = nil
	for _, e := range answers {
		r.s.Step(r.now, e)
	}
}

// release commits the batch that was held.
func (r *rig) release() {
	r.t.Helper()
	r.hold = false
	if b := r.held; b != nil {
		r.held = nil
		r.step(Committed{Outcome: r.commit(b.Rows)})
	}
}

func (r *rig) newJob(name string, s job.Schedule) job.Job {
	r.lastUID++
	if s.Kind.Recurring() {
		s.Dialect = schedule.DialectVersion
	}
	if err := s.Count(r.now); err != nil {
		r.t.Fatal(err)
	}
	return job.Job{UID: job.UID{0: 1, 15: r.lastUID}, Shard: 3, Namespace: "default", Name: name, Handler: "h", Schedule: s,
		Retry: job.RetryPolicy{MaxAttempts: 3, InitialBackoff: time.Second, MaxBackoff: time.Minute, Factor: 2}, Timeout: 30 * time.Second, RequestHash: name}
}

var everySecond = job.Schedule{Kind: job.KindCron, Cron: "* * * * * *"}

func onceAt(d time.Duration) job.Schedule {
	return job.Schedule{Kind: job.KindOnce, At: job.AtSecond(t0).Add(d)}
}

// create creates a job and returns it as it is stored.
func (r *rig) create(j job.Job) job.Job {
	r.t.Helper()
	r.step(Create{Tag: uint64(r.lastUID), Job: j})
	if r.hold {
		return j
	}
	reply := find[Reply](r)
	if reply.Job == nil {
		r.t.Fatalf("create of %s: %+v", j.Name, reply)
	}
	return *reply.Job
}

// join adds a worker.
func (r *rig) join(id string, capacity int) WorkerKey {
	key := WorkerKey{ID: id, Incarnation: "1"}
	r.workers.Join(key, []string{"h"}, capacity, capacity, r.now.Add(r.cfg.Lease))
	r.pump()
	return key
}

// assigned takes the assignments that were sent.
func (r *rig) assigned() []Assign { return takeAll[Assign](r) }

// finish reports a result of an assignment.
func (r *rig) finish(a Assign, outcome job.Outcome) {
	r.t.Helper()
	r.step(Result{Worker: a.Worker, Token: a.Token, Outcome: outcome, StartedAt: r.now, Text: []byte("text")})
	r.workers.AddCredit(r.workers.Get(a.Worker.ID), 1)
	r.pump()
}

// find takes the newest message of a kind.
func find[M Message](r *rig) M {
	r.t.Helper()
	all := takeAll[M](r)
	if len(all) == 0 {
		var m M
		r.t.Fatalf("no %T was sent", m)
	}
	return all[len(all)-1]
}

func takeAll[M Message](r *rig) (out []M) {
	r.said = slices.DeleteFunc(r.said, func(m Message) bool {
		x, ok := m.(M)
		if ok {
			out = append(out, x)
		}
		return ok
	})
	return out
}

// states counts the slots by state.
func (r *rig) states() string {
	counts := map[job.State]int{}
	for _, s := range r.slots {
		counts[s.State]++
	}
	out := ""
	for s := job.Ready; s <= job.Discarded; s++ {
		if counts[s] > 0 {
			out += fmt.Sprintf("%v:%d ", s, counts[s])
		}
	}
	return out
}

func (r *rig) wantStates(want string) {
	r.t.Helper()
	if got := r.states(); got != want {
		r.t.Fatalf("slots %s, want %s", got, want)
	}
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
