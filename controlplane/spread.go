package controlplane

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/coordinator"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
)

// A worker that asks by single calls knows of one node, or of a load balancer. What it holds may
// be of shards of several nodes, and its work may be at any. So the node that it calls asks the
// others, each for its part.

// parts divides what lies in shards among the nodes that hold those. Each is a list of places;
// what no other node holds is this node's.
func (s *Server) parts(ctx context.Context, n int, shardOf func(int) int32) (here []int, there map[coordinator.Member][]int) {
	there = map[coordinator.Member][]int{}
	for i := range n {
		if m, ok := s.peers.holder(ctx, shard.ID(shardOf(i))); ok {
			there[m] = append(there[m], i)
		} else {
			here = append(here, i)
		}
	}
	return here, there
}

// pick returns the elements at some places.
func pick[T any](all []T, places []int) []T {
	out := make([]T, len(places))
	for k, i := range places {
		out[k] = all[i]
	}
	return out
}

// Extend implements WorkerService. What another node can't be asked about keeps its lease as it
// is.
func (s workerService) Extend(ctx context.Context, req *carillonv1.ExtendRequest) (*carillonv1.ExtendResponse, error) {
	here, there := s.parts(ctx, len(req.GetHeld()), func(i int) int32 { return req.GetHeld()[i].GetShard() })
	starts, startsThere := s.parts(ctx, len(req.GetStarted()), func(i int) int32 { return req.GetStarted()[i].GetToken().GetShard() })
	reports, reportsThere := s.parts(ctx, len(req.GetProgress()), func(i int) int32 { return req.GetProgress()[i].GetToken().GetShard() })
	if len(there)+len(startsThere)+len(reportsThere) == 0 {
		return s.extend(ctx, req)
	}
	part := func(held, starts, reports []int) *carillonv1.ExtendRequest {
		return &carillonv1.ExtendRequest{WorkerId: req.GetWorkerId(), Incarnation: req.GetIncarnation(),
			Held: pick(req.GetHeld(), held), Started: pick(req.GetStarted(), starts), Progress: pick(req.GetProgress(), reports)}
	}
	resp, err := s.extend(ctx, part(here, starts, reports))
	if err != nil {
		return nil, err
	}
	all := make([]*carillonv1.Attestation, len(req.GetHeld()))
	for i, t := range req.GetHeld() {
		all[i] = &carillonv1.Attestation{Token: t, Verdict: carillonv1.AttestationVerdict_ATTESTATION_VERDICT_UNKNOWN}
	}
	place(all, here, resp.GetAttestations())
	nodes := map[coordinator.Member]bool{}
	for _, of := range []map[coordinator.Member][]int{there, startsThere, reportsThere} {
		for m := range of {
			nodes[m] = true
		}
	}
	answers := make(chan *carillonv1.ExtendResponse, len(nodes))
	var group errgroup.Group
	for m := range nodes {
		group.Go(func() error {
			of := &carillonv1.ExtendResponse{}
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			if s.peers.send(ctx, m, carillonv1.WorkerService_Extend_FullMethodName, part(there[m], startsThere[m], reportsThere[m]), of) == nil {
				place(all, there[m], of.GetAttestations()) // each place is one goroutine's
				answers <- of
			}
			return nil
		})
	}
	_ = group.Wait() // they return none
	close(answers)
	resp.Attestations = all
	for of := range answers {
		resp.ProgressAcks = append(resp.ProgressAcks, of.GetProgressAcks()...)
		resp.Lease = shorter(resp.GetLease(), of.GetLease())
	}
	return resp, nil
}

// place puts answers where their questions stood.
func place[T any](all []T, places []int, answers []T) {
	for k, i := range places {
		if k < len(answers) {
			all[i] = answers[k]
		}
	}
}

func shorter(a, b *durationpb.Duration) *durationpb.Duration {
	if b.AsDuration() < a.AsDuration() {
		return b
	}
	return a
}

// Finish implements WorkerService.
func (s workerService) Finish(ctx context.Context, req *carillonv1.FinishRequest) (*carillonv1.FinishResponse, error) {
	here, there := s.parts(ctx, len(req.GetResults()), func(i int) int32 { return req.GetResults()[i].GetToken().GetShard() })
	if len(there) == 0 {
		return s.finish(ctx, req)
	}
	all := make([]*carillonv1.ResultAck, len(req.GetResults()))
	for i, r := range req.GetResults() {
		all[i] = &carillonv1.ResultAck{Token: r.GetToken(), Message: sendAgain}
	}
	part := func(places []int) *carillonv1.FinishRequest {
		return &carillonv1.FinishRequest{WorkerId: req.GetWorkerId(), Incarnation: req.GetIncarnation(), Results: pick(req.GetResults(), places)}
	}
	var group errgroup.Group
	if len(here) > 0 {
		group.Go(func() error {
			of, err := s.finish(ctx, part(here))
			place(all, here, of.GetAcks())
			return err
		})
	}
	for m, places := range there {
		group.Go(func() error {
			of := &carillonv1.FinishResponse{}
			ctx, cancel := context.WithTimeout(ctx, maxFinishing)
			defer cancel()
			if s.peers.send(ctx, m, carillonv1.WorkerService_Finish_FullMethodName, part(places), of) == nil {
				place(all, places, of.GetAcks())
			}
			return nil // those are to be sent again
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return &carillonv1.FinishResponse{Acks: all}, nil
}

// Poll implements WorkerService. First every node is asked for what it has at once, one after the
// other, beginning anywhere: so none of them claims what another one has given already. If
// there is nothing, all are waited for together, and the first answer counts. What another
// one has claimed by then is taken back with its call, or sent again by the next Poll.
func (s workerService) Poll(ctx context.Context, req *carillonv1.PollRequest) (*carillonv1.PollResponse, error) {
	others := s.peers.others(ctx)
	if len(others) == 0 {
		return s.poll(ctx, req)
	}
	_, wait, err := pollHello(req)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	asks := []func(context.Context, *carillonv1.PollRequest) (*carillonv1.PollResponse, error){s.poll}
	for _, m := range others {
		asks = append(asks, func(ctx context.Context, req *carillonv1.PollRequest) (*carillonv1.PollResponse, error) {
			resp := &carillonv1.PollResponse{}
			return resp, s.peers.send(ctx, m, carillonv1.WorkerService_Poll_FullMethodName, req, resp)
		})
	}
	rand.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	sum := &pollSum{}
	for _, ask := range asks {
		at, cancel := context.WithTimeout(ctx, askTimeout)
		resp, err := ask(at, pollFor(req, 0))
		cancel()
		if err := sum.add(resp, err); len(resp.GetAssignments()) > 0 {
			return sum.resp, err
		}
	}
	if ctx.Err() != nil || sum.resp == nil {
		return nil, s.toStatus(ctx, "poll", errorOr(ctx.Err(), sum.err))
	}
	return s.pollAll(ctx, asks, req, max(0, wait-time.Since(began)), sum)
}

func errorOr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// pollAll waits for the first answer of several nodes.
func (s workerService) pollAll(ctx context.Context, asks []func(context.Context, *carillonv1.PollRequest) (*carillonv1.PollResponse, error), req *carillonv1.PollRequest, wait time.Duration, sum *pollSum) (*carillonv1.PollResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what the others claim is taken back
	type answer struct {
		resp *carillonv1.PollResponse
		err  error
	}
	answers := make(chan answer, len(asks))
	for _, ask := range asks {
		go func() { // each ends with its call, which cancel ends
			resp, err := ask(ctx, pollFor(req, wait))
			answers <- answer{resp, err}
		}()
	}
	for range asks {
		a := <-answers
		if err := sum.add(a.resp, a.err); err != nil || len(a.resp.GetAssignments()) > 0 {
			return sum.resp, err
		}
	}
	return sum.resp, nil
}

// pollFor is a Poll with another wait.
func pollFor(req *carillonv1.PollRequest, wait time.Duration) *carillonv1.PollRequest {
	r := proto.CloneOf(req)
	r.Wait = durationpb.New(wait)
	return r
}

// pollSum is what several nodes have answered.
type pollSum struct {
	resp *carillonv1.PollResponse // nil: nobody has
	err  error                    // of one that could not
}

// final reports whether another node would answer the same.
func final(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Aborted, codes.FailedPrecondition:
		return true
	}
	return false
}

// add takes an answer. It returns an error that is the caller's own: the same from every node.
func (p *pollSum) add(resp *carillonv1.PollResponse, err error) error {
	if err != nil {
		p.err = err
		if final(err) {
			return err
		}
		return nil
	}
	if p.resp == nil {
		p.resp = resp
		return nil
	}
	for i, a := range resp.GetAttestations() { // the owner knows, the others don't
		if a.GetVerdict() != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_UNKNOWN && i < len(p.resp.GetAttestations()) {
			p.resp.Attestations[i] = a
		}
	}
	p.resp.Assignments = append(p.resp.Assignments, resp.GetAssignments()...)
	p.resp.Lease = shorter(p.resp.GetLease(), resp.GetLease())
	return nil
}
