package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// verdict is what came of a round.
type verdict struct {
	*stage
	shards     []store.Audit
	jobs       workload.Names
	homes      map[int64]shard.ID // of jobs, by their numbers
	runs       []workload.Execution
	violations []string
	failed     []string
}

func (v *verdict) expect(ok bool, format string, args ...any) {
	if !ok {
		v.failed = append(v.failed, fmt.Sprintf(format, args...))
	}
}

// judge says what must hold after each round, and lets the round say the rest.
func (v *verdict) judge(r round) {
	v.failed = append(v.failed, v.wrong...)
	_, failed := v.prober.sum()
	v.failed = append(v.failed, failed...)
	v.expect(len(v.runs) > 0, "nothing ran")
	r.judge(v)
}

// lateness is how late recurring jobs began that were due in a phase.
type lateness struct {
	Phase   string  `json:"phase"`
	Seconds float64 `json:"seconds"`
	Starts  int     `json:"starts"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
}

// topLateness is beyond what any round takes.
const topLateness = 10 * time.Minute

func (v *verdict) lateness(p phase) lateness {
	h := hdrhistogram.New(1, topLateness.Microseconds(), 3)
	for _, e := range v.runs {
		due := e.FireTime().Time()
		if e.Job < firstLong && e.Attempt == 1 && e.FireTime().Whole() && !due.Before(p.from) && due.Before(p.until) {
			_ = h.RecordValue(min(max(1, e.Began-e.Fire), topLateness.Microseconds())) // it is in range
		}
	}
	ms := func(micros int64) float64 { return float64(micros) / 1000 }
	return lateness{p.name, p.until.Sub(p.from).Seconds(), int(h.TotalCount()), ms(h.ValueAtQuantile(50)), ms(h.ValueAtQuantile(99)), ms(h.Max())}
}

// expectLateness holds the lateness of phases against a limit; of all, if none is named.
func (v *verdict) expectLateness(most time.Duration, names ...string) {
	for _, p := range v.phases[1:] { // the first is the warm-up
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		l := v.lateness(p)
		v.expect(l.Max <= float64(most.Milliseconds()), "in the phase %q a start was %.0f ms late; at most %s is allowed", p.name, l.Max, most)
	}
}

// attempts counts slots by how many attempts they took.
func (v *verdict) attempts() map[string]int {
	counts := map[string]int{}
	v.eachSlot(func(s *job.Slot) { counts[strconv.Itoa(int(s.Attempt))]++ })
	return counts
}

func (v *verdict) eachSlot(do func(*job.Slot)) {
	for i := range v.shards {
		for j := range v.shards[i].Slots {
			do(&v.shards[i].Slots[j])
		}
	}
}

// expectOneAttempt says which slots took more than one attempt, or failed.
func (v *verdict) expectOneAttempt() {
	n, example := 0, ""
	v.eachSlot(func(s *job.Slot) {
		if s.Attempt != 1 || s.Failures != 0 || s.State != job.Succeeded {
			n++
			example = cmp.Or(example, fmt.Sprintf("job %d due at %s is %v after %d attempts, %d of which failed", v.jobs.Numbers[s.Key.UID], s.Key.FireTime, s.State, s.Attempt, s.Failures))
		}
	})
	v.expect(n == 0, "%d slots took more than one attempt, or none: %s", n, example)
}

// expectLongWork says which long jobs didn't go on through what happened.
func (v *verdict) expectLongWork() {
	n, bad, example := 0, 0, ""
	v.eachSlot(func(s *job.Slot) {
		if number := v.jobs.Numbers[s.Key.UID]; number >= firstLong && number < firstProbe {
			n++
			if s.Attempt != 1 || s.State != job.Succeeded {
				bad++
				example = cmp.Or(example, fmt.Sprintf("job %d is %v after %d attempts", number, s.State, s.Attempt))
			}
		}
	})
	v.facts["long_attempts"] = float64(n)
	v.expect(n == v.load.long && n > 0, "%d long jobs have slots, of %d", n, v.load.long)
	v.expect(bad == 0, "%d of %d long attempts did not go on: %s", bad, n, example)
}

// takeOvers counts how often a shard got another owner after an instant.
func (v *verdict) takeOvers(after time.Time) (n int) {
	for i := range v.shards {
		last := ""
		for _, t := range v.shards[i].TakeOvers {
			if t.Owner == "" {
				continue
			}
			if t.Owner != last && last != "" && t.At.Time().After(after) {
				n++
			}
			last = t.Owner
		}
	}
	return n
}

// next finds, for each shard that a node held and that has work every second, when it first began some
// after an instant under another owner; zero: it never did.
func (v *verdict) next(held []shard.ID, of string, after time.Time) (first, last time.Duration) {
	first = -1
	for _, id := range held {
		if !fires(&v.shards[id], job.At(after)) {
			continue // with little load some shards have no job
		}
		at, ok := v.nextOf(&v.shards[id], of, job.At(after))
		if !ok {
			v.expect(false, "shard %d never began work again", id)
			continue
		}
		took := at.Sub(job.At(after))
		if first < 0 || took < first {
			first = took
		}
		last = max(last, took)
	}
	return first, last
}

// fires reports whether a shard has a job that fires again and again after an instant.
func fires(a *store.Audit, after job.Instant) bool {
	return slices.ContainsFunc(a.Jobs, func(j job.Job) bool {
		return j.Schedule.Kind.Recurring() && j.CreatedAt <= after && (j.EndedAt == 0 || j.EndedAt > after.Add(10*time.Second))
	})
}

// nextOf finds the first start of a shard under the next owner that isn't the one before.
func (v *verdict) nextOf(a *store.Audit, of string, after job.Instant) (at job.Instant, ok bool) {
	var epoch shard.Epoch
	for _, t := range a.TakeOvers {
		if t.At > after && t.Owner != "" && t.Owner != of {
			epoch = t.Epoch
			break
		}
	}
	for i := range a.Slots {
		if s := &a.Slots[i]; epoch > 0 && s.Epoch >= epoch && s.StartedAt > after && (!ok || s.StartedAt < at) {
			at, ok = s.StartedAt, true
		}
	}
	return at, ok
}

// expectNext holds the time without an owner against a limit.
func (v *verdict) expectNext(held []shard.ID, of, event string, most time.Duration) {
	first, last := v.next(held, of, v.events[event])
	v.facts["shards_lost"] = float64(len(held))
	v.facts["first_start_seconds"], v.facts["last_start_seconds"] = first.Seconds(), last.Seconds()
	v.expect(len(held) > 0 && first >= 0 && first <= most, "the first start of one of the %d shards came %.2f s after %q; at most %s is allowed", len(held), first.Seconds(), event, most)
}
