package controlplane

import (
	"cmp"
	"context"
	"slices"
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
	if err := checkExtend(ctx, req); err != nil {
		return nil, err
	}
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
	if err := checkFinish(ctx, req); err != nil {
		return nil, err
	}
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

// passOn hands a stream's results of other nodes' shards to those: the worker may have no stream
// there. What they can't tell, the worker sends again.
func (s workerService) passOn(ctx context.Context, results []*carillonv1.AttemptResult, w *workerStream) {
	_, there := s.parts(ctx, len(results), func(i int) int32 { return results[i].GetToken().GetShard() })
	for m, places := range there {
		places = slices.DeleteFunc(places, func(i int) bool { return s.node.Owns(shard.ID(results[i].GetToken().GetShard())) })
		if len(places) == 0 || s.peers.failedLately(m) {
			continue
		}
		req := &carillonv1.FinishRequest{WorkerId: w.key.ID, Incarnation: w.key.Incarnation, Results: pick(results, places)}
		s.handing.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, maxFinishing)
			defer cancel()
			resp := &carillonv1.FinishResponse{}
			if s.peers.send(ctx, m, carillonv1.WorkerService_Finish_FullMethodName, req, resp) == nil {
				w.push(delivery{acks: slices.DeleteFunc(resp.GetAcks(), func(a *carillonv1.ResultAck) bool {
					return a.GetVerdict() == carillonv1.ResultVerdict_RESULT_VERDICT_UNSPECIFIED
				})})
			}
		})
	}
}

// Poll implements WorkerService. First every node is asked for what it has at once, one after the
// other, beginning anywhere: so none of them claims what another one has given already. If
// there is nothing, all are waited for together, and the first answer ends that.
func (s workerService) Poll(ctx context.Context, req *carillonv1.PollRequest) (*carillonv1.PollResponse, error) {
	if s.node.Granted() == 0 {
		return nil, noProof()
	}
	h, wait, err := pollHello(req)
	if err == nil {
		err = mayBe(ctx, "worker_id", req.GetWorkerId())
	}
	if err != nil {
		return nil, err
	}
	others := s.peers.others(ctx)
	if len(others) == 0 {
		return s.poll(ctx, req)
	}
	began := time.Now()
	asked := []pollable{{s.poll, s.finish, false}}
	for _, m := range others {
		asked = append(asked, s.pollableOf(m))
	}
	for i := range asked { // in any order: none of the nodes is the first for everybody
		j := i + int(s.core.Random()*float64(len(asked)-i))
		asked[i], asked[j] = asked[j], asked[i]
	}
	sum := &pollSum{room: int(h.GetCapacity())}
	for _, n := range asked {
		if n.failedLately {
			continue
		}
		at, cancel := context.WithTimeout(ctx, askTimeout)
		resp, err := n.poll(at, pollFor(req, 0))
		cancel()
		if err := sum.add(resp, err); err != nil || len(resp.GetAssignments()) > 0 {
			return sum.resp, err
		}
	}
	if ctx.Err() != nil || sum.resp == nil {
		return nil, s.toStatus(ctx, "poll", cmp.Or(ctx.Err(), sum.err))
	}
	return s.pollAll(ctx, asked, req, max(0, wait-time.Since(began)), sum)
}

// pollable is a node that can be asked for attempts, and be given some back.
type pollable struct {
	poll         func(context.Context, *carillonv1.PollRequest) (*carillonv1.PollResponse, error)
	finish       func(context.Context, *carillonv1.FinishRequest) (*carillonv1.FinishResponse, error)
	failedLately bool
}

func (s *Server) pollableOf(m coordinator.Member) pollable {
	return pollable{
		func(ctx context.Context, req *carillonv1.PollRequest) (*carillonv1.PollResponse, error) {
			resp := &carillonv1.PollResponse{}
			return resp, s.peers.send(ctx, m, carillonv1.WorkerService_Poll_FullMethodName, req, resp)
		},
		func(ctx context.Context, req *carillonv1.FinishRequest) (*carillonv1.FinishResponse, error) {
			resp := &carillonv1.FinishResponse{}
			return resp, s.peers.send(ctx, m, carillonv1.WorkerService_Finish_FullMethodName, req, resp)
		},
		s.peers.failedLately(m),
	}
}

// pollAll waits for the first answer of several nodes. What others have claimed by then is
// taken back with their calls; what they have answered already goes along as far as there is room,
// and the rest is handed back.
func (s workerService) pollAll(ctx context.Context, asked []pollable, req *carillonv1.PollRequest, wait time.Duration, sum *pollSum) (*carillonv1.PollResponse, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		of   pollable
		resp *carillonv1.PollResponse
		err  error
	}
	answers := make(chan answer, len(asked))
	for _, n := range asked {
		go func() { // each ends with its call, which cancel ends
			resp, err := n.poll(waiting, pollFor(req, wait))
			answers <- answer{n, resp, err}
		}()
	}
	var refused error
	for range asked {
		a := <-answers
		if waiting.Err() != nil && a.err != nil {
			continue
		}
		if refused != nil {
			sum.room = 0
		}
		if extra := sum.trim(a.resp); len(extra) > 0 {
			s.handing.Go(func() { s.handBack(ctx, a.of, req, extra) }) // the lease of what is taken has begun
		}
		if err := sum.add(a.resp, a.err); err != nil || len(sum.resp.GetAssignments()) > 0 {
			refused = cmp.Or(refused, err)
			cancel()
		}
	}
	return sum.resp, refused
}

// handBack gives attempts back to the node that handed them out; without that it would wait for the
// end of their leases.
func (s workerService) handBack(ctx context.Context, n pollable, req *carillonv1.PollRequest, extra []*carillonv1.Assignment) {
	back := &carillonv1.FinishRequest{WorkerId: req.GetWorkerId(), Incarnation: req.GetIncarnation()}
	for _, a := range extra {
		back.Results = append(back.Results, &carillonv1.AttemptResult{Token: a.GetToken(), Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED,
			ErrorCode: "NOT_TAKEN", ErrorMessage: []byte("the worker had got as many as it asked for from another node")})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPollWait)
	defer cancel()
	if _, err := n.finish(ctx, back); err != nil {
		s.log.WarnContext(ctx, "attempts that were polled twice were not handed back; the next Poll hands them out again", "worker", req.GetWorkerId(), "error", err)
	}
}

// pollFor is a Poll with another wait.
func pollFor(req *carillonv1.PollRequest, wait time.Duration) *carillonv1.PollRequest {
	r := proto.CloneOf(req)
	r.Wait = durationpb.New(wait)
	return r
}

// pollSum is what several nodes have answered.
type pollSum struct {
	room int                      // for attempts
	resp *carillonv1.PollResponse // nil: nobody has
	err  error                    // of one that could not
}

// trim takes out of an answer what there is no room for.
func (p *pollSum) trim(resp *carillonv1.PollResponse) (extra []*carillonv1.Assignment) {
	room := p.room - len(p.resp.GetAssignments())
	if n := len(resp.GetAssignments()); n > room {
		extra, resp.Assignments = resp.Assignments[room:], resp.Assignments[:room]
	}
	return extra
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
