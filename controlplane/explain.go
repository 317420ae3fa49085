package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store"
)

// reasons collects why a slot is where it is, the deciding reason first.
type reasons []*carillonv1.Reason

func (r *reasons) add(code carillonv1.ReasonCode, hint, format string, args ...any) {
	*r = append(*r, &carillonv1.Reason{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// ExplainSlot implements SlotService.
func (s slotService) ExplainSlot(ctx context.Context, req *carillonv1.ExplainSlotRequest) (*carillonv1.ExplainSlotResponse, error) {
	ref, err := parseSlot(req.GetName())
	if err != nil {
		return nil, invalid("name", reasonInvalidField, err.Error())
	}
	j, err := s.findJob(ctx, ref.job)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fail(codes.NotFound, reasonNotFound, req.GetName()+": there is no such job", "name", req.GetName())
	}
	if err != nil {
		return nil, s.toStatus(ctx, "read job", err)
	}
	if ref.fire == 0 {
		if ref.fire, err = s.newest(ctx, &j); err != nil {
			return nil, s.toStatus(ctx, "read slots", err)
		}
	}
	found, err := s.findSlot(ctx, ref)
	exists := err == nil
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, s.toStatus(ctx, "read slot", err)
	}
	if !exists {
		found = store.SlotOf{Job: j, Slot: job.Slot{Key: job.SlotKey{FireTime: ref.fire, UID: j.UID}}}
	}
	if !s.node.Owns(j.Shard) {
		resp := &carillonv1.ExplainSlotResponse{}
		if s.atOwner(ctx, j.Shard, carillonv1.SlotService_ExplainSlot_FullMethodName, req, resp) {
			return resp, nil
		}
	}
	view, err := s.node.Look(ctx, j.Shard, found.Slot.Key, j.Handler)
	if err != nil {
		return nil, s.toStatus(ctx, "look at slot", err)
	}
	e := explainer{job: &found.Job, slot: &found.Slot, view: view, now: s.now(), degraded: s.node.Degraded()}
	if !exists {
		if e.skip, err = s.skipOf(ctx, &j, ref.fire); err != nil {
			return nil, s.toStatus(ctx, "read skips", err)
		}
	}
	resp := &carillonv1.ExplainSlotResponse{Reasons: e.explain(exists)}
	if exists {
		resp.Slot = slotMessage(&found, view.Slot)
	}
	return resp, nil
}

// skipOf returns the range of left-out occurrences of a job in which an instant lies, or
// nil.
func (s slotService) skipOf(ctx context.Context, j *job.Job, at job.Instant) (*store.Skip, error) {
	skips, err := s.store.Skips(ctx, j.Shard, j.UID, at, 1)
	if err != nil || len(skips) == 0 || skips[0].From > at {
		return nil, err
	}
	return &skips[0], nil
}

// newest returns the fire time of a job's newest slot, or else its next one.
func (s slotService) newest(ctx context.Context, j *job.Job) (job.Instant, error) {
	oldest, err := s.store.RetainedFrom(ctx, j.Shard)
	if err != nil {
		return 0, err
	}
	h := history{store: s.store, job: j, before: math.MaxInt64, oldest: oldest, now: s.now()}
	for !h.done {
		slots, err := h.page(ctx, 1)
		if err != nil {
			return 0, err
		}
		if len(slots) > 0 {
			return slots[0].Slot.Key.FireTime, nil
		}
	}
	var m carillonv1.Job
	next, _ := describe(&m, j, s.now())
	return next, nil
}

// explainer holds the evidence.
type explainer struct {
	job      *job.Job
	slot     *job.Slot
	view     engine.View
	now      job.Instant
	degraded bool
	skip     *store.Skip // in which the fire time lies
	reasons  reasons
}

func (e *explainer) explain(exists bool) reasons {
	switch {
	case !exists:
		e.missing()
	case e.slot.State == job.Ready:
		e.waiting()
	case e.slot.State == job.Running:
		e.running()
	default:
		e.ended()
	}
	if exists && e.slot.State == job.Ready && e.view.Stalled {
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_ESCALATED, "Look at the workers of the handler.",
			"slots of the handler %s have waited for a worker for more than five minutes; an event tells", e.job.Handler)
	}
	if e.degraded {
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_STORE_UNAVAILABLE, "Look at the node's log and at the database.",
			"the node can't commit to its database at the moment")
	}
	return e.reasons
}

// missing explains a fire time without a slot.
func (e *explainer) missing() {
	at := e.slot.Key.FireTime
	switch {
	case at == 0:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_NOT_SCHEDULED, "", "the job has no slot and no further fire time")
	case e.job.Quarantine != "":
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_JOB_QUARANTINED, "Delete the job and create it again.", "the job was set aside: %s", e.job.Quarantine)
	case !fires(e.job, at):
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_NOT_SCHEDULED, "See the job's next_fire_time.", "the job does not fire at %s", at)
	case e.job.EndedAt != 0 && at > e.job.EndedAt:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_JOB_ENDED, "", "the job ended at %s", e.job.EndedAt)
	case at > e.now:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_NOT_DUE, "", "the fire time %s is %s ahead", at, at.Sub(e.now).Round(time.Second))
		if by := excludedBy(e.job, at); by != nil {
			e.reasons.add(carillonv1.ReasonCode_REASON_CODE_EXCLUDED_BY_CALENDAR, "", "it will not be run: the calendar %s excludes it", by)
		} else if e.view.Owned && e.view.Workers == 0 {
			e.reasons.add(carillonv1.ReasonCode_REASON_CODE_NO_WORKER_FOR_HANDLER, "Start a worker that registers it.",
				"no live worker serves the handler %s at the moment", e.job.Handler)
		}
	case e.skip != nil:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_SKIPPED_BY_POLICY, "See the job's catch-up and overlap policies; run the job by hand if it must run.",
			"it was missed and not made up for (%s), like %d occurrences from %s to %s", e.skip.Code, e.skip.Count, e.skip.From, e.skip.To)
	case !e.view.Owned:
		e.unowned()
	default:
		e.owed(at)
	}
}

func (e *explainer) owed(at job.Instant) {
	for _, g := range e.view.Gaps {
		if at > g.From && at <= g.Key.To && (g.Key.UID.IsZero() || g.Key.UID == e.job.UID) {
			e.reasons.add(carillonv1.ReasonCode_REASON_CODE_BACKFILL_PENDING, "",
				"the occurrences from %s to %s were missed and are being made up for; done up to %s", g.From, g.Key.To, g.Cursor.FireTime)
			return
		}
	}
	e.reasons.add(carillonv1.ReasonCode_REASON_CODE_STORE_UNAVAILABLE, "Ask again in a second.", "the slot is being made")
}

func (e *explainer) unowned() {
	e.reasons.add(carillonv1.ReasonCode_REASON_CODE_SHARD_UNOWNED, "It is taken over within seconds; if not, look at the nodes' logs.",
		"shard %d has no live owner on this node", e.job.Shard)
}

// waiting explains a READY slot.
func (e *explainer) waiting() {
	switch {
	case !e.view.Owned:
		e.unowned()
	case e.view.Slot != nil && e.view.Slot.Behind != "":
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_OVERLAP, "See the job's overlap policy.", "it waits for its turn: %s", e.view.Slot.Behind)
	case e.view.Slot == nil && e.limited():
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_OVERLAP, "See the job's overlap policy.", "it waits for its turn, far behind others of its job")
	case e.slot.NotBefore > e.now:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_RETRY_BACKOFF, "",
			"attempt %d ended with %v (%s); the next one is due at %s", e.slot.Attempt, e.slot.Outcome, e.slot.ErrorText, e.slot.NotBefore)
	case e.view.Workers == 0:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_NO_WORKER_FOR_HANDLER, "Start a worker that registers it.",
			"no live worker serves the handler %s", e.job.Handler)
	case e.job.Quarantine != "":
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_JOB_QUARANTINED, "Delete the job and create it again.", "the job was set aside: %s", e.job.Quarantine)
	case e.view.Free > 0:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_WORKERS_FULL, "Ask again in a second.", "a worker of the handler %s has just become free", e.job.Handler)
	default:
		ahead := 0
		if e.view.Slot != nil {
			ahead = e.view.Slot.Ahead
		}
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_WORKERS_FULL, "Add workers, or raise their capacity.",
			"%d workers serve the handler %s and have no free capacity; about %d slots are before this one", e.view.Workers, e.job.Handler, ahead)
	}
}

// limited reports whether the slots of the job wait for each other.
func (e *explainer) limited() bool {
	_, limited := e.job.Policies.Overlap.Limit()
	return limited
}

// running explains a RUNNING slot.
func (e *explainer) running() {
	if !e.view.Owned {
		e.unowned()
		return
	}
	lease := "its lease is not renewed yet since the shard changed its owner"
	if e.view.Slot != nil && e.view.Slot.LeaseUntil != 0 {
		lease = "its lease lasts until " + e.view.Slot.LeaseUntil.String()
	}
	e.reasons.add(carillonv1.ReasonCode_REASON_CODE_LEASE_HELD, "", "worker %s runs attempt %d since %s; %s; it times out at %s",
		e.slot.Worker, e.slot.Attempt, e.slot.ClaimedAt, lease, e.slot.Deadline)
}

// ended explains a slot that nothing works on.
func (e *explainer) ended() {
	switch e.slot.State {
	case job.Succeeded:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_SUCCEEDED, "", "attempt %d succeeded at %s", e.slot.Attempt, e.slot.FinishedAt)
	case job.Dead:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_DEAD_LETTERED, "Repair the cause, then redrive the slot; or discard it.",
			"%d of %d attempts failed; the last: %s", e.slot.Failures, e.job.Retry.MaxAttempts, e.slot.ErrorText)
	case job.Discarded:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_DISCARDED, "", "it was given up at %s; %s", e.slot.FinishedAt, e.slot.ErrorText)
	case job.Skipped:
		code, hint := carillonv1.ReasonCode_REASON_CODE_SKIPPED_BY_POLICY, "See the job's overlap and catch-up policies; run the job by hand if it must run."
		if e.slot.ErrorCode == job.CodeExcluded {
			code, hint = carillonv1.ReasonCode_REASON_CODE_EXCLUDED_BY_CALENDAR, "Run the job by hand if it must run that day."
		}
		e.reasons.add(code, hint, "it was not run: %s", e.slot.ErrorText)
	case job.Expired:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_EXPIRED, "See the job's start and total deadlines.", "its deadline passed at %s: %s", e.slot.FinishedAt, e.slot.ErrorText)
	default:
		e.reasons.add(carillonv1.ReasonCode_REASON_CODE_CANCELLED, "", "it is %v since %s: %s", e.slot.State, e.slot.FinishedAt, e.slot.ErrorText)
	}
}

// excludedBy returns the calendar of a recurring job that excludes a fire time, or nil.
func excludedBy(j *job.Job, at job.Instant) *schedule.Calendar {
	if plan, err := j.Plan(); err == nil {
		return plan.Except.By(at.Seconds())
	}
	return nil
}

// fires reports whether a job's schedule holds an instant.
func fires(j *job.Job, at job.Instant) bool {
	if j.Schedule.Kind == job.KindOnce {
		return j.Schedule.At == at
	}
	plan, err := j.Plan()
	if err != nil || !at.Whole() || at <= j.EffectiveFrom {
		return false
	}
	next, ok := plan.Next(at.Seconds() - 1)
	return ok && job.AtSecond(next) == at
}
