package model

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storekit"
)

// Job implements store.Reader.
func (m *Store) Job(ctx context.Context, id shard.ID, namespace, name string) (job.Job, error) {
	if err := m.enter(ctx); err != nil {
		return job.Job{}, err
	}
	defer m.leave()
	named := m.named(id, nameKey{namespace, name})
	if len(named) == 0 {
		return job.Job{}, notFound("job %s/%s", namespace, name)
	}
	return copyJob(named[0]), nil
}

// JobUIDs implements store.Reader.
func (m *Store) JobUIDs(ctx context.Context, id shard.ID, namespace, name string) ([]job.UID, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.leave()
	var uids []job.UID
	for _, j := range m.named(id, nameKey{namespace, name}) {
		uids = append(uids, j.UID)
	}
	return uids, nil
}

// named returns the jobs of a shard that have had a name: the live one, and then those that
// ended last.
func (m *Store) named(id shard.ID, name nameKey) []*job.Job {
	var jobs []*job.Job
	for k, j := range m.names.from(jobKey{nameKey: name, shard: math.MinInt32}) {
		if k.nameKey != name {
			break
		}
		if k.shard == id {
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(a, b *job.Job) int { return cmp.Compare(endOf(b), endOf(a)) })
	return jobs
}

// endOf is when a job ended. The end of a live one is yet to come.
func endOf(j *job.Job) job.Instant {
	if j.EndedAt == 0 {
		return math.MaxInt64
	}
	return j.EndedAt
}

// JobByUID implements store.Reader.
func (m *Store) JobByUID(ctx context.Context, namespace string, uid job.UID) (job.Job, error) {
	if err := m.enter(ctx); err != nil {
		return job.Job{}, err
	}
	defer m.leave()
	for _, s := range m.shards {
		if j, found := s.jobs.get(uid); found && j.Namespace == namespace {
			return copyJob(j), nil
		}
	}
	return job.Job{}, notFound("job %s", uid)
}

// JobByRequest implements store.Reader.
func (m *Store) JobByRequest(ctx context.Context, id shard.ID, namespace, requestID string) (job.Job, error) {
	s, err := m.read(ctx, id)
	if err != nil {
		return job.Job{}, err
	}
	defer m.leave()
	if j := s.asked[requestKey{namespace, requestID}]; j != nil {
		return copyJob(j), nil
	}
	return job.Job{}, notFound("request %s", requestID)
}

// Jobs implements store.Reader.
func (m *Store) Jobs(ctx context.Context, p store.JobsPage) ([]job.Job, store.JobCursor, error) {
	if err := m.enter(ctx); err != nil {
		return nil, store.JobCursor{}, err
	}
	defer m.leave()
	return storekit.JobsPage(p, func(after store.JobCursor, limit int) ([]job.Job, error) {
		var jobs []job.Job
		for k, j := range m.names.after(jobKey{nameKey{p.Namespace, after.Name}, after.UID, math.MaxInt32}) {
			if k.namespace != p.Namespace || len(jobs) == limit {
				break
			}
			if p.ShowEnded || j.EndedAt == 0 {
				jobs = append(jobs, copyJob(j))
			}
		}
		return jobs, nil
	})
}

// SlotsByKey implements store.Reader.
func (m *Store) SlotsByKey(ctx context.Context, id shard.ID, keys []job.SlotKey) ([]job.Slot, error) {
	s, err := m.read(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var slots []job.Slot
	for _, key := range keys {
		if slot, found := s.slots.get(key); found {
			slots = append(slots, *slot)
		}
	}
	return slots, nil
}

// KeysBefore implements store.Reader.
func (m *Store) KeysBefore(ctx context.Context, id shard.ID, before job.SlotKey, limit int) ([]job.SlotKey, error) {
	s, err := m.read(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var keys []job.SlotKey
	for key := range s.slots.before(before) {
		if len(keys) == limit {
			break
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// UnscheduledSlots implements store.Reader.
func (m *Store) UnscheduledSlots(ctx context.Context, id shard.ID, uid job.UID, before job.Instant, limit int) ([]job.Slot, error) {
	s, err := m.read(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var slots []job.Slot
	for k, slot := range s.unscheduled.before(slotOfJob{uid, before}) {
		if k.uid != uid || len(slots) == limit {
			break
		}
		slots = append(slots, *slot)
	}
	return slots, nil
}

// Slots implements store.Reader.
func (m *Store) Slots(ctx context.Context, p store.SlotsPage) ([]store.SlotOf, store.SlotCursor, error) {
	if err := m.enter(ctx); err != nil {
		return nil, store.SlotCursor{}, err
	}
	defer m.leave()
	return storekit.SlotsPage(ctx, p, len(m.shards), m.newest)
}

func (m *Store) newest(_ context.Context, ranges []storekit.Range) ([][]store.SlotOf, error) {
	answers := make([][]store.SlotOf, len(ranges))
	for i, r := range ranges {
		s := m.shard(r.Shard)
		for key, slot := range s.slots.before(r.Before) {
			if key.FireTime < r.From || len(answers[i]) == r.Limit {
				break
			}
			answers[i] = s.appendSlotOf(answers[i], slot)
		}
	}
	return answers, nil
}

// CountSlots implements store.Reader.
func (m *Store) CountSlots(ctx context.Context, namespace string, since job.Instant) (store.SlotCounts, error) {
	if err := m.enter(ctx); err != nil {
		return store.SlotCounts{}, err
	}
	defer m.leave()
	tally := storekit.NewTally(since)
	for _, s := range m.shards {
		tally.Shard(s.countSlots(namespace, tally.Since()))
	}
	out := tally.Finish()
	for _, s := range m.shards {
		out.ByState[job.Dead] += s.countDead(namespace, out.Since)
		s.countBehind(namespace, out)
	}
	return out, nil
}

// countSlots counts the newest slots by state and bucket.
func (s *rows) countSlots(namespace string, since job.Instant) []storekit.Count {
	var counts []storekit.Count
	looked := 0
	for key, slot := range s.slots.backward() {
		if key.FireTime < since || looked == storekit.CountBudget {
			break
		}
		looked++
		if j, found := s.jobs.get(key.UID); found {
			var c *storekit.Count
			counts, c = counter(counts, slot.State, key.FireTime-key.FireTime%storekit.Bucket)
			c.Looked++
			if j.Namespace == namespace {
				c.Slots++
			}
		}
	}
	return counts
}

// counter finds the count of a state in a bucket, which is the last one of the counts, or
// adds it.
func counter(counts []storekit.Count, state job.State, bucket job.Instant) ([]storekit.Count, *storekit.Count) {
	for i := len(counts) - 1; i >= 0 && counts[i].Bucket == bucket; i-- {
		if counts[i].State == state {
			return counts, &counts[i]
		}
	}
	counts = append(counts, storekit.Count{State: state, Bucket: bucket})
	return counts, &counts[len(counts)-1]
}

// countDead counts the dead letters of slots that were due before an instant.
func (s *rows) countDead(namespace string, until job.Instant) (n int64) {
	for key, d := range s.dead.all() {
		if key.FireTime >= until {
			break
		}
		if d.Namespace == namespace {
			n++
		}
	}
	return n
}

// countBehind adds the slots of the backlog that are older than all that were counted.
func (s *rows) countBehind(namespace string, out store.SlotCounts) {
	for k := range s.backlog.all() {
		if k.Slot.FireTime >= out.Since {
			continue
		}
		if j, found := s.jobs.get(k.Slot.UID); found && j.Namespace == namespace {
			state := job.Running
			if k.Waiting {
				state = job.Ready
			}
			out.ByState[state]++
		}
	}
}

// Attempts implements store.Reader.
func (m *Store) Attempts(ctx context.Context, id shard.ID, key job.SlotKey) ([]job.Attempt, error) {
	s, err := m.read(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var attempts []job.Attempt
	for _, a := range s.attemptsOf(key) {
		attempts = append(attempts, *a)
	}
	return attempts, nil
}

// RetainedFrom implements store.Reader.
func (m *Store) RetainedFrom(ctx context.Context, id shard.ID) (job.Instant, error) {
	s, err := m.known(ctx, id)
	if err != nil {
		return 0, err
	}
	defer m.leave()
	return s.retainedFrom, nil
}

// GapsOf implements store.Reader.
func (m *Store) GapsOf(ctx context.Context, id shard.ID) ([]store.Gap, error) {
	s, err := m.read(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	return s.openGaps(), nil
}

// DeadLetters implements store.Reader.
func (m *Store) DeadLetters(ctx context.Context, p store.DeadLettersPage) ([]store.DeadLetterOf, store.DeadCursor, error) {
	if err := m.enter(ctx); err != nil {
		return nil, store.DeadCursor{}, err
	}
	defer m.leave()
	return storekit.DeadPage(p, m.deadAfter)
}

// deadAfter lists the dead letters of all shards after a place.
func (m *Store) deadAfter(after store.DeadCursor, limit int) ([]store.DeadLetterOf, error) {
	var letters []store.DeadLetterOf
	for _, s := range m.shards {
		if s.id < after.Shard {
			continue
		}
		all := s.dead.all()
		if s.id == after.Shard {
			all = s.dead.after(after.Key)
		}
		for _, d := range all {
			if len(letters) == limit {
				return letters, nil
			}
			letters = append(letters, store.DeadLetterOf{Shard: s.id, DeadLetter: d})
		}
	}
	return letters, nil
}

// DeadLetterGroups implements store.Reader.
func (m *Store) DeadLetterGroups(ctx context.Context, namespace string, limit int) ([]store.DeadLetterGroup, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.leave()
	var groups []store.DeadLetterGroup
	places := map[[3]string]int{}
	for _, s := range m.shards {
		for _, d := range s.dead.all() {
			if d.Namespace != namespace {
				continue
			}
			cause := [3]string{d.Handler, d.Fingerprint, d.ErrorCode}
			i, known := places[cause]
			if !known {
				i = len(groups)
				places[cause] = i
				groups = append(groups, store.DeadLetterGroup{Handler: d.Handler, Fingerprint: d.Fingerprint, ErrorCode: d.ErrorCode, First: d.At, Latest: d.At})
			}
			g := &groups[i]
			g.Sample, g.Count, g.First, g.Latest = max(g.Sample, d.Sample), g.Count+1, min(g.First, d.At), max(g.Latest, d.At)
		}
	}
	slices.SortFunc(groups, func(a, b store.DeadLetterGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Handler, b.Handler), strings.Compare(a.Fingerprint, b.Fingerprint), strings.Compare(a.ErrorCode, b.ErrorCode))
	})
	if limit >= 0 && len(groups) > limit {
		groups = groups[:limit]
	}
	return groups, nil
}

// Skips implements store.Reader.
func (m *Store) Skips(ctx context.Context, id shard.ID, uid job.UID, from job.Instant, limit int) ([]store.Skip, error) {
	s, err := m.read(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var skips []store.Skip
	for key, k := range s.skips.from(skipKey{uid, from}) {
		if key.uid != uid || len(skips) == limit {
			break
		}
		skips = append(skips, k)
	}
	return skips, nil
}

// Events implements store.Reader.
func (m *Store) Events(ctx context.Context, id shard.ID, limit int) ([]store.Event, error) {
	s, err := m.read(ctx, id)
	if err != nil {
		return nil, err
	}
	defer m.leave()
	var events []store.Event
	for _, e := range s.events.backward() {
		if len(events) == limit {
			break
		}
		events = append(events, e)
	}
	return events, nil
}

// RegisterHandlers implements store.Catalog.
func (m *Store) RegisterHandlers(ctx context.Context, names []string, at job.Instant) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	defer m.leave()
	for _, name := range names {
		if h, found := m.handlers.get(name); found {
			h.LastSeenAt = max(h.LastSeenAt, at)
			continue
		}
		m.handlers.insert(name, &store.Handler{Name: name, CreatedAt: at, LastSeenAt: at})
	}
	return nil
}

// Handler implements store.Catalog.
func (m *Store) Handler(ctx context.Context, name string) (store.Handler, error) {
	if err := m.enter(ctx); err != nil {
		return store.Handler{}, err
	}
	defer m.leave()
	if h, found := m.handlers.get(name); found {
		return *h, nil
	}
	return store.Handler{}, notFound("handler %s", name)
}

// Handlers implements store.Catalog.
func (m *Store) Handlers(ctx context.Context, after string, limit int) ([]store.Handler, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.leave()
	var handlers []store.Handler
	for _, h := range m.handlers.after(after) {
		if len(handlers) == limit {
			break
		}
		handlers = append(handlers, *h)
	}
	return handlers, nil
}
