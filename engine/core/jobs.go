package core

import (
	"time"

	"github.com/carillon-scheduler/carillon/engine/wheel"
	"github.com/carillon-scheduler/carillon/internal/intern"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
)

// jobState is a job in memory: who it is and where it stands. There may be millions, so
// what jobs have in common lies in their spec, and what nobody here asks for (labels,
// the request that made it) isn't kept.
type jobState struct {
	uid           job.UID
	name          string
	params        string // one JSON document, or empty
	spec          *spec
	timer         wheel.Timer
	next          job.Instant // what the timer is set to
	last          job.Instant // the newest fire time that has its slot; a shard that is behind may have fired it before firedTo reaches it
	effectiveFrom job.Instant
	endedAt       job.Instant
	shift         uint32 // seconds by which the fire times of its spec are moved
	ref           uint32
	open          int32 // its slots in memory
	live          bool  // fires by its schedule
	held          bool  // a create that isn't durable yet
	aside         bool  // it was quarantined
	warned        bool  // that it runs longer than its interval
}

// spec is what a shard must know of a job, but for who it is: how it fires, and how it
// is run. Recurring jobs that agree in it share one. It never changes.
type spec struct {
	specKey
	plan schedule.Plan // of the recurring kinds, without the job's shift
}

// specKey tells specs apart.
type specKey struct {
	namespace, handler string
	retry              job.RetryPolicy
	policies           job.Policies
	timeout            time.Duration
	schedule           job.Schedule // of a shared spec without what makes up a job's shift
}

// specs are those of recurring jobs that are in use, of all shards.
var specs intern.Pool[specKey, spec]

// recurs reports whether j fires more than once.
func (j *jobState) recurs() bool { return j.spec.schedule.Kind.Recurring() }

// plan returns when a recurring job fires.
func (j *jobState) plan() schedule.Plan {
	p := j.spec.plan
	p.Offset = int64(j.shift)
	return p
}

// work returns what a worker must know of j, for an attempt that may run so long.
func (j *jobState) work(timeout time.Duration) Work {
	return Work{Namespace: j.spec.namespace, Name: j.name, Handler: j.spec.handler, Params: j.params,
		Timeout: max(timeout, time.Millisecond), MaxAttempts: j.spec.retry.MaxAttempts}
}

// work returns what a worker must know of s, for an attempt that may run so long.
func (s *slotState) work(timeout time.Duration) Work {
	w := s.job.work(timeout)
	if len(s.row.Params) > 0 {
		w.Params = string(s.row.Params)
	}
	return w
}

// newState returns the state of a job that isn't in memory. It fails for a schedule
// that can't be read.
func newState(j *job.Job) (state *jobState, err error) {
	state = &jobState{uid: j.UID, name: j.Name, params: string(j.Params), effectiveFrom: j.EffectiveFrom, endedAt: j.EndedAt, aside: j.Quarantine != ""}
	key := specKey{namespace: j.Namespace, handler: j.Handler, retry: j.Retry, policies: j.Policies, timeout: j.Timeout, schedule: j.Schedule}
	switch {
	case !j.Schedule.Kind.Recurring():
		state.spec = &spec{specKey: key}
	case j.Schedule.MaxOccurrences > 0:
		state.shift = uint32(shiftOf(j.Schedule))
		state.spec, err = newSpec(key, j) // its last occurrence is its own
	default:
		state.shift = uint32(shiftOf(j.Schedule))
		key.schedule.Anchor, key.schedule.Offset = 0, 0
		state.spec, err = specs.Get(key, func() (*spec, error) { return newSpec(key, j) })
	}
	return state, err
}

// shiftOf returns by how many seconds the fire times of a recurring schedule are moved:
// by its offset, and the grid of an interval from the one through the epoch to the one
// through its anchor.
func shiftOf(s job.Schedule) int64 {
	shift := int64(s.Offset / time.Second)
	if every := int64(s.Every / time.Second); s.Kind == job.KindInterval && every > 0 {
		shift += ((s.Anchor.Seconds() % every) + every) % every
	}
	return shift
}

func newSpec(key specKey, j *job.Job) (*spec, error) {
	plan, err := j.Plan()
	if err != nil {
		return nil, err
	}
	if j.Schedule.Kind == job.KindInterval {
		if plan.Recurrence, err = schedule.Grid(j.Schedule.Every); err != nil {
			return nil, err
		}
	}
	return &spec{specKey: key, plan: plan}, nil
}

// addJob puts a job into memory, if it isn't there.
func (s *Shard) addJob(j *job.Job) (*jobState, error) {
	if state := s.jobs.get(j.UID); state != nil {
		return state, nil
	}
	state, err := newState(j)
	if err != nil {
		return nil, err
	}
	s.jobs.add(state)
	return state, nil
}

// dropJob removes a job from memory that nothing needs any more.
func (s *Shard) dropJob(j *jobState) {
	if j.live || j.open > 0 || j.held || s.jobs.get(j.uid) != j || s.owes(j) {
		return
	}
	s.wheel.Cancel(j.timer)
	s.jobs.remove(j)
}
