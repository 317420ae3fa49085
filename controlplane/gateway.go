package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/carillon-scheduler/carillon/controlplane/jsonmap"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// newGateway serves the API as REST over a connection to its own gRPC server, so
// that a call meets the same checks whichever way it comes.
func newGateway(ctx context.Context, conn *grpc.ClientConn) (http.Handler, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, jsonmap.New(false)),
		runtime.WithErrorHandler(writeError),
		runtime.WithRoutingErrorHandler(routingError),
		runtime.SetQueryParameterParser(strictQuery{}),
	)
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		carillonv1.RegisterJobServiceHandler, carillonv1.RegisterSlotServiceHandler, carillonv1.RegisterHandlerServiceHandler,
	} {
		if err := register(ctx, mux, conn); err != nil {
			return nil, fmt.Errorf("register REST routes: %w", err)
		}
	}
	return mux, nil
}

// strictQuery refuses parameters that the request doesn't have: a misspelt one
// must not become a default.
type strictQuery struct{ runtime.DefaultQueryParser }

// Parse implements runtime.QueryParameterParser.
func (p strictQuery) Parse(msg proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	for key := range values {
		if !hasField(msg.ProtoReflect().Descriptor(), strings.Split(key, ".")) {
			return fmt.Errorf("unknown field %q", key) // the gateway keeps only the text
		}
	}
	return p.DefaultQueryParser.Parse(msg, values, filter)
}

func hasField(d protoreflect.MessageDescriptor, path []string) bool {
	f := d.Fields().ByTextName(path[0])
	if f == nil {
		f = d.Fields().ByJSONName(path[0])
	}
	if f == nil || len(path) == 1 {
		return f != nil
	}
	return f.Message() != nil && hasField(f.Message(), path[1:])
}

// restError is the body of an error: the form of AIP-193.
type restError struct {
	Error restStatus `json:"error"`
}

type restStatus struct {
	Code    int               `json:"code"`
	Message string            `json:"message"`
	Status  string            `json:"status"`
	Details []json.RawMessage `json:"details"`
}

// writeError writes an error as JSON.
func writeError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	writeStatus(w, status.Convert(mappingError(err)))
}

func writeStatus(w http.ResponseWriter, st *status.Status) {
	code := runtime.HTTPStatusFromCode(st.Code())
	body := restError{restStatus{Code: code, Message: st.Message(), Status: codeName(st.Code()), Details: details(st.Proto().GetDetails())}}
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte(`{"error":{"code":500,"message":"the error could not be written","status":"INTERNAL","details":[]}}`)
		code = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that has gone doesn't need the rest.
	_, _ = w.Write(append(text, '\n'))
}

func details(list []*anypb.Any) []json.RawMessage {
	out := []json.RawMessage{}
	for _, d := range list {
		if b, err := protojson.Marshal(d); err == nil {
			out = append(out, b)
		}
	}
	return out
}

// codeName is the name of a code as AIP-193 writes it.
func codeName(c codes.Code) string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "UNKNOWN"
}

var codeNames = map[codes.Code]string{
	codes.OK: "OK", codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED", codes.FailedPrecondition: "FAILED_PRECONDITION",
	codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL",
	codes.Unavailable: "UNAVAILABLE", codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}

// mappingError gives the errors of the JSON mapping, which have no details of
// their own, the same form as all others.
func mappingError(err error) error {
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument || len(st.Proto().GetDetails()) > 0 {
		return err
	}
	message := strings.ReplaceAll(st.Message(), "\u00a0", " ") // protojson varies its blanks
	message = strings.TrimPrefix(message, "proto: ")
	if field, ok := unknownField(message); ok {
		return invalid(field, reasonUnknownField, "is not a field of this call")
	}
	return fail(codes.InvalidArgument, reasonMalformedRequest, "the request can't be read: "+message)
}

// routingError answers a path or method that no call has.
func routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	st := status.New(codes.NotFound, r.URL.Path+" is not a path of the API")
	switch code {
	case http.StatusMethodNotAllowed:
		st = status.New(codes.Unimplemented, r.Method+" is not a method of "+r.URL.Path)
	case http.StatusBadRequest:
		st = status.New(codes.InvalidArgument, "the path can't be read")
	}
	writeStatus(w, st)
}

// unknownField returns the field that a mapping error says is not known.
func unknownField(message string) (string, bool) {
	_, rest, ok := strings.Cut(message, `unknown field "`)
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(rest, `"`)
	return name, ok
}
