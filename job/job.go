// Package job says what a job, a schedule, an occurrence, a slot and an attempt
// are. It holds no behaviour beyond their own rules and depends on nothing but
// the standard library and a pool of shared values, so that every other package can
// speak its words.
package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/shard"
)

// Kind is the kind of a schedule. The numbers are stored.
type Kind int8

// The kinds.
const (
	KindNone Kind = iota
	KindImmediate
	KindOnce
	KindCron
	KindInterval
)

// Recurring reports whether a schedule of kind k fires more than once.
func (k Kind) Recurring() bool { return k == KindCron || k == KindInterval }

// Schedule says when a job fires. Which fields count depends on Kind. Two equal
// schedules fire equally.
type Schedule struct {
	Kind    Kind          `json:"kind"`
	At      Instant       `json:"at,omitempty"`      // KindOnce
	Cron    string        `json:"cron,omitempty"`    // KindCron
	Every   time.Duration `json:"every,omitempty"`   // KindInterval
	Anchor  Instant       `json:"anchor,omitempty"`  // KindInterval, whole seconds
	Dialect int           `json:"dialect,omitempty"` // the expander's version, for the recurring kinds

	// What a recurring schedule may add. Zero: nothing.
	Start          Instant       `json:"start,omitempty"`     // it fires at no earlier instant; whole seconds
	End            Instant       `json:"end,omitempty"`       // it fires at no later instant; whole seconds
	MaxOccurrences int32         `json:"max,omitempty"`       // how often it fires, those that a calendar excludes not counted
	CountedFrom    Instant       `json:"counted,omitempty"`   // from which instant on MaxOccurrences was counted to find Last
	Last           Instant       `json:"last,omitempty"`      // the last of so many; zero: it is not within reach
	Spread         time.Duration `json:"spread,omitempty"`    // Offset was chosen out of it
	Offset         time.Duration `json:"offset,omitempty"`    // every fire time is moved by it; whole seconds
	Calendars      string        `json:"calendars,omitempty"` // what schedule.ParseExclusions reads: the calendars by value
}

// ErrDialect says that a schedule needs a later version of this program.
var ErrDialect = errors.New("the schedule's dialect is not known; a newer program is needed")

// Recurrence expands the cron expression or the interval of a recurring schedule. It
// fails for a schedule that this version can't read, such as one that was damaged in
// the database.
func (s Schedule) Recurrence() (schedule.Recurrence, error) {
	switch {
	case s.Kind.Recurring() && (s.Dialect < 1 || s.Dialect > schedule.DialectVersion):
		return nil, fmt.Errorf("%w: %d", ErrDialect, s.Dialect)
	case s.Kind == KindCron:
		return schedule.ParseCron(s.Cron)
	case s.Kind == KindInterval:
		return schedule.NewInterval(s.Every, s.Anchor.Seconds())
	}
	return nil, fmt.Errorf("a schedule of kind %d does not recur", s.Kind)
}

// Check reports why a recurring schedule can't be expanded, as Plan would.
func (s Schedule) Check() error {
	_, err := s.Recurrence()
	if err == nil {
		_, err = schedule.ParseExclusions(s.Calendars)
	}
	return err
}

// Plan expands a recurring schedule that counts after an instant, with all that it
// adds to its recurrence. It fails as Recurrence does.
func (s Schedule) Plan(after Instant) (schedule.Plan, error) {
	r, err := s.Recurrence()
	if err != nil {
		return schedule.Plan{}, err
	}
	return s.plan(r, after)
}

func (s Schedule) plan(r schedule.Recurrence, after Instant) (p schedule.Plan, err error) {
	p = schedule.Always(r)
	p.Offset, p.Spread = int64(s.Offset/time.Second), int64(s.Spread/time.Second)
	if s.Start != 0 {
		p.From = max(p.From, s.Start.Seconds())
	}
	if s.End != 0 {
		p.To = min(p.To, s.End.Seconds())
	}
	if p.Except, err = schedule.ParseExclusions(s.Calendars); err != nil {
		return p, err
	}
	if s.MaxOccurrences > 0 {
		s.limit(&p, after)
	}
	return p, nil
}

// limit ends a plan with the last of so many occurrences. They were counted from another
// instant than the one from which the schedule counts, which is decided later and may lie
// a little before or after it: what lies between the two is made up for at the end.
func (s Schedule) limit(p *schedule.Plan, after Instant) {
	p.MaxOccurrences = int64(s.MaxOccurrences)
	counted, begin := s.CountedFrom.Seconds(), after.Seconds()
	free := *p
	if s.Last != 0 {
		p.To = s.Last.Seconds()
	}
	extra := free.CountRuns(begin, counted)
	switch missed := free.CountRuns(counted, begin); {
	case missed > 0 && s.Last != 0:
		last, ok := free.NthRun(p.To, missed)
		if p.To = free.To; ok {
			p.To = last
		}
	case extra > 64, extra > 0 && s.Last == 0: // no step back, but a count anew
		free.To = min(free.To, s.Horizon(after))
		if last, ok := free.NthRun(begin, int64(s.MaxOccurrences)); ok {
			p.To = last
		}
	default:
		for ; extra > 0; extra-- {
			p.To, _ = free.PrevRun(p.To) // there are that many, since the extra ones are among them
		}
	}
}

// Reach is how far ahead a fire time is looked for. What doesn't fire in a century never
// does, or is a mistake; and every search must end.
const Reach = 36525 * 24 * time.Hour

// Horizon is the Unix second up to which a run after an instant is looked for: a century
// from there on, or from the start of the schedule if that lies later.
func (s Schedule) Horizon(after Instant) int64 {
	return min(max(after, s.Start).Add(Reach).Seconds(), schedule.MaxSecond)
}

// Count finds the last of MaxOccurrences occurrences after an instant, once, so that
// nobody need count again. All that it depends on must have been decided.
func (s *Schedule) Count(from Instant) error {
	if s.MaxOccurrences == 0 || !s.Kind.Recurring() {
		return nil
	}
	s.CountedFrom, s.Last = from, 0
	plan, err := s.Plan(from)
	if err != nil {
		return err
	}
	plan.To = min(plan.To, s.Horizon(from))
	if last, ok := plan.NthRun(from.Seconds(), int64(s.MaxOccurrences)); ok {
		s.Last = AtSecond(last)
	}
	return nil
}

// DescribeOnce says in plain English when a job that fires once does.
func (s Schedule) DescribeOnce() string {
	if s.Kind == KindOnce {
		return "once, at " + s.At.String()
	}
	return "once, as soon as it is stored"
}

// NeedsDialect returns the version of the expander that s needs: one that knows less
// must not fire it.
func (s Schedule) NeedsDialect() int {
	plain := Schedule{Kind: s.Kind, At: s.At, Cron: s.Cron, Every: s.Every, Anchor: s.Anchor, Dialect: s.Dialect}
	switch {
	case !s.Kind.Recurring():
		return 0
	case s == plain:
		return 1
	}
	return 2
}

// Job is the durable intent to run a handler by a schedule.
type Job struct {
	UID           UID
	Shard         shard.ID
	Namespace     string
	Name          string
	Handler       string
	Params        []byte // one JSON document, or empty
	Schedule      Schedule
	Retry         RetryPolicy
	Policies      Policies
	Timeout       time.Duration // of one attempt
	CreatedAt     Instant
	EffectiveFrom Instant // the schedule counts after this instant
	EndedAt       Instant // the job owns no fire time after it; zero while it lives
	EndedByItself bool    // it fired for the last time, rather than being deleted
	RequestID     string  // empty if none was given
	RequestHash   string
	Labels        map[string]string // nil if there are none
	Quarantine    string            // why the job was set aside, or empty
}

// Plan expands the schedule of a recurring job.
func (j *Job) Plan() (schedule.Plan, error) { return j.Schedule.Plan(j.EffectiveFrom) }

// ChooseOffset moves the fire times of j inside of its schedule's spread, by its name:
// a job that replaces another one stays where that was.
func (j *Job) ChooseOffset() {
	if j.Schedule.Spread > 0 {
		j.Schedule.Offset = schedule.SpreadOffset(j.Schedule.Spread, j.Namespace+"/"+j.Name)
	}
}

// ResourceName returns namespaces/{namespace}/jobs/{job}.
func (j *Job) ResourceName() string { return "namespaces/" + j.Namespace + "/jobs/" + j.Name }

// SlotName returns the resource name of j's slot with this fire time.
func (j *Job) SlotName(fireTime Instant) string {
	return j.ResourceName() + "/slots/" + fireTime.ID()
}

// Hash returns the fingerprint of what a create asked for: it tells a repeated
// request from another one under the same name or request id.
func (j *Job) Hash() string {
	spec := struct {
		Namespace, Name, Handler string
		Params                   string
		Schedule                 Schedule
		Retry                    RetryPolicy
		Timeout                  time.Duration
		Labels                   map[string]string `json:",omitempty"` // a job without any has the hash that it had before there were labels
		Policies                 Policies          `json:",omitzero"`  // and before there were these
	}{j.Namespace, j.Name, j.Handler, string(j.Params), j.Schedule, j.Retry, j.Timeout, j.Labels, j.Policies}
	text, err := json.Marshal(spec)
	if err != nil {
		panic("job: a job's own fields can always be written as JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
