package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-scheduler/carillon/loadtest/site"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// prober is a client that calls any node, all the time: its calls are made again while a node says
// so, and at another node when the one that was asked is gone or doesn't answer.
type prober struct {
	*stage
	created atomic.Int64

	mu      sync.Mutex
	out     map[*site.Node]bool // nodes that are known to be gone; guarded by mu
	excused []phase             // when no call needs to succeed; guarded by mu
	calls   []probeCall         // guarded by mu
}

// probeCall is one call with all its repeats.
type probeCall struct {
	kind        string
	from, until time.Time
	err         error
}

const (
	probers    = 4
	probeEvery = 100 * time.Millisecond
	// nodeTimeout is how long one node is asked before the next one is.
	nodeTimeout = 5 * time.Second
)

// kinds are the calls, and how long each may take at most while there is a database.
var kinds = []struct {
	name  string
	limit time.Duration
	call  func(context.Context, *prober, grpc.ClientConnInterface, int) error
}{
	{"CreateJob", 10 * time.Second, func(ctx context.Context, p *prober, conn grpc.ClientConnInterface, n int) error {
		req := request(firstProbe+n, workload.Params(0, false), &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}})
		req.RequestId = fmt.Sprintf("probe-%d", n)
		resp, err := carillonv1.NewJobServiceClient(conn).CreateJob(ctx, req)
		if err != nil {
			return err
		}
		return p.load.ack(resp.GetJob())
	}},
	{"GetJob", 15 * time.Second, func(ctx context.Context, p *prober, conn grpc.ClientConnInterface, n int) error {
		_, err := carillonv1.NewJobServiceClient(conn).GetJob(ctx, &carillonv1.GetJobRequest{Name: parent + "/jobs/" + workload.JobName(n%p.rate)})
		return err
	}},
	{"ListJobs", 15 * time.Second, func(ctx context.Context, _ *prober, conn grpc.ClientConnInterface, _ int) error {
		_, err := carillonv1.NewJobServiceClient(conn).ListJobs(ctx, &carillonv1.ListJobsRequest{Parent: parent, PageSize: 20})
		return err
	}},
	{"RunJob", 15 * time.Second, func(ctx context.Context, p *prober, conn grpc.ClientConnInterface, n int) error {
		_, err := carillonv1.NewJobServiceClient(conn).RunJob(ctx, &carillonv1.RunJobRequest{Name: parent + "/jobs/" + workload.JobName(n%p.rate), RequestId: fmt.Sprintf("run-%d", n)})
		return err
	}},
}

func newProber(s *stage) *prober { return &prober{stage: s, out: map[*site.Node]bool{}} }

// run calls until ctx ends.
func (p *prober) run(ctx context.Context) {
	var work sync.WaitGroup
	for range probers {
		work.Go(func() {
			again := time.NewTicker(probeEvery)
			defer again.Stop()
			for {
				select {
				case <-again.C:
					p.probe(ctx, rand.IntN(len(kinds)), int(p.created.Add(1)))
				case <-ctx.Done():
					return
				}
			}
		})
	}
	work.Wait()
}

// probe makes one call, at one node after the other.
func (p *prober) probe(ctx context.Context, kind, n int) {
	from, k := time.Now(), kinds[kind]
	limited, cancel := context.WithTimeout(ctx, k.limit)
	defer cancel()
	var err error
	var node *site.Node
	for limited.Err() == nil {
		node = p.other(node)
		if node == nil {
			break
		}
		err = ask(limited, func(ctx context.Context) error { return k.call(ctx, p, node.Conn, n) })
		if !elsewhere(err) {
			break
		}
		select {
		case <-time.After(probeEvery):
		case <-limited.Done():
		}
	}
	if ctx.Err() != nil {
		return // the round is over
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, probeCall{k.name, from, time.Now(), err})
}

// elsewhere reports whether another node may be asked: the one that was is gone, or says nothing.
// Calls are repeatable, so that it doesn't matter what became of this one.
func elsewhere(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

func ask(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	return call(ctx)
}

// other is a node that isn't known to be gone, and not the one that didn't answer, if there is another.
func (p *prober) other(last *site.Node) *site.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	var there []*site.Node
	for _, n := range p.site.Running() {
		if !p.out[n] && n != last {
			there = append(there, n)
		}
	}
	if len(there) == 0 {
		return last
	}
	return there[rand.IntN(len(there))]
}

// avoid lets the prober know that a node is gone, or that it is back.
func (p *prober) avoid(n *site.Node, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out[n] = gone
}

// excuse lets calls fail that were made in a time in which there was no database.
func (p *prober) excuse(from, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.excused = append(p.excused, phase{"", from, until})
}

// probed is what came of all calls of one kind.
type probed struct {
	Calls    int     `json:"calls"`
	Excused  int     `json:"excused,omitempty"` // of them, that failed or took long without a database
	SlowestS float64 `json:"slowest_seconds"`   // of the others
}

// sum sums up the calls, and says which of them failed.
func (p *prober) sum() (all map[string]probed, failed []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all = map[string]probed{}
	for _, c := range p.calls {
		one := all[c.kind]
		one.Calls++
		took := c.until.Sub(c.from)
		switch {
		case slices.ContainsFunc(p.excused, func(e phase) bool { return c.from.Before(e.until) && c.until.After(e.from) }):
			one.Excused++
		case c.err != nil:
			failed = append(failed, fmt.Sprintf("%s at %s failed after %.1f s: %v", c.kind, c.from.Format("15:04:05.000"), took.Seconds(), c.err))
			fallthrough
		default:
			one.SlowestS = max(one.SlowestS, took.Seconds())
		}
		all[c.kind] = one
	}
	return all, failed
}
