package tracing_test

import (
	"context"
	"errors"
	"testing"

	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/tracing"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestSpans(t *testing.T) {
	for what, c := range map[string]struct {
		do   func() error
		code codes.Code
		text string
	}{
		"success": {func() error { return nil }, codes.Unset, ""},
		"failure": {func() error { return errors.New("no") }, codes.Error, "no"},
		"panic":   {func() error { panic("boom") }, codes.Error, "it panicked"},
	} {
		recorder := tracetest.NewSpanRecorder()
		around := tracing.Interceptor(trace.NewTracerProvider(trace.WithSpanProcessor(recorder)))
		_, err := workersdktest.Run(t.Context(), func(context.Context, *worker.Task[any]) error { return c.do() }, nil,
			workersdktest.Named("reports.nightly"), workersdktest.WorkerOptions(worker.Intercept(around)))
		if err != nil {
			t.Fatal(err)
		}
		spans := recorder.Ended()
		if len(spans) != 1 || spans[0].Name() != "run reports.nightly" || spans[0].Status().Code != c.code || spans[0].Status().Description != c.text {
			t.Errorf("%s: %+v", what, spans)
		}
	}
}
