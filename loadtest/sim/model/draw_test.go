package model_test

import (
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// batch draws a batch of all kinds of rows.
func (p *pair) batch() store.Batch {
	b := store.Batch{Now: p.now}
	for id := range shard.ID(pairShards) {
		if p.one(2) {
			b.Shards = append(b.Shards, p.shardBatch(id))
		}
	}
	return b
}

func (p *pair) shardBatch(id shard.ID) store.ShardBatch {
	b := store.ShardBatch{Proof: p.proofs[id], GiveUp: p.one(30)}
	if p.one(40) {
		b.Proof.Epoch--
	}
	if p.one(2) {
		b.Watermark, b.OpenFrom, b.RetainedFrom = p.orZero(p.instant()), p.orZero(p.instant()), p.orZero(p.instant())
	}
	b.Creates = rows(p, 2, func() store.Create {
		j := p.job(id)
		return store.Create{Job: j, Slots: rows(p, 2, func() job.Slot { return p.slot(id, job.SlotKey{FireTime: p.instant(), UID: j.UID}) })}
	})
	b.Ends = rows(p, 1, func() store.JobEnd {
		return store.JobEnd{UID: p.uid(id), EndedAt: p.instant() + job.Instant(p.r.IntN(job.Second)), ByItself: p.one(2)}
	})
	b.Quarantines = rows(p, 1, func() store.JobQuarantine { return store.JobQuarantine{UID: p.uid(id), Reason: "why"} })
	b.Slots = rows(p, 3, func() job.Slot { return p.slot(id, p.key(id)) })
	b.Requests = rows(p, 2, func() store.Request {
		r := store.Request{Namespace: p.pick("m", "n"), RequestID: p.pick("r1", "r2", "r3", "r4"), Hash: p.pick("h", "i"), Key: p.key(id)}
		if len(b.Slots) > 0 && p.one(2) {
			r.Key = b.Slots[p.r.IntN(len(b.Slots))].Key
		}
		return r
	})
	b.Updates = rows(p, 4, func() store.SlotUpdate { return p.update(id) })
	b.Attempts = rows(p, 2, func() store.SlotAttempt {
		return store.SlotAttempt{Key: p.key(id), Attempt: job.Attempt{Number: int32(p.r.IntN(3)), Worker: p.pick("v", "w"), Epoch: 3, EndedAt: p.now, Outcome: job.OutcomeFailed, Log: "l"}}
	})
	b.Lates = rows(p, 1, func() store.LateResult {
		return store.LateResult{Key: p.key(id), Attempt: int32(p.r.IntN(3)), Text: p.pick("x", "y")}
	})
	p.addQueues(id, &b)
	p.addGaps(id, &b)
	b.Events = rows(p, 2, func() store.Event {
		e := store.Event{Seq: int64(p.r.IntN(40)), At: p.instant(), Kind: store.EventDeadLetter, Fire: p.instant(), Detail: p.pick("d", "e")}
		if p.one(2) {
			e.Job = p.uid(id)
		}
		return e
	})
	p.addPrunes(id, &b)
	if p.one(60) {
		b.Requests = nil // whose slots may not be asked for at all
		b.Slots = append(b.Slots, p.slot(id, p.key(id)))
		b.Slots[len(b.Slots)-1].Result = make([]byte, 1<<20+1)
	}
	return b
}

// update draws a change of a slot, mostly from the state in which it stands.
func (p *pair) update(id shard.ID) store.SlotUpdate {
	stands := p.stands(id)
	u := store.SlotUpdate{Slot: p.slot(id, stands.Key), FromState: stands.State, FromAttempt: stands.Attempt}
	if p.one(5) {
		u.FromState = job.State(p.r.IntN(5))
	}
	if p.one(10) {
		u.FromAttempt++
	}
	return u
}

func (p *pair) addQueues(id shard.ID, b *store.ShardBatch) {
	b.BacklogPuts = rows(p, 4, func() store.BacklogRow { return p.backlogRow(id) })
	b.BacklogDels = rows(p, p.r.IntN(2), func() store.BacklogKey {
		if have := p.audits[id].Backlog; len(have) > 0 {
			return have[p.r.IntN(len(have))].Key
		}
		return store.BacklogKey{Handler: "h"}
	})
	b.DeadPuts = rows(p, 2, func() store.DeadLetter {
		return store.DeadLetter{Key: p.stands(id).Key, Namespace: p.pick("m", "n"), Handler: p.pick("h", "g"), At: p.instant(), ErrorCode: "c", Fingerprint: p.pick("f", "g"), Sample: p.pick("s", "t")}
	})
	b.DeadDels = rows(p, 1, func() job.SlotKey { return p.key(id) })
	b.InboxDels = rows(p, 1, func() job.UID { return p.uid(id) })
}

func (p *pair) backlogRow(id shard.ID) store.BacklogRow {
	s := p.stands(id)
	r := store.BacklogRow{
		Key:    store.BacklogKey{Waiting: s.State == job.Ready, Handler: p.pick("h", "g"), Priority: int32(p.r.IntN(3) - 1), Fairness: p.pick("", "", "f"), Rank: p.instant(), Slot: s.Key},
		WakeAt: p.instant(), CheckAt: p.orZero(p.instant()), ReadyAt: s.CreatedAt, Trigger: s.Trigger,
	}
	if s.NotBefore != 0 {
		r.ReadyAt = s.NotBefore
	}
	switch p.r.IntN(15) {
	case 0:
		r.Key.Waiting = !r.Key.Waiting
	case 1:
		r.ReadyAt++
	case 2:
		r.Trigger++
	}
	return r
}

func (p *pair) addGaps(id shard.ID, b *store.ShardBatch) {
	key := func() store.GapKey {
		k := store.GapKey{To: fire0 + job.Instant(p.r.IntN(3))}
		if p.one(2) {
			k.UID = job.UID{byte(p.r.IntN(2))}
		}
		return k
	}
	options := func() store.GapOptions {
		o := store.GapOptions{RequestedAt: p.orZero(p.instant()), Rate: int32(p.r.IntN(3))}
		if p.one(2) {
			o.CatchUp = map[string]job.CatchUp{p.pick("a", "b"): {Mode: job.CatchUpLatest, MaxCount: 3}}
		}
		return o
	}
	b.GapPuts = rows(p, 1, func() store.Gap {
		return store.Gap{Key: key(), From: p.instant(), Cursor: p.key(id), MadeAt: p.now, Options: options()}
	})
	b.GapChanges = rows(p, 1, func() store.GapChange { return store.GapChange{Key: key(), Options: options()} })
	b.GapMoves = rows(p, 2, func() store.GapMove {
		m := store.GapMove{Key: key(), From: p.key(id), To: p.key(id), Closed: p.one(4)}
		if have := p.audits[id].Gaps; len(have) > 0 && p.one(2) {
			g := have[p.r.IntN(len(have))]
			m.Key, m.From = g.Key, g.Cursor
		}
		return m
	})
	b.Skips = rows(p, 2, func() store.Skip {
		to := p.instant()
		return store.Skip{UID: p.uid(id), From: to - job.Instant(p.r.IntN(3)), To: to, Count: 2, Code: p.pick("x", "y"), MadeAt: p.instant()}
	})
}

func (p *pair) addPrunes(id shard.ID, b *store.ShardBatch) {
	if !p.one(4) {
		return
	}
	b.SlotPrunes = rows(p, 3, func() store.SlotPrune {
		s := p.stands(id)
		return store.SlotPrune{Key: s.Key, State: s.State, Attempt: s.Attempt + int32(p.r.IntN(2))}
	})
	b.JobPrunes = rows(p, 2, func() job.UID { return p.uid(id) })
	early := func() job.Instant { return fire0 + job.Instant(p.r.IntN(5))*job.Second }
	b.Old = store.Old{
		RequestsFrom: early(), RequestsBefore: p.orZero(early()), EventsFrom: early(), EventsBefore: p.orZero(early()),
		SkipsFrom: early(), SkipsBefore: p.orZero(early()),
	}
}

// job draws a job: a few uids, names and requests.
func (p *pair) job(id shard.ID) job.Job {
	j := job.Job{
		UID: job.UID{byte(1 + p.r.IntN(40)), byte(id)}, Shard: id, Namespace: p.pick("m", "n"), Name: p.pick("a", "b", "c", "d", "e", "f", "g", "h"), Handler: p.pick("g", "h"),
		Params: []byte("{}")[:2*p.r.IntN(2)], Retry: job.DefaultRetryPolicy, Timeout: time.Second + time.Duration(p.r.IntN(3000)),
		CreatedAt: p.instant(), EffectiveFrom: p.instant(), RequestID: p.pick("", "", "r1", "r2", "r3", "r4", "r5"), RequestHash: p.pick("h", "i"),
	}
	switch j.Schedule.Kind = job.Kind(p.r.IntN(5)); j.Schedule.Kind {
	case job.KindOnce:
		j.Schedule.At = p.instant()
	case job.KindCron:
		j.Schedule.Cron, j.Schedule.Dialect = "* * * * *", schedule.DialectVersion
	}
	if p.one(3) {
		j.Labels = map[string]string{"team": p.pick("a", "b")}
	}
	if p.one(3) {
		j.Policies = job.Policies{Retention: time.Hour, Priority: 2}
	}
	if p.one(5) {
		j.EndedAt, j.EndedByItself = p.instant()+job.Instant(p.r.IntN(job.Second)), p.one(2)
	}
	if p.one(10) {
		j.Quarantine = "set aside"
	}
	if p.one(100) {
		j.Params = make([]byte, 1<<20+1)
	}
	return j
}

var states = []job.State{job.Ready, job.Ready, job.Running, job.Running, job.Succeeded, job.Dead, job.Cancelled}

// slot draws the row of a slot.
func (p *pair) slot(id shard.ID, key job.SlotKey) job.Slot {
	s := job.Slot{Key: key, Trigger: job.Trigger(1 + p.r.IntN(4)), State: states[p.r.IntN(len(states))], Attempt: int32(p.r.IntN(3)), CreatedAt: fire0 + job.Instant(p.r.IntN(2)),
		NotBefore: p.orZero(p.instant()), Params: []byte("[]")[:2*p.r.IntN(2)], Notes: []byte{}, RequestedAt: p.orZero(p.now), Breaches: job.Breach(p.r.IntN(4))}
	if s.State > job.Ready {
		s.Epoch, s.Worker, s.Incarnation, s.ClaimedAt, s.StartedAt = p.proofs[id].Epoch, p.pick("v", "w"), "i", p.now, p.orZero(p.instant())
	}
	if s.State > job.Running {
		s.FinishedAt, s.Outcome, s.ErrorCode, s.ErrorText, s.Result = p.instant(), job.OutcomeFailed, "io", p.pick("Full", "fulll"), []byte("1")
	}
	return s
}

func (p *pair) one(in int) bool                  { return p.r.IntN(in) == 0 }
func (p *pair) pick(of ...string) string         { return of[p.r.IntN(len(of))] }
func (p *pair) shard() shard.ID                  { return shard.ID(p.r.IntN(pairShards)) }
func (p *pair) instant() job.Instant             { return fire0 + job.Instant(p.r.IntN(16))*job.Second }
func (p *pair) orZero(i job.Instant) job.Instant { return i * job.Instant(p.r.IntN(2)) }

// claim draws a claim to a shard, about as late as the one that stands.
func (p *pair) claim(id shard.ID) store.Claim {
	a := &p.audits[id]
	return store.Claim{Shard: id, Node: p.pick(a.Owner, "a", "b"), Gen: a.Gen + int64(p.r.IntN(5)/2-1), Rev: a.Rev + int64(p.r.IntN(4)-1)}
}

// proof draws the proof of a shard, seldom a stale one.
func (p *pair) proof() shard.Proof {
	proof := p.proofs[p.shard()]
	if p.one(20) {
		proof.Epoch--
	}
	return proof
}

// maybeStale draws a proof that is as often stale as not.
func (p *pair) maybeStale() shard.Proof {
	proof := p.proofs[p.shard()]
	proof.Epoch -= shard.Epoch(p.r.IntN(2))
	return proof
}

// uid draws the uid of a job of a shard, or of none.
func (p *pair) uid(id shard.ID) job.UID {
	if have := p.audits[id].Jobs; len(have) > 0 && !p.one(8) {
		return have[p.r.IntN(len(have))].UID
	}
	return job.UID{byte(1 + p.r.IntN(40)), byte(id)}
}

// key draws the key of a slot of a shard, or of none.
func (p *pair) key(id shard.ID) job.SlotKey {
	if p.one(2) {
		return p.stands(id).Key
	}
	return job.SlotKey{FireTime: p.instant(), UID: p.uid(id)}
}

// stands draws a slot of a shard, as it stands.
func (p *pair) stands(id shard.ID) job.Slot {
	if have := p.audits[id].Slots; len(have) > 0 {
		return have[p.r.IntN(len(have))]
	}
	return job.Slot{Key: job.SlotKey{FireTime: p.instant(), UID: p.uid(id)}}
}

// rows draws up to so many rows.
func rows[T any](p *pair, most int, draw func() T) []T {
	var all []T
	for range p.r.IntN(most + 1) {
		all = append(all, draw())
	}
	return all
}
