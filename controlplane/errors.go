package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/store"
)

// errorDomain is the domain of every ErrorInfo.
const errorDomain = "carillon.dev"

// Reasons of errors, stable for programs.
const (
	reasonInvalidField      = jobspec.ReasonInvalidField
	reasonInvalidPageToken  = "INVALID_PAGE_TOKEN"
	reasonUnknownField      = "UNKNOWN_FIELD"
	reasonMethodNotAllowed  = "METHOD_NOT_ALLOWED"
	reasonMalformedRequest  = "MALFORMED_REQUEST"
	reasonHandlerUnknown    = "HANDLER_NOT_REGISTERED"
	reasonNotFound          = "NOT_FOUND"
	reasonJobExists         = "JOB_EXISTS"
	reasonCalendarChanged   = "CALENDAR_CHANGED"
	reasonRequestReused     = "REQUEST_ID_REUSED"
	reasonJobEnded          = "JOB_ENDED"
	reasonJobFiresOnce      = "JOB_FIRES_ONCE"
	reasonNoBackfill        = "GAP_NOT_REQUESTED"
	reasonBackfillRange     = "BACKFILL_RANGE"
	reasonSlotFinal         = "SLOT_FINAL"
	reasonSlotNotDead       = "SLOT_NOT_DEAD"
	reasonShardUnowned      = "SHARD_UNOWNED"
	reasonPeerUnreachable   = "PEER_UNREACHABLE"
	reasonNoProof           = "NO_PROOF"
	reasonNoCluster         = "NOT_A_CLUSTER"
	reasonNoCoordination    = "COORDINATION_UNAVAILABLE"
	reasonStoreUnavailable  = "STORE_UNAVAILABLE"
	reasonStopping          = "NODE_STOPPING"
	reasonInternal          = "INTERNAL"
	reasonStreamReplaced    = "STREAM_REPLACED"
	reasonHelloMissing      = "HELLO_MISSING"
	reasonIdentity          = "IDENTITY_MISMATCH"
	reasonNoCertificate     = "CERTIFICATE_REQUIRED"
	reasonDeadlineExceeded  = "DEADLINE_EXCEEDED"
	reasonRequestTerminated = "CANCELLED"
)

// fail builds an error with its reason. metadata comes in pairs.
func fail(code codes.Code, reason, message string, metadata ...string) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: errorDomain, Metadata: map[string]string{}}
	for i := 0; i+1 < len(metadata); i += 2 {
		info.Metadata[metadata[i]] = metadata[i+1]
	}
	return withDetails(code, message, info)
}

func withDetails(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	st, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		return status.Error(code, message) // details of known types always fit
	}
	return st.Err()
}

// violations is what is wrong with a request, on its way to the caller.
type violations struct {
	jobspec.Violations
	meta []string
}

func (v *violations) add(field, reason, description string) { v.Add(field, reason, description) }
func (v *violations) check(field string, err error) bool    { return v.Check(field, err) }

// err returns the INVALID_ARGUMENT that names all fields, or nil.
func (v *violations) err() error {
	if len(v.Fields) == 0 {
		return nil
	}
	first := v.Fields[0]
	message := first.Error()
	if n := len(v.Fields) - 1; n > 0 {
		message += fmt.Sprintf(" (and %d more)", n)
	}
	info := &errdetails.ErrorInfo{Reason: first.Reason, Domain: errorDomain, Metadata: map[string]string{"field": first.Field}}
	for i := 0; i+1 < len(v.meta); i += 2 {
		info.Metadata[v.meta[i]] = v.meta[i+1]
	}
	bad := &errdetails.BadRequest{}
	for _, f := range v.Fields {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Field, Description: f.Description, Reason: f.Reason})
	}
	return withDetails(codes.InvalidArgument, message, info, bad)
}

// invalid is the INVALID_ARGUMENT of one field.
func invalid(field, reason, description string) error {
	var v violations
	v.add(field, reason, description)
	return v.err()
}

// toStatus is the one door through which errors leave: every kind of error has
// its code and reason here, and the text of a database reaches no client.
func (s *Server) toStatus(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fail(codes.DeadlineExceeded, reasonDeadlineExceeded, op+": the deadline passed before the answer was known")
	case errors.Is(err, context.Canceled):
		return fail(codes.Canceled, reasonRequestTerminated, op+": the caller went away")
	case errors.Is(err, store.ErrNotFound):
		return fail(codes.NotFound, reasonNotFound, op+": not found")
	case errors.Is(err, core.ErrRequestReused):
		return fail(codes.AlreadyExists, reasonRequestReused, op+": "+core.ErrRequestReused.Error())
	case errors.Is(err, core.ErrNotDead):
		return fail(codes.FailedPrecondition, reasonSlotNotDead, op+": "+core.ErrNotDead.Error())
	case errors.Is(err, core.ErrNoGap):
		return fail(codes.NotFound, reasonNotFound, op+": "+core.ErrNoGap.Error())
	case errors.Is(err, core.ErrNotRequested):
		return fail(codes.FailedPrecondition, reasonNoBackfill, op+": "+core.ErrNotRequested.Error())
	case errors.Is(err, core.ErrBackfillRange):
		return fail(codes.FailedPrecondition, reasonBackfillRange, err.Error())
	case errors.Is(err, core.ErrJobEnded):
		return fail(codes.FailedPrecondition, reasonJobEnded, op+": "+core.ErrJobEnded.Error())
	case errors.Is(err, engine.ErrStopping):
		return retriable(reasonStopping, op+": this node is stopping")
	case errors.Is(err, engine.ErrNotOwned):
		return unowned(op, err)
	case errors.Is(err, store.ErrUnavailable):
		s.log.ErrorContext(ctx, "the store failed a call", "operation", op, "error", err)
		return retriable(reasonStoreUnavailable, op+": the database can't be reached at the moment")
	}
	s.log.ErrorContext(ctx, "a call failed", "operation", op, "error", err)
	return fail(codes.Internal, reasonInternal, op+": internal error; the server's log says more")
}

// retryAfter is what a client is told to wait before it tries again.
const retryAfter = 500 * time.Millisecond

func retriable(reason, message string, metadata ...string) error {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: errorDomain, Metadata: map[string]string{}}
	for i := 0; i+1 < len(metadata); i += 2 {
		info.Metadata[metadata[i]] = metadata[i+1]
	}
	return withDetails(codes.Unavailable, message, info,
		&errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
}
