package controlplane

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/engine/clock"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// clockService implements carillon.v1.ClockService, for a server on simulated time.
type clockService struct {
	carillonv1.UnsafeClockServiceServer
	*Server
	clock *clock.Simulated
	turn  chan struct{} // has room for one: who advances
}

func newClockService(s *Server, c *clock.Simulated) clockService {
	return clockService{Server: s, clock: c, turn: make(chan struct{}, 1)}
}

// maxAdvance bounds one call; the caller goes on from where it came to.
const maxAdvance = 20 * time.Second

// AdvanceClock implements ClockService.
func (s clockService) AdvanceClock(ctx context.Context, req *carillonv1.AdvanceClockRequest) (*carillonv1.AdvanceClockResponse, error) {
	if err := req.GetUntil().CheckValid(); err != nil {
		return nil, invalid("until", reasonInvalidField, err.Error())
	}
	until := req.GetUntil().AsTime()
	if limit := s.clock.Wall().AddDate(100, 0, 0); until.After(limit) {
		return nil, invalid("until", reasonInvalidField, "must be within a hundred years")
	}
	ctx, cancel := context.WithTimeout(ctx, maxAdvance)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, s.toStatus(ctx, "advance the clock", ctx.Err())
	}
	running, err := s.node.Advance(ctx, s.clock, until)
	if err != nil {
		return nil, s.toStatus(ctx, "advance the clock", err)
	}
	return &carillonv1.AdvanceClockResponse{Time: timestamppb.New(s.clock.Wall()), Running: int32(running)}, nil
}

// GetClock implements ClockService.
func (s clockService) GetClock(context.Context, *carillonv1.GetClockRequest) (*carillonv1.GetClockResponse, error) {
	return &carillonv1.GetClockResponse{Time: timestamppb.New(s.clock.Wall())}, nil
}

// simulatedTimes tells when handlers began by the simulated clock: workers live in real time.
type simulatedTimes struct{ clock *clock.Simulated }

func (s simulatedTimes) rewrite(started []*carillonv1.Started, results ...*carillonv1.AttemptResult) {
	now := timestamppb.New(s.clock.Wall())
	for _, m := range started {
		m.StartTime = now
	}
	for _, r := range results {
		if r.GetStartTime() != nil {
			r.StartTime = now
		}
	}
}

// unary is an interceptor of the workers' calls.
func (s simulatedTimes) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	switch m := req.(type) {
	case *carillonv1.ExtendRequest:
		s.rewrite(m.GetStarted())
	case *carillonv1.FinishRequest:
		s.rewrite(nil, m.GetResults()...)
	}
	return handler(ctx, req)
}

// stream is an interceptor of the workers' streams.
func (s simulatedTimes) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, simulatedStream{stream, s})
}

type simulatedStream struct {
	grpc.ServerStream
	times simulatedTimes
}

// RecvMsg implements grpc.ServerStream.
func (s simulatedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if req, ok := m.(*carillonv1.ConnectRequest); ok {
		s.times.rewrite(req.GetStarted(), slices.Concat(req.GetResults(), req.GetHello().GetResults())...)
	}
	return nil
}
