package main

import (
	"context"
	"time"
)

func resize(ctx context.Context, s *stage) error {
	if err := s.busy(ctx); err != nil {
		return err
	}
	s.mark("grow")
	if err := s.during(ctx, "one becomes three", s.grow); err != nil {
		return err
	}
	if err := s.phase(ctx, "three nodes", s.length(10*time.Second, 4*time.Second)); err != nil {
		return err
	}
	s.mark("shrink")
	if err := s.during(ctx, "three become one", s.shrink); err != nil {
		return err
	}
	return s.settled(ctx)
}

// grow starts all nodes but the first, at the same time.
func (s *stage) grow(ctx context.Context) error {
	for _, n := range s.site.Nodes[1:] {
		s.prober.avoid(n, true)
		if err := n.Launch(); err != nil {
			return err
		}
	}
	for _, n := range s.site.Nodes[1:] {
		if err := n.Ready(ctx); err != nil {
			return err
		}
		s.prober.avoid(n, false)
	}
	return s.site.Settled(ctx)
}

// shrink ends all nodes but the last, one after the other.
func (s *stage) shrink(ctx context.Context) error {
	for _, n := range s.site.Nodes[:len(s.site.Nodes)-1] {
		s.prober.avoid(n, true)
		if _, err := n.Stop(); err != nil {
			s.wrongf("%v", err)
		}
	}
	return s.site.Settled(ctx)
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
