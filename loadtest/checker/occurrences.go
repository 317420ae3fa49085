package checker

import (
	"iter"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// owed yields the occurrences of a job after an instant, up to and with another,
// that must have a slot.
func (w *world) owed(v *view, j *job.Job, after, until job.Instant) iter.Seq[job.Instant] {
	if j.EndedAt != 0 {
		until = min(until, j.EndedAt)
	}
	after = max(after, v.RetainedFrom-1)
	if p := w.plan(j); p != nil {
		return p.within(after, until)
	}
	return func(yield func(job.Instant) bool) {
		if at := j.Schedule.At; j.Schedule.Kind == job.KindOnce && at > after && at <= until {
			yield(at)
		}
	}
}

// missing complains of the occurrences of a job in a range that have neither a slot
// nor a gap.
func (w *world) missing(v *view, j *job.Job, after, until job.Instant) {
	var lost []job.SlotKey
	for at := range w.owed(v, j, after, until) {
		key := job.SlotKey{FireTime: at, UID: j.UID}
		if v.slots[key] == nil && !v.inGap(key) && !v.skipped(key) {
			lost = append(lost, key)
		}
	}
	if len(lost) > 0 {
		w.complain(v, lost[0], "has neither a slot nor a gap; it is the first of %d, the last is %s (watermark %s)",
			len(lost), lost[len(lost)-1].FireTime, v.Watermark)
	}
}

// inGap reports whether a slot is still to be made.
func (v *view) inGap(key job.SlotKey) bool {
	for _, g := range v.Gaps {
		if (g.Key.UID.IsZero() || g.Key.UID == key.UID) && g.Cursor.Less(key) && key.FireTime <= g.Key.To {
			return true
		}
	}
	return false
}

// I1.
func dueHasSlot(w *world, v *view, j *job.Job) {
	if j.Schedule.Kind == job.KindImmediate && v.first[j.UID] == 0 && j.CreatedAt >= v.RetainedFrom {
		w.complain(v, job.SlotKey{UID: j.UID}, "is immediate and has no slot")
	}
	if w.Quiet {
		w.missing(v, j, v.Watermark, w.Now.Add(-w.Young))
	}
}

// I15.
func watermarkPassesNoHole(w *world, v *view, j *job.Job) {
	w.missing(v, j, job.MinInstant, v.Watermark)
}

// I2.
func slotIsOwed(w *world, v *view, s *job.Slot) {
	if v.slots[s.Key] != s {
		w.complain(v, s.Key, "is there twice")
	}
	j := v.jobs[s.Key.UID]
	if j == nil {
		w.complain(v, s.Key, "has no job")
		return
	}
	if why := w.unasked(v, j, s); why != "" {
		w.complain(v, s.Key, "%s", why)
	}
	times := []job.Instant{s.CreatedAt}
	for _, a := range v.tries(s) {
		times = append(times, a.ClaimedAt, a.StartedAt)
	}
	times = slices.DeleteFunc(times, func(at job.Instant) bool { return at == 0 })
	if earliest := slices.Min(append(times, job.MaxInstant)); w.before(earliest, s.Key.FireTime) {
		w.complain(v, s.Key, "was made, claimed or started at %s, before its fire time", earliest)
	}
}

// unasked says why nobody asked for a slot.
func (w *world) unasked(v *view, j *job.Job, s *job.Slot) string {
	fire := s.Key.FireTime
	switch s.Trigger {
	case job.TriggerSchedule, job.TriggerBackfill:
		return w.unscheduled(j, s)
	case job.TriggerImmediate:
		if j.Schedule.Kind != job.KindImmediate || v.first[j.UID] > 1 {
			return "is immediate: it is one too many, or its job isn't immediate"
		}
	case job.TriggerManual:
	default:
		return "has no trigger that is known"
	}
	if fire.Whole() {
		return "is on a whole second, where only scheduled ones may be"
	}
	return ""
}

// unscheduled says why a slot isn't one of its job's schedule.
func (w *world) unscheduled(j *job.Job, s *job.Slot) string {
	fire := s.Key.FireTime
	p := w.plan(j)
	switch {
	case j.Schedule.Kind.Recurring() && p == nil:
		return "is of a schedule that can't be read"
	case p == nil && (j.Schedule.Kind != job.KindOnce || j.Schedule.At != fire), p != nil && !p.has(fire):
		return "isn't in its job's schedule"
	case p != nil && fire <= j.EffectiveFrom:
		return "lies before its job's effective-from, " + j.EffectiveFrom.String()
	case j.EndedAt != 0 && fire > j.EndedAt && s.State != job.Cancelled:
		return "lies after its job's end, " + j.EndedAt.String()
	}
	return ""
}
