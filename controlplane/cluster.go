package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
)

// clusterService implements carillon.v1.ClusterService.
type clusterService struct {
	carillonv1.UnsafeClusterServiceServer
	*Server
}

// Cluster is what a server needs of the coordination.
type Cluster interface {
	coordinator.Directory
	coordinator.Operator
}

// GetCluster implements ClusterService.
func (s clusterService) GetCluster(context.Context, *carillonv1.GetClusterRequest) (*carillonv1.GetClusterResponse, error) {
	c := &carillonv1.Cluster{Id: s.cluster, Node: s.nodeID, ShardCount: int32(s.shards), Members: s.memberMessages()}
	st := s.coordination.Status()
	c.Coordination = &carillonv1.Coordination{Kind: st.Kind, Connected: st.Connected, SinceTime: timestamppb.New(st.Since), Member: st.Session,
		Generation: st.Gen, Revision: st.Rev}
	for _, h := range s.coordination.Holders() {
		if h.Node == "" {
			c.UnheldCount++
		}
	}
	if st.Problem != "" {
		c.Problems = append(c.Problems, st.Problem)
	}
	if !st.Connected {
		c.Problems = append(c.Problems, "frozen: no node joins or leaves; what each node holds goes on")
	}
	if s.node.Degraded() {
		c.Problems = append(c.Problems, "this node can't reach its database: nothing is acknowledged until it can")
	}
	if c.UnheldCount > 0 {
		c.Problems = append(c.Problems, fmt.Sprintf("%d shards are held by nobody: their jobs wait; a shard that moves is so for less than a second, that of a lost node for a few", c.UnheldCount))
	}
	for _, m := range c.Members {
		if m.State == carillonv1.MemberState_MEMBER_STATE_UNFIT {
			c.Problems = append(c.Problems, m.Name+" is unfit: its database doesn't answer, its clock is off, or its owner_gen is too low")
		}
	}
	return &carillonv1.GetClusterResponse{Cluster: c}, nil
}

func (s clusterService) memberMessages() []*carillonv1.Member {
	out := []*carillonv1.Member{}
	for _, m := range s.coordination.Members() {
		state := carillonv1.MemberState_MEMBER_STATE_ACTIVE
		switch {
		case m.Unfit:
			state = carillonv1.MemberState_MEMBER_STATE_UNFIT
		case m.Draining:
			state = carillonv1.MemberState_MEMBER_STATE_DRAINING
		}
		message := &carillonv1.Member{Name: "members/" + m.Node, Address: m.Address, Version: m.Version, Capacity: int32(m.Capacity),
			StartTime: timestamppb.New(m.Started), ShardCount: int32(m.Shards), State: state, ClockSkew: durationpb.New(m.Skew)}
		if m.Commit > 0 {
			message.CommitLatency = durationpb.New(m.Commit)
		}
		out = append(out, message)
	}
	return out
}

// ListMembers implements ClusterService.
func (s clusterService) ListMembers(context.Context, *carillonv1.ListMembersRequest) (*carillonv1.ListMembersResponse, error) {
	return &carillonv1.ListMembersResponse{Members: s.memberMessages()}, nil
}

// ListShards implements ClusterService. What the coordination says is there without the database.
func (s clusterService) ListShards(ctx context.Context, _ *carillonv1.ListShardsRequest) (*carillonv1.ListShardsResponse, error) {
	resp := &carillonv1.ListShardsResponse{Shards: []*carillonv1.Shard{}}
	for _, h := range s.coordination.Holders() {
		resp.Shards = append(resp.Shards, &carillonv1.Shard{Name: shardName(h.Shard), Holder: h.Node, Wanted: h.Wanted, Pinned: h.Pinned})
	}
	readCtx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	owners, err := s.store.Owners(readCtx)
	if err != nil {
		s.log.WarnContext(ctx, "the owners of the shards could not be read", "error", err)
		resp.Problem = "the database doesn't answer: whose the shards are by its word is not known"
		return resp, nil
	}
	for _, o := range owners {
		if int(o.Shard) < len(resp.Shards) {
			m := resp.Shards[o.Shard]
			m.Owner, m.Epoch, m.Generation, m.Revision, m.WatermarkTime = o.Node, int64(o.Epoch), o.Gen, o.Rev, timestamp(o.Watermark)
		}
	}
	return resp, nil
}

func shardName(id shard.ID) string { return fmt.Sprintf("shards/%d", id) }

// parseShard reads a shard's resource name.
func (s clusterService) parseShard(name string) (shard.ID, error) {
	text, ok := strings.CutPrefix(name, "shards/")
	id, err := strconv.Atoi(text)
	if !ok || err != nil || id < 0 || id >= s.shards {
		return 0, fmt.Errorf("must be shards/0 to shards/%d, is %q", s.shards-1, name)
	}
	return shard.ID(id), nil
}

// TransferShard implements ClusterService.
func (s clusterService) TransferShard(ctx context.Context, req *carillonv1.TransferShardRequest) (*carillonv1.TransferShardResponse, error) {
	var v violations
	id, err := s.parseShard(req.GetName())
	v.check("name", err)
	if req.GetNode() != "" {
		v.check("node", job.CheckName(req.GetNode()))
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	if err := s.coordination.Pin(ctx, id, req.GetNode()); err != nil {
		return nil, s.operated(ctx, "transfer shard", "node", err)
	}
	s.log.InfoContext(ctx, "a shard is transferred", "shard", id, "to", req.GetNode())
	return &carillonv1.TransferShardResponse{}, nil
}

// DrainMember implements ClusterService.
func (s clusterService) DrainMember(ctx context.Context, req *carillonv1.DrainMemberRequest) (*carillonv1.DrainMemberResponse, error) {
	node, ok := strings.CutPrefix(req.GetName(), "members/")
	if !ok || job.CheckName(node) != nil {
		return nil, invalid("name", reasonInvalidField, fmt.Sprintf("must be members/{node}, is %q", req.GetName()))
	}
	if err := s.coordination.Drain(ctx, node, !req.GetUndo()); err != nil {
		return nil, s.operated(ctx, "drain member", "name", err)
	}
	s.log.InfoContext(ctx, "a member is drained", "member", node, "undo", req.GetUndo())
	return &carillonv1.DrainMemberResponse{}, nil
}

// operated maps the error of what an operator asked for.
func (s clusterService) operated(ctx context.Context, op, field string, err error) error {
	switch {
	case errors.Is(err, coordinator.ErrAlone):
		return fail(codes.FailedPrecondition, reasonNoCluster, op+": this node is alone; nodes that share shards are started with --etcd")
	case errors.Is(err, coordinator.ErrNoMember):
		return fail(codes.NotFound, reasonNotFound, op+": "+field+": no such node takes part; ListMembers shows them")
	case errors.Is(err, coordinator.ErrUnavailable):
		s.log.WarnContext(ctx, "the coordination failed a call", "operation", op, "error", err)
		return retriable(reasonNoCoordination, op+": etcd can't be reached at the moment")
	}
	return s.toStatus(ctx, op, err)
}
