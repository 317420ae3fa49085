package httprun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/job"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

const (
	// maxBody is how much of a body is kept; the rest isn't read.
	maxBody = 64 << 10
	// maxResult bounds what a result may become as text; it leaves room for a codec.
	maxResult = 128 << 10
	// maxQuoted is how much of a body stands in the text of a failure.
	maxQuoted = 2 << 10
	// maxHeaderValue bounds each header that is kept.
	maxHeaderValue = 1 << 10
	// maxRetryAfter is how long an answer may put the next attempt off.
	maxRetryAfter = time.Hour
)

// Codes of failures beside "http_" and the status.
const (
	codeBadParams = "bad_params"
	codeBlocked   = "blocked_host"
	codeNetwork   = "network"
	codeRedirects = "redirects"
)

// expectation is the statuses that are a success.
type expectation []Status

func (e expectation) holds(status int) bool {
	if len(e) == 0 {
		return status/100 == 2
	}
	return slices.ContainsFunc(e, func(s Status) bool { return s.From <= status && status <= s.To })
}

// tooSlowError ends a request that took longer than its own timeout.
type tooSlowError struct{ after time.Duration }

func (e *tooSlowError) Error() string { return fmt.Sprintf("there was no answer within %s", e.after) }

// failure is the outcome of a request that got no answer; without a request, of parameters
// that make none.
func failure(ctx context.Context, req *http.Request, err error) error {
	var refusal *blockedError
	var slow *tooSlowError
	var ofURL *url.Error
	cause := context.Cause(ctx)
	switch {
	case errors.As(err, &refusal):
		return worker.Permanent(worker.Coded(codeBlocked, about(req, refusal)))
	case req == nil:
		return worker.Permanent(worker.Coded(codeBadParams, err))
	case errors.Is(err, errRedirects):
		return worker.Permanent(worker.Coded(codeRedirects, about(req, errRedirects)))
	case errors.As(cause, &slow):
		return worker.Coded(codeNetwork, about(req, slow))
	case cause != nil:
		return about(req, cause)
	case errors.As(err, &ofURL):
		err = ofURL.Err // without the URL, whose query may hold secrets
	}
	return worker.Coded(codeNetwork, about(req, err))
}

// about says which request an error is about.
func about(req *http.Request, err error) error {
	if req == nil {
		return err
	}
	return fmt.Errorf("%s %s: %w", req.Method, plain(req.URL), err)
}

// plain is a URL without its query and fragment.
func plain(u *url.URL) string {
	c := *u
	c.RawQuery, c.ForceQuery, c.Fragment, c.RawFragment = "", false, "", ""
	return c.String()
}

// answer is what is kept of a response.
type answer struct {
	status    int
	header    http.Header
	body      []byte
	truncated bool
	from      *url.URL // who answered, after redirects
}

func read(resp *http.Response) (*answer, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer, %d: %w", resp.StatusCode, err)
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, body: body, from: resp.Request.URL}
	if len(body) > maxBody {
		a.body, a.truncated = body[:maxBody], true
	}
	return a, nil
}

// failure is the outcome of an answer that wasn't expected.
func (a *answer) failure(req *http.Request) error {
	text := fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	if to := a.header.Get("Location"); a.status/100 == 3 && to != "" {
		text += ", which leads to " + clean([]byte(withoutQuery(to)), maxHeaderValue)
	}
	if len(a.body) > 0 {
		text += ": " + clean(a.body, maxQuoted)
	}
	err := worker.Coded("http_"+strconv.Itoa(a.status), about(req, errors.New(text)))
	switch {
	case a.retryable():
		return worker.RetryAfter(a.retryAfter(time.Now()), err)
	case a.status/100 == 2:
		return err
	}
	return worker.Permanent(err)
}

func (a *answer) retryable() bool {
	switch a.status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return a.status/100 == 5
}

// retryAfter is what the answer's Retry-After asks for, seconds or a date, at most
// maxRetryAfter; 0 if it asks for nothing.
func (a *answer) retryAfter(now time.Time) time.Duration {
	value := a.header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// keptHeaders are the headers that a result holds.
var keptHeaders = []string{"Content-Type", "Content-Length", "Content-Location", "Date", "Etag", "Last-Modified", "Location", "Request-Id",
	"Retry-After", "X-Correlation-Id", "X-Request-Id"}

// result is what a success stores.
type result struct {
	Status     int               `json:"status"`
	URL        string            `json:"url,omitempty"` // after redirects
	Headers    map[string]string `json:"headers,omitempty"`
	Body       json.RawMessage   `json:"body,omitempty"`
	BodyText   string            `json:"body_text,omitempty"`
	BodyBase64 []byte            `json:"body_base64,omitempty"`
	Truncated  bool              `json:"truncated,omitempty"`
}

// result shows the body as JSON if it is, else as text, else in Base64: whatever comes
// first of what can be stored.
func (a *answer) result(req *http.Request) json.RawMessage {
	r := result{Status: a.status, Headers: map[string]string{}, Truncated: a.truncated}
	if plain(a.from) != plain(req.URL) {
		r.URL = plain(a.from)
	}
	for _, name := range keptHeaders {
		if v := a.header.Get(name); v != "" {
			r.Headers[name] = clean([]byte(v), maxHeaderValue)
		}
	}
	asJSON, asText := r, r
	asJSON.Body = a.body
	asText.BodyText = string(a.body)
	if a.truncated {
		asText.BodyText = string(whole(a.body))
	}
	forms := []result{asText}
	if !a.truncated && json.Valid(a.body) {
		forms = []result{asJSON, asText}
	}
	for _, form := range forms {
		if doc, err := json.Marshal(form); err == nil && len(doc) <= maxResult && utf8.ValidString(form.BodyText) && job.CheckDocument(doc) == nil {
			return doc
		}
	}
	r.BodyBase64 = a.body
	doc, err := json.Marshal(r)
	if err != nil {
		panic(err) // a struct of texts
	}
	return doc
}

// clean makes a valid text of at most limit bytes, without NUL.
func clean(b []byte, limit int) string {
	if len(b) > limit {
		b = append(whole(b[:limit:limit]), "…"...)
	}
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}

// whole cuts the part of a character off the end of b.
func whole(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if at := len(b) - i; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				return b[:at]
			}
			return b
		}
	}
	return b
}

func withoutQuery(s string) string {
	s, _, _ = strings.Cut(s, "?")
	return s
}
