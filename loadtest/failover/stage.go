package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/site"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
)

// stage is a round that is being played.
type stage struct {
	options
	number int // of the round among those of its name
	site   *site.Site
	load   *load
	prober *prober
	phases []phase
	facts  map[string]float64
	wrong  []string // what was seen while it was played and must not be
	// lost are the shards of the node to which something is done, and target its name.
	lost   []shard.ID
	target string
	// events are when something was done, for the verdict.
	events map[string]time.Time
}

// phase is a time of a round with a name. Lateness is told for each.
type phase struct {
	name        string
	from, until time.Time
}

// workerCapacity is how many attempts each process of workers runs at a time.
const workerCapacity = 10_000

// play plays one round and judges it. An error says that there is no verdict. The logs of a round
// that failed are kept.
func play(ctx context.Context, r round, number int, opts options) (res result, err error) {
	dir, err := os.MkdirTemp(opts.dir, "carillon-"+r.name)
	if err != nil {
		return res, err
	}
	s := &stage{options: opts, number: number, facts: map[string]float64{}, events: map[string]time.Time{}}
	defer func() {
		if err == nil && res.passed() || errors.Is(err, errNotHere) {
			err = errors.Join(err, os.RemoveAll(dir))
			return
		}
		s.say("the logs are in %s", dir)
	}()
	s.say("%s, round %d: %s", r.name, number+1, r.about)
	cfg := s.config(dir)
	if r.shape != nil {
		r.shape(&cfg)
	}
	s.site, err = site.Start(ctx, cfg)
	if errors.Is(err, site.ErrNoNetwork) || errors.Is(err, pgtest.ErrMissing) {
		return res, errors.Join(errNotHere, err)
	}
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, s.site.Stop()) }()
	return s.run(ctx, r)
}

// run lets the load run while the round is played, and judges.
func (s *stage) run(ctx context.Context, r round) (res result, err error) {
	began := time.Now()
	s.load = &load{stage: s}
	if err := s.load.begin(ctx); err != nil {
		return res, err
	}
	s.prober = newProber(s)
	probing := make(chan struct{})
	probeCtx, stop := context.WithCancel(ctx)
	go func() { defer close(probing); s.prober.run(probeCtx) }()
	err = r.play(ctx, s)
	stop()
	<-probing
	if err != nil {
		return res, err
	}
	v, err := s.finish(ctx)
	if err != nil {
		return res, err
	}
	v.judge(r)
	res = v.result(r, s.number, began)
	if res.passed() {
		return res, nil
	}
	return res, v.evidence(s.site.Dir())
}

// config is a cluster of three members, three nodes and two workers.
func (s *stage) config(dir string) site.Config {
	return site.Config{Carillon: s.carillon, Dir: dir, Members: 3, Nodes: 3, Workers: 2, TTL: s.ttl, Shards: shardCount,
		NodeFlags: []string{"--log-level", "info"},
		Worker: func(number int, nodes string) []string {
			return []string{s.carillon, "bench-worker", "--address", nodes, "--id", "worker-" + strconv.Itoa(number+1),
				"--capacity", strconv.Itoa(workerCapacity), "--file", notesFile(dir, number)}
		}}
}

func notesFile(dir string, worker int) string {
	return filepath.Join(dir, "executions-"+strconv.Itoa(worker+1))
}

// phase lets a time pass, under a name.
func (s *stage) phase(ctx context.Context, name string, d time.Duration) error {
	return s.during(ctx, name, func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// during does something, under a name.
func (s *stage) during(ctx context.Context, name string, do func(context.Context) error) error {
	from := time.Now()
	err := do(ctx)
	s.phases = append(s.phases, phase{name, from, time.Now()})
	return err
}

// longJobs are the jobs of a round that take 10 to 15 s.
const longJobs = 120

// busy is the time before anything happens, against which what comes later is held: first with what
// is due every second alone, then with long work under way, too.
func (s *stage) busy(ctx context.Context) error {
	if err := s.phase(ctx, "warm-up", s.length(4*time.Second, 2*time.Second)); err != nil {
		return err
	}
	if err := s.phase(ctx, "before", s.length(5*time.Second, 2*time.Second)); err != nil {
		return err
	}
	due, err := s.load.work(ctx, longJobs)
	if err != nil {
		return err
	}
	// It ends within a second, not at the beginning of one, whose starts would be under way.
	return s.phase(ctx, "before, with long work", time.Until(due.Add(1900*time.Millisecond)))
}

// mark notes when something was done.
func (s *stage) mark(event string) time.Time {
	now := time.Now()
	s.events[event] = now
	s.say("%s", event)
	return now
}

// length is a time in `make failover`, and in CI.
func (s *stage) length(full, brief time.Duration) time.Duration {
	if s.brief {
		return brief
	}
	return full
}

// victim is the node to which something is done: each in turn, and at another instant of the second.
func (s *stage) victim(ctx context.Context) (*site.Node, error) {
	v := s.site.Nodes[s.number%len(s.site.Nodes)]
	select {
	case <-time.After(rand.N(time.Second)):
		return v, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *stage) wrongf(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(s.log, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}
