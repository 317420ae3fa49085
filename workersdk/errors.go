package workersdk

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// The causes for which a handler's context ends; ask [context.Cause].
var (
	// ErrTimeout says that the attempt ran beyond its timeout.
	ErrTimeout = errors.New("the attempt ran beyond its timeout")
	// ErrCancelled says that a user or a policy cancelled the slot.
	ErrCancelled = errors.New("the slot was cancelled")
	// ErrLeaseLost says that the attempt is no longer this worker's, or may not be:
	// another worker may run the next attempt from now on.
	ErrLeaseLost = errors.New("the worker's lease ended")
	// ErrShutdown says that the worker stops. An error returned now hands the attempt
	// back without a failure.
	ErrShutdown = errors.New("the worker stops")
)

// Codes of failures that the SDK itself reports.
const (
	codeError          = "error"
	codePanic          = "panic"
	codeBadParams      = "bad_params"
	codeBadResult      = "bad_result"
	codeTimeout        = "timeout"
	codeStuck          = "stuck"
	codeCancelled      = "cancelled"
	codeLeaseLost      = "lease_lost"
	codeShutdown       = "shutdown"
	codeOverCapacity   = "over_capacity"
	codeUnknownHandler = "unknown_handler"
	codeOldEpoch       = "old_epoch"
	codeCodec          = "codec"
)

// Bounds of the contract.
const (
	maxCodeBytes     = 128
	maxErrorBytes    = 16 << 10
	maxDocumentBytes = 256 << 10
	maxNoteBytes     = 1 << 10
)

// Permanent marks an error that no further attempt can cure: the slot goes straight
// to the dead letters. Permanent(nil) is nil. Permanent, [RetryAfter] and [Coded]
// compose in any order, also below fmt.Errorf's %w, and unwrap to err.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// RetryAfter asks for the next attempt after d instead of after the policy's delay.
// A d that is not positive asks for nothing. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryError{err, d}
}

// Coded gives a failure a short code by which failures are grouped: at most 128
// bytes of UTF-8, longer ones are cut. The outermost code counts. Coded(code, nil)
// is nil.
func Coded(code string, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{err, code}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

type retryError struct {
	err   error
	delay time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

type codedError struct {
	err  error
	code string
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// failure is what the node is told of an error.
type failure struct {
	code, text string
	permanent  bool
	retryAfter time.Duration
}

// describe calls err's methods, which are the user's and may panic.
func describe(err error) *failure {
	f := &failure{code: codeError, text: err.Error()}
	var coded *codedError
	if errors.As(err, &coded) && coded.code != "" {
		f.code = coded.code
	}
	var permanent *permanentError
	f.permanent = errors.As(err, &permanent)
	var retry *retryError
	if errors.As(err, &retry) && retry.delay > 0 {
		f.retryAfter = retry.delay
	}
	return f
}

// clean makes a text valid UTF-8 of at most limit bytes: a string that is not would
// break the whole stream.
func clean(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// cut bounds a text that travels as bytes.
func cut(s string, limit int) []byte { return []byte(s[:min(len(s), limit)]) }
