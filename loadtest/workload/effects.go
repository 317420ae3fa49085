package workload

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/store"
)

// Names knows the jobs of a run by their numbers, and the other way round.
type Names struct {
	UIDs    map[int64]job.UID
	Numbers map[job.UID]int64
}

// JobsOf reads the jobs of all shards.
func JobsOf(shards []store.Audit) Names {
	n := Names{map[int64]job.UID{}, map[job.UID]int64{}}
	for i := range shards {
		for _, j := range shards[i].Jobs {
			number := NumberOf(j.ResourceName())
			n.UIDs[number], n.Numbers[j.UID] = j.UID, number
		}
	}
	return n
}

// Effects turns what the worker noted into the checker's words.
func Effects(jobs Names, all []Execution) []checker.Effect {
	effects := make([]checker.Effect, 0, 2*len(all))
	for _, e := range all {
		one := checker.Effect{Job: jobs.UIDs[e.Job], Fire: e.FireTime(), Attempt: int32(e.Attempt), Kind: checker.Began, At: job.Instant(e.Began)}
		effects = append(effects, one)
		if e.Done != 0 {
			one.Kind, one.At = checker.Done, job.Instant(e.Done)
			effects = append(effects, one)
		}
	}
	return effects
}
