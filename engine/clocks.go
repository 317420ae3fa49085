package engine

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// compareEvery is how often the node's clock is held against others.
const compareEvery = time.Second

// maxStall is how long the loop may have stood still and still fire as if nothing had been.
// Beyond that, what it missed is made up for, behind live work.
const maxStall = time.Minute

// watchClocks reads the clocks about once a second, for the loop.
func (l *loop) watchClocks(ctx context.Context) error {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		r := l.readClocks(ctx)
		l.inLoop(ctx, func(l *loop) { l.compareClocks(r) })
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readClocks reads the clocks of this machine and the database's. The latter is taken to have
// been read in the middle of the call.
func (l *loop) readClocks(ctx context.Context) clock.Reading {
	ctx, cancel := context.WithTimeout(ctx, 2*clock.MaxSkew)
	defer cancel()
	asked := l.cfg.Clock.Monotonic()
	at, err := l.node.store.Now(ctx)
	answered := l.cfg.Clock.Monotonic()
	r := clock.Reading{Monotonic: answered, Wall: job.At(l.cfg.Clock.Wall())}
	if err == nil {
		r.Error = (answered - asked) / 2
		r.Database = at.Add(r.Error)
	}
	return r
}

// time returns the node's time.
func (l *loop) time() job.Instant { return l.clock.Now(l.cfg.Clock.Monotonic()) }

// compareClocks holds the node's clock against others, and tells the coordinator how the node
// is: one whose clock is off from a database with which another node agrees has its shards
// taken; if all disagree, it goes on, and says so.
func (l *loop) compareClocks(r clock.Reading) {
	v := l.clock.Compare(r)
	l.proof.answered(r.Database != 0, time.Now())
	l.tellHealth(v)
	l.cfg.Observer.ClocksCompared(v)
	if v.Alarm != l.alarmed {
		l.alarmed = v.Alarm
		log := l.cfg.Log.Info
		if v.Alarm {
			log = l.cfg.Log.Warn
		}
		log("the clocks were compared", "alarm", v.Alarm, "database_ahead_seconds", v.Database.Seconds(), "wall_ahead_seconds", v.Wall.Seconds())
	}
	if v.Jump != 0 && !l.draining {
		l.cfg.Log.Warn("time has jumped; all shards are loaded anew", "jump_seconds", v.Jump.Seconds())
		l.now = l.time()
		l.reloadAll()
	}
}

// reloadAll takes all shards up anew at the time that it is now: what lies between their
// watermarks and now becomes a gap, and no timer waits for a time that was.
func (l *loop) reloadAll() {
	for _, w := range l.workers.All() {
		w.LeaseUntil = l.now.Add(l.cfg.Core.Lease)
	}
	l.renewUnary()
	l.leasesAt, l.inboxAt, l.plannedAt = 0, 0, 0
	for _, id := range l.order {
		l.reload(id, 0)
	}
}

// reload drops a shard, and has it loaded again.
func (l *loop) reload(id shard.ID, delay time.Duration) {
	if rev, leaves := l.leaving[id]; leaves {
		l.release(id, rev)
		return
	}
	p := l.shards[id].Proof()
	l.drop(id, errReload)
	l.reloads[id] = p
	if delay == 0 {
		l.unloaded = append(l.unloaded, loadJob{id: id, reload: true})
		return
	}
	time.AfterFunc(delay, func() {
		l.inLoop(context.Background(), func(l *loop) { l.unloaded = append(l.unloaded, loadJob{id: id, reload: true}) })
	})
}

// wantsBack asks the loop whether a shard is still to be loaded anew, and instead of which epoch.
func (l *loop) wantsBack(ctx context.Context, id shard.ID) (p shard.Proof, wanted bool) {
	asked := make(chan shard.Proof, 1)
	err := l.node.post(ctx, func(l *loop) {
		asked <- l.reloads[id]
		delete(l.reloads, id)
	})
	if err == nil {
		p, err = await(ctx, l.node, asked)
	}
	return p, err == nil && p.Epoch != 0
}
