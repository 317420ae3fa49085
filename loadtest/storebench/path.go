package main

import (
	"cmp"
	"context"
	"crypto/md5"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// The load: 100,000 jobs, each of which fires every 40 s, so that 2,500 fire in a second.
const (
	jobs    = 100_000
	period  = 40
	aSecond = jobs / period
	begin   = job.Instant(1_700_000_000_000_000) // the first fire time
	maxSize = aSecond
)

// uidOf is the identity of a job; as with real ones, its shard follows no order.
func uidOf(n int) job.UID { return job.UID(md5.Sum([]byte(strconv.Itoa(n)))) }

func shardOf(n int) shard.ID { return shard.ID(n % shard.DefaultCount) }

// span is how many seconds of history are in the table.
type span struct{ seconds int }

// backend is a database that can be filled and changed.
type backend interface {
	// open opens the store on it.
	open(ctx context.Context) (store.Store, error)
	// fill makes finished slots, by SQL.
	fill(ctx context.Context, slots int) (span, error)
	// empty are the statements that leave nothing of the table's rows.
	empty() []string
	variants() []variant
	// apply runs statements that change the table; no store is open meanwhile.
	apply(ctx context.Context, statements []string) error
	used(ctx context.Context) (usage, error)
	bytesPerSlot(ctx context.Context) (table, key float64, err error)
	close() error
}

// variant is a table as it could be, or a way to use it.
type variant struct {
	name         string
	make, unmake []string
	commits      commits
}

// commits is how a batch is committed.
type commits int

const (
	merged     commits = iota // all shards in one transaction
	eachShard                 // a transaction for each, one after the other
	concurrent                // a transaction for each, four at a time
)

// usage is what the database used so far.
type usage struct {
	cpu          time.Duration
	written      int64 // bytes of WAL, or written by the process
	updates, hot int64
}

// result is one measurement.
type result struct {
	perSecond float64
	cpu       float64 // milliseconds per 1,000 executions
	written   float64 // bytes for each
	hot       float64 // share of updates
}

// path makes executions.
type path struct {
	db      store.Store
	v       variant
	proofs  map[shard.ID]shard.Proof
	history *span
	place   int      // in the second
	last    []placed // claimed by the step before
	done    int
}

// placed is a slot with its shard.
type placed struct {
	shard shard.ID
	job.Slot
}

// measure makes executions for a time.
func measure(ctx context.Context, b backend, v variant, size int, d time.Duration, history *span) (r result, err error) {
	db, err := b.open(ctx)
	if err != nil {
		return r, err
	}
	p := path{db: db, v: v, proofs: map[shard.ID]shard.Proof{}, history: history}
	if err := p.takeOver(ctx); err != nil {
		return r, cmp.Or(err, db.Close())
	}
	before, err := b.used(ctx)
	if err != nil {
		return r, cmp.Or(err, db.Close())
	}
	began := time.Now()
	for time.Since(began) < d && err == nil {
		err = p.step(ctx, size)
	}
	took := time.Since(began)
	if err != nil {
		return r, cmp.Or(err, db.Close())
	}
	p.history.seconds++       // the next one begins with a new second
	after, err := b.used(ctx) // while its sessions are there: what they used is known for sure
	if err := cmp.Or(err, db.Close()); err != nil {
		return r, err
	}
	n := float64(p.done)
	r = result{perSecond: n / took.Seconds(), cpu: (after.cpu - before.cpu).Seconds() * 1e6 / n, written: float64(after.written-before.written) / n,
		hot: float64(after.hot-before.hot) / max(1, float64(after.updates-before.updates))}
	return r, nil
}

func (p *path) takeOver(ctx context.Context) error {
	if _, err := p.db.InitShards(ctx, shard.DefaultCount); err != nil {
		return err
	}
	rev, err := p.db.NextRevision(ctx)
	if err != nil {
		return err
	}
	for id := range shard.ID(shard.DefaultCount) {
		owned, err := p.db.TakeOver(ctx, store.Claim{Shard: id, Node: "bench", Rev: rev})
		if err != nil {
			return err
		}
		p.proofs[id] = owned.Proof
	}
	return nil
}

// step claims new slots and finishes those of the step before, as the node does.
func (p *path) step(ctx context.Context, size int) error {
	parts := map[shard.ID]*store.ShardBatch{}
	part := func(id shard.ID) *store.ShardBatch {
		if parts[id] == nil {
			parts[id] = &store.ShardBatch{Proof: p.proofs[id]}
		}
		return parts[id]
	}
	finished := p.last
	for _, f := range finished {
		s := f.Slot
		s.State, s.StartedAt, s.FinishedAt, s.Outcome = job.Succeeded, s.ClaimedAt+3000, s.ClaimedAt+5000, job.OutcomeSucceeded
		batch := part(f.shard)
		batch.Updates = append(batch.Updates, store.SlotUpdate{Slot: s, FromState: f.State, FromAttempt: f.Attempt})
	}
	p.last = nil
	for range size {
		number := p.history.seconds%period*aSecond + p.place
		if p.place++; p.place == aSecond {
			p.place = 0
			p.history.seconds++
		}
		s := placed{shardOf(number), p.claimed(number)}
		batch := part(s.shard)
		batch.Slots = append(batch.Slots, s.Slot)
		p.last = append(p.last, s)
	}
	if err := p.commit(ctx, parts); err != nil {
		return err
	}
	p.done += len(finished)
	return nil
}

// claimed is the slot of a job in the current second.
func (p *path) claimed(number int) job.Slot {
	at := begin.Add(time.Duration(p.history.seconds) * time.Second)
	return job.Slot{Key: job.SlotKey{FireTime: at, UID: uidOf(number)}, Trigger: job.TriggerSchedule, State: job.Running, Attempt: 1, Epoch: p.proofs[shardOf(number)].Epoch,
		Worker: "worker-1", Incarnation: "0123456789abcdef", CreatedAt: at, ClaimedAt: at, Deadline: at.Add(10 * time.Minute)}
}

func (p *path) commit(ctx context.Context, parts map[shard.ID]*store.ShardBatch) error {
	var all store.Batch
	for _, part := range parts {
		all.Shards = append(all.Shards, *part)
	}
	slices.SortFunc(all.Shards, func(a, b store.ShardBatch) int { return cmp.Compare(a.Proof.Shard, b.Proof.Shard) })
	if p.v.commits == merged {
		return p.send(ctx, all)
	}
	var group errgroup.Group
	group.SetLimit(map[commits]int{eachShard: 1, concurrent: 4}[p.v.commits])
	for _, part := range all.Shards {
		group.Go(func() error { return p.send(ctx, store.Batch{Shards: []store.ShardBatch{part}}) })
	}
	return group.Wait()
}

// send commits a batch, every row of which has to be written.
func (p *path) send(ctx context.Context, b store.Batch) error {
	out, err := p.db.Commit(ctx, b)
	if err != nil {
		return err
	}
	for i := range out.Shards {
		if n := len(out.Shards[i].Slots); n > 0 {
			return fmt.Errorf("%d slots were not written", n)
		}
	}
	return nil
}

// row is a line of the table: the medians, and the slowest and the fastest run.
func row(name string, size int, all []result, table, key float64) string {
	middle := func(of func(result) float64) float64 {
		values := make([]float64, len(all))
		for i, r := range all {
			values[i] = of(r)
		}
		slices.Sort(values)
		return values[(len(values)-1)/2]
	}
	speed := func(r result) float64 { return r.perSecond }
	least := slices.MinFunc(all, func(a, b result) int { return cmp.Compare(a.perSecond, b.perSecond) })
	most := slices.MaxFunc(all, func(a, b result) int { return cmp.Compare(a.perSecond, b.perSecond) })
	return fmt.Sprintf("| %s | %d | %.0f | %.0f–%.0f | %.1f | %.0f | %.0f %% | %.0f, %.0f |", name, size, middle(speed), least.perSecond, most.perSecond,
		middle(func(r result) float64 { return r.cpu }), middle(func(r result) float64 { return r.written }), 100*middle(func(r result) float64 { return r.hot }), table, key)
}
