package engine

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// loadJob asks the loader for a shard: to take it over by a claim, or to load it anew under a new
// epoch.
type loadJob struct {
	id     shard.ID
	claim  store.Claim
	keep   bool            // the claim is for a shard that may be this node's already
	reload bool            // the loop wants it back; it says whether it still does
	ctx    context.Context // ends when the coordinator says something else

	proof shard.Proof // of the epoch that a reload ends
	owned store.Owned // taken, but not loaded yet
}

// loaders is how many shards are loaded at the same time: while one is put into memory,
// others are read by the database, or wait until their take-over is durable. What concerns
// one shard is done by one loader, in its order.
const loaders = 4

// maxLoadTasks bounds what waits for a loader: of each shard what the coordinator says, and what
// the loop wants.
const maxLoadTasks = 2 * shard.MaxCount / loaders

// manyJobs is after how many loaded jobs memory is given back.
const manyJobs = 50_000

// rooms are for the rows of shards that are loaded, of *[]job.Job: made for each shard anew,
// they would be most of the garbage.
var rooms sync.Pool

// loadAll follows the coordinator, and has the shards loaded, each of which fires as soon
// as it is. What comes later about a shard ends what was asked before: a shard that goes
// waits for no load.
func (l *loop) loadAll(ctx context.Context, changes <-chan coordinator.Change) error {
	group, ctx := errgroup.WithContext(ctx)
	var tasks [loaders]chan loadJob
	for i := range tasks {
		tasks[i] = make(chan loadJob, maxLoadTasks)
		group.Go(func() error { return l.loadSome(ctx, tasks[i]) })
	}
	group.Go(func() error {
		latest := map[shard.ID]grant{}
		defer func() {
			for _, o := range latest {
				o.cancel()
			}
		}()
		for {
			var j loadJob
			select {
			case c := <-changes:
				if o, ok := latest[c.Shard]; ok {
					o.cancel()
					delete(latest, c.Shard)
				}
				switch c.Kind {
				case coordinator.GiveUp:
					l.inLoop(ctx, func(l *loop) { l.giveUp(c.Shard, c.Rev) })
					continue
				case coordinator.Drop:
					l.inLoop(ctx, func(l *loop) { l.release(c.Shard, c.Rev) })
					continue
				}
				l.proof.doubted(c.Shard, c.Kind == coordinator.Keep)
				j = loadJob{id: c.Shard, claim: store.Claim{Shard: c.Shard, Node: l.cfg.ID, Gen: c.Gen, Rev: c.Rev}, keep: c.Kind == coordinator.Keep}
				o := grant{claim: j.claim}
				o.ctx, o.cancel = context.WithCancel(ctx)
				latest[c.Shard] = o
			case j = <-l.loads: // which the loop wants back
				if _, mine := latest[j.id]; !mine {
					continue // it has gone meanwhile
				}
			case <-ctx.Done():
				return ctx.Err()
			}
			j.ctx, j.claim = latest[j.id].ctx, latest[j.id].claim
			select {
			case tasks[int(j.id)%loaders] <- j:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return group.Wait()
}

// grant is the coordinator's latest word that a shard is to be this node's.
type grant struct {
	claim  store.Claim
	ctx    context.Context // ends with the next word
	cancel context.CancelFunc
}

// loadSome is a loader: it loads one shard after the other. A shard that can't be loaded
// at the moment goes behind all others.
func (l *loop) loadSome(ctx context.Context, tasks <-chan loadJob) error {
	var failed []loadJob
	handed := map[shard.ID]shard.Epoch{} // the latest epochs of what the loop was given
	retry := time.NewTicker(loadRetryEvery)
	defer retry.Stop()
	try := func(j loadJob) {
		if again, done := l.load(j, handed); !done {
			failed = append(failed, again)
		}
	}
	for {
		select {
		case j := <-tasks:
			try(j)
		case <-retry.C:
			again := failed
			failed = nil
			for _, j := range again {
				try(j)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inLoop has the loop do something. If the loop has ended, its shards have, too.
func (l *loop) inLoop(ctx context.Context, r request) { _ = l.node.post(ctx, r) }

// loadRetryEvery is how often shards that could not be loaded are tried again.
const loadRetryEvery = 500 * time.Millisecond

// loadTimeout bounds one try to load a shard, which may be large.
const loadTimeout = 2 * time.Minute

// load takes a shard over and hands it to the loop. It gives up if somebody else is the
// owner; done is false if the shard is to be tried again, as far as it came.
func (l *loop) load(j loadJob, handed map[shard.ID]shard.Epoch) (again loadJob, done bool) {
	ctx := j.ctx
	if j.keep {
		if kept, err := l.keep(ctx, j); err != nil || kept {
			return j, err == nil || ctx.Err() != nil
		}
		j.keep = false
	}
	if j.reload {
		wanted := false
		if j.proof, wanted = l.wantsBack(ctx, j.id); !wanted {
			return j, true
		}
		j.reload = false
	}
	room, _ := rooms.Get().(*[]job.Job)
	if room == nil {
		room = new([]job.Job)
	}
	loaded, err := l.tryLoad(ctx, &j, *room, handed[j.id])
	switch {
	case err == nil:
		l.inLoop(ctx, func(l *loop) {
			if ctx.Err() != nil {
				return // it goes
			}
			l.wake()
			l.drop(j.id, errReload) // what it was before, if this is another claim
			delete(l.reloads, j.id)
			l.claims[j.id] = j.claim
			l.proof.doubted(j.id, false)
			l.add(core.New(l.cfg.Core, j.owned, loaded, l.workers, l.now))
			clear(loaded.Recurring) // nothing of a shard lies in its rows
			*room = loaded.Recurring
			rooms.Put(room)
		})
		handed[j.id] = j.owned.Proof.Epoch
		l.countLoaded(len(loaded.Recurring))
		return j, true
	case ctx.Err() != nil:
		return j, true
	case errors.Is(err, store.ErrSuperseded):
		l.cfg.Log.Error("a shard belongs to another owner", "shard", j.id, "error", err)
		l.cfg.Observer.FenceLost()
		l.inLoop(ctx, func(l *loop) { l.refused(j.id, j.claim.Rev) })
		return j, true
	}
	l.cfg.Log.Error("loading a shard failed; it is tried again", "shard", j.id, "error", err)
	return j, false
}

// countLoaded gives back memory after every so many jobs: their rows took more than what is
// left of them, which would double what the node takes, and stay for minutes.
func (l *loop) countLoaded(jobs int) {
	after := l.loaded.Add(int64(jobs))
	if after/manyJobs > (after-int64(jobs))/manyJobs {
		debug.FreeOSMemory()
	}
}

// tryLoad takes a shard over, if that isn't done, and loads it.
func (l *loop) tryLoad(ctx context.Context, j *loadJob, room []job.Job, handed shard.Epoch) (store.Loaded, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if j.owned.Proof.Epoch == 0 {
		if err := l.take(ctx, j, handed); err != nil {
			return store.Loaded{}, err
		}
		took, granted := j.owned.Proof, j.ctx
		l.inLoop(granted, func(l *loop) {
			if granted.Err() == nil {
				l.took(took)
			}
		})
	}
	loaded, err := l.node.store.Load(ctx, j.owned.Proof, room)
	if err == nil {
		err = core.CanRead(loaded)
	}
	if fenced := (*store.FencedError)(nil); errors.As(err, &fenced) {
		lost := j.owned.Proof
		j.owned, j.proof = store.Owned{}, shard.Proof{} // ask again whose it is
		l.inLoop(ctx, func(l *loop) { l.untake(lost) })
	}
	return loaded, err
}

// take raises the epoch of a shard: by a reload in place, or by the claim. A reload
// whose answer was lost is refused the second time; the claim then tells whether
// the shard is still this node's. Its answer may be the epoch that the loop was handed before: then
// something of that may still be under way, and it is ended, too.
func (l *loop) take(ctx context.Context, j *loadJob, handed shard.Epoch) (err error) {
	if j.proof.Epoch != 0 {
		j.owned, err = l.node.store.Reload(ctx, j.proof)
		if fenced := (*store.FencedError)(nil); !errors.As(err, &fenced) {
			return err
		}
	}
	j.owned, err = l.node.store.TakeOver(ctx, j.claim)
	if err == nil && j.owned.Proof.Epoch == handed {
		j.owned, err = l.node.store.Reload(ctx, j.owned.Proof)
	}
	return err
}
