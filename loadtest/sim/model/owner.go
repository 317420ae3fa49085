package model

import (
	"context"
	"fmt"

	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// InitShards implements store.Shards. The watermark of a new shard is now: a cluster owes
// nothing from before it was made.
func (m *Store) InitShards(ctx context.Context, count int) (int, error) {
	if count < 1 || count > shard.MaxCount {
		return 0, fmt.Errorf("model: the number of shards must be 1 to %d, is %d", shard.MaxCount, count)
	}
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	defer m.leave()
	if len(m.shards) > 0 {
		return len(m.shards), nil
	}
	for id := range shard.ID(count) {
		s := newRows(id)
		s.watermark, s.openFrom = m.now(), m.now()
		m.shards = append(m.shards, s)
	}
	return count, nil
}

// NextRevision implements store.Shards.
func (m *Store) NextRevision(ctx context.Context) (int64, error) {
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	defer m.leave()
	m.revision++
	return m.revision, nil
}

// known begins a call about a shard, which must be there.
func (m *Store) known(ctx context.Context, id shard.ID) (*rows, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	s := m.shard(id)
	if s == nil {
		m.leave()
		return nil, notFound("shard %d", id)
	}
	return s, nil
}

// TakeOver implements store.Shards.
func (m *Store) TakeOver(ctx context.Context, c store.Claim) (store.Owned, error) {
	s, err := m.known(ctx, c.Shard)
	if err != nil {
		return store.Owned{}, err
	}
	defer m.leave()
	if s.owner == c.Node && s.gen == c.Gen && s.rev == c.Rev {
		return s.owned(), nil // its reply was lost
	}
	if !c.Later(s.gen, s.rev) {
		return store.Owned{}, superseded("take over", c.Shard)
	}
	m.raiseEpoch(s, c.Node, c.Gen, c.Rev)
	return s.owned(), nil
}

// Reload implements store.Shards.
func (m *Store) Reload(ctx context.Context, p shard.Proof) (store.Owned, error) {
	s, err := m.known(ctx, p.Shard)
	if err != nil {
		return store.Owned{}, err
	}
	defer m.leave()
	if s.epoch != p.Epoch {
		return store.Owned{}, fenced(p.Shard)
	}
	m.raiseEpoch(s, s.owner, s.gen, s.rev)
	return s.owned(), nil
}

// Renew implements store.Shards.
func (m *Store) Renew(ctx context.Context, p shard.Proof, c store.Claim) error {
	s, err := m.known(ctx, p.Shard)
	if err != nil {
		return err
	}
	defer m.leave()
	if s.epoch != p.Epoch || s.owner != c.Node {
		return fenced(p.Shard)
	}
	if s.gen == c.Gen && s.rev == c.Rev {
		return nil // its reply was lost
	}
	if !c.Later(s.gen, s.rev) {
		return superseded("renew", p.Shard)
	}
	s.gen, s.rev = c.Gen, c.Rev
	return nil
}

// Owners implements store.Shards.
func (m *Store) Owners(ctx context.Context) ([]store.Owner, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.leave()
	var owners []store.Owner
	for _, s := range m.shards {
		owners = append(owners, store.Owner{Shard: s.id, Node: s.owner, Epoch: s.epoch, Gen: s.gen, Rev: s.rev, Watermark: s.watermark})
	}
	return owners, nil
}

// raiseEpoch makes a new epoch, under which whoever wrote before is fenced.
func (m *Store) raiseEpoch(s *rows, owner string, gen, rev int64) {
	s.owner, s.gen, s.rev, s.try = owner, gen, rev, 0
	s.epoch++
	s.epochs = append(s.epochs, store.TakeOver{Epoch: s.epoch, Owner: owner, Gen: gen, Rev: rev, At: m.now()})
}

func (s *rows) owned() store.Owned {
	return store.Owned{Proof: shard.Proof{Shard: s.id, Epoch: s.epoch}, Watermark: s.watermark, OpenFrom: s.openFrom, RetainedFrom: s.retainedFrom}
}

func fenced(ids ...shard.ID) error { return &store.FencedError{Shards: ids} }

func superseded(op string, id shard.ID) error {
	return fmt.Errorf("model: %s shard %d: %w", op, id, store.ErrSuperseded)
}
