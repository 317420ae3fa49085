// Package simetcd is a model of etcd for a simulation: one state with revisions, leases that end by
// themselves, and watches. Each client reaches it over a link of a simnet.Network.
//
// It has what package coordinator/etcd uses: reads of a key or a prefix, transactions with comparisons and
// transactions in them, leases, and watches from a revision on. What it is asked beyond that fails.
package simetcd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
)

// Host is the name of etcd in the network.
const Host = "etcd"

// Etcd is the model.
type Etcd struct {
	net  *simnet.Network
	dice dice.Dice

	mu        sync.Mutex    // guards what follows
	up        chan struct{} // closed once it answers; nil: it does
	life      int           // how often its data was lost
	rev       int64
	compacted int64
	keys      map[string]*mvccpb.KeyValue
	leases    map[int64]*lease
	nextLease int64
	log       []*mvccpb.Event // after compacted, in order
	watches   []*watch
}

type lease struct {
	id    int64
	ttl   time.Duration
	ends  time.Time
	timer *time.Timer
}

// New returns an empty etcd that answers.
func New(n *simnet.Network, d dice.Dice) *Etcd {
	return &Etcd{net: n, dice: d, rev: 1, keys: map[string]*mvccpb.KeyValue{}, leases: map[int64]*lease{}, nextLease: 1000}
}

// Stop has it answer nothing, as without a quorum: no lease ends meanwhile.
func (e *Etcd) Stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.up != nil {
		return
	}
	e.up = make(chan struct{})
	for _, l := range e.leases {
		l.timer.Stop()
	}
}

// Start has it answer again. A new leader gives all leases their whole time.
func (e *Etcd) Start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.up == nil {
		return
	}
	close(e.up)
	e.up = nil
	for _, l := range e.leases {
		e.prolong(l)
	}
}

// Serves reports whether it answers.
func (e *Etcd) Serves() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.up == nil
}

// Wipe loses all data: revisions begin anew.
func (e *Etcd) Wipe() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range e.leases {
		l.timer.Stop()
	}
	e.life++
	e.rev, e.compacted, e.log = 1, 0, nil
	e.keys, e.leases = map[string]*mvccpb.KeyValue{}, map[int64]*lease{}
	e.dropWatches()
}

// Compact forgets the history up to now, and ends all watches, as a restart of a member does: who
// was behind must list anew.
func (e *Etcd) Compact() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.compacted, e.log = e.rev, nil
	e.dropWatches()
}

// DropWatches ends all watches.
func (e *Etcd) DropWatches() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dropWatches()
}

func (e *Etcd) dropWatches() {
	for _, w := range e.watches {
		w.end(rpctypes.ErrNoLeader)
	}
	e.watches = nil
}

// EndLease ends the lease of a key, as if it had not been kept: its owner isn't told.
func (e *Etcd) EndLease(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if kv := e.keys[key]; kv != nil && e.leases[kv.Lease] != nil {
		e.endLease(kv.Lease)
	}
}

// Keys lists all keys, for people.
func (e *Etcd) Keys() (keys []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k := range e.keys {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// In the rest the caller holds mu.

func (e *Etcd) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: uint64(e.life + 1), MemberId: 1, Revision: e.rev, RaftTerm: 1}
}

func (e *Etcd) grant(ttl int64) int64 {
	e.nextLease++
	l := &lease{id: e.nextLease, ttl: time.Duration(ttl) * time.Second}
	e.leases[l.id] = l
	e.prolong(l)
	return l.id
}

func (e *Etcd) prolong(l *lease) {
	l.ends = time.Now().Add(l.ttl)
	if l.timer != nil {
		l.timer.Reset(l.ttl)
		return
	}
	life := e.life
	l.timer = time.AfterFunc(l.ttl, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.up == nil && e.life == life && e.leases[l.id] == l && !time.Now().Before(l.ends) {
			e.endLease(l.id)
		}
	})
}

// endLease takes a lease's keys away, at one revision.
func (e *Etcd) endLease(id int64) {
	e.leases[id].timer.Stop()
	delete(e.leases, id)
	var gone []string
	for k, kv := range e.keys {
		if kv.Lease == id {
			gone = append(gone, k)
		}
	}
	if len(gone) == 0 {
		return
	}
	slices.Sort(gone)
	rev := e.rev + 1
	var events []*mvccpb.Event
	for _, k := range gone {
		events = append(events, e.remove(k, rev))
	}
	e.committed(rev, events)
}

func (e *Etcd) remove(key string, rev int64) *mvccpb.Event {
	delete(e.keys, key)
	return &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: rev}}
}

// delete takes one key away, if it is there.
func (e *Etcd) delete(r *etcdserverpb.DeleteRangeRequest, rev int64, tell func(*mvccpb.Event)) *etcdserverpb.DeleteRangeResponse {
	resp := &etcdserverpb.DeleteRangeResponse{}
	if key := string(r.Key); e.keys[key] != nil {
		resp.Deleted = 1
		tell(e.remove(key, rev))
	}
	resp.Header = e.header()
	return resp
}

func (e *Etcd) put(r *etcdserverpb.PutRequest, rev int64) (*mvccpb.Event, error) {
	if r.Lease != 0 && e.leases[r.Lease] == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	key := string(r.Key)
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: rev, ModRevision: rev, Version: 1}
	if before := e.keys[key]; before != nil {
		kv.CreateRevision, kv.Version = before.CreateRevision, before.Version+1
	}
	e.keys[key] = kv
	return &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv}, nil
}

// committed notes what a revision changed, and tells the watches.
func (e *Etcd) committed(rev int64, events []*mvccpb.Event) {
	if len(events) == 0 {
		return
	}
	e.rev = rev
	e.log = append(e.log, events...)
	const longest = 4096 // what nobody needs any more need not be kept for long
	if len(e.log) > longest {
		last := e.log[longest/2].Kv.ModRevision
		first := slices.IndexFunc(e.log, func(e *mvccpb.Event) bool { return e.Kv.ModRevision > last })
		e.log, e.compacted = slices.Clone(e.log[first:]), last
	}
	for _, w := range e.watches {
		w.show(e.header(), events)
	}
}

func (e *Etcd) read(r *etcdserverpb.RangeRequest) *etcdserverpb.RangeResponse {
	resp := &etcdserverpb.RangeResponse{Header: e.header()}
	if len(r.RangeEnd) == 0 {
		if kv := e.keys[string(r.Key)]; kv != nil {
			resp.Kvs, resp.Count = []*mvccpb.KeyValue{kv}, 1
		}
	} else {
		for k, kv := range e.keys {
			if k >= string(r.Key) && k < string(r.RangeEnd) {
				resp.Kvs = append(resp.Kvs, kv)
			}
		}
		resp.Count = int64(len(resp.Kvs))
		slices.SortFunc(resp.Kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(string(a.Key), string(b.Key)) })
	}
	if r.CountOnly {
		resp.Kvs = nil
	}
	return resp
}

// txn executes a transaction, with what it contains, at one revision.
func (e *Etcd) txn(r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	rev := e.rev + 1
	if err := e.leasesLive(r); err != nil {
		return nil, err // before anything is changed
	}
	var events []*mvccpb.Event
	resp, err := e.inTxn(r, rev, &events)
	if err != nil {
		return nil, err
	}
	e.committed(rev, events)
	resp.Header = e.header()
	return resp, nil
}

func (e *Etcd) inTxn(r *etcdserverpb.TxnRequest, rev int64, events *[]*mvccpb.Event) (*etcdserverpb.TxnResponse, error) {
	resp := &etcdserverpb.TxnResponse{Header: e.header(), Succeeded: !slices.ContainsFunc(r.Compare, func(c *etcdserverpb.Compare) bool { return !e.holds(c) })}
	ops := r.Success
	if !resp.Succeeded {
		ops = r.Failure
	}
	for _, op := range ops {
		var out etcdserverpb.ResponseOp
		switch op := op.Request.(type) {
		case *etcdserverpb.RequestOp_RequestRange:
			out.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: e.read(op.RequestRange)}
		case *etcdserverpb.RequestOp_RequestPut:
			event, err := e.put(op.RequestPut, rev)
			if err != nil {
				return nil, err
			}
			*events = append(*events, event)
			out.Response = &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{Header: e.header()}}
		case *etcdserverpb.RequestOp_RequestDeleteRange:
			deleted := e.delete(op.RequestDeleteRange, rev, func(gone *mvccpb.Event) { *events = append(*events, gone) })
			out.Response = &etcdserverpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deleted}
		case *etcdserverpb.RequestOp_RequestTxn:
			inner, err := e.inTxn(op.RequestTxn, rev, events)
			if err != nil {
				return nil, err
			}
			out.Response = &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: inner}
		}
		resp.Responses = append(resp.Responses, &out)
	}
	return resp, nil
}

// leasesLive fails if any write of a transaction names a lease that has ended.
func (e *Etcd) leasesLive(r *etcdserverpb.TxnRequest) error {
	for _, op := range slices.Concat(r.Success, r.Failure) {
		switch op := op.Request.(type) {
		case *etcdserverpb.RequestOp_RequestPut:
			if id := op.RequestPut.Lease; id != 0 && e.leases[id] == nil {
				return rpctypes.ErrGRPCLeaseNotFound
			}
		case *etcdserverpb.RequestOp_RequestTxn:
			if err := e.leasesLive(op.RequestTxn); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Etcd) holds(c *etcdserverpb.Compare) bool {
	kv := e.keys[string(c.Key)]
	if kv == nil {
		kv = &mvccpb.KeyValue{}
	}
	order := 0
	switch c.Target {
	case etcdserverpb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case etcdserverpb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case etcdserverpb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case etcdserverpb.Compare_VALUE:
		if kv.CreateRevision == 0 {
			return false // as etcd: a value that isn't there compares with nothing
		}
		order = strings.Compare(string(kv.Value), string(c.GetValue()))
	default:
		panic(fmt.Sprintf("simetcd: a comparison of %s", c.Target))
	}
	switch c.Result {
	case etcdserverpb.Compare_EQUAL:
		return order == 0
	case etcdserverpb.Compare_GREATER:
		return order > 0
	case etcdserverpb.Compare_LESS:
		return order < 0
	}
	return order != 0
}
