package simetcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
)

// NewClient returns a client that a process has.
func (e *Etcd) NewClient(p *simnet.Process) *clientv3.Client {
	c := clientv3.NewCtxClient(context.Background())
	r := &remote{etcd: e, process: p, dice: e.dice.For(p.ID)}
	c.KV = clientv3.NewKVFromKVClient(r, c)
	c.Lease = clientv3.NewLeaseFromLeaseClient(leases{r}, c, time.Second)
	c.Watcher = r
	return c
}

// remote is etcd as a process sees it: calls take time, and may come too late or never.
type remote struct {
	etcdserverpb.KVClient // what is not defined here isn't called
	etcd                  *Etcd
	process               *simnet.Process
	dice                  dice.Dice
	calls                 map[string]uint64 // guarded by etcd.mu
}

// call takes a request there, has it executed, and takes its answer back. It fails once ctx ends,
// whatever became of the request.
func (r *remote) call(ctx context.Context, what string, do func() error) error {
	r.process.Gate(what)
	r.etcd.mu.Lock()
	if r.calls == nil {
		r.calls = map[string]uint64{}
	}
	r.calls[what]++
	d := r.dice.For(what).At(r.calls[what])
	r.etcd.mu.Unlock()
	if err := r.etcd.net.Cross(ctx, r.process, r.process.Name, Host, d.For("there")); err != nil {
		return err
	}
	for {
		r.etcd.mu.Lock()
		up := r.etcd.up
		if up == nil {
			break
		}
		r.etcd.mu.Unlock()
		select {
		case <-up:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.process.Ended():
			return errors.New("the process has died")
		}
	}
	err := do()
	r.etcd.mu.Unlock()
	if lost := r.etcd.net.Cross(ctx, r.process, Host, r.process.Name, d.For("back")); lost != nil {
		return lost
	}
	return err
}

// Range implements etcdserverpb.KVClient.
func (r *remote) Range(ctx context.Context, in *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (out *etcdserverpb.RangeResponse, err error) {
	err = r.call(ctx, "range", func() error { out = r.etcd.read(in); return nil })
	return out, err
}

// Put implements etcdserverpb.KVClient.
func (r *remote) Put(ctx context.Context, in *etcdserverpb.PutRequest, _ ...grpc.CallOption) (out *etcdserverpb.PutResponse, err error) {
	err = r.call(ctx, "put", func() error {
		rev := r.etcd.rev + 1
		event, err := r.etcd.put(in, rev)
		if err != nil {
			return err
		}
		r.etcd.committed(rev, []*mvccpb.Event{event})
		out = &etcdserverpb.PutResponse{Header: r.etcd.header()}
		return nil
	})
	return out, err
}

// DeleteRange implements etcdserverpb.KVClient: of one key.
func (r *remote) DeleteRange(ctx context.Context, in *etcdserverpb.DeleteRangeRequest, _ ...grpc.CallOption) (out *etcdserverpb.DeleteRangeResponse, err error) {
	err = r.call(ctx, "delete", func() error {
		out = r.etcd.delete(in, r.etcd.rev+1, func(e *mvccpb.Event) { r.etcd.committed(r.etcd.rev+1, []*mvccpb.Event{e}) })
		return nil
	})
	return out, err
}

// Txn implements etcdserverpb.KVClient.
func (r *remote) Txn(ctx context.Context, in *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (out *etcdserverpb.TxnResponse, err error) {
	err = r.call(ctx, "txn", func() (err error) { out, err = r.etcd.txn(in); return err })
	return out, err
}

// leases implements etcdserverpb.LeaseClient.
type leases struct{ *remote }

func (r leases) LeaseGrant(ctx context.Context, in *etcdserverpb.LeaseGrantRequest, _ ...grpc.CallOption) (out *etcdserverpb.LeaseGrantResponse, err error) {
	err = r.call(ctx, "grant", func() error {
		id := r.etcd.grant(in.TTL)
		out = &etcdserverpb.LeaseGrantResponse{Header: r.etcd.header(), ID: id, TTL: in.TTL}
		return nil
	})
	return out, err
}

func (r leases) LeaseRevoke(ctx context.Context, in *etcdserverpb.LeaseRevokeRequest, _ ...grpc.CallOption) (out *etcdserverpb.LeaseRevokeResponse, err error) {
	err = r.call(ctx, "revoke", func() error {
		if r.etcd.leases[in.ID] == nil {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		r.etcd.endLease(in.ID)
		out = &etcdserverpb.LeaseRevokeResponse{Header: r.etcd.header()}
		return nil
	})
	return out, err
}

func (r leases) LeaseKeepAlive(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[etcdserverpb.LeaseKeepAliveRequest, etcdserverpb.LeaseKeepAliveResponse], error) {
	return &keepAlive{remote: r.remote, ctx: ctx}, nil
}

func (leases) LeaseTimeToLive(context.Context, *etcdserverpb.LeaseTimeToLiveRequest, ...grpc.CallOption) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	return nil, errors.ErrUnsupported
}

func (leases) LeaseLeases(context.Context, *etcdserverpb.LeaseLeasesRequest, ...grpc.CallOption) (*etcdserverpb.LeaseLeasesResponse, error) {
	return nil, errors.ErrUnsupported
}

// keepAlive is a stream of one request and its answer.
type keepAlive struct {
	grpc.ClientStream // what is not defined here isn't called
	remote            *remote
	ctx               context.Context
	id                int64
}

func (k *keepAlive) Send(in *etcdserverpb.LeaseKeepAliveRequest) error { k.id = in.ID; return nil }

func (k *keepAlive) CloseSend() error { return nil }

func (k *keepAlive) Recv() (out *etcdserverpb.LeaseKeepAliveResponse, err error) {
	err = k.remote.call(k.ctx, "keepalive", func() error {
		out = &etcdserverpb.LeaseKeepAliveResponse{Header: k.remote.etcd.header(), ID: k.id}
		if l := k.remote.etcd.leases[k.id]; l != nil {
			k.remote.etcd.prolong(l)
			out.TTL = int64(l.ttl / time.Second)
		}
		return nil
	})
	return out, err
}

// watch is one of a client.
type watch struct {
	of    *remote
	out   chan clientv3.WatchResponse
	more  chan struct{} // has room for one: something is queued
	queue []queued      // guarded by etcd.mu
}

type queued struct {
	resp clientv3.WatchResponse
	last bool
}

// The caller of these holds etcd.mu.

func (w *watch) push(q queued) {
	w.queue = append(w.queue, q)
	select {
	case w.more <- struct{}{}:
	default: // it is known
	}
}

func (w *watch) show(h *etcdserverpb.ResponseHeader, events []*mvccpb.Event) {
	w.push(queued{resp: clientv3.WatchResponse{Header: h, Events: events}})
}

func (w *watch) end(reason error) {
	w.push(queued{resp: clientv3.WatchResponse{Canceled: true, CancelReason: reason.Error()}, last: true})
}

// Watch implements clientv3.Watcher. All keys have one prefix, so it shows all.
func (r *remote) Watch(ctx context.Context, prefix string, opts ...clientv3.OpOption) clientv3.WatchChan {
	from := clientv3.OpGet(prefix, opts...).Rev()
	w := &watch{of: r, out: make(chan clientv3.WatchResponse), more: make(chan struct{}, 1)}
	go func() {
		defer close(w.out)
		err := r.call(ctx, "watch", func() error {
			if from <= r.etcd.compacted {
				w.push(queued{resp: clientv3.WatchResponse{Canceled: true, CompactRevision: r.etcd.compacted + 1}, last: true})
				return nil
			}
			r.etcd.watches = append(r.etcd.watches, w)
			for i, e := range r.etcd.log {
				if e.Kv.ModRevision >= from {
					w.show(r.etcd.header(), r.etcd.log[i:])
					break
				}
			}
			return nil
		})
		if err == nil {
			r.serve(ctx, w)
		}
		r.etcd.forget(w)
	}()
	return w.out
}

// serve takes to the client what a watch shows.
func (r *remote) serve(ctx context.Context, w *watch) {
	d := r.dice.For("shown")
	for n := uint64(0); ; n++ {
		r.etcd.mu.Lock()
		var next queued
		any := len(w.queue) > 0
		if any {
			next, w.queue = w.queue[0], w.queue[1:]
		}
		r.etcd.mu.Unlock()
		if !any {
			select {
			case <-w.more:
				continue
			case <-ctx.Done():
				return
			case <-r.process.Ended():
				return
			}
		}
		if r.etcd.net.Cross(ctx, r.process, Host, r.process.Name, d.At(n)) != nil {
			return
		}
		select {
		case w.out <- next.resp:
		case <-ctx.Done():
			return
		}
		if next.last {
			return
		}
	}
}

func (e *Etcd) forget(w *watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, o := range e.watches {
		if o == w {
			e.watches = append(e.watches[:i:i], e.watches[i+1:]...)
			return
		}
	}
}

// RequestProgress implements clientv3.Watcher: it doesn't wait for the answer, which comes by the
// watches.
func (r *remote) RequestProgress(ctx context.Context) error {
	go func() {
		// It is asked again if it isn't answered.
		_ = r.call(context.WithoutCancel(ctx), "progress", func() error {
			for _, w := range r.etcd.watches {
				if w.of == r {
					w.show(r.etcd.header(), nil)
				}
			}
			return nil
		})
	}()
	return nil
}

// Close implements clientv3.Watcher.
func (*remote) Close() error { return nil }

var (
	_ etcdserverpb.KVClient = (*remote)(nil)
	_ clientv3.Watcher      = (*remote)(nil)
)
