package outbox

import (
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// verdict is what an answer means for a row.
type verdict int

const (
	later  verdict = iota // there is no answer, or not yet the right one
	made                  // the job exists
	failed                // no node will ever create it as it is
)

// answer is what became of a create.
type answer struct {
	verdict verdict
	err     error
}

// Reasons for which a node refuses a job that it will take once somebody has brought what
// is missing.
const (
	reasonHandlerUnknown  = "HANDLER_NOT_REGISTERED"
	reasonCalendarUnknown = "CALENDAR_NOT_FOUND"
)

// judge reads the answer to a create. Only what says that the job itself is wrong is
// final: a relay that lacks a right, or meets a server that isn't one, must lose nothing.
func judge(err error) answer {
	switch code := status.Code(err); code {
	case codes.OK:
		return answer{made, nil}
	case codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition:
		if reason := reasonOf(err); reason != reasonHandlerUnknown && reason != reasonCalendarUnknown {
			return answer{failed, err}
		}
	}
	return answer{later, err}
}

// reasonOf is the reason that an error gives, or nothing.
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// maxErrorBytes is as much of an error as people read.
const maxErrorBytes = 4 << 10

// text is the error, as every database takes it.
func (a answer) text() string {
	if a.err == nil {
		return ""
	}
	text := a.err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
	return strings.ReplaceAll(text, "\x00", "")
}

// Delays of a row that has to come again.
const (
	minDelay = time.Second
	maxDelay = time.Minute
)

// delayAfter is how long a row waits after so many attempts: it doubles, and is jittered by
// half, so that rows which failed together don't come back together.
func delayAfter(attempts int64) time.Duration {
	delay := maxDelay
	if doublings := attempts - 1; doublings < 6 {
		delay = min(minDelay<<max(doublings, 0), maxDelay)
	}
	return delay/2 + rand.N(delay/2)
}
