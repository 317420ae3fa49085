package httprun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// Request is what a job of http.request asks for: its parameters.
type Request struct {
	// Method is GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS; POST if it is empty.
	Method string `json:"method,omitempty"`
	// URL is where the request goes: http or https, on a host that the worker allows. Required.
	URL string `json:"url"`
	// Headers are added to what every request has. Those that belong to the connection or to
	// Carillon are refused.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is a JSON document, which is sent byte for byte as application/json, unless Headers
	// say otherwise. null is no body.
	Body json.RawMessage `json:"body,omitempty"`
	// BodyText is sent as it is, as text/plain in UTF-8 unless Headers say otherwise. At most
	// one of the two bodies may be given.
	BodyText *string `json:"body_text,omitempty"`
	// ExpectStatus says which statuses are a success: 2xx if it is empty.
	ExpectStatus []Status `json:"expect_status,omitempty"`
	// Timeout bounds the request within the attempt's own timeout: a duration such as "10s".
	Timeout Duration `json:"timeout,omitzero"`
}

// Status is a range of HTTP statuses, both ends included. In JSON it is a number such as
// 204, or one of the texts "204", "2xx" and "200-206".
type Status struct{ From, To int }

const (
	minStatus = 200 // informational answers don't end a request
	maxStatus = 599
)

// UnmarshalJSON implements json.Unmarshaler.
func (s *Status) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) != nil {
		text = string(b)
	}
	from, to, isRange := strings.Cut(text, "-")
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok {
		from, to, isRange = class+"00", class+"99", true
	}
	if !isRange {
		to = from
	}
	var errFrom, errTo error
	s.From, errFrom = strconv.Atoi(from)
	s.To, errTo = strconv.Atoi(to)
	if errFrom != nil || errTo != nil || s.From < minStatus || s.To > maxStatus || s.From > s.To {
		return fmt.Errorf(`expect_status: must hold statuses such as 204, "2xx" or "200-206", within %d to %d, holds %s`, minStatus, maxStatus, b)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (s Status) MarshalJSON() ([]byte, error) {
	if s.From == s.To {
		return json.Marshal(s.From)
	}
	return json.Marshal(fmt.Sprintf("%d-%d", s.From, s.To))
}

// Duration is a time.Duration that is written as text: "10s".
type Duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	parsed, err := time.Duration(0), json.Unmarshal(b, &text)
	if err == nil {
		parsed, err = time.ParseDuration(text)
	}
	if err != nil || parsed <= 0 {
		return fmt.Errorf(`timeout: must be a duration such as "10s", is %s`, b)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// build makes the HTTP request of an attempt, or says what is wrong with it.
func (s *Sender) build(ctx context.Context, t *worker.Task[Request]) (*http.Request, error) {
	r := &t.Args
	method := r.Method
	if method == "" {
		method = http.MethodPost
	}
	if !slices.Contains(methods, method) {
		return nil, fmt.Errorf("method: must be one of %s, is %q", strings.Join(methods, ", "), method)
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, fmt.Errorf("url: can't be read: %w", errors.Unwrap(err)) // without the URL, which may hold secrets
	}
	if err := s.checkURL(u); err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	header, err := r.header()
	if err != nil {
		return nil, err
	}
	body, err := r.body(header)
	if err != nil {
		return nil, err
	}
	sign(header, t)
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	req.Header = header
	return req, nil
}

// body returns the body and, unless the user did, says what it is.
func (r *Request) body(header http.Header) (io.Reader, error) {
	content, kind := []byte(r.Body), "application/json"
	if string(content) == "null" {
		content = nil
	}
	if r.BodyText != nil {
		if content != nil {
			return nil, errors.New("body_text: must not be given together with body")
		}
		content, kind = []byte(*r.BodyText), "text/plain; charset=utf-8"
	}
	if content == nil {
		return http.NoBody, nil
	}
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", kind)
	}
	return bytes.NewReader(content), nil
}

// connectionHeaders are decided by the connection, the URL and the body.
var connectionHeaders = []string{"Connection", "Content-Length", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// header returns the user's headers, if they may be set.
func (r *Request) header() (http.Header, error) {
	header := http.Header{}
	for name, value := range r.Headers {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return nil, fmt.Errorf("headers: %q is no name of a header", name)
		case slices.Contains(connectionHeaders, canonical):
			return nil, fmt.Errorf("headers: %s can't be set: the connection, the URL and the body decide it", name)
		case canonical == "Idempotency-Key" || strings.HasPrefix(canonical, "Carillon-"):
			return nil, fmt.Errorf("headers: %s can't be set: it is Carillon's own", name)
		case !httpguts.ValidHeaderFieldValue(value):
			return nil, fmt.Errorf("headers: the value of %s holds a character that it must not", name)
		case header[canonical] != nil:
			return nil, fmt.Errorf("headers: %s is given twice", canonical)
		}
		header[canonical] = []string{value}
	}
	return header, nil
}

// sign says which attempt sends the request.
func sign(h http.Header, t *worker.Task[Request]) {
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "carillon-http")
	}
	h.Set("Idempotency-Key", t.Key())
	h.Set("Carillon-Job", t.Job())
	h.Set("Carillon-Slot", t.Slot())
	h.Set("Carillon-Fire-Time", t.FireTime().UTC().Format(time.RFC3339Nano))
	h.Set("Carillon-Attempt", strconv.Itoa(t.Attempt()))
	h.Set("Carillon-Fence", strconv.FormatInt(t.Fence(), 10))
	h.Set("Carillon-Trigger", t.Trigger())
}
