package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/shard"
)

// Any node takes any request. What only a shard's owner can do is forwarded to it: the same
// call, one hop, with what is left of the deadline. A node says of itself who it is; what its
// caller may do is decided where the call came in.

// forwardedBy is metadata that names the node that forwards: the call goes no further. Whoever else
// says so has his calls forwarded no further, and that is all.
const forwardedBy = "carillon-forwarded-by"

// relayedBy is metadata that names the node that relays a call because its own database doesn't answer
// it: it isn't relayed again, but may be forwarded.
const relayedBy = "carillon-relayed-by"

// passedOn is what a forwarded call keeps of its metadata: whom it belongs to in traces, and
// nothing that gives rights.
var passedOn = []string{"traceparent", "tracestate", "x-request-id"}

// peers are the other nodes.
type peers struct {
	self      string
	directory coordinator.Directory
	dial      []grpc.DialOption

	mu     sync.Mutex
	conns  map[string]*grpc.ClientConn // guarded by mu, by address
	failed map[string]time.Time        // guarded by mu: when a node could not be reached, by address
}

func newPeers(self string, d coordinator.Directory, dial []grpc.DialOption) *peers {
	return &peers{self: self, directory: d, dial: dial, conns: map[string]*grpc.ClientConn{}, failed: map[string]time.Time{}}
}

// close ends all connections.
func (p *peers) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, conn := range p.conns {
		errs = append(errs, conn.Close())
	}
	p.conns = nil
	return errors.Join(errs...)
}

// conn returns the connection to an address. Those of nodes that have gone are closed.
func (p *peers) conn(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return nil, engine.ErrStopping
	}
	if conn := p.conns[address]; conn != nil {
		return conn, nil
	}
	p.sweep()
	conn, err := grpc.NewClient(address, p.dial...)
	if err == nil {
		p.conns[address] = conn
	}
	return conn, err
}

func (p *peers) sweep() {
	known := map[string]bool{}
	for _, m := range p.directory.Members() {
		known[m.Address] = true
	}
	for address, conn := range p.conns {
		if !known[address] {
			_ = conn.Close() // nobody calls a node that has gone
			delete(p.conns, address)
			delete(p.failed, address)
		}
	}
}

// holder returns the other node that holds a shard, if there is one and the call may go there.
func (p *peers) holder(ctx context.Context, id shard.ID) (coordinator.Member, bool) {
	if isForwarded(ctx) {
		return coordinator.Member{}, false
	}
	m, ok := p.directory.Holder(id)
	return m, ok && m.Node != p.self && m.Address != ""
}

// others lists the other nodes.
func (p *peers) others(ctx context.Context) (out []coordinator.Member) {
	if isForwarded(ctx) {
		return nil
	}
	for _, m := range p.directory.Members() {
		if m.Node != p.self && m.Address != "" {
			out = append(out, m)
		}
	}
	return out
}

// isForwarded reports whether a call comes from another node.
func isForwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, forwardedBy)) > 0
}

// send makes a call of another node, which goes no further.
func (p *peers) send(ctx context.Context, to coordinator.Member, method string, req, resp proto.Message) error {
	return p.invoke(ctx, to, method, req, resp, forwardedBy)
}

func (p *peers) invoke(ctx context.Context, to coordinator.Member, method string, req, resp proto.Message, how string) error {
	conn, err := p.conn(to.Address)
	if err != nil {
		return p.unreachable(to, err)
	}
	md := metadata.Pairs(how, p.self)
	for _, key := range passedOn {
		md.Set(key, metadata.ValueFromIncomingContext(ctx, key)...)
	}
	err = conn.Invoke(metadata.NewOutgoingContext(ctx, md), method, req, resp)
	switch code := status.Code(err); {
	case code == codes.Unavailable && reasonOf(err) == "", code == codes.Canceled && ctx.Err() == nil: // its connection was closed
		return p.unreachable(to, err)
	case code == codes.DeadlineExceeded: // it may be frozen
		p.unanswered(to)
	}
	return err
}

// unreachable is the error of a call that did not reach another node, or whose answer was lost.
func (p *peers) unreachable(to coordinator.Member, err error) error {
	p.unanswered(to)
	return retriable(reasonPeerUnreachable, fmt.Sprintf("node %s can't be reached at the moment: %s", to.Node, status.Convert(err).Message()))
}

func (p *peers) unanswered(to coordinator.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed[to.Address] = time.Now()
}

// failedLately reports whether a node could not be reached a moment ago.
func (p *peers) failedLately(m coordinator.Member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.failed[m.Address]) < askTimeout
}

// forwardUnary forwards what this node can't do, because it doesn't own the shard. A shard that
// moves is nobody's for a moment: that is waited for.
func (s *Server) forwardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if resp, err, done := s.relay(ctx, req, info.FullMethod); done {
		return resp, err
	}
	for patience := time.Now().Add(movePatience); ; {
		resp, err := handler(ctx, req)
		id, unowned := unownedShard(err)
		if !unowned {
			return resp, err
		}
		if to, ok := s.peers.holder(ctx, id); ok {
			m, isMessage := req.(proto.Message)
			out, made := responseOf(info.FullMethod)
			if !isMessage || !made {
				return nil, err
			}
			if err = s.peers.send(ctx, to, info.FullMethod, m, out); err == nil {
				return out, nil
			}
			if _, unowned := unownedShard(err); !unowned {
				return nil, err
			}
		}
		if !time.Now().Before(patience) || !s.settles(ctx, id) {
			return nil, err
		}
	}
}

// relay has another node answer while this node's database doesn't. What is asked of this very node
// is answered here.
func (s *Server) relay(ctx context.Context, req any, method string) (answer any, err error, done bool) {
	m, isMessage := req.(proto.Message)
	resp, made := responseOf(method)
	if !s.node.Away() || !isMessage || !made || strings.HasPrefix(method, "/carillon.v1.ClusterService/") || strings.HasPrefix(method, "/carillon.v1.WorkerService/") ||
		len(metadata.ValueFromIncomingContext(ctx, relayedBy)) > 0 {
		return nil, nil, false
	}
	for _, to := range s.peers.others(ctx) {
		if to.Unfit || s.peers.failedLately(to) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, relayTimeout)
		err := s.peers.invoke(ctx, to, method, m, resp, relayedBy)
		cancel()
		switch status.Code(err) {
		case codes.OK:
			return resp, nil, true
		case codes.Unavailable, codes.DeadlineExceeded:
			proto.Reset(resp)
		default:
			return nil, err, true
		}
	}
	return nil, nil, false
}

// relayTimeout is how long another node is waited for that answers in this one's place.
const relayTimeout = 3 * time.Second

// movePatience is how long a call waits for a shard that moves, and moveLook how often it is
// looked whether it has.
const (
	movePatience = 400 * time.Millisecond
	moveLook     = 20 * time.Millisecond
)

// settles waits for a moment, or until this node owns a shard. It reports whether it is worth
// another try.
func (s *Server) settles(ctx context.Context, id shard.ID) bool {
	tick := time.NewTicker(moveLook)
	defer tick.Stop()
	changed := s.coordination.Changed()
	for range 5 {
		select {
		case <-changed:
			return true
		case <-tick.C:
			if s.node.Owns(id) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// unownedShard reads which shard an error says that this node doesn't own.
func unownedShard(err error) (shard.ID, bool) {
	if status.Code(err) != codes.Unavailable {
		return 0, false
	}
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetReason() == reasonShardUnowned {
			id, err := strconv.Atoi(info.GetMetadata()["shard"])
			return shard.ID(id), err == nil
		}
	}
	return 0, false
}

// responseOf makes an empty response of a method.
func responseOf(method string) (proto.Message, bool) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, false
	}
	of, ok := d.(protoreflect.ServiceDescriptor)
	if !ok || of.Methods().ByName(protoreflect.Name(name)) == nil {
		return nil, false
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(of.Methods().ByName(protoreflect.Name(name)).Output().FullName())
	if err != nil {
		return nil, false
	}
	return t.New().Interface(), true
}

// atOwner asks the owner of a shard for something that this node knows less of. It reports
// false if there is no other owner, or it can't be reached: then this node answers.
func (s *Server) atOwner(ctx context.Context, id shard.ID, method string, req, resp proto.Message) bool {
	to, ok := s.peers.holder(ctx, id)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.peers.send(ctx, to, method, req, resp) == nil
}

const (
	// askTimeout is how long another node is waited for if this one can do without.
	askTimeout = time.Second
	// handTimeout is how long a create waits for the owner, before it goes through the inbox.
	handTimeout = 2 * time.Second
)

// orAtOwner makes a call of a shard's owner, if err says that it isn't this node.
func (s *Server) orAtOwner(ctx context.Context, id shard.ID, err error, method string, req, resp proto.Message) error {
	if !errors.Is(err, engine.ErrNotOwned) {
		return err
	}
	to, ok := s.peers.holder(ctx, id)
	if !ok {
		return err
	}
	return s.peers.send(ctx, to, method, req, resp)
}

// unowned is the error of a call that only a shard's owner can do. It names the shard, by which
// it is forwarded.
func unowned(op string, err error) error {
	of := (*engine.NotOwnedError)(nil)
	if !errors.As(err, &of) {
		return retriable(reasonShardUnowned, op+": "+engine.ErrNotOwned.Error())
	}
	return retriable(reasonShardUnowned, op+": "+of.Error(), "shard", strconv.Itoa(int(of.Shard)))
}
