package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/site"
	"github.com/carillon-scheduler/carillon/shard"
)

// held are the shards of a node, as another one sees it.
func (s *stage) held(ctx context.Context, of *site.Node) (held []shard.ID, err error) {
	shards, err := s.site.Running()[0].Shards(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range shards {
		if one.GetOwner() == of.Name {
			id, err := strconv.Atoi(strings.TrimPrefix(one.GetName(), "shards/"))
			if err != nil {
				return nil, err
			}
			held = append(held, shard.ID(id))
		}
	}
	return held, nil
}

// strike lets the cluster be busy, and picks a node with the shards that it holds.
func (s *stage) strike(ctx context.Context) (v *site.Node, err error) {
	if err := s.busy(ctx); err != nil {
		return nil, err
	}
	if v, err = s.victim(ctx); err != nil {
		return nil, err
	}
	s.target = v.Name
	s.lost, err = s.held(ctx, v)
	return v, err
}

// settled waits until all shards are where they should be, and a little longer.
func (s *stage) settled(ctx context.Context) error {
	if err := s.during(ctx, "until all is in place", s.site.Settled); err != nil {
		return err
	}
	return s.phase(ctx, "after", s.length(5*time.Second, 3*time.Second))
}

func killNode(ctx context.Context, s *stage) error {
	v, err := s.strike(ctx)
	if err != nil {
		return err
	}
	s.prober.avoid(v, true)
	s.mark("kill")
	if err := v.Kill(); err != nil {
		return err
	}
	if err := s.phase(ctx, "without the node", 2*s.ttl); err != nil {
		return err
	}
	s.mark("start")
	if err := v.Start(ctx); err != nil {
		return err
	}
	s.prober.avoid(v, false)
	return s.settled(ctx)
}

// takeOver is how long a shard may go without an owner beyond the TTL.
const takeOver = time.Second

func judgeKill(v *verdict) {
	v.expectNext(v.lost, v.target, "kill", v.ttl+takeOver)
	v.expectLongWork()
}

func freezeNode(ctx context.Context, s *stage) error {
	v, err := s.strike(ctx)
	if err != nil {
		return err
	}
	s.prober.avoid(v, true)
	s.mark("freeze")
	if err := v.Pause(); err != nil {
		return err
	}
	if err := s.phase(ctx, "frozen", 3*s.ttl); err != nil {
		return err
	}
	s.mark("thaw")
	if err := v.Resume(); err != nil {
		return err
	}
	s.prober.avoid(v, false)
	if err := s.settled(ctx); err != nil {
		return err
	}
	return s.said(v.Program, "another owner has taken a shard", "this node takes no part")
}

// said notes what a program should have logged and has not.
func (s *stage) said(p *site.Program, words ...string) error {
	text, err := p.Logged()
	if err != nil {
		return err
	}
	for _, one := range words {
		if !strings.Contains(text, one) {
			s.wrongf("%s has not said %q", p.Name, one)
		}
	}
	return nil
}

func judgeFreeze(v *verdict) {
	v.expectNext(v.lost, v.target, "freeze", v.ttl+takeOver)
	v.expectLongWork()
}

func restartNodes(ctx context.Context, s *stage) error {
	if err := s.busy(ctx); err != nil {
		return err
	}
	for _, n := range s.site.Nodes {
		err := s.during(ctx, n.Name+" restarts", func(ctx context.Context) error { return s.restart(ctx, n) })
		if err != nil {
			return err
		}
	}
	return s.settled(ctx)
}

// restart ends a node by SIGTERM, starts it again and waits until it has its share.
func (s *stage) restart(ctx context.Context, n *site.Node) error {
	s.prober.avoid(n, true)
	s.mark("SIGTERM " + n.Name)
	took, err := n.Stop()
	if err != nil {
		s.wrongf("%v", err)
	}
	s.facts["stop_seconds"] = max(s.facts["stop_seconds"], took.Seconds())
	if err := n.Start(ctx); err != nil {
		return fmt.Errorf("start %s again: %w", n.Name, err)
	}
	s.prober.avoid(n, false)
	return s.site.Settled(ctx)
}

// plannedLateness is what a planned move may add at most.
const plannedLateness = 2 * time.Second

func judgeRestart(v *verdict) {
	v.expectLateness(plannedLateness)
	v.expectOneAttempt()
	v.expectLongWork()
}
