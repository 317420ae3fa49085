package k6

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// params are the parameters of a request, of either protocol.
type params struct {
	Headers map[string]string `json:"headers"` // HTTP only
	Tags    map[string]string `json:"tags"`
	Timeout string            `json:"timeout"`
}

// readParams reads them, and refuses what isn't known.
func readParams(value *sobek.Object, grpc bool) (params, time.Duration, error) {
	var p params
	if value == nil {
		return p, 0, errors.New("the request has no parameters: by which tag is it told apart?")
	}
	if err := decode(value, &p); err != nil {
		return p, 0, fmt.Errorf("parameters of a request: %w", err)
	}
	if grpc && p.Headers != nil {
		return p, 0, errors.New("parameters of a request: gRPC has no headers")
	}
	timeout, err := time.ParseDuration(p.Timeout)
	return p, timeout, err
}

// decode reads an object's fields, and refuses what isn't known.
func decode(value *sobek.Object, into any) error {
	text, err := value.MarshalJSON()
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// httpRequest is request of k6/http.
func (v *vu) httpRequest(method, url string, body sobek.Value, with *sobek.Object) (sobek.Value, error) {
	if v.at == nil {
		return nil, errors.New("nothing may be sent while the script is evaluated")
	}
	p, timeout, err := readParams(with, false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(v.run.ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(textOf(body)))
	if err != nil {
		return nil, err
	}
	for name, value := range p.Headers {
		req.Header.Set(name, value)
	}
	status, text, err := send(req)
	if err != nil { // k6 gives it the status 0; a live server is worth more
		return nil, err
	}
	called := restMethod(req)
	v.run.request(request{stage: v.at.stage, method: called, metric: "http_req_duration", tags: p.Tags})
	if status < 200 || status > 299 {
		v.run.problem(fmt.Errorf("%s: %s %s was answered with %d: %s", v.at.stage, method, url, status, text))
	}
	return v.httpResponse(status, text), nil
}

// textOf is a request's document; null is none.
func textOf(body sobek.Value) string {
	if body == nil || sobek.IsNull(body) || sobek.IsUndefined(body) {
		return ""
	}
	return body.String()
}

func send(req *http.Request) (status int, body string, err error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

func (v *vu) httpResponse(status int, text string) sobek.Value {
	return v.strict("the response", map[string]any{
		"status": status,
		"body":   text,
		"json": func(selector sobek.Value) (sobek.Value, error) {
			document, err := v.parse(text)
			if err != nil || selector == nil || sobek.IsUndefined(selector) {
				return document, err
			}
			if !simpleSelector.MatchString(selector.String()) {
				return nil, fmt.Errorf("json(%q): only a field's name is understood here", selector)
			}
			if field := document.ToObject(v.rt).Get(selector.String()); field != nil {
				return field, nil
			}
			return sobek.Undefined(), nil
		},
	})
}

var simpleSelector = regexp.MustCompile(`^[a-zA-Z]+$`)

// restMethods says which call of the API a request is.
var restMethods = []struct {
	method string
	path   *regexp.Regexp
	call   string
}{
	{http.MethodPost, regexp.MustCompile(`^/v1/namespaces/[^/]+/jobs$`), "JobService/CreateJob"},
	{http.MethodPost, regexp.MustCompile(`^/v1/namespaces/[^/]+/jobs:batchCreate$`), "JobService/BatchCreateJobs"},
	{http.MethodPost, regexp.MustCompile(`^/v1/namespaces/[^/]+/jobs/[^/]+:run$`), "JobService/RunJob"},
	{http.MethodGet, regexp.MustCompile(`^/v1/namespaces/[^/]+/jobs/[^/]+$`), "JobService/GetJob"},
	{http.MethodDelete, regexp.MustCompile(`^/v1/namespaces/[^/]+/jobs/[^/]+$`), "JobService/DeleteJob"},
	{http.MethodGet, regexp.MustCompile(`^/v1/namespaces/[^/]+/jobs/[^/]+/slots$`), "SlotService/ListSlots"},
}

func restMethod(req *http.Request) string {
	for _, m := range restMethods {
		if m.method == req.Method && m.path.MatchString(req.URL.Path) {
			return m.call
		}
	}
	return req.Method + " " + req.URL.Path
}
