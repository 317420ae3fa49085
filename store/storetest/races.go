package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// The races that a store must decide, each played many times. What a frozen or a cut
// off client does to a database is played by the adapter's own tests.
var raceTests = map[string]func(*testing.T, *world){
	// A zombie writes on while its shard is taken over: what it was told is written is
	// there when the new owner loads, and nothing comes after that.
	"a zombie owner against a take-over": func(t *testing.T, w *world) {
		for round := range 15 {
			old := w.owned[1]
			acknowledged := make(chan []job.UID, 1)
			writing := make(chan struct{})
			go func() {
				var done []job.UID
				defer func() { acknowledged <- done }()
				for n := range byte(200) {
					j := w.recurring(1, fmt.Sprintf("z-%d-%d", round, n))
					j.UID = job.UID{2, byte(round), n}
					if n == 3 {
						close(writing)
					}
					_, err := w.Commit(w.ctx, store.Batch{Now: w.at, Shards: []store.ShardBatch{{Proof: old.Proof, Creates: []store.Create{{Job: j}}}}})
					if fenced := (*store.FencedError)(nil); errors.As(err, &fenced) {
						return
					} else if err == nil {
						done = append(done, j.UID)
					}
				}
			}()
			<-writing
			w.owned[1] = w.takeOver(1, "b", 0, int64(round)+2)
			loaded := map[job.UID]bool{}
			for _, j := range w.load(1).Recurring {
				loaded[j.UID] = true
			}
			for _, uid := range <-acknowledged {
				if !loaded[uid] {
					t.Fatalf("round %d: %s was acknowledged, and not there when the new owner loaded", round, uid)
				}
			}
			if now := w.load(1).Recurring; len(now) != len(loaded) {
				t.Fatalf("round %d: %d jobs, %d when the new owner loaded", round, len(now), len(loaded))
			}
		}
	},
	// A commit whose answer was lost is sent again; then the slot goes on. What was sent first comes
	// only now, from a machine that stood still: it must not undo what was written since.
	"a commit that comes after its repeat": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		waits := w.slot(&j, w.at)
		runs := claimed(waits, w.owned[1].Proof.Epoch)
		retries := runs
		retries.State, retries.NotBefore = job.Ready, waits.CreatedAt+7
		key := func(rank job.Instant) store.BacklogKey {
			return store.BacklogKey{Waiting: true, Handler: "h", Rank: rank, Slot: waits.Key}
		}
		w.commit(1, store.ShardBatch{Slots: []job.Slot{waits}, BacklogPuts: []store.BacklogRow{{Key: key(w.at), WakeAt: w.at, ReadyAt: waits.CreatedAt, Trigger: waits.Trigger}}})
		send := func(b store.Batch, rows store.ShardBatch) error {
			rows.Proof = w.owned[1].Proof
			b.Now, b.Shards = w.at, []store.ShardBatch{rows, {Proof: w.owned[2].Proof, Watermark: w.at}}
			_, err := w.Commit(w.ctx, b)
			return err
		}
		gap := store.Gap{Key: store.GapKey{To: w.at}, From: w.at - 10, Cursor: job.SlotKey{FireTime: w.at - 10}, MadeAt: w.at}
		claim := store.ShardBatch{Updates: []store.SlotUpdate{{Slot: runs, FromState: job.Ready}}, BacklogDels: []store.BacklogKey{key(w.at)}, GapPuts: []store.Gap{gap}}
		w.ok(send(store.Batch{Try: 4, Repeat: true}, claim)) // the repeat of a first send with 3
		w.ok(send(store.Batch{Try: 4}, store.ShardBatch{
			Updates:     []store.SlotUpdate{{Slot: retries, FromState: job.Running, FromAttempt: 1}},
			BacklogPuts: []store.BacklogRow{{Key: key(w.at), WakeAt: w.at + 7, ReadyAt: retries.NotBefore, Trigger: retries.Trigger}},
			GapMoves:    []store.GapMove{{Key: gap.Key, From: gap.Cursor, Closed: true}},
		}))
		before := w.audit(1)
		fenced := (*store.FencedError)(nil)
		if err := send(store.Batch{Try: 3}, claim); !errors.As(err, &fenced) || len(fenced.Shards) != 2 {
			t.Errorf("the first send: %v, want it to be fenced in both shards", err)
		}
		if diff := cmp.Diff(before, w.audit(1)); diff != "" {
			t.Errorf("the first send changed what was written since:\n%s", diff)
		}
		w.ok(send(store.Batch{Try: 5, Repeat: true}, store.ShardBatch{}))
		// Another owner counts anew.
		w.owned[1] = w.takeOver(1, "b", 0, 7)
		w.commit(1, store.ShardBatch{Watermark: w.at + 1})
		w.owned[2] = w.reload(2)
		w.commit(2, store.ShardBatch{Watermark: w.at + 1})
	},
	// Rivals for one shard: the one with the latest claim keeps it, and each epoch was
	// given once.
	"many take-overs at once": func(t *testing.T, w *world) {
		var all sync.WaitGroup
		for rev := range int64(8) {
			all.Go(func() {
				for {
					_, err := w.TakeOver(w.ctx, store.Claim{Shard: 2, Node: fmt.Sprint("n", rev), Rev: rev + 2})
					if !errors.Is(err, store.ErrUnavailable) {
						return // it is taken, or was by a later claim
					}
				}
			})
		}
		all.Wait()
		a := w.audit(2)
		if a.Rev != 9 || a.Owner != "n7" || a.TakeOvers[len(a.TakeOvers)-1].Epoch != a.Epoch || int(a.Epoch) != len(a.TakeOvers) {
			t.Errorf("owner %s, rev %d, epoch %d; take-overs %+v", a.Owner, a.Rev, a.Epoch, a.TakeOvers)
		}
	},
	// A success and a reclaim of one attempt: exactly one is written, and the other is
	// told what stands.
	"a completion against a reclaim": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		w.duel(&j, func(s job.Slot) (success, reclaim store.SlotUpdate) {
			running := claimed(s, 1)
			w.insert(1, running)
			lost := running
			lost.State, lost.Outcome, lost.Failures = job.Ready, job.OutcomeLeaseLost, 1
			return store.SlotUpdate{Slot: finished(running, job.Succeeded), FromState: job.Running, FromAttempt: 1},
				store.SlotUpdate{Slot: lost, FromState: job.Running, FromAttempt: 1}
		})
	},
	"a double claim": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		w.duel(&j, func(s job.Slot) (one, other store.SlotUpdate) {
			w.insert(1, s)
			a, b := claimed(s, 1), claimed(s, 1)
			b.Worker = "another"
			return store.SlotUpdate{Slot: a, FromState: job.Ready}, store.SlotUpdate{Slot: b, FromState: job.Ready}
		})
	},
	// A job that is submitted by two nodes at once, and created by its owner: one of
	// them is stored.
	"one name, three callers": func(t *testing.T, w *world) {
		for round := range 10 {
			name := fmt.Sprint("n", round)
			jobs := []job.Job{w.recurring(1, name), w.recurring(1, name), w.recurring(1, name)}
			stored := make([]bool, 3)
			var all sync.WaitGroup
			for i := range 2 {
				all.Go(func() {
					_, ok, err := w.Submit(w.ctx, jobs[i:i+1])
					stored[i] = ok && err == nil
				})
			}
			all.Go(func() {
				out, err := w.Commit(w.ctx, store.Batch{Shards: []store.ShardBatch{{Proof: w.owned[1].Proof, Creates: []store.Create{{Job: jobs[2]}}}}})
				stored[2] = err == nil && len(out.Shards[0].Creates) == 0
			})
			all.Wait()
			winners := 0
			for i := range jobs {
				if got, err := w.Job(w.ctx, 1, "default", name); err != nil || stored[i] != (got.UID == jobs[i].UID) {
					t.Fatalf("round %d: caller %d was told %v, %s stands, %v", round, i, stored[i], got.UID, err)
				}
				if stored[i] {
					winners++
				}
			}
			if winners != 1 {
				t.Fatalf("round %d: %d of three were stored", round, winners)
			}
		}
	},
}

// duel commits two updates of one slot at the same time, many times: exactly one is
// written.
func (w *world) duel(j *job.Job, prepare func(job.Slot) (a, b store.SlotUpdate)) {
	w.t.Helper()
	for n := range job.Instant(25) {
		s := w.slot(j, w.at+n)
		a, b := prepare(s)
		outcomes := make([]store.ShardOutcome, 2)
		var both sync.WaitGroup
		for i, u := range []store.SlotUpdate{a, b} {
			both.Go(func() {
				for {
					out, err := w.Commit(w.ctx, store.Batch{Now: w.at, Shards: []store.ShardBatch{{Proof: w.owned[1].Proof, Updates: []store.SlotUpdate{u}}}})
					if err == nil {
						outcomes[i] = out.Shards[0]
						return
					}
					if !errors.Is(err, store.ErrUnavailable) {
						w.t.Error(err)
						return
					}
				}
			})
		}
		both.Wait()
		stands := w.read(1, s.Key)
		won := a.Slot
		if _, lost := outcomes[0].Slots[s.Key]; lost {
			won = b.Slot
		}
		if len(outcomes[0].Slots)+len(outcomes[1].Slots) != 1 || cmp.Diff(won, stands) != "" {
			w.t.Fatalf("round %d: outcomes %+v and %+v, stands %+v", n, outcomes[0].Slots, outcomes[1].Slots, stands)
		}
		for i := range outcomes {
			if told, ok := outcomes[i].Slots[s.Key]; ok && cmp.Diff(told, stands) != "" {
				w.t.Fatalf("round %d: the loser was told %+v, stands %+v", n, told, stands)
			}
		}
	}
}
