package workersdk

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/certs"
	"github.com/carillon-scheduler/carillon/internal/certs/authority"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func TestInterceptors(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		type mark struct{}
		var order []string
		around := func(name string) Interceptor {
			return func(ctx context.Context, task TaskInfo, next func(context.Context) error) error {
				order = append(order, name+" before "+task.Handler())
				err := next(context.WithValue(ctx, mark{}, name))
				order = append(order, fmt.Sprint(name, " after ", err))
				return err
			}
		}
		replace := func(ctx context.Context, task TaskInfo, next func(context.Context) error) error {
			return Coded("mapped", next(ctx))
		}
		var logged bytes.Buffer
		w := n.dial(Logger(slog.New(slog.NewTextHandler(&logged, nil))), Intercept(around("a"), LogCalls(slog.LevelInfo)), Intercept(replace, around("b")))
		Handle(w, "h", func(ctx context.Context, _ *Task[any]) error {
			return fmt.Errorf("seen by %v", ctx.Value(mark{}))
		})
		Handle(w, "p", func(context.Context, *Task[any]) error { panic("boom") })
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		want(t, s.onlyResult(), failed, "mapped")
		if got := strings.Join(order, "; "); got != "a before h; b before h; b after seen by b; a after seen by b" {
			t.Error(got)
		}
		s.assign(job(2, "p", ""))
		if r := s.results()[1]; r.GetErrorCode() != codePanic || !strings.Contains(string(r.GetErrorMessage()), "boom") {
			t.Errorf("a panic below interceptors is %v", r)
		}
		if !strings.Contains(logged.String(), "a handler failed") {
			t.Error(logged.String())
		}
	})
}

// reversing is a codec that one can read.
type reversing struct{ broken bool }

func (r reversing) Encode(about string, plain []byte) ([]byte, error) {
	return fmt.Appendf(nil, `{"of":%q,"is":%q}`, about, plain), nil
}

func (r reversing) Decode(about string, data []byte) ([]byte, error) {
	if r.broken {
		return nil, errors.New("no such key")
	}
	return bytes.TrimPrefix(data, []byte(about+": ")), nil
}

func TestCodec(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.capable("checkpoints")
		w := n.dial(UseCodec(reversing{}))
		Handle(w, "h", func(_ context.Context, task *Task[region]) error {
			if string(task.Checkpoint()) != "c1" || task.Args.Region != "eu" || string(task.Params()) != `{"region":"eu"}` {
				t.Errorf("got %q, %v, %q", task.Checkpoint(), task.Args, task.Params())
			}
			if err := task.SetCheckpoint([]byte("c2")); err != nil {
				return err
			}
			return task.SetResult("done")
		})
		n.run(w)
		s := n.stream()
		const of = "namespaces/default/jobs/j"
		a := job(1, "h", "params of "+of+`: {"region":"eu"}`)
		a.Checkpoint = []byte("checkpoint of " + a.GetSlot() + ": c1")
		s.assign(a)
		r := s.onlyResult()
		want(t, r, succeeded, "")
		if got := r.GetResult().GetText(); got != fmt.Sprintf(`{"of":%q,"is":%q}`, "result of "+a.GetSlot(), `"done"`) {
			t.Error(got)
		}
		if got := string(r.GetCheckpoint()); got != fmt.Sprintf(`{"of":%q,"is":"c2"}`, "checkpoint of "+a.GetSlot()) {
			t.Error(got)
		}
	})
}

// A worker that lacks a key must not bury the job.
func TestParametersThatCantBeDecoded(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(UseCodec(reversing{broken: true}))
		Handle(w, "h", func(context.Context, *Task[any]) error { t.Error("it ran"); return nil })
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", `{}`))
		r := s.onlyResult()
		want(t, r, failed, "codec")
		if r.GetPermanent() || r.GetStartTime() != nil || !strings.Contains(string(r.GetErrorMessage()), "no such key") {
			t.Errorf("%v", r)
		}
	})
}

// A handler's own timeout counts from its start, the attempt's from its arrival; the earlier
// one ends it.
func TestAHandlersOwnTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", obey, Timeout(5*time.Second))
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""), within(job(2, "h", ""), 2*time.Second))
		pass(2100 * time.Millisecond)
		want(t, s.onlyResult(), timedOut, "timeout")
		pass(3 * time.Second)
		if rs := s.results(); len(rs) != 2 || rs[1].GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_TIMED_OUT {
			t.Errorf("%v", rs)
		}
	})
}

func TestTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(" secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{
		"":                                            "plain",
		"CARILLON_TLS=off":                            "plain",
		"CARILLON_TLS=on":                             "tls",
		"CARILLON_TLS_NAME=carillon":                  "tls",
		"CARILLON_TLS=yes":                            "must be on or off",
		"CARILLON_TLS_CA=/nowhere":                    "/nowhere",
		"CARILLON_TLS_CA=" + file:                     "holds no certificate",
		"CARILLON_TLS_CERT=" + file:                   "need each other",
		"CARILLON_TOKEN=x":                            "only sent with TLS",
		"CARILLON_TOKEN_FILE=/nowhere":                "CARILLON_TOKEN_FILE",
		"CARILLON_TLS=on CARILLON_TOKEN=x":            "tls x",
		"CARILLON_TLS=on CARILLON_TOKEN_FILE=" + file: "tls secret",
		"CARILLON_TLS=on CARILLON_TOKEN=x CARILLON_TOKEN_FILE=" + file: "exclude each other",
		"CARILLON_TLS=off CARILLON_TLS_NAME=x":                         "is off",
		"CARILLON_TLS_CERT=" + file + " CARILLON_TLS_KEY=" + file:      file + " with the key",
	} {
		values := map[string]string{}
		for _, pair := range strings.Fields(set) {
			name, value, _ := strings.Cut(pair, "=")
			values[name] = value
		}
		var c credentials
		err := c.fromEnvironment(func(name string) (string, bool) { v, ok := values[name]; return v, ok })
		if err == nil {
			err = errors.Join(c.check(), c.open(slog.New(slog.DiscardHandler)))
		}
		got := "plain"
		switch {
		case err != nil:
			got = err.Error()
		case c.source != nil:
			got = "tls"
			if c.token != nil {
				token, _ := c.token()
				got += " " + token
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", set, got, want)
		}
	}
}

// What the program says goes before what the environment says.
func TestOptionsGoBeforeTheEnvironment(t *testing.T) {
	t.Setenv("CARILLON_TOKEN", "x")
	if _, err := Dial(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), "127.0.0.1:1", Token(nil)); err != nil {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), "127.0.0.1:1", TLS(&tls.Config{})); err != nil {
		t.Error(err)
	}
}

// A certificate that names a worker names this one, unless the program does.
func TestAWorkerIsNamedByItsCertificate(t *testing.T) {
	dir := t.TempDir()
	if err := authority.Init(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	a, err := authority.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := func(name string, id certs.Identity) Option {
		out, err := a.Issue(authority.Request{Name: name, Identity: id, Life: time.Hour}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return WithTLSFiles(TLSFiles{Cert: out.Cert, Key: out.Key})
	}
	worker, node := certs.Identity{Kind: certs.Worker, Name: "w:1"}, certs.Identity{Kind: certs.Node, Name: "n"}
	host, _, _ := strings.Cut(defaultID(), "-")
	for want, options := range map[string][]Option{
		"w:1": {files("w", worker)},
		"x":   {files("w2", worker), ID("x")},
		host:  {files("n", node)},
	} {
		w, err := Dial(t.Context(), "127.0.0.1:1", options...)
		if err != nil || !strings.HasPrefix(w.cfg.id, want) {
			t.Errorf("want %s: %v, %v", want, w, err)
		}
	}
}
