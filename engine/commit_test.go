package engine

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// A shard that was loaded anew while its old batch was under way fences that batch.
// It is the old one that is lost.
func TestAFencedBatchDropsOnlyItsOwnShard(t *testing.T) {
	cfg := DefaultConfig("n", 4)
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	l := newLoop(New(cfg, nil, nil))
	l.now = l.time()
	load := func(e shard.Epoch) *core.Shard {
		s := core.New(cfg.Core, store.Owned{Proof: shard.Proof{Shard: 1, Epoch: e}, Watermark: l.now}, store.Loaded{}, l.workers, l.now)
		l.add(s)
		return s
	}
	load(1)
	l.startGroup()
	g := <-l.commits
	l.drop(1, errReload) // it made a false step
	fresh := load(2)
	if !g.without(&store.FencedError{Shards: []shard.ID{1}}) {
		t.Fatal("a fenced batch is repeated as it is")
	}
	l.finishGroup(g)
	if l.shards[1] != fresh {
		t.Error("the shard of the new epoch was dropped")
	}
}

// A shard that made a false step takes part in no batch, and is loaded anew; the others go on.
func TestAFaultyShardIsLeftOutOfTheBatch(t *testing.T) {
	cfg := DefaultConfig("n", 4)
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	l := newLoop(New(cfg, nil, nil))
	l.now = l.time()
	for _, id := range []shard.ID{1, 2} {
		l.add(core.New(cfg.Core, store.Owned{Proof: shard.Proof{Shard: id, Epoch: 1}, Watermark: l.now}, store.Loaded{}, l.workers, l.now))
	}
	faulty := l.shards[1]
	faulty.Ready(l.now, store.MaxBatchRows)
	faulty.Step(l.now, core.Committed{Outcome: store.ShardOutcome{Gaps: []store.GapKey{{}}}})
	if faulty.Fault() == nil {
		t.Fatal("there is no fault")
	}
	l.startGroup()
	if g := <-l.commits; len(g.members) != 1 || g.members[0].shard != l.shards[2] {
		t.Errorf("%d shards take part", len(g.members))
	}
	if l.shards[1] != nil || len(l.reloads) != 1 || l.reloads[1] != faulty.Proof() {
		t.Errorf("the shard is kept; loaded anew are %+v", l.reloads)
	}
}

// A job whose rows are refused is set aside by the batch that leaves them out: after a
// crash nobody would know that its slots are missing.
func TestARefusedJobIsSetAsideByTheSameBatch(t *testing.T) {
	uid := job.UID{1}
	m := &member{rows: store.ShardBatch{Watermark: 7, Slots: []job.Slot{{Key: job.SlotKey{FireTime: 5, UID: uid}}, {Key: job.SlotKey{FireTime: 5, UID: job.UID{2}}}}}}
	if !m.without(&store.RefusedError{UID: uid, Err: errors.New("too large")}) {
		t.Fatal("nothing is left to be tried")
	}
	if len(m.rows.Slots) != 1 || len(m.rows.Quarantines) != 1 || m.rows.Quarantines[0].UID != uid || !strings.Contains(m.rows.Quarantines[0].Reason, "too large") {
		t.Errorf("the batch is %+v", m.rows)
	}
}
