package workersdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// maxStackBytes leaves room in an error text for the message before the stack.
const maxStackBytes = 12 << 10

// key names an attempt: an AttemptToken as a value.
type key struct {
	shard   int32
	uid     string
	fireUS  int64
	attempt int32
	epoch   int64
}

func keyOf(t *carillonv1.AttemptToken) key {
	return key{t.GetShard(), t.GetJobUid(), t.GetFireTimeUs(), t.GetAttempt(), t.GetEpoch()}
}

func (k key) token() *carillonv1.AttemptToken {
	return &carillonv1.AttemptToken{Shard: k.shard, JobUid: k.uid, FireTimeUs: k.fireUS, Attempt: k.attempt, Epoch: k.epoch}
}

// attempt is one assignment that takes a place of the worker's capacity.
//
//	waiting ──▶ running ──▶ returned
//	   └───────────┴──▶ reported, by the loop and before its return, if it must not
//	                    wait for it: stuck, or left behind by a shutdown
type attempt struct {
	// Set on arrival.
	key         key
	handler     *handler
	slot        string
	params      []byte
	trigger     string
	maxAttempts int
	deadline    time.Time // zero: none
	checkpoint  []byte    // of the attempts before
	logger      *slog.Logger
	taskLogger  *slog.Logger
	storesNotes func() bool // whether the node does
	cfg         *config

	// The handler's side.
	start    time.Time // written before the handler's first line, never after
	notes    notes
	document atomic.Pointer[[]byte]

	// The loop's side.
	state     state
	cancel    context.CancelCauseFunc // of a running one
	release   context.CancelFunc      // frees the context's timer
	startedAt time.Time               // zero until the handler's first line ran
	goroutine uint64                  // of the handler
	judged    judgement
	leaseLost bool      // by the worker's own clocks
	link      *link     // to its shard's owner, as far as is known
	voucher   *session  // whose heartbeats renew its lease; nil: none do
	lease     lease     // of one without a voucher
	askedAt   time.Time // when a node was asked about it last
}

type state int8

const (
	waiting state = iota
	running
	reported // its result is made, its handler still runs
	gone     // takes no place any more
)

// judgement is what the node has already decided about an attempt.
type judgement int8

const (
	unjudged     judgement = iota
	takenBack              // only a success is still worth telling
	declaredOver           // nothing is left to tell
)

func (a *attempt) fireTime() time.Time { return time.UnixMicro(a.key.fireUS).UTC() }

// held reports whether the worker still vouches for the attempt.
func (a *attempt) held() bool {
	return (a.state == waiting || a.state == running) && a.judged == unjudged
}

// attemptContext returns the context of a handler, how to end it for a cause, and
// how to release it.
func attemptContext(parent context.Context, deadline time.Time) (context.Context, context.CancelCauseFunc, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	if deadline.IsZero() {
		return ctx, cancel, func() { cancel(nil) }
	}
	ctx, stop := context.WithDeadlineCause(ctx, deadline, ErrTimeout)
	return ctx, cancel, func() { stop(); cancel(nil) }
}

// ending is what came of a handler.
type ending struct {
	start    time.Time // zero: its first line never ran
	failure  *failure  // nil: it returned nil
	panicked bool
	cause    error // of its context's end, at its return
	document []byte
}

// execute runs the handler, in its own goroutine. began is told once its first line
// is about to run, ended always.
func (a *attempt) execute(ctx context.Context, began func(time.Time, uint64), ended func(ending)) {
	e := ending{panicked: true, failure: &failure{code: codePanic, text: "the handler ended its goroutine (runtime.Goexit)"}}
	defer func() {
		if p := recover(); p != nil {
			e.failure.text = panicText(p)
		}
		e.start, e.cause = a.start, context.Cause(ctx)
		if doc := a.document.Load(); doc != nil {
			e.document = *doc
		}
		ended(e)
	}()
	failure := a.call(ctx, began)
	e.failure, e.panicked = failure, false
}

func (a *attempt) call(ctx context.Context, began func(time.Time, uint64)) *failure {
	if err := a.decode(); err != nil {
		return describe(err)
	}
	call, err := a.handler.prepare(a)
	if err == nil {
		a.start = time.Now()
		began(a.start, goroutineID())
		err = a.cfg.intercepted(TaskInfo{a}, call)(ctx)
	}
	if err == nil {
		return nil
	}
	return describe(err)
}

// panicText survives a value whose own String or Error panics.
func panicText(p any) string {
	stack := debug.Stack()
	return fmt.Sprintf("panic: %s\n\n%s", cut(fmt.Sprint(p), maxErrorBytes-maxStackBytes-64), stack[:min(len(stack), maxStackBytes)])
}

// result is what the node is told of an ending; nil if nothing.
func (a *attempt) result(e ending) *carillonv1.AttemptResult {
	if a.judged == declaredOver || a.judged == takenBack && e.failure != nil {
		return nil
	}
	r := &carillonv1.AttemptResult{Token: a.key.token()}
	a.notes.last(r)
	if !e.start.IsZero() {
		r.StartTime = timestamppb.New(e.start)
	}
	switch {
	case errors.Is(e.cause, ErrTimeout):
		return a.afterCause(r, e, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_TIMED_OUT, codeTimeout)
	case e.failure == nil:
		r.Outcome = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED
		if len(e.document) > 0 {
			r.Result = &carillonv1.Json{Text: string(e.document)}
		}
		return r
	case errors.Is(e.cause, ErrCancelled):
		return a.afterCause(r, e, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_CANCELLED, codeCancelled)
	case errors.Is(e.cause, ErrShutdown) && !e.panicked:
		return a.afterCause(r, e, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED, codeShutdown)
	case errors.Is(e.cause, ErrLeaseLost) && !e.panicked:
		return a.afterCause(r, e, carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED, codeLeaseLost)
	}
	r.Outcome = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED
	r.ErrorCode, r.ErrorMessage, r.Permanent = clean(e.failure.code, maxCodeBytes), cut(e.failure.text, maxErrorBytes), e.failure.permanent
	if e.failure.retryAfter > 0 {
		r.RetryAfter = durationpb.New(e.failure.retryAfter)
	}
	return r
}

// afterCause completes the result of an attempt whose context had ended first.
func (a *attempt) afterCause(r *carillonv1.AttemptResult, e ending, outcome carillonv1.AttemptOutcome, code string) *carillonv1.AttemptResult {
	text := e.cause.Error()
	switch {
	case e.failure == nil:
		text += "; the handler then returned without an error"
	case e.failure.text != text:
		text += ": " + e.failure.text
	}
	r.Outcome, r.ErrorCode, r.ErrorMessage = outcome, code, cut(text, maxErrorBytes)
	return r
}

// unstarted is the ending of an attempt whose handler never ran.
func unstarted(cause error) ending {
	return ending{cause: cause, failure: &failure{text: "the handler never began"}}
}
