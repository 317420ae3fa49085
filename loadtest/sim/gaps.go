package sim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// bell tells whoever waits that a downtime left a gap. Most are filled within some hundredths of a second,
// and a client that looks when it pleases finds none.
type bell struct {
	mu   sync.Mutex    // guards what follows
	rung chan struct{} // closed by the next ring; nil: nobody waits
	last madeGap
	// changed are the uids of jobs of which a person changed how a gap is made up for.
	changed map[string]bool
}

// madeGap is a gap of a shard.
type madeGap struct {
	shard shard.ID
	to    job.Instant
	long  time.Duration
}

func (b *bell) ring(g madeGap) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
	b.last = g
}

// wait returns the next gap; false: there was none.
func (b *bell) wait(ctx context.Context) (madeGap, bool) {
	b.mu.Lock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	rung := b.rung
	b.mu.Unlock()
	select {
	case <-rung:
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.last, ctx.Err() == nil
	case <-ctx.Done():
		return madeGap{}, false
	}
}

// gapsMade rings if a batch that was written has a gap, and notes what persons changed.
func (w *world) gapsMade(b *store.Batch, err error) {
	if err != nil {
		return
	}
	for i := range b.Shards {
		for _, g := range b.Shards[i].GapPuts {
			if g.Options.RequestedAt == 0 {
				w.gaps.ring(madeGap{b.Shards[i].Proof.Shard, g.Key.To, g.Key.To.Sub(g.From)})
			}
		}
		for _, g := range b.Shards[i].GapChanges {
			w.gaps.change(g.Options.CatchUp)
		}
	}
}

func (b *bell) change(of map[string]job.CatchUp) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = map[string]bool{}
	}
	for uid := range of {
		b.changed[uid] = true
	}
}

// asked reports whether a fault is none, as a person asked for it: the checker knows of the jobs' own
// policies only, and a gap that is filled says no longer how.
func (b *bell) asked(v checker.Violation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return v.Invariant == leftOut && b.changed[v.Job.String()] && strings.HasSuffix(v.Text, "of a job that leaves out nothing")
}

// leftOut is the invariant by which nothing is left out but by policy.
const leftOut checker.Invariant = 17

// often reports whether a job fires so often that a gap owes much of it.
func often(j *carillonv1.Job) bool {
	return j.GetSchedule().GetInterval().GetEvery().AsDuration() == time.Second
}

// oftenOf is a job of a shard that fires each second, or else any.
func (c *client) oftenOf(ctx context.Context, d dice.Dice, id shard.ID) string {
	c.mu.Lock()
	names := slices.Clone(c.each)
	c.mu.Unlock()
	for i := range names {
		name := names[(i+d.For("each").N(len(names)))%len(names)]
		if _, err := c.w.database.kept.Job(ctx, id, "default", name); err == nil {
			return parent + "/jobs/" + name
		}
	}
	return c.recurringJob(d)
}

// How a client waits for gaps: with how many it does something, and what is too short to meet.
const (
	gapsOnce    = 4
	gapPatience = 90 * time.Second
	shortGap    = 8 * time.Second
)

// gap does something with the next long gaps, as soon as there are any.
func (c *client) gap(ctx context.Context, d dice.Dice) {
	ctx = context.WithoutCancel(ctx)
	waiting, stop := context.WithTimeout(ctx, min(gapPatience, faultsEnd-time.Since(c.w.tracer.began)))
	defer stop()
	for i := 0; i < gapsOnce; {
		made, ok := c.w.gaps.wait(waiting)
		if !ok {
			c.tell("wait for a gap", nil)
			return
		}
		if made.long < shortGap {
			continue
		}
		once, cancel := context.WithTimeout(ctx, patience)
		c.withGap(once, d.For("nth").At(uint64(i)), made)
		cancel()
		i++
	}
}

func (c *client) withGap(ctx context.Context, d dice.Dice, made madeGap) {
	name := c.oftenOf(ctx, d, made.shard)
	if d.For("owed").Chance(0.5) {
		c.explainSlot(ctx, d, name+"/slots/"+job.AtSecond(made.to.Seconds()).ID())
		return
	}
	gaps := carillonv1.NewGapServiceClient(c.any(d))
	resp, err := gaps.ListGaps(ctx, &carillonv1.ListGapsRequest{})
	if err != nil || len(resp.GetGaps()) == 0 {
		c.tell("find a gap", err)
		return
	}
	c.w.covered("an open gap found")
	gap := resp.GetGaps()[d.For("gap").N(len(resp.GetGaps()))]
	if gap.GetRequestTime() != nil {
		c.cancelBackfill(ctx, d, gap.GetName())
		return
	}
	_, err = gaps.ChangeGapCatchUp(ctx, &carillonv1.ChangeGapCatchUpRequest{Name: gap.GetName(), Job: name, CatchUp: catchUp(d.For("policy")), Reason: "as planned"})
	if c.tell("change how a gap is made up for", err) == codes.OK {
		c.w.covered("catch-up of a gap changed")
	}
}

// cancelBackfill ends one that this client has just asked for.
func (c *client) cancelBackfill(ctx context.Context, d dice.Dice, name string) {
	_, err := carillonv1.NewGapServiceClient(c.any(d)).CancelBackfill(ctx, &carillonv1.CancelBackfillRequest{Name: name, Reason: "as planned"})
	if c.tell("cancel a backfill", err) == codes.OK {
		c.w.covered("a backfill cancelled")
	}
}
