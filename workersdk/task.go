package workersdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Task is one attempt at a slot, as its handler sees it: its arguments, and all that
// [TaskInfo] tells and takes.
type Task[A any] struct {
	// Args holds the decoded parameters.
	Args A
	TaskInfo
}

// TaskInfo is one attempt at a slot, whatever its arguments are. Its methods may be called
// from any goroutine of the handler.
type TaskInfo struct{ attempt *attempt }

// Handler returns the name of the handler.
func (t TaskInfo) Handler() string { return t.attempt.handler.name }

// Job returns the resource name of the job, namespaces/{namespace}/jobs/{job}.
func (t TaskInfo) Job() string {
	name, _, _ := strings.Cut(t.attempt.slot, "/slots/")
	return name
}

// Slot returns the resource name of the slot,
// namespaces/{namespace}/jobs/{job}/slots/{fire time}.
func (t TaskInfo) Slot() string { return t.attempt.slot }

// FireTime returns the scheduled fire time, in UTC. Work with this, not with the
// time of day: an attempt may run later.
func (t TaskInfo) FireTime() time.Time { return t.attempt.fireTime() }

// Attempt returns the number of the attempt, from 1.
func (t TaskInfo) Attempt() int { return int(t.attempt.key.attempt) }

// Fence returns a number that grows with each attempt of the slot. Let a system
// that you write to refuse a lower one than it has seen.
func (t TaskInfo) Fence() int64 { return int64(t.attempt.key.attempt) }

// MaxAttempts returns the retry budget of the slot. Attempts that were handed back
// use up none of it, so that Attempt may be larger.
func (t TaskInfo) MaxAttempts() int { return t.attempt.maxAttempts }

// Trigger returns why the slot exists: "schedule", "immediate", "manual" or
// "backfill".
func (t TaskInfo) Trigger() string { return t.attempt.trigger }

// Lateness returns how long after its fire time the handler started.
func (t TaskInfo) Lateness() time.Duration { return t.attempt.start.Sub(t.attempt.fireTime()) }

// Key returns an idempotency key that is the same on every attempt of the slot, and
// differs between slots and between parts. Parts are printed as fmt.Sprint does;
// {job uid}/{fire time}/{part}/…, each part path-escaped.
func (t TaskInfo) Key(parts ...any) string {
	var b strings.Builder
	b.WriteString(t.attempt.key.uid)
	b.WriteByte('/')
	b.WriteString(t.attempt.fireTime().Format("20060102T150405.000000Z"))
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(fmt.Sprint(p)))
	}
	return b.String()
}

// Progress says how far the handler is, for people: units done, units in all (0 if
// unknown), and a note of at most 1 KiB. It never blocks; the newest is sent, about
// once a second.
func (t TaskInfo) Progress(done, total int64, note string) {
	p := &carillonv1.Progress{Done: done, Total: total, Note: clean(note, maxNoteBytes)}
	t.attempt.notes.change(func(n *notes) { n.progress = p })
}

// SetResult makes v, as JSON of at most 256 KiB, the result that is stored if the
// handler succeeds; the last one counts. An error, with code "bad_result", leaves
// the result as it was; a handler may return it.
func (t TaskInfo) SetResult(v any) error {
	doc, err := json.Marshal(v)
	switch {
	case err != nil:
		err = fmt.Errorf("encode the result: %w", err)
	case len(doc) > maxDocumentBytes:
		err = fmt.Errorf("the result has %d bytes, more than %d", len(doc), maxDocumentBytes)
	case !utf8.Valid(doc):
		err = errors.New("the result is not valid UTF-8")
	default:
		doc, err = t.attempt.encodeResult(doc)
	}
	if err != nil {
		return Coded(codeBadResult, err)
	}
	t.attempt.document.Store(&doc)
	return nil
}

// Params returns the parameters as they were written, decoded by the worker's codec: one
// JSON document, or nothing. They must not be changed.
func (t TaskInfo) Params() []byte { return t.attempt.params }

// Logger returns the worker's logger with the handler, the slot and the attempt. The newest
// 16 KiB of what is logged by it, from level Info on, are shown with the slot.
func (t TaskInfo) Logger() *slog.Logger { return t.attempt.taskLogger }
