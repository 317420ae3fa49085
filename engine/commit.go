package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// group is one group commit: the batches of several shards.
type group struct {
	members []*member
	at      job.Instant
	began   time.Time
	lost    []*member // fenced while it was committed
}

// member is a shard's part of a group.
type member struct {
	shard   *core.Shard
	rows    store.ShardBatch
	outcome store.ShardOutcome
	refused map[job.UID]error
}

// startGroup forms the next group commit, unless one is under way: a commit at
// once when nothing is in flight, else everything that came up meanwhile.
func (l *loop) startGroup() {
	if l.inflight != nil {
		return
	}
	g := &group{at: l.now, began: time.Now()}
	room := store.MaxBatchRows
	var faulty []*core.Shard
	for i := range l.order {
		// Begin where the last group ended, lest a busy shard take all the room.
		s := l.shards[l.order[(i+l.turn)%len(l.order)]]
		if room <= 0 {
			break
		}
		if b := s.Ready(l.now, room); b != nil {
			room -= b.Rows.Rows()
			g.members = append(g.members, &member{shard: s, rows: b.Rows})
		} else if s.Fault() != nil {
			faulty = append(faulty, s)
		}
	}
	for _, s := range faulty {
		l.dropFaulty(s)
	}
	if len(g.members) == 0 {
		return
	}
	g.prune(min(room, pruneRoom))
	l.turn = (l.turn + 1) % len(l.order)
	l.inflight = g
	l.commits <- g
}

// pruneRoom bounds what one group commit deletes because it is old.
const pruneRoom = 500

// prune lets the group delete what is old, in the room that live work left. It makes no
// group for that alone.
func (g *group) prune(room int) {
	for _, m := range g.members {
		if room <= 0 {
			return
		}
		room -= m.shard.Prune(&m.rows, room)
	}
}

// finishGroup tells the shards what became of a group.
func (l *loop) finishGroup(g *group) {
	l.inflight = nil
	for _, m := range g.lost {
		id := m.rows.Proof.Shard
		if l.shards[id] != m.shard {
			continue // it was loaded anew meanwhile, which is what fenced the old one
		}
		if m.rows.GiveUp { // its answer was lost, and the repeat refused by what it did itself
			l.release(id, l.leaving[id])
		} else {
			l.lose(id)
		}
	}
	for _, m := range g.members {
		if l.shards[m.shard.Proof().Shard] == m.shard {
			if !m.shard.Live() && !m.rows.GiveUp {
				l.workers.OfferAll() // it becomes live now, and may have what workers wait for
			}
			l.step(m.shard, core.Committed{Outcome: m.outcome, Refused: m.refused})
			if m.shard.Left() {
				id := m.shard.Proof().Shard
				l.release(id, l.leaving[id])
			}
		}
	}
}

// commitAll is the committer: one group at a time.
func (l *loop) commitAll(ctx context.Context) error {
	for {
		select {
		case g := <-l.commits:
			if err := l.commit(ctx, g); err != nil {
				return err
			}
			l.committed <- g // has room for the one group under way
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Back-off of a commit that failed.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// commit writes a group, again and again until it is known what became of it:
// while the database can't be reached there is nothing better to do, and nothing
// is acknowledged. It returns an error only if ctx ends.
func (l *loop) commit(ctx context.Context, g *group) error {
	backoff, repeat := minBackoff, false
	for len(g.members) > 0 {
		began := time.Now()
		statements, err := l.tryCommit(ctx, g, repeat)
		if err == nil {
			l.node.degraded.Store(false)
			l.proof.committed(began, time.Since(began))
			l.cfg.Observer.Committed(g.rows(), statements, time.Since(began))
			return nil
		}
		if g.without(err) {
			continue
		}
		l.node.degraded.Store(true)
		l.cfg.Observer.CommitFailed()
		l.cfg.Log.Error("commit failed; it is tried again", "error", err, "rows", g.rows(), "backoff_seconds", backoff.Seconds())
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return ctx.Err()
		}
		backoff, repeat = min(backoff*2, maxBackoff), true
		l.tries++ // what was sent before must not be written after this
	}
	return nil
}

// tryCommit writes a group once, and returns how many statements that took.
func (l *loop) tryCommit(ctx context.Context, g *group, repeat bool) (statements int, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CommitTimeout)
	defer cancel()
	batch := store.Batch{Now: g.at, Try: l.tries, Repeat: repeat}
	order := g.ascending()
	for _, m := range order {
		batch.Shards = append(batch.Shards, m.rows)
	}
	outcome, err := l.node.store.Commit(ctx, batch)
	if err != nil {
		return 0, err
	}
	for i, m := range order {
		m.outcome = outcome.Shards[i]
	}
	return outcome.Statements, nil
}

// ascending returns the members in the order in which their shards are locked.
func (g *group) ascending() []*member {
	return slices.SortedFunc(slices.Values(g.members), func(a, b *member) int {
		return cmp.Compare(a.rows.Proof.Shard, b.rows.Proof.Shard)
	})
}

func (g *group) rows() int {
	n := 0
	for _, m := range g.members {
		n += m.rows.Rows()
	}
	return n
}

// without takes out what an error says can't be written, and reports whether
// there is something to be tried again at once.
func (g *group) without(err error) bool {
	var fenced *store.FencedError
	var refused *store.RefusedError
	switch {
	case errors.As(err, &fenced):
		g.dropShards(fenced.Shards)
		return true
	case errors.As(err, &refused):
		for _, m := range g.members {
			if m.rows.Proof.Shard == refused.Shard {
				return m.without(refused)
			}
		}
	}
	return false
}

// without takes a job's rows out. If they are refused again, it is an event that
// can't be stored: events are for people, and worth less than the rest.
func (m *member) without(refused *store.RefusedError) bool {
	if _, again := m.refused[refused.UID]; again {
		had := len(m.rows.Events)
		m.rows.Events = nil
		return had > 0
	}
	if m.refused == nil {
		m.refused = map[job.UID]error{}
	}
	m.refused[refused.UID] = refused
	m.rows = m.rows.Without(refused.UID)
	// In the same batch, or a crash after it would leave a job that lives and lacks the
	// slots that were taken out.
	reason := job.CleanText([]byte("the database refused its rows: "+refused.Error()), job.MaxErrorBytes)
	m.rows.Quarantines = append(m.rows.Quarantines, store.JobQuarantine{UID: refused.UID, Reason: reason})
	return true
}

func (g *group) dropShards(ids []shard.ID) {
	g.members = slices.DeleteFunc(g.members, func(m *member) bool {
		lost := slices.Contains(ids, m.rows.Proof.Shard)
		if lost {
			g.lost = append(g.lost, m)
		}
		return lost
	})
}
