package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/site"
)

func killMember(ctx context.Context, s *stage) error {
	return s.killMembers(ctx, s.length(20*time.Second, 8*time.Second), s.site.Etcd[s.number%3:s.number%3+1], nil)
}

func killQuorum(ctx context.Context, s *stage) error {
	return s.killMembers(ctx, s.length(60*time.Second, 12*time.Second), s.site.Etcd[:2], func(ctx context.Context) error {
		return s.names(ctx, "etcd doesn't answer")
	})
}

// killMembers kills members of etcd for a time, and then starts them again.
func (s *stage) killMembers(ctx context.Context, d time.Duration, members []*site.Member, meanwhile func(context.Context) error) error {
	if err := s.busy(ctx); err != nil {
		return err
	}
	s.mark("kill")
	for _, m := range members {
		if err := m.Kill(); err != nil {
			return err
		}
	}
	if err := s.phase(ctx, "without them", d); err != nil {
		return err
	}
	if meanwhile != nil {
		if err := meanwhile(ctx); err != nil {
			return err
		}
	}
	s.mark("start")
	for _, m := range members {
		if err := m.Start(ctx); err != nil {
			return err
		}
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	return s.well(ctx)
}

// names notes which nodes don't name a problem.
func (s *stage) names(ctx context.Context, problem string) error {
	for _, n := range s.site.Running() {
		c, err := n.Cluster(ctx)
		if err != nil {
			return fmt.Errorf("ask %s: %w", n.Name, err)
		}
		if all := strings.Join(c.GetProblems(), "; "); !strings.Contains(all, problem) {
			s.wrongf("%s names the problems %q; %q should be among them", n.Name, all, problem)
		}
	}
	return nil
}

// wellWithin is how long a node may go on naming a problem that is over.
const wellWithin = 10 * time.Second

// well notes which nodes go on naming problems when there are none.
func (s *stage) well(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, wellWithin)
	defer cancel()
	for _, n := range s.site.Running() {
		for {
			c, err := n.Cluster(limited)
			if err == nil && len(c.GetProblems()) == 0 {
				break
			}
			select {
			case <-time.After(lookEvery):
				continue
			case <-limited.Done():
				s.wrongf("%s names the problems %q though all is well (%v)", n.Name, c.GetProblems(), err)
			}
			break
		}
	}
	return ctx.Err()
}

// unnoticed is how late a start may be when nothing that it needs is away.
const unnoticed = time.Second

func judgeMember(v *verdict) {
	v.expectLateness(unnoticed)
	v.expectOneAttempt()
	v.expect(v.takeOvers(v.events["kill"]) == 0, "%d shards got another owner", v.takeOvers(v.events["kill"]))
}

func judgeQuorum(v *verdict) {
	v.expectLateness(unnoticed)
	v.expectOneAttempt()
	v.facts["moved"] = float64(v.takeOvers(v.events["kill"]))
}

// aged is more than what the nodes change while a round lasts.
const aged = 2000

func wipeEtcd(ctx context.Context, s *stage) error {
	if err := s.age(ctx); err != nil {
		return err
	}
	if err := s.busy(ctx); err != nil {
		return err
	}
	s.mark("wipe")
	if err := s.during(ctx, "etcd is made anew", s.site.WipeEtcd); err != nil {
		return err
	}
	if err := s.phase(ctx, "with an empty etcd", s.length(20*time.Second, 3*s.ttl)); err != nil {
		return err
	}
	if err := s.names(ctx, "raise owner_gen to 1"); err != nil {
		return err
	}
	for _, n := range s.site.Nodes {
		n.OwnerGen = 1
		if err := s.during(ctx, n.Name+" restarts", func(ctx context.Context) error { return s.raise(ctx, n) }); err != nil {
			return err
		}
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	return s.well(ctx)
}

// age raises etcd's revision, and has the shards taken under it.
func (s *stage) age(ctx context.Context) error {
	if err := s.site.Age(ctx, aged); err != nil {
		return err
	}
	for _, n := range s.site.Nodes {
		if err := s.restart(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// raise restarts a node; until all are restarted, not all shards are where they should be.
func (s *stage) raise(ctx context.Context, n *site.Node) error {
	s.prober.avoid(n, true)
	s.mark("SIGTERM " + n.Name)
	if _, err := n.Stop(); err != nil {
		s.wrongf("%v", err)
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	s.prober.avoid(n, false)
	return nil
}

func judgeWiped(v *verdict) {
	v.expectLateness(unnoticed, "etcd is made anew", "with an empty etcd")
	v.expectLongWork()
}
