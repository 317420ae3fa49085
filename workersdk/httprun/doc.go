// Package httprun is the handler http.request: it sends one HTTP request for each attempt,
// for jobs whose work is behind a URL. `carillon worker run --http` serves it; a worker of
// your own does by
//
//	sender, err := httprun.New(httprun.AllowHosts("hooks.example.com"))
//	…
//	worker.Handle(w, httprun.Name, sender.Handle)
//
// The job's parameters are a [Request].
//
// # What becomes of an answer
//
//	answer                                    outcome     code
//	a status that is expected (default: 2xx)  SUCCEEDED   the result holds status, headers and body
//	408, 425, 429, 5xx                        FAILED      "http_503"; after its Retry-After, if it has one
//	any other 3xx or 4xx                      FAILED      "http_404", permanent
//	any other 2xx                             FAILED      "http_202"
//	none: DNS, connection, TLS, its own       FAILED      "network"
//	timeout
//	a host or an address that isn't allowed   FAILED      "blocked_host", permanent
//	more than 5 redirects                     FAILED      "redirects", permanent
//	parameters that make no request           FAILED      "bad_params", permanent
//	none when the attempt must end            as package workersdk says
//
// # Where requests may go
//
// Whoever may create a job decides where this worker sends to, and the worker may reach what
// its user can't. So each request, and each redirect, passes three gates:
//
//	URL        http or https, without a user; host and port stand on the list ([AllowHosts])
//	address    after DNS, once: only addresses that were checked are dialled. Nothing but public
//	           ones passes, unless a range is allowed ([AllowPrivate])
//	redirects  5 at most, never from https to http; a POST is not turned into a GET. On another
//	           host only harmless headers of the user go along
//
// Proxies of the environment are ignored, since they would resolve names themselves; [Proxy]
// names one that is trusted with the second gate.
package httprun
