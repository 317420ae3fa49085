package checker

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// world is a history with its rows brought together.
type world struct {
	History
	views    []*view
	plans    map[job.UID]*plan // nil: it can't be read
	redriven map[job.SlotKey]bool
	stray    []Effect // of jobs that no shard has

	id    Invariant // being checked
	found []Violation
}

// view is a shard with its rows by what they belong to.
type view struct {
	*store.Audit
	jobs     map[job.UID]*job.Job
	inbox    map[job.UID]bool
	slots    map[job.SlotKey]*job.Slot
	attempts map[job.SlotKey][]job.Attempt // rows, in the order of their numbers
	letters  map[job.SlotKey]*store.DeadLetter
	backlog  map[job.SlotKey][]store.BacklogRow
	slotsOf  map[job.UID][]*job.Slot // of jobs whose overlap is limited
	skips    map[job.UID][]store.Skip
	first    map[job.UID]int // how many slots a job has because it is immediate
	taken    map[shard.Epoch]int
	runs     []run
	runsOf   map[job.SlotKey][]*run
}

// run is what a handler wrote down of one attempt.
type run struct {
	key     job.SlotKey
	attempt int32
	began   []job.Instant
	done    int
	since   job.Instant // the first that is known of it
}

func newWorld(h History) *world {
	h.Young = cmp.Or(h.Young, DefaultYoung)
	h.ClockError = cmp.Or(h.ClockError, DefaultClockError)
	w := &world{History: h, plans: map[job.UID]*plan{}, redriven: map[job.SlotKey]bool{}}
	for _, key := range h.Ledger.Redriven {
		w.redriven[key] = true
	}
	for i := range h.Shards {
		w.views = append(w.views, newView(&h.Shards[i]))
	}
	w.shareEffects()
	return w
}

func newView(a *store.Audit) *view {
	v := &view{
		Audit: a, jobs: map[job.UID]*job.Job{}, inbox: map[job.UID]bool{}, slots: map[job.SlotKey]*job.Slot{},
		attempts: map[job.SlotKey][]job.Attempt{}, letters: map[job.SlotKey]*store.DeadLetter{}, backlog: map[job.SlotKey][]store.BacklogRow{},
		first: map[job.UID]int{}, slotsOf: map[job.UID][]*job.Slot{}, skips: map[job.UID][]store.Skip{}, taken: map[shard.Epoch]int{}, runsOf: map[job.SlotKey][]*run{},
	}
	for i := range a.Jobs {
		v.jobs[a.Jobs[i].UID] = &a.Jobs[i]
	}
	for _, uid := range a.Inbox {
		v.inbox[uid] = true
	}
	for i := range a.Slots {
		s := &a.Slots[i]
		v.slots[s.Key] = s
		if j := v.jobs[s.Key.UID]; j != nil && j.Policies.Overlap != (job.Overlap{}) {
			v.slotsOf[s.Key.UID] = append(v.slotsOf[s.Key.UID], s)
		}
		if s.Trigger == job.TriggerImmediate {
			v.first[s.Key.UID]++
		}
	}
	for _, r := range a.Attempts {
		v.attempts[r.Key] = append(v.attempts[r.Key], r.Attempt)
	}
	for i := range a.DeadLetters {
		v.letters[a.DeadLetters[i].Key] = &a.DeadLetters[i]
	}
	for _, k := range a.Skips {
		v.skips[k.UID] = append(v.skips[k.UID], k)
	}
	for _, r := range a.Backlog {
		v.backlog[r.Key.Slot] = append(v.backlog[r.Key.Slot], r)
	}
	for i, t := range a.TakeOvers {
		v.taken[t.Epoch] = i
	}
	return v
}

// shareEffects gives each shard the runs of its jobs.
func (w *world) shareEffects() {
	homes := map[job.UID]*view{}
	for _, v := range w.views {
		for uid := range v.jobs {
			homes[uid] = v
		}
	}
	type name struct {
		key     job.SlotKey
		attempt int32
	}
	places := map[name]int{}
	for _, e := range w.Effects {
		v := homes[e.Job]
		if v == nil {
			w.stray = append(w.stray, e)
			continue
		}
		n := name{job.SlotKey{FireTime: e.Fire, UID: e.Job}, e.Attempt}
		i, known := places[n]
		if !known {
			i = len(v.runs)
			places[n] = i
			v.runs = append(v.runs, run{key: n.key, attempt: n.attempt, since: e.At})
		}
		v.runs[i].add(e)
	}
	for _, v := range w.views {
		for i := range v.runs {
			v.runsOf[v.runs[i].key] = append(v.runsOf[v.runs[i].key], &v.runs[i])
		}
	}
}

func (r *run) add(e Effect) {
	if e.Kind == Began {
		r.began = append(r.began, e.At)
	} else {
		r.done++
	}
	r.since = min(r.since, e.At)
}

// before reports whether one instant lies before another by more than two clocks may
// differ.
func (w *world) before(a, b job.Instant) bool { return a < b.Add(-w.ClockError) }

// tries lists the attempts of a slot by number: those that didn't end it, and the
// newest as the slot records it, unless it was recorded as ended before. A success
// that came after its lease was lost is in both, and counts as the success.
func (v *view) tries(s *job.Slot) []job.Attempt {
	tries := slices.Clone(v.attempts[s.Key])
	newest := s.NewestAttempt()
	same := func(a job.Attempt) bool { return a.Number == newest.Number }
	if s.State == job.Succeeded {
		tries = slices.DeleteFunc(tries, same)
	}
	if newest.Number > 0 && !slices.ContainsFunc(tries, same) {
		tries = append(tries, newest)
	}
	return tries
}

// plan returns when a recurring job fires, up to now, or nil if it doesn't recur or its
// schedule can't be read.
func (w *world) plan(j *job.Job) *plan {
	p, known := w.plans[j.UID]
	if known || !j.Schedule.Kind.Recurring() {
		return p
	}
	p, err := planOf(j)
	if err != nil {
		p = nil
	} else {
		p.limit(w.Now)
	}
	w.plans[j.UID] = p
	return p
}

// younger reports whether an instant is too young to be held against anybody.
func (w *world) younger(at job.Instant) bool { return at > w.Now.Add(-w.Young) }
