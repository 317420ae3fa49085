package main

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/process"
)

// curveTime is how long is measured.
const curveTime = 15 * time.Second

// reach measures what a number of nodes reaches, and what it costs.
func reach(ctx context.Context, s *stage) error {
	if err := s.phase(ctx, "warm-up", 8*time.Second); err != nil {
		return err
	}
	before := s.cpu()
	if err := s.phase(ctx, "measured", curveTime); err != nil {
		return err
	}
	s.facts["cpu_seconds"] = (s.cpu() - before).Seconds()
	if len(s.site.Nodes) == 1 {
		return nil
	}
	v := s.site.Nodes[0]
	var err error
	s.target = v.Name
	if s.lost, err = s.held(ctx, v); err != nil {
		return err
	}
	s.prober.avoid(v, true)
	s.mark("kill")
	if err := v.Kill(); err != nil {
		return err
	}
	return s.phase(ctx, "without the node", 2*s.ttl)
}

// cpu is what nodes, etcd and the database have used.
func (s *stage) cpu() (all time.Duration) {
	pids := []int{s.site.Database.PID()}
	for _, n := range s.site.Running() {
		pids = append(pids, n.PID())
	}
	for _, m := range s.site.Etcd {
		pids = append(pids, m.PID())
	}
	for _, pid := range pids {
		if u, ok := process.UsageOf(pid); ok {
			all += u.CPU
		}
	}
	return all
}

func judgeCurve(v *verdict) {
	starts := 0
	for _, p := range v.phases {
		if p.name != "measured" {
			continue
		}
		for _, e := range v.runs {
			if e.Began >= p.from.UnixMicro() && e.Began < p.until.UnixMicro() {
				starts++
			}
		}
	}
	v.facts["starts_per_second"] = float64(starts) / curveTime.Seconds()
	v.facts["cpu_seconds_per_1000"] = v.facts["cpu_seconds"] * 1000 / float64(max(starts, 1))
	delete(v.facts, "cpu_seconds")
	if len(v.lost) > 0 {
		v.expectNext(v.lost, v.target, "kill", v.ttl+takeOver)
	}
}
