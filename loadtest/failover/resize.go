package main

import (
	"context"
	"time"
)

func resize(ctx context.Context, s *stage) error {
	if err := s.steady(ctx); err != nil {
		return err
	}
	if err := s.underway(ctx); err != nil {
		return err
	}
	s.mark("grow")
	err := s.during(ctx, "one becomes three", func(ctx context.Context) error {
		for _, n := range s.site.Nodes[1:] {
			if err := n.Launch(); err != nil {
				return err
			}
			s.prober.avoid(n, true)
		}
		for _, n := range s.site.Nodes[1:] {
			if err := n.Ready(ctx); err != nil {
				return err
			}
			s.prober.avoid(n, false)
		}
		return s.site.Settled(ctx)
	})
	if err != nil {
		return err
	}
	if err := s.phase(ctx, "three nodes", s.length(10*time.Second, 4*time.Second)); err != nil {
		return err
	}
	s.mark("shrink")
	err = s.during(ctx, "three become one", func(ctx context.Context) error {
		for _, n := range s.site.Nodes[:2] {
			s.prober.avoid(n, true)
			if _, err := n.Stop(); err != nil {
				s.wrongf("%v", err)
			}
		}
		return s.site.Settled(ctx)
	})
	if err != nil {
		return err
	}
	return s.settled(ctx)
}

func judgeResize(v *verdict) {
	v.expectLateness(plannedLateness)
	v.expectOneAttempt()
	v.expectLongWork()
	all := v.takeOvers(v.events["grow"])
	shrinking := v.takeOvers(v.events["shrink"])
	v.facts["moves_to_grow"], v.facts["moves_to_shrink"] = float64(all-shrinking), float64(shrinking)
	// Two of three get a third each, two at most one shard more than that. The first two end one after
	// the other: what went from the first to the second goes on to the third.
	v.expect(all-shrinking <= shardCount*2/3+1, "%d shards moved to the two that came", all-shrinking)
	v.expect(shrinking <= shardCount/3+1+shardCount/2+1, "%d moves to the one that stayed", shrinking)
}
