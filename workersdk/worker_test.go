package workersdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	succeeded = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED
	failed    = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_FAILED
	timedOut  = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_TIMED_OUT
	released  = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED
	cancelled = carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_CANCELLED
)

type region struct {
	Region string `json:"region"`
}

// bubble runs a test in virtual time, with a node.
func bubble(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, startNode(t)) })
}

// obey waits for the context's end and returns its cause.
func obey(ctx context.Context, _ *Task[any]) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func want(t *testing.T, r *carillonv1.AttemptResult, outcome carillonv1.AttemptOutcome, code string) {
	t.Helper()
	if r.GetOutcome() != outcome || r.GetErrorCode() != code {
		t.Fatalf("got %v with code %q (%s), want %v with %q", r.GetOutcome(), r.GetErrorCode(), r.GetErrorMessage(), outcome, code)
	}
}

func TestSuccess(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(3))
		var seen string
		Handle(w, "billing.invoices", func(_ context.Context, task *Task[region]) error {
			seen = fmt.Sprint(task.Args.Region, " ", task.Attempt(), " ", task.Fence(), " ", task.MaxAttempts(), " ", task.Trigger(), " ",
				task.Job(), " ", task.Slot(), " ", task.FireTime().Format(time.RFC3339), " ", string(task.Params()))
			if got := task.Lateness(); got != time.Since(task.FireTime()) {
				t.Errorf("lateness %v", got)
			}
			return task.SetResult(map[string]int{"invoices": 7})
		})
		n.run(w)
		s := n.stream()
		if h := s.hello; h.GetWorkerId() != "w1" || h.GetIncarnation() == "" || h.GetCapacity() != 3 || h.GetCredit() != 3 ||
			len(h.GetHandlers()) != 1 || h.GetHandlers()[0].GetName() != "billing.invoices" {
			t.Fatalf("hello: %v", h)
		}
		s.assign(job(1, "billing.invoices", `{"region":"eu"}`))
		r := s.onlyResult()
		want(t, r, succeeded, "")
		if r.GetResult().GetText() != `{"invoices":7}` || r.GetStartTime().AsTime() != time.Now().UTC() {
			t.Errorf("result: %v", r)
		}
		if want := "eu 2 2 5 schedule namespaces/default/jobs/j namespaces/default/jobs/j/slots/20261130T020001Z 2026-11-30T02:00:01Z {\"region\":\"eu\"}"; seen != want {
			t.Errorf("the task said %s, want %s", seen, want)
		}
		last := s.messages()[len(s.messages())-1]
		if last.GetCredit() != 1 || len(last.GetResults()) != 1 {
			t.Errorf("the credit came apart from the result: %v", last)
		}
	})
}

func TestParams(t *testing.T) {
	for params, code := range map[string]string{
		`{"region":"eu"}`: "", ``: "", `{"region":"eu","x":1}`: "bad_params", `{"region":1}`: "bad_params", `{"region":"eu"} {}`: "bad_params", `{`: "bad_params",
	} {
		bubble(t, func(t *testing.T, n *node) {
			w := n.dial()
			Handle(w, "h", func(context.Context, *Task[region]) error { return nil })
			n.run(w)
			n.stream().assign(job(1, "h", params))
			r := n.stream().onlyResult()
			if code == "" {
				want(t, r, succeeded, "")
				return
			}
			want(t, r, failed, code)
			if !r.GetPermanent() || r.GetStartTime() != nil {
				t.Errorf("%s: %v", params, r)
			}
		})
	}
}

func TestLooseParams(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "raw", func(_ context.Context, task *Task[json.RawMessage]) error { return task.SetResult(task.Args) })
		Handle(w, "any", func(_ context.Context, task *Task[any]) error { return task.SetResult(task.Args) })
		Handle(w, "none", func(context.Context, *Task[struct{}]) error { return nil })
		n.run(w)
		s := n.stream()
		s.assign(job(1, "raw", `{"n":12345678901234567890}`))
		s.assign(job(2, "any", `[1]`))
		s.assign(job(3, "none", `{}`))
		texts := []string{`{"n":12345678901234567890}`, `[1]`, ``}
		for i, r := range s.results() {
			if r.GetOutcome() != succeeded || r.GetResult().GetText() != texts[i] {
				t.Errorf("%d: %v", i, r)
			}
		}
	})
}

func TestFailures(t *testing.T) {
	plain := errors.New("no luck")
	cases := map[string]struct {
		fn    func(*Task[any]) error
		check func(*carillonv1.AttemptResult) bool
		code  string
	}{
		"plain": {func(*Task[any]) error { return plain }, func(r *carillonv1.AttemptResult) bool {
			return !r.GetPermanent() && r.GetRetryAfter() == nil && string(r.GetErrorMessage()) == "no luck"
		}, "error"},
		"wrapped": {func(*Task[any]) error {
			return fmt.Errorf("outer: %w", Permanent(RetryAfter(time.Minute, Coded("quota", plain))))
		}, func(r *carillonv1.AttemptResult) bool {
			return r.GetPermanent() && r.GetRetryAfter().AsDuration() == time.Minute && string(r.GetErrorMessage()) == "outer: no luck"
		}, "quota"},
		"panic": {func(*Task[any]) error { panic("ouch") }, func(r *carillonv1.AttemptResult) bool {
			return strings.HasPrefix(string(r.GetErrorMessage()), "panic: ouch\n") && strings.Contains(string(r.GetErrorMessage()), "TestFailures") && r.GetStartTime() != nil
		}, "panic"},
		"large panic": {func(*Task[any]) error { panic(strings.Repeat("x", 1<<20)) }, func(r *carillonv1.AttemptResult) bool {
			return len(r.GetErrorMessage()) <= 16<<10 && strings.Contains(string(r.GetErrorMessage()), "TestFailures")
		}, "panic"},
		"error that panics": {func(*Task[any]) error { return (*codedError)(nil) }, func(*carillonv1.AttemptResult) bool { return true }, "panic"},
		"invalid UTF-8": {func(*Task[any]) error { return Coded("a\xff", errors.New("b\xff")) }, func(r *carillonv1.AttemptResult) bool {
			return string(r.GetErrorMessage()) == "b\xff"
		}, "a\uFFFD"},
		"long": {func(*Task[any]) error {
			return Coded(strings.Repeat("é", 100), errors.New(strings.Repeat("y", 1<<20)))
		},
			func(r *carillonv1.AttemptResult) bool { return len(r.GetErrorMessage()) == 16<<10 }, strings.Repeat("é", 64)},
		"large result": {func(task *Task[any]) error { return task.SetResult(strings.Repeat("z", 5<<20)) },
			func(r *carillonv1.AttemptResult) bool { return r.GetResult() == nil }, "bad_result"},
		"result that is no JSON": {func(task *Task[any]) error { return task.SetResult(make(chan int)) },
			func(*carillonv1.AttemptResult) bool { return true }, "bad_result"},
		"result that is no UTF-8": {func(task *Task[any]) error { return task.SetResult(json.RawMessage("\"\xff\"")) },
			func(*carillonv1.AttemptResult) bool { return true }, "bad_result"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				w := n.dial()
				Handle(w, "h", func(_ context.Context, task *Task[any]) error { return c.fn(task) })
				n.run(w)
				s := n.stream()
				s.assign(job(1, "h", ""))
				r := s.onlyResult()
				want(t, r, failed, c.code)
				if !c.check(r) {
					t.Errorf("%v", r)
				}
				s.assign(job(2, "h", "")) // the stream is alive
				if n.count() != 1 || len(s.results()) != 2 {
					t.Error("the stream broke")
				}
			})
		})
	}
}

func TestErrorsUnwrap(t *testing.T) {
	plain := errors.New("plain")
	for _, err := range []error{Permanent(plain), RetryAfter(time.Second, plain), Coded("c", plain)} {
		if !errors.Is(err, plain) || err.Error() != "plain" {
			t.Errorf("%T doesn't unwrap", err)
		}
	}
	if Permanent(nil) != nil || RetryAfter(1, nil) != nil || Coded("c", nil) != nil {
		t.Error("nil became an error")
	}
}

func TestUnknownHandlerFails(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", obey)
		n.run(w)
		n.stream().assign(job(1, "other", ""))
		want(t, n.stream().onlyResult(), failed, "unknown_handler")
	})
}

func TestKey(t *testing.T) {
	key := func(number int32, parts ...any) string {
		k := keyOf(testToken(1))
		k.attempt = number
		return TaskInfo{&attempt{key: k}}.Key(parts...)
	}
	if key(1, "a", 2) != key(9, "a", 2) {
		t.Error("the key differs between attempts")
	}
	if got := key(1, "a b"); got != "01900000-0000-7000-8000-000000000001/20261130T020001.000000Z/a%20b" {
		t.Error(got)
	}
	seen := map[string]bool{}
	for _, parts := range [][]any{{}, {""}, {"", ""}, {"a", "b"}, {"a/b"}, {"a%2Fb"}, {"ab"}, {"a", "b", ""}} {
		if k := key(1, parts...); seen[k] {
			t.Errorf("%q has the key of another: %s", parts, k)
		} else {
			seen[k] = true
		}
	}
}

func TestMisuse(t *testing.T) {
	for name, opt := range map[string]Option{"capacity": Capacity(0), "id": ID("a b"), "grace": ShutdownGrace(-1), "logger": Logger(nil)} {
		if _, err := Dial(t.Context(), "localhost:1", opt); err == nil {
			t.Errorf("a bad %s was taken", name)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(gone, "localhost:1"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	w, err := Dial(t.Context(), "localhost:1", Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(gone); err == nil {
		t.Error("it ran without handlers")
	}
	Handle(w, "h", obey)
	panics := map[string]func(){
		"twice":       func() { Handle(w, "h", obey) },
		"name":        func() { Handle(w, "a b", obey) },
		"nil":         func() { Handle[any](w, "n", nil) },
		"concurrency": func() { Concurrency(0) },
		"after Run":   func() { _ = w.Run(gone); Handle(w, "late", obey) },
	}
	for _, name := range []string{"twice", "name", "nil", "concurrency", "after Run"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			panics[name]()
		}()
	}
	if err := w.Run(gone); err == nil {
		t.Error("it ran twice")
	}
}

func TestDefaultIDIsValid(t *testing.T) {
	if id := defaultID(); !workerID.MatchString(id) || id == defaultID() {
		t.Error(id)
	}
}

func TestRefusedHelloIsPermanent(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.FailedPrecondition} {
		bubble(t, func(t *testing.T, n *node) {
			n.refusal = status.Error(code, "not you")
			w := n.dial()
			Handle(w, "h", obey)
			if err := w.Run(t.Context()); status.Code(err) != code || !strings.Contains(err.Error(), "not you") {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestRefusedReconnectEndsHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		var cause error
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			cause = obey(ctx, task)
			return cause
		})
		r := n.run(w)
		n.stream().assign(job(1, "h", ""))
		n.mu.Lock()
		n.refusal = status.Error(codes.FailedPrecondition, "no more")
		n.mu.Unlock()
		n.stream().close(status.Error(codes.Unavailable, "bye"))
		<-r.done
		if status.Code(r.err) != codes.FailedPrecondition || !errors.Is(cause, ErrShutdown) {
			t.Errorf("Run: %v; cause: %v", r.err, cause)
		}
	})
}

func TestUnavailableIsTriedForEver(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.refusal = status.Error(codes.Unavailable, "later")
		w := n.dial()
		Handle(w, "h", obey)
		r := n.run(w)
		pass(10 * time.Minute)
		n.mu.Lock()
		n.refusal = nil
		n.mu.Unlock()
		pass(3 * time.Second)
		if n.count() != 1 {
			t.Errorf("%d streams", n.count())
		}
		r.end()
	})
}

func TestConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(10))
		now, most := 0, 0
		order := []int{}
		Handle(w, "slow", func(ctx context.Context, task *Task[int]) error {
			now++
			most = max(most, now)
			order = append(order, task.Args)
			time.Sleep(time.Second)
			now--
			return nil
		}, Concurrency(1))
		Handle(w, "quick", func(context.Context, *Task[any]) error { return nil })
		n.run(w)
		s := n.stream()
		for i := range 5 {
			s.assign(job(i, "slow", fmt.Sprint(i)))
		}
		s.assign(within(job(5, "slow", "5"), 1500*time.Millisecond))
		s.assign(job(6, "quick", ""))
		if len(s.results()) != 1 {
			t.Error("one handler's queue holds up another handler")
		}
		pass(10 * time.Second)
		if most != 1 || fmt.Sprint(order) != "[0 1 2 3 4]" {
			t.Errorf("at once %d, order %v", most, order)
		}
		for _, r := range s.results() {
			if keyOf(r.GetToken()) == keyOf(testToken(5)) {
				want(t, r, timedOut, "timeout")
				if r.GetStartTime() != nil {
					t.Error("it says that it started")
				}
			} else {
				want(t, r, succeeded, "")
			}
		}
		if credit, most := s.accounts(); len(s.results()) != 7 || credit != 10 || most > 10 {
			t.Errorf("%d results, credit %d, at most %d", len(s.results()), credit, most)
		}
	})
}

func TestCreditNeverExceedsCapacity(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(4))
		var now, most atomic.Int64
		Handle(w, "h", func(_ context.Context, task *Task[time.Duration]) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(task.Args)
			return nil
		}, Concurrency(3))
		n.run(w)
		for i := range 300 {
			s := n.stream()
			credit, together := s.accounts()
			if together > 4 {
				t.Fatalf("round %d: credit and work together were %d", i, together)
			}
			for j := range credit {
				s.assign(job(10*i+j, "h", fmt.Sprint(int(time.Duration(100+37*j)*time.Millisecond))))
			}
			if i%50 == 49 {
				s.close(status.Error(codes.Unavailable, "again"))
				pass(100 * time.Millisecond)
			}
			pass(50 * time.Millisecond)
		}
		pass(time.Minute)
		if credit, together := n.stream().accounts(); credit != 4 || together > 4 || most.Load() != 3 {
			t.Errorf("%d credit is left of 4, together %d, %d ran at once", credit, together, most.Load())
		}
	})
}

func TestBeyondCapacityIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(1))
		Handle(w, "h", obey)
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		s.send(&carillonv1.ConnectResponse{Assignments: []*carillonv1.Assignment{job(2, "h", ""), job(1, "h", "")}})
		want(t, s.onlyResult(), released, "over_capacity")
	})
}

// A node that thinks a worker has one credit too many is not told of another one
// with each assignment that is handed back: the two would play ball for ever.
func TestHandingBackSettlesTheCredit(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(1))
		Handle(w, "h", obey)
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		pass(time.Second)
		s.set(func(s *nodeStream) { s.credit = 1 })
		bounces := 0
		for i := range 50 {
			if c, _ := s.accounts(); c < 1 {
				break
			}
			s.assign(job(2+i, "h", ""))
			pass(10 * time.Millisecond)
			bounces++
		}
		if bounces == 0 || bounces > 2 {
			t.Errorf("%d assignments bounced off a full worker", bounces)
		}
	})
}

func TestProgressIsCoalesced(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", func(_ context.Context, task *Task[any]) error {
			for i := range int64(1000) {
				task.Progress(i+1, 1000, "note \xff")
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(2 * time.Second)
			return nil
		})
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		pass(12 * time.Second)
		ps := s.progress()
		if len(ps) < 9 || len(ps) > 12 {
			t.Errorf("%d reports in 10 s", len(ps))
		}
		for i := 1; i < len(ps); i++ {
			if ps[i].GetDone() <= ps[i-1].GetDone() {
				t.Errorf("progress went back: %v", ps)
			}
		}
		if last := ps[len(ps)-1]; last.GetDone() != 1000 || last.GetNote() != "note \uFFFD" {
			t.Errorf("the last report is %v", last)
		}
	})
}

func TestStartedIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial()
		Handle(w, "h", obey)
		n.run(w)
		s := n.stream()
		s.assign(job(1, "h", ""))
		var told []*carillonv1.Started
		for _, m := range s.messages() {
			told = append(told, m.GetStarted()...)
		}
		if len(told) != 1 || told[0].GetStartTime().AsTime() != time.Now().UTC() {
			t.Errorf("told: %v", told)
		}
	})
}

func TestLargeResultsAreChunked(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		w := n.dial(Capacity(2000))
		Handle(w, "big", func(_ context.Context, task *Task[any]) error {
			time.Sleep(time.Second)
			return task.SetResult(strings.Repeat("x", 200<<10))
		})
		Handle(w, "small", func(context.Context, *Task[any]) error { time.Sleep(2 * time.Second); return nil })
		n.run(w)
		s := n.stream()
		for i := range 20 {
			s.assign(job(i, "big", ""))
		}
		for i := 100; i < 1900; i += 100 {
			var as []*carillonv1.Assignment
			for j := range 100 {
				as = append(as, job(i+j, "small", ""))
			}
			s.assign(as...)
		}
		pass(5 * time.Second)
		for _, m := range s.messages() {
			bytes := 0
			for _, r := range m.GetResults() {
				bytes += len(r.GetResult().GetText())
			}
			if bytes > 1<<20 || len(m.GetResults())+len(m.GetStarted()) > 1000 {
				t.Errorf("a message has %d bytes, %d results, %d started", bytes, len(m.GetResults()), len(m.GetStarted()))
			}
		}
		if got := len(s.results()); got != 1820 {
			t.Errorf("%d results", got)
		}
	})
}
