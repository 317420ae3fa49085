package job

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// RetryPolicy says how failed attempts are repeated.
type RetryPolicy struct {
	MaxAttempts    int32         `json:"max_attempts"`
	InitialBackoff time.Duration `json:"initial_backoff"`
	MaxBackoff     time.Duration `json:"max_backoff"`
	Factor         float64       `json:"factor"`
	Jitter         float64       `json:"jitter"` // the random share of a delay, 0 to 1

	// NonRetryable are the error codes that are not tried again, in order, parted by
	// commas: a text, so that policies can be compared.
	NonRetryable string        `json:"non_retryable,omitempty"`
	Window       time.Duration `json:"window,omitempty"` // after the slot was made, in which attempts may begin; zero: always
}

// MaxNonRetryable is how many codes a policy names at most.
const MaxNonRetryable = 32

// SetNonRetryable names the codes that are not tried again.
func (p *RetryPolicy) SetNonRetryable(codes []string) error {
	if len(codes) > MaxNonRetryable {
		return fmt.Errorf("must be at most %d, are %d", MaxNonRetryable, len(codes))
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(codes)))
	for _, code := range sorted {
		if err := CheckName(code); err != nil {
			return fmt.Errorf("%q %w", code, err)
		}
	}
	p.NonRetryable = strings.Join(sorted, ",")
	return nil
}

// NonRetryableCodes lists the codes that are not tried again.
func (p RetryPolicy) NonRetryableCodes() []string {
	if p.NonRetryable == "" {
		return nil
	}
	return strings.Split(p.NonRetryable, ",")
}

// Allows reports whether a slot may be tried again at an instant, after a failure with an
// error code. made is when the slot was.
func (p RetryPolicy) Allows(code string, made, at Instant) bool {
	if p.Window > 0 && at > made.Add(p.Window) {
		return false
	}
	return p.NonRetryable == "" || !slices.Contains(p.NonRetryableCodes(), code)
}

// DefaultRetryPolicy is what a job gets where it says nothing.
var DefaultRetryPolicy = RetryPolicy{
	MaxAttempts:    5,
	InitialBackoff: time.Second,
	MaxBackoff:     5 * time.Minute,
	Factor:         2,
	Jitter:         0.2,
}

// Bounds of a policy.
const (
	MaxAttemptsLimit = 1000
	MaxDuration      = 365 * 24 * time.Hour
	MaxFactor        = 100.0
	DefaultTimeout   = 10 * time.Minute
)

// Delay returns how long to wait after the failure with this number (from 1).
// random is uniform in [0, 1). The delay is min(MaxBackoff, InitialBackoff ·
// Factor^(failures−1)), of which a share of up to Jitter is taken away at
// random. It is computed in floating point and capped before it becomes a
// duration, so that no number of failures overflows it.
func (p RetryPolicy) Delay(failures int32, random float64) time.Duration {
	d := float64(p.InitialBackoff) * math.Pow(p.Factor, float64(max(failures, 1)-1))
	d = math.Min(d, float64(p.MaxBackoff))
	d *= 1 - p.Jitter*random
	return max(time.Duration(d), time.Millisecond)
}
