package main

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	brokenAttempts = 3
	dailySchedule  = "0 2 * * *"
	probePrefix    = "probe-" // of the jobs that only measure; the table leaves them out
	onceAhead      = 4 * time.Second
)

// job is one job of the demo: what is asked for, what must come of it, and, once it
// is created, what the server acknowledged.
type job struct {
	id, handler, params, about string
	schedule                   *carillonv1.Schedule
	retry                      *carillonv1.RetryPolicy
	rule                       rule
	ending                     ending

	name, uid        string
	from             time.Time // its schedule counts after this instant
	guessed          bool      // from is: the create's answer was of no use
	nextFire         time.Time // as the create answered; zero: none
	called, answered time.Time // around the create
}

// ending is how every slot of a job must end.
type ending struct {
	state    carillonv1.SlotState
	attempts int
	// byNumber: the handler goes by the attempt's number, so that an attempt which the
	// outage cut off is one of attempts. Otherwise it comes on top.
	byNumber bool
}

var (
	succeeds      = ending{state: carillonv1.SlotState_SLOT_STATE_SUCCEEDED, attempts: 1}
	succeedsThird = ending{state: carillonv1.SlotState_SLOT_STATE_SUCCEEDED, attempts: flakyAttempts, byNumber: true}
	diesAtThird   = ending{state: carillonv1.SlotState_SLOT_STATE_DEAD, attempts: brokenAttempts}
)

// cast returns the jobs of the story. The server will be killed at about kill.
func cast(now, kill time.Time) []*job {
	soon, missed := wholeSecond(now.Add(onceAhead)), wholeSecond(kill.Add(2*time.Second))
	return []*job{
		immediate("immediate", "runs at once"),
		onceJob("once", "runs once, a few seconds ahead", soon),
		onceJob("once-missed", "runs once, at an instant when the server will be dead", missed),
		{id: "every-second", handler: handlerEcho, about: "runs every second (* * * * * *)",
			schedule: cron("* * * * * *"), rule: rule{every: time.Second}, ending: succeeds},
		{id: "flaky", handler: handlerFlaky, about: "runs every 5 seconds, fails twice, then succeeds",
			schedule: cron("*/5 * * * * *"), rule: rule{every: 5 * time.Second}, ending: succeedsThird, retry: shortBackoff(5)},
		{id: "broken", handler: handlerBroken, about: "always fails: a dead letter after 3 attempts",
			schedule: atOnce(), rule: rule{immediate: true}, ending: diesAtThird, retry: shortBackoff(brokenAttempts)},
		{id: "daily", handler: handlerReport, params: `{"region":"eu"}`, about: "runs every day at 02:00 UTC (" + dailySchedule + ")",
			schedule: cron(dailySchedule), rule: rule{every: day, offset: 2 * time.Hour}, ending: succeeds},
	}
}

func immediate(id, about string) *job {
	return &job{id: id, handler: handlerEcho, params: `{"hello":"carillon"}`, about: about,
		schedule: atOnce(), rule: rule{immediate: true}, ending: succeeds}
}

func onceJob(id, about string, at time.Time) *job {
	return &job{id: id, handler: handlerReport, params: `{"region":"eu"}`, about: about, ending: succeeds,
		schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_RunAt{RunAt: timestamppb.New(at)}}, rule: rule{once: at}}
}

func probe(i int) *job { return immediate(fmt.Sprintf("%s%02d", probePrefix, i), "measures") }

func atOnce() *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}
}

func cron(expr string) *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: expr}}
}

// shortBackoff lets a failed attempt be followed by the next one after 300 ms.
func shortBackoff(attempts int32) *carillonv1.RetryPolicy {
	const pause = 300 * time.Millisecond
	return &carillonv1.RetryPolicy{
		MaxAttempts: proto.Int32(attempts), InitialBackoff: durationpb.New(pause), MaxBackoff: durationpb.New(pause),
		BackoffFactor: proto.Float64(1), Jitter: proto.Float64(0),
	}
}

// message is the job as it is sent.
func (j *job) message() *carillonv1.Job {
	m := &carillonv1.Job{Handler: j.handler, Schedule: j.schedule, RetryPolicy: j.retry}
	if j.params != "" {
		m.Params = &carillonv1.Json{Text: j.params}
	}
	return m
}

// acknowledge keeps what the server answered.
func (j *job) acknowledge(m *carillonv1.Job) {
	j.name, j.uid, j.from = m.GetName(), m.GetUid(), time.Time{}
	if m.GetEffectiveFrom() != nil {
		j.from = m.GetEffectiveFrom().AsTime()
	}
	if m.GetNextFireTime() != nil {
		j.nextFire = m.GetNextFireTime().AsTime()
	}
}

// checkAcknowledged says what is wrong with the answer's effective_from, if anything
// is; the create call's instant then stands in for it, so that the demo can go on.
func (j *job) checkAcknowledged() string {
	const near = time.Minute
	is := "not set"
	switch {
	case !j.from.IsZero() && j.from.After(j.called.Add(-near)) && j.from.Before(j.answered.Add(near)):
		return ""
	case !j.from.IsZero():
		is = j.from.Format(time.RFC3339)
	}
	j.from, j.guessed = j.called, true
	return fmt.Sprintf("%s: wrong effective_from in the create's answer: is %s, the call was at %s", j.name, is, j.called.UTC().Format(time.RFC3339))
}

// wholeSecond rounds up.
func wholeSecond(t time.Time) time.Time {
	return t.Add(time.Second - time.Nanosecond).Truncate(time.Second).UTC()
}
