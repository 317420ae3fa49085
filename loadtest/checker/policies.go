package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// skipped reports whether an occurrence lies in a range that was left out.
func (v *view) skipped(key job.SlotKey) bool {
	return slices.ContainsFunc(v.skips[key.UID], func(k store.Skip) bool { return k.From <= key.FireTime && key.FireTime <= k.To })
}

// I17.
func skipsAreAllowed(w *world, v *view) {
	for _, k := range v.Skips {
		key := job.SlotKey{FireTime: k.From, UID: k.UID}
		j := v.jobs[k.UID]
		if j == nil {
			if k.To >= v.RetainedFrom {
				w.complain(v, key, "is the first of a range that was left out, of no job")
			}
			continue
		}
		if p := j.Policies; p.CatchUp == (job.CatchUp{}) && p.Overlap.Mode != job.OverlapSkip && p.Overlap.Mode != job.OverlapReplace {
			w.complain(v, key, "is the first of a range that was left out, of a job that leaves out nothing")
		}
		plan := w.plan(j)
		if plan == nil || k.To < v.RetainedFrom {
			continue
		}
		n, first := int64(0), job.Instant(0)
		for at := range plan.within(k.From-1, k.To) {
			n++
			first = cmp.Or(first, at)
			// What the owner before had made beyond the watermark isn't known to the next one.
			if s := v.slots[job.SlotKey{FireTime: at, UID: k.UID}]; s != nil && s.RequestedAt == 0 && s.CreatedAt >= k.MadeAt {
				w.complain(v, s.Key, "has a slot, and lies in a range that was left out: %s to %s", k.From, k.To)
			}
		}
		if n != k.Count || first != k.From || !plan.has(k.To) {
			w.complain(v, key, "is the first of a range up to %s that was left out; it holds %d occurrences, not %d", k.To, n, k.Count)
		}
	}
}

// span is when an attempt held its job's place.
type span struct {
	from, to job.Instant
	slot     job.SlotKey
	number   int32
}

// lostAt returns when the attempt of a slot that was claimed at an instant lost its lease,
// or 0. Its success may have been accepted later: by then others had its place.
func (v *view) lostAt(key job.SlotKey, claimed job.Instant) job.Instant {
	for _, e := range v.Events {
		if e.Kind == store.EventAttemptLost && e.Job == key.UID && e.Fire == key.FireTime && e.At >= claimed {
			return e.At
		}
	}
	return 0
}

// I18.
func limitIsKept(w *world, v *view, j *job.Job) {
	limit, limited := j.Policies.Overlap.Limit()
	if !limited {
		return
	}
	var spans []span
	for _, s := range v.slotsOf[j.UID] {
		recorded := map[int32]bool{}
		for _, a := range v.attempts[s.Key] {
			recorded[a.Number] = true
			spans = append(spans, span{a.ClaimedAt, a.EndedAt, s.Key, a.Number})
		}
		if a := s.NewestAttempt(); a.Number > 0 && !recorded[a.Number] {
			spans = append(spans, span{a.ClaimedAt, cmp.Or(v.lostAt(s.Key, a.ClaimedAt), a.EndedAt, w.Now), s.Key, a.Number})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var open []span
	for _, s := range spans {
		open = slices.DeleteFunc(open, func(o span) bool { return o.to <= s.from.Add(w.ClockError) })
		// One that was claimed by another owner's clock, which was ahead, may have ended before the
		// others began.
		beside := slices.DeleteFunc(slices.Clone(open), func(o span) bool { return s.to <= o.from })
		if open = append(open, s); len(beside) >= limit {
			o := beside[0]
			w.complain(v, s.slot, "attempt %d was claimed at %s, when %d others of its job ran, which may be %d at a time: one is attempt %d of slot %s, from %s to %s",
				s.number, s.from, len(beside), limit, o.number, o.slot.FireTime.ID(), o.from, o.to)
			return
		}
	}
}
