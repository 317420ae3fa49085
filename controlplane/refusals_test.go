package controlplane_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const create = "/v1/namespaces/default/jobs?allow_unregistered_handler=true"

// body is a create's body with a schedule or other fields.
func body(fields string) string { return `{"handler":"h",` + fields + `}` }

func cron(expr string) string { return body(fmt.Sprintf(`"schedule":{"cron":%q}`, expr)) }

const immediate = `"schedule":{"immediate":{}}`

// What is wrong with a request is said with the name of its field, by a 400, and
// nothing is stored.
func TestRefusalsOverREST(t *testing.T) {
	s := newServer(t)
	big := strings.Repeat("x", 256<<10)
	for _, c := range []struct{ name, path, body, reason, field string }{
		// Schedules. The dialect itself is tested in job/schedule.
		{"B01 TZ=0", create, cron("TZ=0"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B01 TZ=", create, cron("TZ="), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B01 CRON_TZ=UTC", create, cron("CRON_TZ=UTC"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B01 TZ=TZ=TZ=", create, cron("TZ=TZ=TZ="), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B01 zone", create, cron("TZ=Europe/Berlin 0 2 * * *"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B02 negative step", create, cron("0-0/-005 * * * *"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B03 zero step", create, cron("*/0 * * * *"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B04 hour 30", create, cron("* 30 * * *"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B10 number with step", create, cron("5/15 * * * *"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B21 lone comma", create, cron(", * * * *"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B21 empty", create, cron(""), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"B23 never fires", create, cron("0 0 30 2 *"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"cron with NUL", create, body(`"schedule":{"cron":"* * * * *\u0000"}`), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"@every", create, cron("@every 1h"), "INVALID_SCHEDULE", "job.schedule.cron"},
		{"no schedule", create, `{"handler":"h"}`, "INVALID_SCHEDULE", "job.schedule"},
		{"two schedules", create, body(`"schedule":{"cron":"* * * * *","immediate":{}}`), "MALFORMED_REQUEST", "schedule.immediate"},
		{"interval below a second", create, body(`"schedule":{"interval":{"every":"0.5s"}}`), "INVALID_SCHEDULE", "job.schedule.interval.every"},
		{"interval of zero", create, body(`"schedule":{"interval":{"every":"0s"}}`), "INVALID_SCHEDULE", "job.schedule.interval.every"},
		{"interval negative", create, body(`"schedule":{"interval":{"every":"-60s"}}`), "INVALID_SCHEDULE", "job.schedule.interval.every"},
		{"interval without every", create, body(`"schedule":{"interval":{}}`), "INVALID_SCHEDULE", "job.schedule.interval.every"},
		{"anchor with a fraction", create, body(`"schedule":{"interval":{"every":"60s","anchor":"2026-01-01T00:00:00.5Z"}}`), "INVALID_FIELD", "job.schedule.interval.anchor"},
		{"once with a fraction", create, body(`"schedule":{"runAt":"2026-01-01T00:00:00.5Z"}`), "INVALID_FIELD", "job.schedule.run_at"},
		{"once before 1970", create, body(`"schedule":{"runAt":"1969-12-31T23:59:59Z"}`), "INVALID_FIELD", "job.schedule.run_at"},
		{"once at the epoch", create, body(`"schedule":{"runAt":"1970-01-01T00:00:00Z"}`), "INVALID_FIELD", "job.schedule.run_at"},
		{"year 10000", create, body(`"schedule":{"runAt":"10000-01-01T00:00:00Z"}`), "MALFORMED_REQUEST", "schedule.runAt"},

		// Durations and counts: what is not set has a default, zero and less is refused.
		{"B107 timeout of zero", create, body(`"attemptTimeout":"0s",` + immediate), "INVALID_FIELD", "job.attempt_timeout"},
		{"B107 timeout negative", create, body(`"attemptTimeout":"-1s",` + immediate), "INVALID_FIELD", "job.attempt_timeout"},
		{"B107 timeout of a nanosecond", create, body(`"attemptTimeout":"0.000000001s",` + immediate), "INVALID_FIELD", "job.attempt_timeout"},
		{"B107 timeout of ten years", create, body(`"attemptTimeout":"315360000s",` + immediate), "INVALID_FIELD", "job.attempt_timeout"},
		{"no attempts", create, body(`"retryPolicy":{"maxAttempts":0},` + immediate), "INVALID_FIELD", "job.retry_policy.max_attempts"},
		{"negative attempts", create, body(`"retryPolicy":{"maxAttempts":-1},` + immediate), "INVALID_FIELD", "job.retry_policy.max_attempts"},
		{"too many attempts", create, body(`"retryPolicy":{"maxAttempts":1001},` + immediate), "INVALID_FIELD", "job.retry_policy.max_attempts"},
		{"back-off of zero", create, body(`"retryPolicy":{"initialBackoff":"0s"},` + immediate), "INVALID_FIELD", "job.retry_policy.initial_backoff"},
		{"largest below smallest", create, body(`"retryPolicy":{"initialBackoff":"10s","maxBackoff":"1s"},` + immediate), "INVALID_FIELD", "job.retry_policy.max_backoff"},
		{"factor below one", create, body(`"retryPolicy":{"backoffFactor":0.5},` + immediate), "INVALID_FIELD", "job.retry_policy.backoff_factor"},
		{"factor not a number", create, body(`"retryPolicy":{"backoffFactor":"NaN"},` + immediate), "INVALID_FIELD", "job.retry_policy.backoff_factor"},
		{"jitter above one", create, body(`"retryPolicy":{"jitter":1.5},` + immediate), "INVALID_FIELD", "job.retry_policy.jitter"},

		// Names, by the grammar: what a path can't carry is refused.
		{"B142 job with NUL", create + "&job_id=a%00b", body(immediate), "INVALID_FIELD", "job_id"},
		{"B142 blank", create + "&job_id=%20", body(immediate), "INVALID_FIELD", "job_id"},
		{"B142 RTL mark", create + "&job_id=a%E2%80%8Fb", body(immediate), "INVALID_FIELD", "job_id"},
		{"B147 colon", create + "&job_id=a:b", body(immediate), "INVALID_FIELD", "job_id"},
		{"B147 slash", create + "&job_id=a/b", body(immediate), "INVALID_FIELD", "job_id"},
		{"B147 dots", create + "&job_id=..", body(immediate), "INVALID_FIELD", "job_id"},
		{"B147 long", create + "&job_id=" + strings.Repeat("A", 300), body(immediate), "INVALID_FIELD", "job_id"},
		{"a uid as name", create + "&job_id=0198c0de-0000-7000-8000-000000000000", body(immediate), "INVALID_FIELD", "job_id"},
		{"request id with a blank", create + "&request_id=a%20b", body(immediate), "INVALID_FIELD", "request_id"},
		{"request id of 129", create + "&request_id=" + strings.Repeat("a", 129), body(immediate), "INVALID_FIELD", "request_id"},
		{"namespace", "/v1/namespaces/a%20b/jobs", body(immediate), "INVALID_FIELD", "parent"},
		{"handler missing", create, `{` + immediate + `}`, "INVALID_FIELD", "job.handler"},
		{"handler with NUL", create, `{"handler":"a\u0000b",` + immediate + `}`, "INVALID_FIELD", "job.handler"},
		{"handler unknown", "/v1/namespaces/default/jobs", body(immediate), "HANDLER_NOT_REGISTERED", "job.handler"},
		{"no job", create, ``, "INVALID_FIELD", "job"},

		// Parameters.
		{"B137 too large", create, body(`"params":"` + big + `",` + immediate), "INVALID_FIELD", "job.params"},
		{"B140 NUL in a value", create, body(`"params":{"k":"a\u0000b"},` + immediate), "INVALID_FIELD", "job.params"},
		{"B140 NUL in a key", create, body(`"params":{"a\u0000b":1},` + immediate), "INVALID_FIELD", "job.params"},
		{"params not JSON", create, body(`"params":{a:1},` + immediate), "MALFORMED_REQUEST", ""},
		{"params deep", create, body(`"params":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `,` + immediate), "INVALID_FIELD", "job.params"},
		{"params not UTF-8", create, body("\"params\":\"\xff\"," + immediate), "MALFORMED_REQUEST", ""},

		// Unknown fields and parameters, and what isn't JSON.
		{"unknown field", create, body(`"timeuot":"1s",` + immediate), "UNKNOWN_FIELD", "timeuot"},
		{"unknown parameter", create + "&requst_id=x", body(immediate), "UNKNOWN_FIELD", "requst_id"},
		{"not JSON", create, `hello`, "MALFORMED_REQUEST", ""},
		{"trailing text", create, body(immediate) + ` x`, "MALFORMED_REQUEST", ""},
		{"half a body", create, `{"handler":"h",` + immediate, "MALFORMED_REQUEST", ""},
		{"a parameter of the path", create + "&parent=namespaces/x", body(immediate), "UNKNOWN_FIELD", "parent"},
		{"a parameter of the body", create + "&job.handler=x", body(immediate), "UNKNOWN_FIELD", "job.handler"},
		{"a parameter of a call that has none", "/v1/namespaces/default/jobs/x:run?request_id=r", `{}`, "UNKNOWN_FIELD", "request_id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, answer := s.post(c.path, c.body)
			f := parseFailure(t, answer)
			reason, field := f.reason()
			if code != http.StatusBadRequest || f.Error.Status != "INVALID_ARGUMENT" || f.Error.Code != 400 || reason != c.reason || c.field != "" && field != c.field {
				t.Errorf("%d %s: reason %s, field %s; want INVALID_ARGUMENT, %s, %s\n%.300s", code, f.Error.Status, reason, field, c.reason, c.field, answer)
			}
		})
	}
	if n := s.countJobs(); n != 0 {
		t.Errorf("%d jobs were stored", n)
	}
}

func TestRefusalsOfReads(t *testing.T) {
	s := newServer(t)
	foreign := "eyJyIjoieCIsImMiOnt9fQ"
	for _, c := range []struct{ path, reason, field string }{
		{"/v1/namespaces/default/jobs?page_token=nonsense", "INVALID_PAGE_TOKEN", "page_token"},
		{"/v1/namespaces/default/jobs?page_token=" + foreign, "INVALID_PAGE_TOKEN", "page_token"},
		{"/v1/namespaces/default/jobs/-/slots?page_token=" + foreign, "INVALID_PAGE_TOKEN", "page_token"},
		{"/v1/handlers?page_token=" + foreign, "INVALID_PAGE_TOKEN", "page_token"},
		{"/v1/namespaces/default/jobs?page_size=-1", "INVALID_FIELD", "page_size"},
		{"/v1/namespaces/default/jobs?page_size=x", "MALFORMED_REQUEST", "page_size"},
		{"/v1/namespaces/default/jobs/x?frob=1", "UNKNOWN_FIELD", "frob"},
		{"/v1/namespaces/default/jobs/-/slots?states=NOPE", "MALFORMED_REQUEST", "states"},
		{"/v1/namespaces/default/jobs/-/slots?states=slot_state_running", "MALFORMED_REQUEST", ""},
		{"/v1/namespaces/default/jobs/-/slots?states=99", "MALFORMED_REQUEST", ""},
		{"/v1/namespaces/default/jobs/-/slots?states=0", "INVALID_FIELD", "states"},
		{"/v1/namespaces/default/jobs/x/slots/yesterday", "INVALID_FIELD", "name"},
		{"/v1/namespaces/default/jobs/x/slots/20261301T000000Z", "INVALID_FIELD", "name"},
		{"/v1/namespaces/default/jobs/" + url.PathEscape("a%2Fb"), "INVALID_FIELD", "name"},
	} {
		code, answer := s.get(c.path)
		f := parseFailure(t, answer)
		reason, field := f.reason()
		if code != http.StatusBadRequest || reason != c.reason || c.field != "" && field != c.field {
			t.Errorf("%s: %d, reason %s, field %s; want 400, %s, %s: %s", c.path, code, reason, field, c.reason, c.field, answer)
		}
	}
	for _, path := range []string{"/v1/namespaces/default/jobs/none", "/v1/namespaces/default/jobs/0198c0de-0000-7000-8000-000000000000",
		"/v1/namespaces/default/jobs/none/slots/20260101T000000Z", "/v1/handlers/none", "/v1/nothing"} {
		if code, answer := s.get(path); code != http.StatusNotFound || parseFailure(t, answer).Error.Status != "NOT_FOUND" {
			t.Errorf("%s: %d %s, want NOT_FOUND", path, code, answer)
		}
	}
	if code, answer := s.do(http.MethodPut, "/v1/handlers", "{}"); code != http.StatusMethodNotAllowed || strings.Contains(answer, "UNIMPLEMENTED") {
		t.Errorf("a method that isn't there: %d %s", code, answer)
	}
	if code, answer := s.do(http.MethodDelete, "/v1/namespaces/default/jobs/x?validate_only=true", ""); code != http.StatusBadRequest {
		t.Errorf("a delete with a parameter: %d %s", code, answer)
	}
	for states := range strings.SplitSeq("SLOT_STATE_RUNNING 2 4", " ") {
		if code, answer := s.get("/v1/namespaces/default/jobs/-/slots?states=" + states); code != http.StatusOK || !strings.Contains(answer, `"slots":[]`) {
			t.Errorf("states=%s: %d %s", states, code, answer)
		}
	}
}

// Over gRPC the same request meets the same answer, with the details as messages.
func TestRefusalsOverGRPC(t *testing.T) {
	s := newServer(t)
	_, err := s.jobs.CreateJob(t.Context(), &carillonv1.CreateJobRequest{Parent: "namespaces/default", JobId: "..", Job: &carillonv1.Job{
		Handler: "", Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_RunAt{RunAt: &timestamppb.Timestamp{Seconds: 253402300800}}},
		AttemptTimeout: &durationpb.Duration{Seconds: 1, Nanos: -1},
	}})
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument {
		t.Fatalf("answered %v", err)
	}
	var fields []string
	for _, d := range st.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				fields = append(fields, v.GetField())
			}
		}
	}
	if got, want := strings.Join(fields, " "), "job.handler job.schedule.run_at job.attempt_timeout job_id"; got != want {
		t.Errorf("fields %s, want %s", got, want)
	}
}

// Every route of the API is known to the check of its parameters.
func TestEveryRouteTakesItsParameters(t *testing.T) {
	s := newServer(t)
	for _, path := range []string{"/v1/namespaces/default/jobs?page_size=1&page_token=&show_ended=true", "/v1/handlers?pageSize=1",
		"/v1/namespaces/default/jobs/-/slots?states=SLOT_STATE_DEAD&page_size=1"} {
		if code, answer := s.get(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (rawCodec) Name() string                       { return "proto" }

// gRPC itself would answer INTERNAL to text that isn't UTF-8.
func TestTextThatIsNotUTF8OverGRPC(t *testing.T) {
	s := newServer(t)
	request := append([]byte{0x0a, 0x02}, 0xff, 0xfe) // field 1, a string of two bytes
	var answer []byte
	for _, method := range []string{"JobService/CreateJob", "JobService/GetJob", "SlotService/ListSlots", "HandlerService/GetHandler"} {
		err := s.conn.Invoke(t.Context(), "/carillon.v1."+method, request, &answer, grpc.ForceCodec(rawCodec{}))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%s: %v, want INVALID_ARGUMENT that says UTF-8", method, err)
		}
	}
}
