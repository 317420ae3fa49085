package main

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/site"
)

// direction is which way is cut between a node and a party that it calls, or that calls it.
type direction int

const (
	bothWays direction = iota
	answers            // from the party to the node
	requests           // from the node to the party
)

// others picks what a node is cut from.
type others func(s *stage, of *site.Node) (names []string)

func toEtcd(s *stage, _ *site.Node) (names []string) {
	for _, m := range s.site.Etcd {
		names = append(names, m.Name)
	}
	return names
}

func toDatabase(*stage, *site.Node) []string { return []string{site.DatabaseName} }

func toWorker(s *stage, _ *site.Node) []string { return []string{s.site.Workers[0].Name} }

func toNode(s *stage, of *site.Node) []string {
	for _, n := range s.site.Nodes {
		if n != of {
			return []string{n.Name}
		}
	}
	return nil
}

// cut cuts a node from others for a time, and heals it.
func cut(from others, way direction) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		v, err := s.strike(ctx)
		if err != nil {
			return err
		}
		s.mark("cut")
		if err := s.links(v, from(s, v), way, s.site.Network().Cut); err != nil {
			return err
		}
		if err := s.phase(ctx, "cut", s.length(30*time.Second, 4*s.ttl)); err != nil {
			return err
		}
		s.mark("heal")
		if err := s.links(v, from(s, v), way, s.site.Network().Heal); err != nil {
			return err
		}
		return s.settled(ctx)
	}
}

// links does something to the links between a node and others.
func (s *stage) links(v *site.Node, names []string, way direction, do func(from, to string) error) error {
	for _, name := range names {
		if way != requests {
			if err := do(name, v.Name); err != nil {
				return err
			}
		}
		if way != answers {
			if err := do(v.Name, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// uselessOwner is how long a node that the database is cut from may keep its shards.
const uselessOwner = 12 * time.Second

// A node that etcd is cut from goes on until another owner fences it: no start waits for that.
func judgeCutEtcd(v *verdict) {
	v.expectLateness(unnoticed)
	v.expectNext(v.lost, v.target, "cut", v.ttl+takeOver)
	v.expectLongWork()
}

// Keep-alives that etcd hears and the node has no answer to, until their connection fails, keep the lease for longer.
func judgeCutEtcdAnswers(v *verdict) {
	v.expectLateness(unnoticed)
	v.expectNext(v.lost, v.target, "cut", 2*v.ttl+takeOver)
	v.expectLongWork()
}

func judgeCutDatabase(v *verdict) {
	v.expectNext(v.lost, v.target, "cut", uselessOwner)
	v.expectLongWork()
}

// A worker that a node can't reach loses that node's attempts, and others take them.
func judgeCutWorker(v *verdict) {
	v.expect(v.takeOvers(v.events["cut"]) == 0, "%d shards got another owner", v.takeOvers(v.events["cut"]))
}

// Two nodes that don't reach each other go on: only calls that one would pass on to the other suffer.
func judgeCutNode(v *verdict) {
	v.expectLateness(unnoticed)
	v.expectOneAttempt()
	v.expect(v.takeOvers(v.events["cut"]) == 0, "%d shards got another owner", v.takeOvers(v.events["cut"]))
}
