package certs

import "time"

// SetClock lets a test say what time it is.
func (s *Source) SetClock(now func() time.Time) { s.now = now }
