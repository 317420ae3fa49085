package engine

import (
	"io"
	"log/slog"
	"testing"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// A shard that was loaded anew while its old batch was under way fences that batch.
// It is the old one that is lost.
func TestAFencedBatchDropsOnlyItsOwnShard(t *testing.T) {
	cfg := DefaultConfig("n", 4)
	cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	l := newLoop(New(cfg, nil, nil))
	l.now = now()
	load := func(e shard.Epoch) *core.Shard {
		s := core.New(cfg.Core, store.Owned{Proof: shard.Proof{Shard: 1, Epoch: e}, Watermark: l.now}, store.Loaded{}, l.workers, l.now)
		l.add(s)
		return s
	}
	load(1)
	l.startGroup()
	g := <-l.commits
	l.drop(1) // it made a false step
	fresh := load(2)
	if !g.without(&store.FencedError{Shards: []shard.ID{1}}) {
		t.Fatal("a fenced batch is repeated as it is")
	}
	l.finishGroup(g)
	if l.shards[1] != fresh {
		t.Error("the shard of the new epoch was dropped")
	}
}
