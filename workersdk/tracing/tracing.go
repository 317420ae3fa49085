// Package tracing makes a span of OpenTelemetry of each run of a handler.
//
//	w, err := worker.Dial(ctx, target, worker.Intercept(tracing.Interceptor(provider)))
package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// name is that of the tracer, as the convention is: the package's.
const name = "github.com/carillon-scheduler/carillon/workersdk/tracing"

// Interceptor returns an interceptor that runs handlers in spans of kind consumer, named "run"
// and the handler. Attempts of one slot share its attributes, and each has its own trace. A
// handler that fails, panics or is cut off leaves an error, with the cause of its context's end.
func Interceptor(provider trace.TracerProvider) worker.Interceptor {
	tracer := provider.Tracer(name)
	return func(ctx context.Context, t worker.TaskInfo, next func(context.Context) error) (err error) {
		ctx, span := tracer.Start(ctx, "run "+t.Handler(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("carillon.job", t.Job()), attribute.String("carillon.slot", t.Slot()), attribute.String("carillon.handler", t.Handler()),
			attribute.String("carillon.trigger", t.Trigger()), attribute.Int("carillon.attempt", t.Attempt()),
			attribute.Float64("carillon.lateness_seconds", t.Lateness().Seconds())))
		panicked := true
		defer func() {
			switch {
			case panicked:
				span.SetStatus(codes.Error, "it panicked")
			case err != nil:
				span.RecordError(err)
				span.SetStatus(codes.Error, causeOf(ctx, err).Error())
			}
			span.End()
		}()
		err = next(ctx)
		panicked = false
		return err
	}
}

// causeOf says why a context ended, if that is what the error says.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		return cause
	}
	return err
}
