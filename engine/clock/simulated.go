package clock

import (
	"sync"
	"time"
)

// Simulated is clocks that stand still until they are set. They may be used by many goroutines.
type Simulated struct {
	mu    sync.Mutex
	start time.Time
	now   time.Time // guarded by mu
}

var _ Source = (*Simulated)(nil)

// NewSimulated returns clocks that stand at a time.
func NewSimulated(at time.Time) *Simulated {
	at = at.Round(0).UTC()
	return &Simulated{start: at, now: at}
}

// Wall implements Source.
func (s *Simulated) Wall() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Monotonic implements Source.
func (s *Simulated) Monotonic() time.Duration { return s.Wall().Sub(s.start) }

// Set sets the clocks ahead; a time that has passed changes nothing.
func (s *Simulated) Set(to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to.After(s.now) {
		s.now = to.Round(0).UTC()
	}
}
