package main

import (
	"context"
	"time"
)

func freezeDatabase(ctx context.Context, s *stage) error {
	if err := s.busy(ctx); err != nil {
		return err
	}
	from := s.mark("freeze")
	if err := s.site.Database.Pause(); err != nil {
		return err
	}
	err := s.phase(ctx, "without a database", s.length(30*time.Second, 12*time.Second))
	s.mark("thaw")
	if resumed := s.site.Database.Resume(); resumed != nil {
		return resumed
	}
	if err != nil {
		return err
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	s.prober.excuse(from, s.events["thaw"].Add(probeGrace))
	return nil
}

// probeGrace is how long calls may still suffer from a database that is back.
const probeGrace = 5 * time.Second

func judgeDatabaseAway(v *verdict) {
	v.expectLongWork()
	v.facts["moved"] = float64(v.takeOvers(v.events["freeze"]))
}
