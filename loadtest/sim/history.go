package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// history is what workers were told, and told, of each slot: what a check of linearizability reads.
type history struct {
	w *world

	mu    sync.Mutex
	slots map[slotName][]*operation // guarded by mu
	open  map[attemptName]*operation
}

// slotName names a slot as the protocol does.
type slotName struct {
	uid  string
	fire int64
}

type attemptName struct {
	slotName
	attempt int32
	who     string
}

// operation is the claim of an attempt, or something that a worker saw begin and end.
type operation struct {
	who        string
	kind       operationKind
	attempt    int32
	success    bool          // of a report: the attempt succeeded
	accepted   bool          // of a report: the node's verdict
	epoch      int64         // of the owner that gave it
	began, end time.Duration // since the run began; end is zero while it is open
}

type operationKind int8

const (
	opClaim operationKind = iota + 1
	opReport
	opRead
)

func newHistory(w *world) *history {
	return &history{w: w, slots: map[slotName][]*operation{}, open: map[attemptName]*operation{}}
}

func nameOf(t *carillonv1.AttemptToken) slotName {
	return slotName{t.GetJobUid(), t.GetFireTimeUs()}
}

func (h *history) since() time.Duration { return time.Since(h.w.tracer.began) }

// claimed notes that a claim was written.
func (h *history) claimed(who string, s *job.Slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := slotName{s.Key.UID.String(), int64(s.Key.FireTime)}
	if !h.knows(n, s.Attempt) { // else its batch is sent again
		h.slots[n] = append(h.slots[n], &operation{who: who, kind: opClaim, attempt: s.Attempt, began: h.since(), end: h.since()})
	}
}

// knows reports whether an attempt was claimed. The caller holds mu.
func (h *history) knows(n slotName, attempt int32) bool {
	return slices.ContainsFunc(h.slots[n], func(o *operation) bool { return o.kind == opClaim && o.attempt == attempt })
}

// assigned notes that a worker was given an attempt.
func (h *history) assigned(who string, a *carillonv1.Assignment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := nameOf(a.GetToken()); !h.knows(n, a.GetToken().GetAttempt()) {
		h.w.wrong("%s was given attempt %d of %v, whose claim was not written", who, a.GetToken().GetAttempt(), n)
	}
}

// reported notes that a worker begins to tell what came of an attempt.
func (h *history) reported(who string, r *carillonv1.AttemptResult) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := nameOf(r.GetToken())
	of := attemptName{n, r.GetToken().GetAttempt(), who}
	if h.open[of] != nil {
		return // it is told again
	}
	op := &operation{who: who, kind: opReport, attempt: of.attempt, success: r.GetOutcome() == carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED, began: h.since()}
	h.open[of] = op
	h.slots[n] = append(h.slots[n], op)
}

// answered notes the verdict.
func (h *history) answered(who string, a *carillonv1.ResultAck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := nameOf(a.GetToken())
	op := h.open[attemptName{n, a.GetToken().GetAttempt(), who}]
	if op == nil {
		return
	}
	accepted := a.GetVerdict() == carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED
	if op.end != 0 {
		// The answer to what is told twice must be the same. Of a failure an owner may not know any
		// more, once the slot was claimed again: that changes nothing.
		if op.accepted != accepted && op.success {
			h.w.wrong("%s was told of attempt %d of %v that its result was %s by epoch %d, and before that it was %s by epoch %d",
				who, op.attempt, n, verdict(accepted), a.GetEpoch(), verdict(op.accepted), op.epoch)
		}
		return
	}
	op.end, op.accepted, op.epoch = h.since(), accepted, a.GetEpoch()
}

func verdict(accepted bool) string {
	if accepted {
		return "accepted"
	}
	return "stale"
}

func (o *operation) String() string {
	switch o.kind {
	case opClaim:
		return fmt.Sprintf("%.6f %s claims #%d", o.end.Seconds(), o.who, o.attempt)
	case opReport:
		what := "failure"
		if o.success {
			what = "success"
		}
		if o.end == 0 {
			return fmt.Sprintf("%.6f %s reports a %s of #%d, and hears nothing", o.began.Seconds(), o.who, what, o.attempt)
		}
		return fmt.Sprintf("%.6f-%.6f %s reports a %s of #%d: %s", o.began.Seconds(), o.end.Seconds(), o.who, what, o.attempt, verdict(o.accepted))
	}
	return fmt.Sprintf("the row says #%d, succeeded %v", o.attempt, o.success)
}
