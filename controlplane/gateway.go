package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
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
		runtime.WithMiddlewares(newRoutes().strict),
		runtime.WithMetadata(tellPeer),
		runtime.WithIncomingHeaderMatcher(noPeer),
	)
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		carillonv1.RegisterJobServiceHandler, carillonv1.RegisterSlotServiceHandler, carillonv1.RegisterHandlerServiceHandler,
		carillonv1.RegisterCalendarServiceHandler, carillonv1.RegisterGapServiceHandler, carillonv1.RegisterDeadLetterServiceHandler,
		carillonv1.RegisterWorkerServiceHandler, carillonv1.RegisterClockServiceHandler, carillonv1.RegisterClusterServiceHandler,
	} {
		if err := register(ctx, mux, conn); err != nil {
			return nil, fmt.Errorf("register REST routes: %w", err)
		}
	}
	return mux, nil
}

// routes maps a method and path pattern to the query parameters that its call has.
type routes map[string]func(parameter string) bool

// newRoutes reads the routes off the descriptors of the API.
func newRoutes() routes {
	r := routes{}
	for _, file := range []protoreflect.FileDescriptor{
		carillonv1.File_carillon_v1_job_proto, carillonv1.File_carillon_v1_slot_proto, carillonv1.File_carillon_v1_handler_proto,
		carillonv1.File_carillon_v1_calendar_proto, carillonv1.File_carillon_v1_gap_proto, carillonv1.File_carillon_v1_deadletter_proto,
		carillonv1.File_carillon_v1_worker_proto, carillonv1.File_carillon_v1_clock_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				r.add(methods.Get(k))
			}
		}
	}
	return r
}

func (r routes) add(m protoreflect.MethodDescriptor) {
	rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok {
		return
	}
	method, pattern := http.MethodGet, rule.GetGet()
	switch {
	case rule.GetPost() != "":
		method, pattern = http.MethodPost, rule.GetPost()
	case rule.GetPut() != "":
		method, pattern = http.MethodPut, rule.GetPut()
	case rule.GetDelete() != "":
		method, pattern = http.MethodDelete, rule.GetDelete()
	}
	r[method+" "+pattern] = func(parameter string) bool {
		path := strings.Split(parameter, ".")
		inPath := strings.Contains(pattern, "{"+path[0]+"=")
		inBody := rule.GetBody() == "*" || rule.GetBody() == path[0]
		return !inPath && !inBody && hasField(m.Input(), path)
	}
}

// strict refuses parameters that a call doesn't have: a misspelt one must not
// become a default, and one in the wrong place must not be ignored.
func (r routes) strict(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request, pathParams map[string]string) {
		pattern, _ := runtime.HTTPPattern(req.Context())
		knows := r[req.Method+" "+pattern.String()]
		for parameter := range req.URL.Query() {
			if knows == nil || !knows(parameter) {
				writeStatus(w, status.Convert(invalid(parameter, reasonUnknownField, "is not a query parameter of this call")))
				return
			}
		}
		next(w, req, pathParams)
	}
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
	writeCode(w, runtime.HTTPStatusFromCode(st.Code()), st)
}

func writeCode(w http.ResponseWriter, code int, st *status.Status) {
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
	if field, ok := unknownField(message); ok {
		return invalid(field, reasonUnknownField, "is not a field of this call")
	}
	if m := namedField.FindStringSubmatch(message); m != nil {
		return invalid(m[1], reasonMalformedRequest, "can't be read: "+strings.TrimPrefix(m[2], "proto: "))
	}
	return fail(codes.InvalidArgument, reasonMalformedRequest, "the request can't be read: "+strings.TrimPrefix(message, "proto: "))
}

// namedField matches what the mapping of the body and of the query say of a field.
var namedField = regexp.MustCompile(`(?:field|list) "([^"]+)": (.*)`)

// routingError answers a path or method that no call has.
func routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	switch code {
	case http.StatusMethodNotAllowed:
		writeCode(w, code, status.Convert(fail(codes.InvalidArgument, reasonMethodNotAllowed, r.Method+" is not a method of "+r.URL.Path)))
	case http.StatusBadRequest:
		writeStatus(w, status.Convert(fail(codes.InvalidArgument, reasonMalformedRequest, "the path can't be read")))
	default:
		writeStatus(w, status.Convert(fail(codes.NotFound, reasonNotFound, r.URL.Path+" is not a path of the API")))
	}
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
