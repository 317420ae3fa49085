package workersdktest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type args struct {
	Region string `json:"region"`
}

func TestRun(t *testing.T) {
	fire := time.Date(2026, 3, 29, 2, 0, 0, 0, time.UTC)
	o, err := workersdktest.Run(t.Context(), func(ctx context.Context, task *worker.Task[args]) error {
		if task.Args.Region != "eu" || task.Attempt() != 3 || task.Fence() != 3 || !task.FireTime().Equal(fire) || task.Job() != "namespaces/n/jobs/j" ||
			task.Handler() != "h" || task.Trigger() != "backfill" || string(task.Checkpoint()) != "page 3" || task.Slot() != "namespaces/n/jobs/j/slots/20260329T020000Z" {
			t.Errorf("the task is %v %d of %s, %s", task.Args, task.Attempt(), task.Slot(), task.Trigger())
		}
		task.Logger().Info("reached", "page", 4)
		if err := task.SaveCheckpoint(ctx, []byte("page 4")); err != nil {
			return err
		}
		return task.SetResult(map[string]int{"pages": 4})
	}, args{"eu"}, workersdktest.Attempt(3), workersdktest.FireTime(fire), workersdktest.OfJob("namespaces/n/jobs/j"), workersdktest.Named("h"),
		workersdktest.Backfill(), workersdktest.Checkpoint([]byte("page 3")))
	if err != nil {
		t.Fatal(err)
	}
	if !o.Succeeded() || string(o.Result) != `{"pages":4}` || string(o.Checkpoint) != "page 4" || !strings.Contains(o.Log, "page=4") {
		t.Errorf("%+v", o)
	}
}

func TestWhatBecomesOfAHandler(t *testing.T) {
	cancelled := make(chan struct{})
	close(cancelled)
	obey := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for what, c := range map[string]struct {
		do          func(context.Context) error
		opts        []workersdktest.RunOption
		state, code string
	}{
		"failure":    {func(context.Context) error { return worker.Coded("c", errors.New("no")) }, nil, "FAILED", "c"},
		"panic":      {func(context.Context) error { panic("boom") }, nil, "FAILED", "panic"},
		"timeout":    {obey, []workersdktest.RunOption{workersdktest.AttemptTimeout(time.Hour)}, "TIMED_OUT", "timeout"},
		"cancelled":  {obey, []workersdktest.RunOption{workersdktest.CancelWhen(cancelled)}, "CANCELLED", "cancelled"},
		"bad params": {obey, []workersdktest.RunOption{workersdktest.Params(`{"regoin": "eu"}`)}, "FAILED", "bad_params"},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, err := workersdktest.Run(t.Context(), func(ctx context.Context, _ *worker.Task[args]) error { return c.do(ctx) }, args{}, c.opts...)
			if err != nil || o.State != c.state || o.Code != c.code {
				t.Errorf("%s: %+v, %v", what, o, err)
			}
		})
	}
}

// A worker that stops hands its attempt back.
func TestRunThatIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	o, err := workersdktest.Run(ctx, func(ctx context.Context, _ *worker.Task[any]) error {
		stop()
		<-ctx.Done()
		return context.Cause(ctx)
	}, nil)
	if err != nil || o.State != "RELEASED" || o.Code != "shutdown" {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestRunsThatMakeNoSense(t *testing.T) {
	for want, opt := range map[string]workersdktest.RunOption{
		"at least 1":       workersdktest.Attempt(0),
		"namespaces/":      workersdktest.OfJob("j"),
		"capacity must be": workersdktest.WorkerOptions(worker.Capacity(0)),
	} {
		_, err := workersdktest.Run(t.Context(), func(context.Context, *worker.Task[any]) error { return nil }, nil, opt)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := workersdktest.Run(t.Context(), func(context.Context, *worker.Task[func()]) error { return nil }, nil); err == nil {
		t.Error("arguments that can't be encoded were taken")
	}
}
