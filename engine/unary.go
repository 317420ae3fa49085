package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
)

// A worker that can't keep a stream open asks by single calls. Between them nothing tells
// whether it lives, so each of its attempts has a lease of its own: from the answer that
// handed it out, or the last call that named it.

// ErrHasStream says that a worker called although it has a stream.
var ErrHasStream = errors.New("the worker has a stream")

// unary is a worker that asks by single calls.
type unary struct {
	leases map[core.Token]job.Instant
	polled bool         // it came by a Poll; else by a stream, whose lease isn't renewed by calls
	noted  []core.Noted // since its last call
}

// ErrReplaced says that a newer call or stream of the worker took the place of a Poll.
var ErrReplaced = errors.New("another call or stream of the worker took the place of this one")

// poll is a worker's call for attempts, while it waits.
type poll struct {
	handed  []core.Token
	until   job.Instant // when it is over at the latest, whoever forgot to end it
	ending  chan<- error
	arrived func(core.Token) bool // whether an attempt reaches its caller; set with ending
}

// maxPoll is longer than a Poll lasts.
const maxPoll = time.Minute

// Poll takes a worker that asks for attempts, as Connect takes a stream; they are delivered
// to the stream until EndPoll.
func (n *Node) Poll(ctx context.Context, h Hello, stream Stream) ([]Attestation, error) {
	h.polls = true
	return n.Connect(ctx, h, stream)
}

// EndPoll ends a Poll, and returns once nothing more will be delivered. The leases of what
// reaches the caller begin then; the rest is taken back. Arrived is asked in the node's loop. It
// returns ErrReplaced if what was delivered belongs to a newer call, or if the Poll has ended.
func (n *Node) EndPoll(ctx context.Context, key core.WorkerKey, stream Stream, arrived func(core.Token) bool) error {
	done := make(chan error, 1)
	err := n.post(ctx, func(l *loop) {
		sess := l.streams[key.ID]
		if sess == nil || sess.stream != stream || sess.poll == nil || sess.poll.ending != nil {
			done <- ErrReplaced
			return
		}
		if worker := l.workers.Get(key.ID); worker != nil {
			l.workers.Silence(worker)
		}
		sess.poll.ending, sess.poll.arrived = done, arrived
		l.ending = append(l.ending, sess)
	})
	if err != nil {
		return err
	}
	ended, err := await(ctx, n, done)
	return cmp.Or(err, ended)
}

// endPolls ends those for which nothing is under way any more.
func (l *loop) endPolls() {
	l.ending = slices.DeleteFunc(l.ending, func(sess *session) bool {
		if l.streams[sess.key.ID] != sess {
			sess.poll.ending <- ErrReplaced // has room for it
			return true
		}
		if l.unsent(sess.key) > 0 || len(l.outgo[sess]) > 0 {
			return false
		}
		l.endPoll(sess)
		sess.poll.ending <- nil
		return true
	})
}

func (l *loop) endPoll(sess *session) {
	delete(l.streams, sess.key.ID)
	if worker := l.workers.Get(sess.key.ID); worker != nil {
		l.workers.Silence(worker)
		worker.LeaseUntil = l.now.Add(l.cfg.Core.Lease + l.cfg.Core.LeaseMargin)
	}
	u := l.unaryOf(sess.key)
	u.polled = true
	for _, t := range sess.poll.handed {
		if sess.poll.arrived != nil && sess.poll.arrived(t) {
			u.leases[t] = l.now.Add(l.cfg.Core.Lease + l.cfg.Core.LeaseMargin) // it has still to arrive
		} else if s := l.shards[t.Shard]; s != nil {
			l.step(s, core.Undeliverable{Worker: sess.key, Token: t})
		}
	}
}

// keepPoll renews the lease of a worker that waits for an answer, or ends a wait that nobody
// has ended.
func (l *loop) keepPoll(sess *session, w *core.Worker) {
	if l.now < sess.poll.until || sess.poll.ending != nil {
		w.LeaseUntil = l.now.Add(l.cfg.Core.Lease)
		return
	}
	sess.stream.Close(ErrReplaced)
	l.endPoll(sess)
}

func (l *loop) unaryOf(key core.WorkerKey) *unary {
	u := l.unary[key]
	if u == nil {
		u = &unary{leases: map[core.Token]job.Instant{}}
		l.unary[key] = u
	}
	return u
}

// Extend renews the leases of attempts that a worker holds without a stream, and returns a
// verdict for each. It fails with ErrHasStream if the worker has one.
func (n *Node) Extend(ctx context.Context, key core.WorkerKey, held []core.Token, events []ShardEvent) (Extended, error) {
	type answer struct {
		Extended
		err error
	}
	done := make(chan answer, 1)
	err := n.post(ctx, func(l *loop) {
		if sess := l.streams[key.ID]; sess != nil && sess.poll == nil {
			done <- answer{err: fmt.Errorf("worker %s: %w", key.ID, ErrHasStream)}
			return
		}
		out := Extended{Verdicts: l.extend(key, held)}
		if u := l.unary[key]; u != nil {
			out.Noted, u.noted = u.noted, nil
		}
		l.apply(events)
		done <- answer{Extended: out}
	})
	if err != nil {
		return Extended{}, err
	}
	a, err := await(ctx, n, done)
	return a.Extended, cmp.Or(err, a.err)
}

// Extended is the answer to a call that renews leases.
type Extended struct {
	Verdicts []Attestation
	Noted    []core.Noted // reports that were stored since the call before
}

// noted tells a worker that a report is stored: over its stream, or with its next call.
func (l *loop) noted(m core.Noted) {
	if u := l.unary[m.Worker]; u != nil && len(u.noted) <= len(u.leases) {
		u.noted = append(u.noted, m)
		return
	}
	l.send(m.Worker, m)
}

func (l *loop) extend(key core.WorkerKey, held []core.Token) []Attestation {
	if worker, u := l.workers.Get(key.ID), l.unary[key]; worker != nil && worker.Key == key && u != nil && u.polled {
		worker.LeaseUntil = l.now.Add(l.cfg.Core.Lease)
	}
	verdicts := make([]Attestation, len(held))
	for i, t := range held {
		if verdicts[i] = l.attest(key, t); verdicts[i].Verdict == VerdictContinue {
			l.unaryOf(key).leases[t] = l.now.Add(l.cfg.Core.Lease)
		}
	}
	return verdicts
}

// Finish reports results, and returns the answer to each once it is stored; nil for those
// that nobody here could judge before ctx ended.
func (n *Node) Finish(ctx context.Context, key core.WorkerKey, results []ShardEvent) ([]*core.Ack, error) {
	acks := make(chan core.Ack, len(results))
	left := make(chan int, 1)
	err := n.post(ctx, func(l *loop) {
		waits := 0
		for _, r := range results {
			if k := (awaited{key, r.Token}); l.shards[r.Token.Shard] != nil && l.awaited[k] != acks {
				l.awaited[k] = acks
				waits++
			}
		}
		l.apply(results)
		left <- waits
	})
	if err != nil {
		return nil, err
	}
	waits, err := await(ctx, n, left)
	if err != nil {
		n.forgetResults(ctx, key, results, acks)
		return nil, err
	}
	got := make(map[core.Token]*core.Ack, waits)
	for range waits {
		a, err := await(ctx, n, acks)
		if err != nil {
			break // the others are told below that nothing is known
		}
		got[a.Token] = &a
	}
	out := make([]*core.Ack, len(results))
	for i, r := range results {
		out[i] = got[r.Token]
	}
	if len(got) < waits {
		n.forgetResults(ctx, key, results, acks)
	}
	return out, nil
}

// awaited names a result whose answer a call waits for.
type awaited struct {
	worker core.WorkerKey
	token  core.Token
}

// forgetResults takes a call that gave up out of those that wait.
func (n *Node) forgetResults(ctx context.Context, key core.WorkerKey, results []ShardEvent, acks chan core.Ack) {
	// An error means that the loop has ended, and the call with it.
	_ = n.post(context.WithoutCancel(ctx), func(l *loop) {
		for _, r := range results {
			if k := (awaited{key, r.Token}); l.awaited[k] == acks { // else a newer call waits
				delete(l.awaited, k)
			}
		}
	})
}

// acknowledge answers a result: the call that waits for it, or the worker's stream.
func (l *loop) acknowledge(m core.Ack) {
	if u := l.unary[m.Worker]; u != nil {
		delete(u.leases, m.Token)
	}
	k := awaited{m.Worker, m.Token}
	if acks := l.awaited[k]; acks != nil {
		delete(l.awaited, k)
		acks <- m // has room for one of each result
		return
	}
	l.send(m.Worker, m)
}

// expireUnary takes the attempts that no call has named for too long.
func (l *loop) expireUnary() {
	for _, key := range slices.SortedFunc(maps.Keys(l.unary), compareWorkers) {
		u := l.unary[key]
		var ended []core.Token
		for t, until := range u.leases {
			if until <= l.now {
				ended = append(ended, t)
			}
		}
		slices.SortFunc(ended, compareTokens)
		for _, t := range ended {
			delete(u.leases, t)
			if s := l.shards[t.Shard]; s != nil {
				l.step(s, core.AttemptLost{Worker: key, Token: t})
			}
		}
		if _, known := l.workers.All()[key.ID]; !known && len(u.leases) == 0 {
			delete(l.unary, key)
		}
	}
}

// renewUnary gives all such attempts a new lease.
func (l *loop) renewUnary() {
	for _, u := range l.unary {
		for t := range u.leases {
			u.leases[t] = l.now.Add(l.cfg.Core.Lease)
		}
	}
}

func compareWorkers(a, b core.WorkerKey) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Incarnation, b.Incarnation))
}

func compareTokens(a, b core.Token) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Key.FireTime, b.Key.FireTime), slices.Compare(a.Key.UID[:], b.Key.UID[:]), cmp.Compare(a.Attempt, b.Attempt))
}
