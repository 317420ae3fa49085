package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/storefault"
)

// hoard is a store that never runs out of what is old. Finding it takes long.
type hoard struct {
	store.Store
	mu       sync.Mutex
	deleted  int
	worst    time.Duration // from a slot's fire time to its commit
	inboxes  []time.Time   // when they were looked at
	slowness time.Duration
}

func (h *hoard) find(ctx context.Context) {
	select {
	case <-time.After(h.slowness):
	case <-ctx.Done():
	}
}

func (h *hoard) Oldest(ctx context.Context, p shard.Proof, q store.Old) (store.Old, error) {
	h.find(ctx)
	return store.Old{EventsFrom: 1, RequestsFrom: 1}, nil
}

func (h *hoard) OldSlots(ctx context.Context, p shard.Proof, q store.PruneQuery) ([]store.PruneSlot, error) {
	h.find(ctx)
	slots := make([]store.PruneSlot, q.Limit)
	for i := range slots {
		slots[i].Key, slots[i].State = job.SlotKey{FireTime: q.After.FireTime + job.Instant(i) + 1}, job.Succeeded
	}
	return slots, nil
}

func (h *hoard) InboxShards(ctx context.Context) ([]shard.ID, error) {
	h.mu.Lock()
	h.inboxes = append(h.inboxes, time.Now())
	h.mu.Unlock()
	return h.Store.InboxShards(ctx)
}

func (h *hoard) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	time.Sleep(50 * time.Millisecond)
	h.mu.Lock()
	for i := range b.Shards {
		s := &b.Shards[i]
		h.deleted += len(s.SlotPrunes)
		s.SlotPrunes, s.Old = nil, store.Old{}
		for _, slot := range s.Slots {
			h.worst = max(h.worst, job.At(time.Now()).Sub(slot.Key.FireTime))
		}
	}
	h.mu.Unlock()
	return h.Store.Commit(ctx, b)
}

// Deleting what is old delays nothing: not the slots of any shard, not the reads that
// live work waits for, and not the end of the node.
func TestDeletingWhatIsOldDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		for i := range 12 {
			r.create(r.job(string(rune('a'+i)), cron("* * * * * *")))
		}
		r.stop()
		h := &hoard{slowness: 3 * time.Second}
		r.wrap = func(st store.Store) store.Store { h.Store = st; return h }
		r.start()
		time.Sleep(3 * time.Minute) // until all shards delete
		h.mu.Lock()
		h.worst, h.deleted, h.inboxes = 0, 0, nil
		h.mu.Unlock()
		time.Sleep(time.Minute)
		h.mu.Lock()
		for i := range h.inboxes[1:] {
			if d := h.inboxes[i+1].Sub(h.inboxes[i]); d > 2*time.Second {
				t.Errorf("the inboxes were not looked at for %s", d)
			}
		}
		if h.deleted == 0 || h.worst > 200*time.Millisecond {
			t.Errorf("%d slots were deleted, the latest commit of a slot was %s after its fire time", h.deleted, h.worst)
		}
		h.mu.Unlock()
		began := time.Now()
		r.stop()
		if d := time.Since(began); d > time.Second {
			t.Errorf("the idle node took %s to end", d)
		}
	})
}

// A full page of a deleted job's waiting slots is read again once it is written, not
// in a circle meanwhile.
func TestADeletedJobOfManyWaitingSlotsIsNotReadInACircle(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.stop()
		r.set = func(c *core.Config) { c.ReadyLimit, c.PageLimit = 4, 10 }
		r.start()
		j := r.create(r.job("j", cron("* * * * * *")))
		time.Sleep(60 * time.Second)       // nobody serves it: its slots wait in the backlog
		time.Sleep(100 * time.Millisecond) // no shard's watermark is due
		r.stall((j.Shard + 1) % shards)    // the commit of another shard
		r.refuse(40)
		before := r.db.Calls(storefault.Read)
		go func() { _, _ = r.node.Delete(t.Context(), j) }() // it is answered after the commit
		time.Sleep(30 * time.Second)
		if n := r.db.Calls(storefault.Read) - before; n > 150 {
			t.Errorf("%d reads in 30 seconds", n)
		}
		time.Sleep(30 * time.Second)
		for at, s := range r.slots(j.UID) {
			if s.State != job.Cancelled {
				t.Errorf("the slot at %s is %v", at, s.State)
			}
		}
	})
}
