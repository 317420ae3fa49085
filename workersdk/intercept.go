package workersdk

import (
	"context"
	"log/slog"
	"time"
)

// Interceptor runs around a handler: for tracing, metrics, or what all handlers need in their
// context. It calls next, at most once, and returns what the attempt came to, as a handler
// does. It may be called by many goroutines.
type Interceptor func(ctx context.Context, t TaskInfo, next func(context.Context) error) error

// Intercept adds interceptors around all handlers; the first one is the outermost. A panic in
// them or in a handler passes through them, and is a failed attempt with its stack.
func Intercept(i ...Interceptor) Option {
	return func(c *config) { c.interceptors = append(c.interceptors, i...) }
}

// LogCalls is an interceptor that logs the end of each run, with how long it took: a failure
// as a warning, else at that level.
func LogCalls(level slog.Level) Interceptor {
	return func(ctx context.Context, t TaskInfo, next func(context.Context) error) error {
		began := time.Now()
		err := next(ctx)
		if err != nil {
			t.attempt.logger.WarnContext(ctx, "a handler failed", "error", err, "took_seconds", time.Since(began).Seconds())
			return err
		}
		t.attempt.logger.Log(ctx, level, "a handler succeeded", "took_seconds", time.Since(began).Seconds(), "lateness_seconds", t.Lateness().Seconds())
		return nil
	}
}

// intercepted returns a call with the interceptors around it.
func (c *config) intercepted(t TaskInfo, call func(context.Context) error) func(context.Context) error {
	for i := len(c.interceptors) - 1; i >= 0; i-- {
		around, next := c.interceptors[i], call
		call = func(ctx context.Context) error { return around(ctx, t, next) }
	}
	return call
}
