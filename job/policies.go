package job

import (
	"fmt"
	"time"
)

// Policies are what a job says beside its schedule and its retries. The zero value is
// what a job gets where it says nothing: no deadline, every missed occurrence made up for,
// any number of runs at a time. They can be compared, so that jobs may share them.
type Policies struct {
	// StartDeadline is how long after its fire time a slot may begin for the first time,
	// TotalDeadline how long after it the slot may take in all. A slot that a person asked
	// for counts from when that was. Zero: for ever.
	StartDeadline time.Duration `json:"start_deadline,omitempty"`
	TotalDeadline time.Duration `json:"total_deadline,omitempty"`

	CatchUp CatchUp `json:"catch_up,omitzero"`
	Overlap Overlap `json:"overlap,omitzero"`

	// Priority is worth PriorityStep of waiting for each unit.
	Priority int32 `json:"priority,omitempty"`

	// Retention is how long the job's slots are kept after they ended, if that is longer than
	// all are kept. Zero: as long as all.
	Retention time.Duration `json:"retention,omitempty"`

	// StartWithin and FinishWithin are objectives: after the fire time. What misses them is
	// noticed, and goes on. Zero: none.
	StartWithin  time.Duration `json:"start_within,omitempty"`
	FinishWithin time.Duration `json:"finish_within,omitempty"`

	// OnDeadLetter is the handler that is run, as a job of its own, for a slot that became
	// a dead letter; empty: none.
	OnDeadLetter string `json:"on_dead_letter,omitempty"`
}

// CatchUp says which of the occurrences that a job missed are made up for.
type CatchUp struct {
	Mode     CatchUpMode   `json:"mode,omitempty"`
	MaxAge   time.Duration `json:"max_age,omitempty"`   // before the downtime's end; zero: any
	MaxCount int32         `json:"max_count,omitempty"` // the newest so many; zero: any
}

// CatchUpMode is the kind of a CatchUp. The numbers are stored.
type CatchUpMode int8

// The modes.
const (
	CatchUpAll    CatchUpMode = iota
	CatchUpLatest             // the newest one
	CatchUpNone
)

// Limit returns how many missed occurrences are made up for at most, and false if there is
// no limit to their number.
func (c CatchUp) Limit() (int64, bool) {
	switch {
	case c.Mode == CatchUpNone:
		return 0, true
	case c.Mode == CatchUpLatest:
		return 1, true
	}
	return int64(c.MaxCount), c.MaxCount > 0
}

// Overlap says what becomes of a slot while another one of its job is open.
type Overlap struct {
	Mode       OverlapMode `json:"mode,omitempty"`
	MaxRunning int32       `json:"max_running,omitempty"` // OverlapAllow; zero: any number
}

// OverlapMode is the kind of an Overlap. The numbers are stored.
type OverlapMode int8

// The modes.
const (
	OverlapAllow   OverlapMode = iota // up to MaxRunning run at a time, the others wait
	OverlapQueue                      // one at a time, in the order of their fire times
	OverlapSkip                       // the newer one is skipped
	OverlapReplace                    // the newer one ends the older one
)

// Limit returns how many slots of a job run at a time at most, and false if there is no
// limit.
func (o Overlap) Limit() (int, bool) {
	if o.Mode != OverlapAllow {
		return 1, true
	}
	return int(o.MaxRunning), o.MaxRunning > 0
}

// Bounds of the policies.
const (
	MaxPriority = 10 // and the least is as far below zero
	MaxRunning  = 1000
	MaxCatchUp  = 100_000

	// PriorityStep is how much longer a slot of the next lower priority must have waited to
	// go first. Nothing waits for ever, therefore, behind what is more urgent.
	PriorityStep = 30 * time.Second
)

// Start returns the instant from which the deadlines and objectives of a slot count: its
// fire time, or when a person asked for it.
func (s *Slot) Start() Instant {
	if s.RequestedAt != 0 {
		return s.RequestedAt
	}
	return s.Key.FireTime
}

// Begun reports whether an attempt of s may have run. Whoever redrives a slot wants it to
// run, so it counts as begun.
func (s *Slot) Begun() bool { return s.StartedAt != 0 || s.Failures > 0 || s.Redriven() }

// Redriven reports whether s is tried again since a person asked for it.
func (s *Slot) Redriven() bool { return s.RequestedAt > s.CreatedAt }

// ExpiresAt returns when a slot that waits ends unless it has begun, or ended, by then. It
// returns MaxInstant if it never does. An attempt that runs ends by its own deadline.
func (p *Policies) ExpiresAt(s *Slot) Instant {
	if s.State != Ready {
		return MaxInstant
	}
	at := p.TotalEnd(s)
	if p.StartDeadline > 0 && !s.Begun() {
		at = min(at, s.Start().Add(p.StartDeadline))
	}
	return at
}

// TotalEnd returns when a slot must have ended, or MaxInstant.
func (p *Policies) TotalEnd(s *Slot) Instant {
	if p.TotalDeadline > 0 {
		return s.Start().Add(p.TotalDeadline)
	}
	return MaxInstant
}

// Breach is an objective that a slot missed. They add up, and the numbers are stored.
type Breach int8

// The objectives.
const (
	BreachStart  Breach = 1 << iota // it had not started by then
	BreachFinish                    // it had not ended by then
)

// Missed returns the objectives that a slot, which stands as it does and began at started
// (zero: not yet), misses at an instant, and has not missed before.
func (p *Policies) Missed(s *Slot, started, now Instant) (missed Breach) {
	if p.StartWithin > 0 && s.Breaches&BreachStart == 0 && s.Failures == 0 {
		if by := s.Start().Add(p.StartWithin); started > by || started == 0 && !s.Begun() && now > by {
			missed |= BreachStart
		}
	}
	if p.FinishWithin > 0 && s.Breaches&BreachFinish == 0 {
		by, ended := s.Start().Add(p.FinishWithin), s.FinishedAt
		if s.State.Open() {
			ended = now
		}
		if ended > by {
			missed |= BreachFinish
		}
	}
	return missed
}

// CheckAt returns the next instant at which an open slot misses a deadline or an
// objective, or MaxInstant. It may have passed.
func (p *Policies) CheckAt(s *Slot, started Instant) Instant {
	at := p.ExpiresAt(s)
	if p.StartWithin > 0 && started == 0 && !s.Begun() && s.Breaches&BreachStart == 0 {
		at = min(at, s.Start().Add(p.StartWithin)+1)
	}
	if p.FinishWithin > 0 && s.Breaches&BreachFinish == 0 {
		at = min(at, s.Start().Add(p.FinishWithin)+1)
	}
	return at
}

// Check reports what can't be, with the field as the API names it.
func (c CatchUp) Check() (field string, err error) {
	switch {
	case c.MaxCount < 0 || c.MaxCount > MaxCatchUp:
		return "max_count", fmt.Errorf("must be 1 to %d, or not set", MaxCatchUp)
	case c.Mode != CatchUpAll && c.MaxCount != 0:
		return "max_count", fmt.Errorf("is for the mode ALL")
	case c.Mode == CatchUpNone && c.MaxAge != 0:
		return "max_age", fmt.Errorf("is for the modes ALL and LATEST")
	}
	return "", nil
}

// Check reports what can't be, with the field as the API names it. The catch-up has its
// own check.
func (p *Policies) Check() (field string, err error) {
	switch {
	case p.Priority < -MaxPriority || p.Priority > MaxPriority:
		return "priority", fmt.Errorf("must be %d to %d, is %d", -MaxPriority, MaxPriority, p.Priority)
	case p.TotalDeadline > 0 && p.StartDeadline > p.TotalDeadline:
		return "start_deadline", fmt.Errorf("must not be longer than total_deadline, which is %s", p.TotalDeadline)
	case p.Overlap.MaxRunning < 0 || p.Overlap.MaxRunning > MaxRunning:
		return "overlap.max_running", fmt.Errorf("must be 1 to %d, or not set", MaxRunning)
	case p.Overlap.Mode != OverlapAllow && p.Overlap.MaxRunning > 1:
		return "overlap.max_running", fmt.Errorf("is for the mode ALLOW: all others run one at a time")
	}
	return "", nil
}
