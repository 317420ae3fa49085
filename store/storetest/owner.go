package storetest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

var ownershipTests = map[string]func(*testing.T, *world){
	"the first number of shards stays": func(t *testing.T, w *world) {
		if n, err := w.InitShards(w.ctx, shards*2); err != nil || n != shards {
			t.Fatalf("InitShards = %d, %v; want %d", n, err, shards)
		}
	},
	"revisions grow": func(t *testing.T, w *world) {
		last := int64(0)
		for range 3 {
			rev, err := w.NextRevision(w.ctx)
			w.ok(err)
			if rev <= last {
				t.Fatalf("revision %d after %d", rev, last)
			}
			last = rev
		}
	},
	"a later claim raises the epoch": func(t *testing.T, w *world) {
		o := w.takeOver(0, "b", 0, 2)
		if o.Proof.Epoch <= w.owned[0].Proof.Epoch {
			t.Fatalf("epoch %d after %d", o.Proof.Epoch, w.owned[0].Proof.Epoch)
		}
	},
	"an older or equal claim is refused": func(t *testing.T, w *world) {
		w.takeOver(0, "b", 1, 5)
		for _, c := range []store.Claim{{Node: "a", Gen: 1, Rev: 4}, {Node: "a", Gen: 1, Rev: 5}, {Node: "a", Gen: 0, Rev: 9}, {Node: "b", Gen: 1, Rev: 4}} {
			if _, err := w.TakeOver(w.ctx, c); !errors.Is(err, store.ErrSuperseded) {
				t.Errorf("claim %+v: %v, want ErrSuperseded", c, err)
			}
		}
	},
	"a higher generation wins over a higher revision": func(t *testing.T, w *world) {
		w.takeOver(0, "b", 1, 900)
		w.takeOver(0, "c", 2, 1)
	},
	"a repeated claim answers the same epoch": func(t *testing.T, w *world) {
		first, again := w.takeOver(0, "b", 0, 2), w.takeOver(0, "b", 0, 2)
		if first != again {
			t.Fatalf("first %+v, then %+v", first, again)
		}
	},
	"a reload fences the epoch before it": func(t *testing.T, w *world) {
		old := w.owned[1]
		now, err := w.Reload(w.ctx, old.Proof)
		w.ok(err)
		if now.Proof.Epoch <= old.Proof.Epoch {
			t.Fatalf("epoch %d after %d", now.Proof.Epoch, old.Proof.Epoch)
		}
		wantFenced(t, w.tryCommit(store.ShardBatch{Proof: old.Proof, Watermark: w.at}), 1)
		_, err = w.Reload(w.ctx, old.Proof)
		wantFenced(t, err, 1)
	},
	"a renewed claim keeps the epoch": func(t *testing.T, w *world) {
		w.owned[1] = w.takeOver(1, "b", 1, 5)
		p := w.owned[1].Proof
		later := store.Claim{Shard: 1, Node: "b", Gen: 1, Rev: 9}
		w.ok(w.Renew(w.ctx, p, later))
		w.ok(w.Renew(w.ctx, p, later)) // its reply was lost
		w.commit(1, store.ShardBatch{Watermark: w.at})
		if a := w.audit(1); a.Epoch != p.Epoch || a.Owner != "b" || a.Gen != 1 || a.Rev != 9 {
			t.Errorf("after a renewal: epoch %d of %s under (%d, %d); want %d of b under (1, 9)", a.Epoch, a.Owner, a.Gen, a.Rev, p.Epoch)
		}
		if _, err := w.TakeOver(w.ctx, store.Claim{Shard: 1, Node: "c", Gen: 1, Rev: 9}); !errors.Is(err, store.ErrSuperseded) {
			t.Errorf("a claim that is no later than the renewed one: %v, want ErrSuperseded", err)
		}
		for _, c := range []store.Claim{{Shard: 1, Node: "b", Gen: 1, Rev: 8}, {Shard: 1, Node: "b", Gen: 0, Rev: 99}} {
			if err := w.Renew(w.ctx, p, c); !errors.Is(err, store.ErrSuperseded) {
				t.Errorf("renewal by %+v: %v, want ErrSuperseded", c, err)
			}
		}
		wantFenced(t, w.Renew(w.ctx, p, store.Claim{Shard: 1, Node: "c", Gen: 1, Rev: 10}), 1)
		w.takeOver(1, "c", 1, 10)
		wantFenced(t, w.Renew(w.ctx, p, store.Claim{Shard: 1, Node: "b", Gen: 1, Rev: 11}), 1)
	},
	"an owner gives a shard up with its last batch": func(t *testing.T, w *world) {
		w.owned[1], w.owned[2] = w.takeOver(1, "b", 1, 5), w.takeOver(2, "b", 1, 6)
		j := w.recurring(1, "j")
		last := store.ShardBatch{Proof: w.owned[1].Proof, Watermark: w.at, Creates: []store.Create{{Job: j}},
			Events: []store.Event{{Seq: 1, At: w.at, Kind: store.EventDeadLetter}}, GiveUp: true}
		_, err := w.Commit(w.ctx, store.Batch{Now: w.at, Shards: []store.ShardBatch{last, {Proof: w.owned[2].Proof, Watermark: w.at}}})
		w.ok(err)
		a := w.audit(1)
		if a.Owner != "" || a.Epoch != w.owned[1].Proof.Epoch+1 || a.Gen != 1 || a.Rev != 5 || a.Watermark != w.at || len(a.Jobs) != 1 {
			t.Errorf("given up: %+v", a)
		}
		if n := len(a.TakeOvers); n == 0 || a.TakeOvers[n-1].Epoch != a.Epoch || a.TakeOvers[n-1].Owner != "" {
			t.Errorf("the audit of epochs ends with %+v, want the epoch %d of nobody", a.TakeOvers, a.Epoch)
		}
		if b := w.audit(2); b.Owner != "b" || b.Epoch != w.owned[2].Proof.Epoch {
			t.Errorf("the other shard of the batch: %s, epoch %d", b.Owner, b.Epoch)
		}
		wantFenced(t, w.tryCommit(last), 1)
		if _, err := w.TakeOver(w.ctx, store.Claim{Shard: 1, Node: "b", Gen: 1, Rev: 5}); !errors.Is(err, store.ErrSuperseded) {
			t.Errorf("the old claim after the end: %v, want ErrSuperseded", err)
		}
		if o := w.takeOver(1, "c", 1, 7); o.Proof.Epoch != a.Epoch+1 || o.Watermark != w.at {
			t.Errorf("the next owner has %+v", o)
		}
	},
	"the owners of all shards": func(t *testing.T, w *world) {
		w.owned[1] = w.takeOver(1, "b", 2, 7)
		w.commit(1, store.ShardBatch{Watermark: w.at})
		w.commit(2, store.ShardBatch{Watermark: w.at, GiveUp: true})
		owners, err := w.Owners(w.ctx)
		w.ok(err)
		if len(owners) != shards {
			t.Fatalf("%d owners, want %d", len(owners), shards)
		}
		for i, want := range []store.Owner{
			{Shard: 0, Node: "a", Epoch: w.owned[0].Proof.Epoch, Rev: 1, Watermark: w.owned[0].Watermark},
			{Shard: 1, Node: "b", Epoch: w.owned[1].Proof.Epoch, Gen: 2, Rev: 7, Watermark: w.at},
			{Shard: 2, Epoch: w.owned[2].Proof.Epoch + 1, Rev: 1, Watermark: w.at},
		} {
			if owners[i] != want {
				t.Errorf("owner %d: %+v, want %+v", i, owners[i], want)
			}
		}
	},
	"a cluster has one id": func(t *testing.T, w *world) {
		first, err := w.ClusterID(w.ctx)
		w.ok(err)
		again, err := w.ClusterID(w.ctx)
		w.ok(err)
		if first == "" || first != again {
			t.Errorf("the cluster's id is %q, then %q", first, again)
		}
	},
	"a shard that isn't there": func(t *testing.T, w *world) {
		if _, err := w.TakeOver(w.ctx, store.Claim{Shard: shards, Node: "a", Rev: 9}); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("TakeOver = %v, want ErrNotFound", err)
		}
	},
	"every kind of row is fenced": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := w.slot(&j, w.at)
		w.insert(1, s)
		stale := w.owned[1].Proof
		w.owned[1] = w.takeOver(1, "b", 0, 2)
		before := w.audit(1)
		for name, rows := range everyKind(w, &j, s) {
			rows.Proof = stale
			wantFenced(t, w.tryCommit(rows), 1)
			if diff := cmp.Diff(before, w.audit(1)); diff != "" {
				t.Errorf("%s was written under a stale epoch: %s", name, diff)
			}
		}
	},
	"one stale shard stops the whole batch, and is named": func(t *testing.T, w *world) {
		w.takeOver(2, "b", 0, 2)
		j := w.recurring(1, "j")
		_, err := w.Commit(w.ctx, store.Batch{Now: w.at, Shards: []store.ShardBatch{
			{Proof: w.owned[1].Proof, Creates: []store.Create{{Job: j}}},
			{Proof: w.owned[2].Proof, Watermark: w.at},
			{Proof: shard.Proof{Shard: 3, Epoch: 99}, Watermark: w.at},
		}})
		wantFenced(t, err, 2, 3)
		if _, err := w.Job(w.ctx, 1, "default", "j"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the job of the good shard was written: %v", err)
		}
	},
	"every read for an owner is fenced": func(t *testing.T, w *world) {
		stale := w.owned[0].Proof
		w.takeOver(0, "b", 0, 2)
		_, err := w.Load(w.ctx, stale, nil)
		wantFenced(t, err, 0)
		_, err = w.OnceJobs(w.ctx, stale, job.SlotKey{}, w.at, 1)
		wantFenced(t, err, 0)
		_, err = w.Waiting(w.ctx, stale, store.BacklogQuery{Limit: 1})
		wantFenced(t, err, 0)
		_, err = w.Drain(w.ctx, stale, 1)
		wantFenced(t, err, 0)
		_, err = w.SlotOf(w.ctx, stale, job.SlotKey{})
		wantFenced(t, err, 0)
		_, err = w.OldSlots(w.ctx, stale, store.PruneQuery{Until: w.at, Limit: 1})
		wantFenced(t, err, 0)
		_, err = w.EndedJobs(w.ctx, stale, store.EndedQuery{Before: w.at, Limit: 1})
		wantFenced(t, err, 0)
		_, err = w.Oldest(w.ctx, stale, store.Old{})
		wantFenced(t, err, 0)
		_, err = w.DoneJobs(w.ctx, stale, store.EndedQuery{Before: w.at, Limit: 1})
		wantFenced(t, err, 0)
	},
	"the watermark never falls": func(t *testing.T, w *world) {
		w.commit(0, store.ShardBatch{Watermark: w.at, OpenFrom: w.at - 10})
		w.commit(0, store.ShardBatch{Watermark: w.at - 5, OpenFrom: w.at - 20})
		o := w.takeOver(0, "b", 0, 2)
		if o.Watermark != w.at || o.OpenFrom != w.at-10 {
			t.Fatalf("watermark %d, open from %d; want %d and %d", o.Watermark, o.OpenFrom, w.at, w.at-10)
		}
	},
}

func (w *world) tryCommit(rows store.ShardBatch) error {
	_, err := w.Commit(w.ctx, store.Batch{Now: w.at, Shards: []store.ShardBatch{rows}})
	return err
}

func wantFenced(t *testing.T, err error, ids ...shard.ID) {
	t.Helper()
	var fenced *store.FencedError
	if !errors.As(err, &fenced) {
		t.Fatalf("error %v, want a FencedError", err)
	}
	if len(fenced.Shards) != len(ids) {
		t.Fatalf("fenced %v, want %v", fenced.Shards, ids)
	}
	for i := range ids {
		if fenced.Shards[i] != ids[i] {
			t.Fatalf("fenced %v, want %v", fenced.Shards, ids)
		}
	}
}

// everyKind returns a batch for each kind of row.
func everyKind(w *world, j *job.Job, s job.Slot) map[string]store.ShardBatch {
	other := w.recurring(1, "other")
	late := w.slot(j, w.at+job.Second)
	backlog := store.BacklogRow{Key: store.BacklogKey{Waiting: true, Handler: "h", Rank: w.at, Slot: s.Key}, ReadyAt: w.at, WakeAt: w.at}
	return map[string]store.ShardBatch{
		"create":     {Creates: []store.Create{{Job: other}}},
		"end":        {Ends: []store.JobEnd{{UID: j.UID, EndedAt: w.at}}},
		"quarantine": {Quarantines: []store.JobQuarantine{{UID: j.UID, Reason: "r"}}},
		"request":    {Requests: []store.Request{{Namespace: "default", RequestID: "r", Key: s.Key}}},
		"slot":       {Slots: []job.Slot{late}},
		"update":     {Updates: []store.SlotUpdate{{Slot: claimed(s, 1), FromState: job.Ready}}},
		"attempt":    {Attempts: []store.SlotAttempt{{Key: s.Key, Attempt: job.Attempt{Number: 1}}}},
		"late":       {Lates: []store.LateResult{{Key: s.Key, Attempt: 1, Text: "late"}}},
		"backlog":    {BacklogPuts: []store.BacklogRow{backlog}},
		"dead":       {DeadPuts: []store.DeadLetter{{Key: s.Key, Handler: "h", At: w.at}}},
		"gap":        {GapPuts: []store.Gap{{Key: store.GapKey{To: w.at}}}},
		"inbox":      {InboxDels: []job.UID{j.UID}},
		"event":      {Events: []store.Event{{Seq: 1, At: w.at, Kind: store.EventDeadLetter}}},
		"watermark":  {Watermark: w.at},
		"open from":  {OpenFrom: w.at + 1},
		"retention":  {RetainedFrom: w.at},
		"move":       {GapMoves: []store.GapMove{{Key: store.GapKey{To: w.at}, Closed: true}}},
		"undead":     {DeadDels: []job.SlotKey{s.Key}},
		"unlist":     {BacklogDels: []store.BacklogKey{backlog.Key}},
		"prune":      {SlotPrunes: []store.SlotPrune{{Key: s.Key, State: s.State}}},
		"prune job":  {JobPrunes: []job.UID{j.UID}},
		"give up":    {GiveUp: true},
		"old":        {Old: store.Old{EventsBefore: w.at, RequestsBefore: w.at, SkipsBefore: w.at}},
	}
}
