package workersdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// maxHandlers is the contract's bound of one worker's handlers.
const maxHandlers = 1000

var handlerName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// handler is one registered handler.
type handler struct {
	name  string
	limit int // how many attempts run at the same time; 0: as many as there are
	// timeout bounds one run; 0: only the attempt's does.
	timeout time.Duration
	// prepare decodes an attempt's parameters and returns the call that is left.
	prepare func(a *attempt) (call func(context.Context) error, err error)

	// The loop's, once Run began.
	running int
	waiting []*attempt // first in, first out
	ended   int        // of waiting: those that ended meanwhile and are passed over
}

func (h *handler) full() bool { return h.limit > 0 && h.running >= h.limit }

// next takes the attempt whose turn it is; nil if none waits.
func (h *handler) next() *attempt {
	for len(h.waiting) > 0 {
		a := h.waiting[0]
		h.waiting = h.waiting[1:]
		if a.state == waiting {
			return a
		}
		h.ended--
	}
	return nil
}

// passOver notes that a waiting attempt ended. Ended ones are cleared away once they
// are the most, so that a handler that never returns doesn't make them pile up.
func (h *handler) passOver() {
	const few = 64
	h.ended++
	if h.ended > few && h.ended > len(h.waiting)/2 {
		h.waiting = slices.DeleteFunc(h.waiting, func(a *attempt) bool { return a.state != waiting })
		h.ended = 0
	}
}

// HandlerOption changes how one handler is run.
type HandlerOption func(*handler)

// Concurrency bounds how many attempts of the handler run at the same time in this
// worker: n ≥ 1; it panics otherwise. Attempts beyond it wait in the worker, first
// in, first out. They count against the worker's capacity and their timeout runs
// from their arrival, so keep the capacity near the sum of the handlers' bounds.
func Concurrency(n int) HandlerOption {
	if n < 1 {
		panic(fmt.Sprintf("workersdk: Concurrency(%d): must be at least 1", n))
	}
	return func(h *handler) { h.limit = n }
}

// Timeout bounds one run of the handler, beside the attempt's own timeout, which counts from
// the attempt's arrival: d > 0; it panics otherwise. The context ends with [ErrTimeout].
func Timeout(d time.Duration) HandlerOption {
	if d <= 0 {
		panic(fmt.Sprintf("workersdk: Timeout(%s): must be positive", d))
	}
	return func(h *handler) { h.timeout = d }
}

// Handle registers fn as the handler of that name: 1 to 128 letters, digits, '.',
// '_' or '-'. Before each call the slot's parameters are decoded into A from JSON,
// strictly: an unknown field fails the slot for good, with code "bad_params". No
// parameters leave A's zero value; an A of json.RawMessage or any takes all.
//
// Handle panics on what only a programmer can cure: a bad or a repeated name, a nil
// fn, more than 1,000 handlers, a call after Run.
func Handle[A any](w *Worker, name string, fn func(ctx context.Context, t *Task[A]) error, opts ...HandlerOption) {
	if fn == nil {
		panic("workersdk: Handle " + name + ": the function is nil")
	}
	h := &handler{name: name, prepare: func(a *attempt) (func(context.Context) error, error) {
		t := &Task[A]{TaskInfo: TaskInfo{a}}
		if err := decode(a.params, &t.Args); err != nil {
			return nil, Permanent(Coded(codeBadParams, fmt.Errorf("decode params into %T: %w", t.Args, err)))
		}
		return func(ctx context.Context) error { return fn(ctx, t) }, nil
	}}
	for _, opt := range opts {
		opt(h)
	}
	w.register(h)
}

func (w *Worker) register(h *handler) {
	if !handlerName.MatchString(h.name) {
		panic(fmt.Sprintf("workersdk: Handle %q: a name is 1 to 128 letters, digits, '.', '_' or '-'", h.name))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ran:
		panic("workersdk: Handle " + h.name + ": the worker runs already")
	case w.handlers[h.name] != nil:
		panic("workersdk: Handle " + h.name + ": is registered twice")
	case len(w.handlers) == maxHandlers:
		panic(fmt.Sprintf("workersdk: Handle %s: a worker has at most %d handlers", h.name, maxHandlers))
	}
	w.handlers[h.name] = h
}

// decode reads exactly one JSON document, or none.
func decode(params []byte, into any) error {
	if len(params) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(params))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows after the JSON document")
	}
	return nil
}
