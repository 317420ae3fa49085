package httprun

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-scheduler/carillon/internal/freeport"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What attempts come to.
const (
	succeeded = "SUCCEEDED"
	failed    = "FAILED"
	timedOut  = "TIMED_OUT"
	released  = "RELEASED"
)

const (
	jobName  = "namespaces/default/jobs/test"
	slotName = jobName + "/slots/20261130T020000Z"
	key      = "00000000-0000-7000-8000-000000000001/20261130T020000.000000Z"
)

var fireTime = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// loopback lets tests reach their own servers.
func loopback() []Option {
	return []Option{AllowHosts("127.0.0.1:*", "[::1]:*", "localhost:*"), AllowPrivate("127.0.0.0/8", "::1/128")}
}

// newSender makes a sender that ends with its test.
func newSender(t *testing.T, opts ...Option) *Sender {
	t.Helper()
	s, err := New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// do runs the second attempt of a slot.
func do(t *testing.T, s *Sender, params string, opts ...workersdktest.RunOption) workersdktest.Outcome {
	t.Helper()
	o, err := workersdktest.Run(t.Context(), s.Handle, Request{}, append([]workersdktest.RunOption{
		workersdktest.Params(params), workersdktest.Named(Name), workersdktest.Attempt(2), workersdktest.FireTime(fireTime)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// receiver is a server on loopback that answers as a test says.
func receiver(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}

// params writes a request for a URL, with more fields.
func params(url, more string) string { return fmt.Sprintf(`{"url": %q%s}`, url, more) }

func says(t *testing.T, o workersdktest.Outcome, state, code string, permanent bool, text string) {
	t.Helper()
	if o.State != state || o.Code != code || o.Permanent != permanent || !strings.Contains(o.Text, text) {
		t.Errorf("the outcome is %+v, want %s %q, permanent %v, with %q", o, state, code, permanent, text)
	}
}

// A request says which attempt sends it, and the user's part arrives as it was written.
func TestWhatIsSent(t *testing.T) {
	got := make(chan *http.Request, 1)
	body := make(chan string, 1)
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- r
		body <- string(b)
	})
	n := newSender(t, loopback()...)
	for _, c := range []struct{ more, method, kind, body string }{
		{``, "POST", "", ""},
		{`, "body": null`, "POST", "", ""},
		{`, "body": {"b":  1.50, "a": [ ]}`, "POST", "application/json", `{"b":  1.50, "a": [ ]}`},
		{`, "body_text": "hi", "method": "PUT"`, "PUT", "text/plain; charset=utf-8", "hi"},
		{`, "body_text": "a=1", "headers": {"content-type": "application/x-www-form-urlencoded"}`, "POST", "application/x-www-form-urlencoded", "a=1"},
		{`, "method": "GET", "timeout": "30s"`, "GET", "", ""},
		{`, "method": "DELETE"`, "DELETE", "", ""},
	} {
		result := do(t, n, params(s.URL+"/in?q=1#fragment", c.more))
		if result.State != succeeded {
			t.Fatalf("%s: %v", c.more, result)
		}
		r := <-got
		if b := <-body; r.Method != c.method || r.Header.Get("Content-Type") != c.kind || b != c.body || r.RequestURI != "/in?q=1" {
			t.Errorf("%s: %s %s %q with %q", c.more, r.Method, r.RequestURI, r.Header.Get("Content-Type"), b)
		}
		for name, want := range map[string]string{"Idempotency-Key": key, "Carillon-Job": jobName, "Carillon-Slot": slotName,
			"Carillon-Fire-Time": "2026-11-30T02:00:00Z", "Carillon-Attempt": "2", "Carillon-Fence": "2", "Carillon-Trigger": "schedule", "User-Agent": "carillon-http"} {
			if v := r.Header.Values(name); !slices.Equal(v, []string{want}) {
				t.Errorf("%s: %s is %q, want %q", c.more, name, v, want)
			}
		}
	}
	do(t, n, params(s.URL, `, "headers": {"authorization": "Bearer x", "X-Team": "a", "User-Agent": "mine"}`))
	if r := <-got; r.Header.Get("Authorization") != "Bearer x" || r.Header.Get("X-Team") != "a" || r.Header.Get("User-Agent") != "mine" {
		t.Errorf("headers %v", r.Header)
	}
}

// What makes no request fails for good and names the field; nothing is sent.
func TestParametersThatMakeNoRequest(t *testing.T) {
	s := receiver(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	n := newSender(t, loopback()...)
	for more, text := range map[string]string{
		`, "method": "TRACE"`: "method: ", `, "method": "get"`: "method: ", `, "method": "CONNECT"`: "method: ",
		`, "body": 1, "body_text": "x"`: "body_text: ", `, "bdoy": 1`: "bdoy",
		`, "expect_status": ["2x"]`: "expect_status: ", `, "expect_status": [99]`: "expect_status: ", `, "expect_status": ["300-200"]`: "expect_status: ",
		`, "expect_status": [101]`: "expect_status: ", `, "expect_status": ["xx"]`: "expect_status: ", `, "expect_status": [null]`: "expect_status: ",
		`, "timeout": "soon"`: "timeout: ", `, "timeout": "0s"`: "timeout: ", `, "timeout": 5`: "timeout: ",
		`, "headers": {"Idempotency-Key": "x"}`: "Idempotency-Key", `, "headers": {"carillon-fence": "9"}`: "carillon-fence",
		`, "headers": {"CARILLON-New": "9"}`: "CARILLON-New", `, "headers": {"Host": "x"}`: "Host", `, "headers": {"connection": "x"}`: "connection",
		`, "headers": {"Transfer-Encoding": "chunked"}`: "Transfer-Encoding", `, "headers": {"Content-Length": "1"}`: "Content-Length",
		`, "headers": {"Keep-Alive": "1"}`: "Keep-Alive", `, "headers": {"TE": "trailers"}`: "TE", `, "headers": {"Trailer": "x"}`: "Trailer",
		`, "headers": {"Upgrade": "h2c"}`: "Upgrade", `, "headers": {"Proxy-Authorization": "x"}`: "Proxy-Authorization",
		`, "headers": {"A B": "x"}`: "A B", `, "headers": {"": "x"}`: "no name of a header", `, "headers": {"A": "x\r\nB: y"}`: "the value of A", `, "headers": {"a": "x", "A": "y"}`: "A is given twice",
	} {
		says(t, do(t, n, params(s.URL, more)), failed, "bad_params", true, text)
	}
	for u, text := range map[string]string{"": "url: ", "ftp://127.0.0.1/": "url: ", "127.0.0.1/x": "url: ", "http:///x": "url: ", "http:127.0.0.1": "url: ",
		"http://user:secret@127.0.0.1/": "user or a password", "http://127.0.0.1:0/": "port", "http://127.0.0.1:99999/": "port", "http://exämple.com/": "Punycode",
		"http://[fe80::1%25eth0]/": "zone", "http://a..b/": "host", "http://127.0.0.1:x/": "url: ", "javascript:alert(1)": "url: ", "http://a_b.c\\@127.0.0.1/": "url: "} {
		r := do(t, n, params(u, ""))
		says(t, r, failed, "bad_params", true, text)
		if strings.Contains(r.Text, "secret") {
			t.Errorf("%s tells the secret: %s", u, r.Text)
		}
	}
	says(t, do(t, n, ``), failed, "bad_params", true, "url: ")
}

func TestStatuses(t *testing.T) {
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		if _, err := fmt.Sscan(r.URL.Path[1:], &status); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, "because of %d", status)
	})
	n := newSender(t, loopback()...)
	for _, c := range []struct {
		status    int
		expect    string
		outcome   string
		permanent bool
	}{
		{200, ``, succeeded, false}, {202, ``, succeeded, false}, {299, ``, succeeded, false},
		{202, `[200, 201]`, failed, false}, {200, `[204]`, failed, false},
		{302, ``, failed, true}, {400, ``, failed, true}, {401, ``, failed, true}, {404, ``, failed, true}, {409, ``, failed, true},
		{404, `[404]`, succeeded, false}, {409, `["2xx", 409]`, succeeded, false}, {503, `["500-599"]`, succeeded, false}, {302, `["3XX"]`, succeeded, false},
		{408, ``, failed, false}, {425, ``, failed, false}, {429, ``, failed, false}, {500, ``, failed, false}, {501, ``, failed, false}, {503, ``, failed, false},
		{599, ``, failed, false},
	} {
		more := ``
		if c.expect != `` {
			more = `, "expect_status": ` + c.expect
		}
		r := do(t, n, params(fmt.Sprintf("%s/%d?token=secret", s.URL, c.status), more))
		if c.outcome == succeeded {
			says(t, r, succeeded, "", false, "")
			if want := fmt.Sprintf(`"status":%d`, c.status); !strings.Contains(string(r.Result), want) {
				t.Errorf("%d: %s", c.status, string(r.Result))
			}
			continue
		}
		says(t, r, failed, fmt.Sprintf("http_%d", c.status), c.permanent, fmt.Sprintf("POST %s/%d: %d ", s.URL, c.status, c.status))
		if text := r.Text; !strings.Contains(text, "because of") || strings.Contains(text, "secret") {
			t.Errorf("%d: the text is %q", c.status, text)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	n := newSender(t, loopback()...)
	for after, want := range map[string]time.Duration{"7": 7 * time.Second, "0": 0, "86400": time.Hour, "4294967295": time.Hour, "-5": 0, "soon": 0,
		"Mon, 01 Jan 2001 00:00:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": time.Hour} {
		r := do(t, n, params(s.URL+"?after="+strings.ReplaceAll(after, " ", "+"), ""))
		says(t, r, failed, "http_503", false, "503 Service Unavailable")
		if got := r.RetryAfter; got != want {
			t.Errorf("%q: after %s, want %s", after, got, want)
		}
	}
	a := answer{header: http.Header{"Retry-After": {"Mon, 30 Nov 2026 02:01:30 GMT"}}}
	if got := a.retryAfter(fireTime); got != 90*time.Second {
		t.Errorf("a date in 90 s: after %s", got)
	}
}

// Whatever a body is, what can be stored of it is.
func TestResults(t *testing.T) {
	type form struct {
		Body      json.RawMessage
		Text      string `json:"body_text"`
		Base64    []byte `json:"body_base64"`
		Truncated bool
		Headers   map[string]string
	}
	var body string
	s := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "r1")
		w.Header().Set("Set-Cookie", "session=secret")
		io.WriteString(w, body)
	})
	n := newSender(t, loopback()...)
	long := strings.Repeat("ä", maxBody)
	for _, c := range []struct {
		name, body string
		want       form
	}{
		{"JSON", `{"a": [1.0, "b"]}`, form{Body: json.RawMessage(`{"a":[1.0,"b"]}`)}},
		{"text", "fine <b>", form{Text: "fine <b>"}},
		{"nothing", "", form{}},
		{"binary", "\xff\xfe\x00", form{Base64: []byte("\xff\xfe\x00")}},
		{"text with NUL", "a\x00b", form{Base64: []byte("a\x00b")}},
		{"JSON with NUL", `{"a":"\u0000"}`, form{Text: `{"a":"\u0000"}`}},
		{"deep JSON", strings.Repeat("[", 1500) + strings.Repeat("]", 1500), form{Text: strings.Repeat("[", 1500) + strings.Repeat("]", 1500)}},
		{"text that JSON makes twice as long", strings.Repeat(`"`, maxBody), form{Base64: []byte(strings.Repeat(`"`, maxBody))}},
		{"text that JSON makes six times as long", strings.Repeat("<", maxBody), form{Base64: []byte(strings.Repeat("<", maxBody))}},
		{"a whole", long[:maxBody], form{Text: long[:maxBody]}},
		{"too long", long[:maxBody+2], form{Text: long[:maxBody], Truncated: true}},
		{"too long, cut within a character", "x" + long, form{Text: "x" + long[:maxBody-2], Truncated: true}},
		{"too long JSON", `"` + strings.Repeat("a", maxBody) + `"`, form{Text: `"` + strings.Repeat("a", maxBody-1), Truncated: true}},
	} {
		body = c.body
		r := do(t, n, params(s.URL, ""))
		var got form
		if err := json.Unmarshal(r.Result, &got); err != nil || r.State != succeeded {
			t.Errorf("%s: %v: %v", c.name, err, r)
			continue
		}
		if string(got.Body) != string(c.want.Body) || got.Text != c.want.Text || string(got.Base64) != string(c.want.Base64) || got.Truncated != c.want.Truncated {
			t.Errorf("%s: %.200s", c.name, string(r.Result))
		}
		if got.Headers["X-Request-Id"] != "r1" || strings.Contains(string(r.Result), "secret") {
			t.Errorf("%s: headers %v", c.name, got.Headers)
		}
	}
}

// Answers that never end, or never come, end.
func TestAnswersWithoutEnd(t *testing.T) {
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) { // its Close waits for each to end
		switch r.URL.Path {
		case "/endless":
			for written := 0; r.Context().Err() == nil; written += 1000 {
				if written > 32<<20 { // more than lies between the two
					t.Error("it reads on and on")
					return
				}
				if _, err := io.WriteString(w, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		case "/trickle":
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/silent":
			<-r.Context().Done()
		case "/header":
			w.Header().Set("X", strings.Repeat("x", maxResponseHeader))
		}
	})
	n := newSender(t, loopback()...)
	r := do(t, n, params(s.URL+"/endless", ""))
	if r.State != succeeded || !strings.Contains(string(r.Result), `"truncated":true`) {
		t.Errorf("endless: %.300v", r)
	}
	for _, path := range []string{"/trickle", "/silent"} {
		says(t, do(t, n, params(s.URL+path, `, "timeout": "200ms"`)), failed, "network", false, "within 200ms")
		r := do(t, n, params(s.URL+path, ""), workersdktest.AttemptTimeout(200*time.Millisecond))
		says(t, r, timedOut, "timeout", false, s.URL+path)
	}
	says(t, do(t, n, params(s.URL+"/header", "")), failed, "network", false, "header")
}

func TestNetworkErrors(t *testing.T) {
	nobody := freeport.For(t)
	n := newSender(t, loopback()...)
	r := do(t, n, params("http://"+nobody+"/x?token=secret#secret", ""))
	says(t, r, failed, "network", false, "refused")
	says(t, r, failed, "network", false, "POST http://"+nobody+"/x: ")
	if strings.Contains(r.Text, "secret") {
		t.Errorf("it tells the query: %s", r.Text)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	says(t, do(t, n, params(s.URL, "")), failed, "network", false, "certificate")
	halfway := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	})
	says(t, do(t, n, params(halfway.URL, "")), failed, "network", false, "EOF")
}

func TestTLSAndHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	n := newSender(t, append(loopback(), TLS(s.Client().Transport.(*http.Transport).TLSClientConfig))...)
	if r := do(t, n, params(s.URL, "")); r.State != succeeded || !strings.Contains(string(r.Result), "HTTP/2.0") {
		t.Errorf("%v", r)
	}
}

// Without leave nothing goes anywhere.
func TestHostsThatAreNotAllowed(t *testing.T) {
	s := receiver(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(); err == nil {
		t.Error("no host is allowed, and a sender was made")
	}
	for _, c := range []struct {
		opts []Option
		url  string
		text string
	}{
		{[]Option{AllowHosts("hooks.example.com"), AllowPrivate("127.0.0.0/8")}, s.URL, "the host 127.0.0.1 with port " + port},
		{[]Option{AllowHosts("127.0.0.1"), AllowPrivate("127.0.0.0/8")}, s.URL, "with port " + port},
		{[]Option{AllowHosts("*:*")}, s.URL, "it is loopback"},
		{[]Option{AllowHosts("*:*")}, "http://localhost:" + port, "it is "},
		{[]Option{AllowHosts("*:*")}, "http://[::ffff:127.0.0.1]:" + port, "it is loopback"},
		{[]Option{AllowHosts("*:*")}, "http://[64:ff9b::7f00:1]:" + port, "it is loopback"},
		{[]Option{AllowHosts("*:*")}, "http://169.254.169.254/latest/meta-data/", "it is link-local"},
		{[]Option{AllowHosts("127.0.0.1:*"), AllowPrivate("10.0.0.0/8")}, s.URL, "it is loopback"},
	} {
		n := newSender(t, c.opts...)
		says(t, do(t, n, params(c.url, "")), failed, "blocked_host", true, c.text)
	}
}

// network is a made-up world of names, whose addresses lead to a server of the test.
type network struct {
	mu     sync.Mutex
	names  map[string][][]netip.Addr // what each look-up finds, the last one again and again
	to     string
	dialed []string
	dead   map[string]bool
}

func (w *network) option(c *config) { c.dialer.lookup, c.dialer.connect = w.lookup, w.connect }

func (w *network) lookup(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.names[host]
	if len(found) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(found) > 1 {
		w.names[host] = found[1:]
	}
	return found[0], nil
}

func (w *network) connect(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	dead := w.dead[address]
	w.mu.Unlock()
	if dead {
		return nil, errors.New("no route to host")
	}
	return new(net.Dialer).DialContext(ctx, network, w.to)
}

func (w *network) dials() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialed)
}

func ips(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// A name that leads to a public address first and to a private one later is resolved once
// for each connection, and only what was checked is dialled.
func TestANameThatLeadsElsewhereLater(t *testing.T) {
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, r.Host)
	})
	world := &network{to: s.Listener.Addr().String(), names: map[string][][]netip.Addr{
		"rebind.test": {ips("93.184.216.34"), ips("127.0.0.1")},
		"mixed.test":  {ips("::ffff:10.0.0.1", "93.184.216.35")},
		"dead.test":   {ips("93.184.216.36", "93.184.216.37")},
		"inner.test":  {ips("10.0.0.1", "fd00::1")},
	}, dead: map[string]bool{"93.184.216.36:80": true}}
	n := newSender(t, AllowHosts("*"), world.option)
	for _, name := range []string{"rebind.test", "mixed.test", "dead.test"} {
		if r := do(t, n, params("http://"+name+"/", "")); r.State != succeeded || !strings.Contains(string(r.Result), name) {
			t.Errorf("%s: %v", name, r)
		}
	}
	says(t, do(t, n, params("http://rebind.test/", "")), failed, "blocked_host", true, "rebind.test at the address 127.0.0.1: it is loopback")
	says(t, do(t, n, params("http://inner.test/", "")), failed, "blocked_host", true, "inner.test")
	says(t, do(t, n, params("http://nobody.test/", "")), failed, "network", false, "no such host")
	if want := []string{"93.184.216.34:80", "93.184.216.35:80", "93.184.216.36:80", "93.184.216.37:80"}; !slices.Equal(world.dials(), want) {
		t.Errorf("dialled %v, want %v", world.dials(), want)
	}
}

// Redirects obey the rules of requests, keep a body or aren't followed, and don't tell one
// host the secrets of another.
func TestRedirects(t *testing.T) {
	var mu sync.Mutex
	var hops []string
	var last *http.Request
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		hops, last = append(hops, r.Method+" "+r.Host+" "+string(b)), r
		mu.Unlock()
		if to := r.URL.Query().Get("to"); to != "" {
			var status int
			fmt.Sscan(r.URL.Path[1:], &status)
			http.Redirect(w, r, to, status)
			return
		}
		if r.URL.Path == "/loop" {
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		}
	})
	world := &network{to: s.Listener.Addr().String(), names: map[string][][]netip.Addr{
		"a.test": {ips("93.184.216.1")}, "b.test": {ips("93.184.216.2")}, "c.test": {ips("93.184.216.3")}, "inner.test": {ips("10.0.0.1")},
	}}
	n := newSender(t, AllowHosts("a.test", "b.test", "inner.test", "169.254.169.254"), world.option)
	follow := func(first, more string) (workersdktest.Outcome, []string, *http.Request) {
		mu.Lock()
		hops, last = nil, nil
		mu.Unlock()
		r := do(t, n, params(first, more))
		mu.Lock()
		defer mu.Unlock()
		return r, slices.Clone(hops), last
	}
	via := func(status int, from, to string) string {
		return fmt.Sprintf("http://%s/%d?secret&to=%s", from, status, url.QueryEscape(to))
	}
	secrets := `, "headers": {"Authorization": "Bearer x", "Cookie": "c", "X-Api-Key": "k", "Accept": "text/html"}`

	for _, status := range []int{307, 308} {
		r, hops, _ := follow(via(status, "a.test", "http://b.test/end"), `, "body": {"a": 1}`)
		says(t, r, succeeded, "", false, "")
		if want := []string{`POST a.test {"a": 1}`, `POST b.test {"a": 1}`}; !slices.Equal(hops, want) {
			t.Errorf("%d: %q", status, hops)
		}
		if !strings.Contains(string(r.Result), `"url":"http://b.test/end"`) {
			t.Errorf("%d: %s", status, string(r.Result))
		}
	}
	for _, status := range []int{301, 302, 303} {
		r, hops, _ := follow(via(status, "a.test", "http://b.test/end?secret"), `, "body": 1`)
		says(t, r, failed, fmt.Sprintf("http_%d", status), true, "which leads to http://b.test/end")
		if len(hops) != 1 || strings.Contains(r.Text, "secret") {
			t.Errorf("%d: %q, %s", status, hops, r.Text)
		}
		if r, hops, _ := follow(via(status, "a.test", "http://b.test/end"), `, "method": "GET"`); r.State != succeeded || len(hops) != 2 {
			t.Errorf("%d: %q, %v", status, hops, r)
		}
		if r, hops, _ := follow(via(status, "a.test", "http://b.test/end"), `, "method": "GET", "expect_status": ["3xx"]`); r.State != succeeded || len(hops) != 1 {
			t.Errorf("%d, which was wanted: %q, %v", status, hops, r)
		}
	}

	_, _, end := follow(via(307, "a.test", "http://a.test/end"), secrets)
	if end.Header.Get("Authorization") == "" || end.Header.Get("Cookie") == "" || end.Header.Get("X-Api-Key") == "" {
		t.Errorf("on the same host: %v", end.Header)
	}
	for name, to := range map[string]string{"another host": "http://b.test/end", "there and back": via(307, "b.test", "http://a.test/end")} {
		_, _, end := follow(via(307, "a.test", to), secrets)
		if h := end.Header; h.Get("Authorization") != "" || h.Get("Cookie") != "" || h.Get("X-Api-Key") != "" || h.Get("Referer") != "" {
			t.Errorf("%s: %v", name, h)
		}
		if end.Header.Get("Idempotency-Key") != key || end.Header.Get("Accept") != "text/html" {
			t.Errorf("%s: %v", name, end.Header)
		}
	}

	for to, text := range map[string]string{
		"http://c.test/":               "the host c.test",
		"http://inner.test/":           "it is private",
		"http://169.254.169.254/":      "it is link-local",
		"http://b.test:8080/":          "port 8080",
		"http://user:secret@b.test/":   "user or a password",
		"file:///etc/passwd":           "must be http",
		"//c.test/":                    "the host c.test",
		"http://2852039166/latest/api": "the host 2852039166",
	} {
		r, hops, _ := follow(via(307, "a.test", to), "")
		says(t, r, failed, "blocked_host", true, text)
		if len(hops) != 1 || strings.Contains(r.Text, "secret") {
			t.Errorf("%s: %q, %s", to, hops, r.Text)
		}
	}
	r, hops, _ := follow("http://a.test/loop", "")
	says(t, r, failed, "redirects", true, "more than 5")
	if len(hops) != 1+maxRedirects {
		t.Errorf("a loop: %d requests", len(hops))
	}
	for _, d := range world.dials() {
		if d != "93.184.216.1:80" && d != "93.184.216.2:80" {
			t.Errorf("dialled %s", d)
		}
	}
}

// Nothing is sent in the clear that was to be encrypted.
func TestNoRedirectFromHTTPSToHTTP(t *testing.T) {
	clear := receiver(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	s := httptest.NewTLSServer(http.RedirectHandler(clear.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	n := newSender(t, append(loopback(), TLS(&tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}))...)
	says(t, do(t, n, params(s.URL, "")), failed, "blocked_host", true, "https to http")
}

// Proxies of the environment are ignored; one that is named is used, and lists still count.
func TestProxies(t *testing.T) {
	s := receiver(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "direct") })
	seen := make(chan string, 1)
	proxy := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.URL.String()
		io.WriteString(w, "by the proxy")
	})
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	world := &network{to: s.Listener.Addr().String(), names: map[string][][]netip.Addr{"a.test": {ips("93.184.216.1")}}}
	if r := do(t, newSender(t, AllowHosts("a.test"), world.option), params("http://a.test/", "")); !strings.Contains(string(r.Result), "direct") {
		t.Errorf("%v", r)
	}
	if direct, err := New(AllowHosts("a.test")); err != nil || direct.transport.Proxy != nil {
		t.Errorf("a sender that asks the environment for a proxy: %v", err)
	}
	n := newSender(t, AllowHosts("a.test"), Proxy(proxy.URL))
	if r := do(t, n, params("http://a.test/x", "")); !strings.Contains(string(r.Result), "by the proxy") {
		t.Errorf("%v", r)
	}
	if u := <-seen; u != "http://a.test/x" {
		t.Errorf("the proxy saw %s", u)
	}
	says(t, do(t, n, params("http://b.test/x", "")), failed, "blocked_host", true, "b.test")
	for _, wrong := range []string{"proxy:3128", "socks5://a.test:1", "http://"} {
		if _, err := New(AllowHosts("*"), Proxy(wrong)); err == nil {
			t.Errorf("the proxy %q is taken", wrong)
		}
	}
	for _, wrong := range []string{"10.0.0.1", "10.0.0.0/33", "private"} {
		if _, err := New(AllowHosts("*"), AllowPrivate(wrong)); err == nil {
			t.Errorf("the range %q is taken", wrong)
		}
	}
}

// A worker that stops ends its request, and burns no attempt.
func TestShutdown(t *testing.T) {
	arrived := make(chan struct{})
	s := receiver(t, func(_ http.ResponseWriter, r *http.Request) { close(arrived); <-r.Context().Done() })
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-arrived; stop() }()
	o, err := workersdktest.Run(ctx, newSender(t, loopback()...).Handle, Request{Method: "GET", URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	says(t, o, released, "shutdown", false, "the worker stops")
}
