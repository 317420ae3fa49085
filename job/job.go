// Package job says what a job, a schedule, an occurrence, a slot and an attempt
// are. It holds no behaviour beyond their own rules and depends on nothing but
// the standard library, so that every other package can speak its words.
package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// Schedule says when a job fires. Which fields count depends on Kind.
type Schedule struct {
	Kind    Kind          `json:"kind"`
	At      Instant       `json:"at,omitempty"`      // KindOnce
	Cron    string        `json:"cron,omitempty"`    // KindCron
	Every   time.Duration `json:"every,omitempty"`   // KindInterval
	Anchor  Instant       `json:"anchor,omitempty"`  // KindInterval, whole seconds
	Dialect int           `json:"dialect,omitempty"` // the expander's version, for the recurring kinds
}

// Recurrence expands a recurring schedule. It fails for a schedule that this
// version can't read, such as one that was damaged in the database.
func (s Schedule) Recurrence() (schedule.Recurrence, error) {
	switch {
	case s.Kind.Recurring() && s.Dialect != schedule.DialectVersion:
		return nil, fmt.Errorf("schedule dialect %d is not known", s.Dialect)
	case s.Kind == KindCron:
		return schedule.ParseCron(s.Cron)
	case s.Kind == KindInterval:
		return schedule.NewInterval(s.Every, s.Anchor.Seconds())
	}
	return nil, fmt.Errorf("a schedule of kind %d does not recur", s.Kind)
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
	Timeout       time.Duration // of one attempt
	CreatedAt     Instant
	EffectiveFrom Instant // the schedule counts after this instant
	EndedAt       Instant // the job owns no fire time after it; zero while it lives
	EndedByItself bool    // it fired for the only time, rather than being deleted
	RequestID     string  // empty if none was given
	RequestHash   string
	Labels        map[string]string // nil if there are none
	Quarantine    string            // why the job was set aside, or empty
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
	}{j.Namespace, j.Name, j.Handler, string(j.Params), j.Schedule, j.Retry, j.Timeout, j.Labels}
	text, err := json.Marshal(spec)
	if err != nil {
		panic("job: a job's own fields can always be written as JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
