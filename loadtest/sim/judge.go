package sim

import (
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
)

// judge says what is wrong with a run that was healed and has come to rest.
func (w *world) judge() {
	h := checker.History{Shards: w.audits(), Now: w.database.now(), Quiet: true, ClockError: checker.DefaultClockError + w.skewed}
	w.mu.Lock()
	h.Ledger = w.ledger
	h.Ledger.Ended = append(h.Ledger.Ended, w.pruned...)
	for _, e := range w.effects {
		if !slices.Contains(w.pruned, e.Job) {
			h.Effects = append(h.Effects, e)
		}
	}
	w.mu.Unlock()
	for i := range h.Shards {
		for j := range h.Shards[i].Slots {
			s := &h.Shards[i].Slots[j]
			w.rows[slotName{s.Key.UID.String(), int64(s.Key.FireTime)}] = *s
		}
	}
	for _, v := range checker.Check(h) {
		if w.gaps.asked(v) {
			continue
		}
		w.wrong("%s (%s)", v, w.slotText(job.SlotKey{FireTime: v.Fire, UID: v.Job}))
	}
}
