package controlplane

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// recoverUnary turns a panic of a call into its error, with the stack in the log.
func (s *Server) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(ctx, info.FullMethod, p)
		}
	}()
	return handler(ctx, req)
}

// recoverStream does the same for a stream.
func (s *Server) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(stream.Context(), info.FullMethod, p)
		}
	}()
	return handler(srv, stream)
}

func (s *Server) panicked(ctx context.Context, method string, p any) error {
	s.log.ErrorContext(ctx, "a call panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
	return fail(codes.Internal, reasonInternal, method+": internal error; the server's log says more")
}

// countUnary counts calls by method and code.
func (s *Server) countUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	s.metrics.requestsHandled.WithLabelValues(info.FullMethod, codeName(status.Code(err))).Inc()
	return resp, err
}

// boundUnary gives every call a deadline, whatever its client asked for.
func boundUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, maxUnaryDeadline)
	defer cancel()
	return handler(ctx, req)
}

// strictCodec makes a message that can't be read, such as one with text that isn't
// UTF-8, the caller's fault. gRPC itself answers INTERNAL to it, before any
// interceptor sees the call; so the codec lets it pass as an empty message, keeps
// the reason, and whoever receives the message asks for it.
type strictCodec struct {
	encoding.CodecV2
	failures sync.Map // message → error, taken by its receiver
}

func newStrictCodec() *strictCodec {
	return &strictCodec{CodecV2: encoding.GetCodecV2(protocodec.Name)}
}

// Unmarshal implements encoding.CodecV2.
func (c *strictCodec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if m, ok := v.(proto.Message); ok {
		proto.Reset(m)
		c.failures.Store(v, err)
		return nil
	}
	return err
}

// check returns why a message that was received can't be read, or nil.
func (c *strictCodec) check(v any) error {
	err, failed := c.failures.LoadAndDelete(v)
	if !failed {
		return nil
	}
	return fail(codes.InvalidArgument, reasonMalformedRequest, fmt.Sprintf("the request can't be read: %v", err))
}

// unary checks the request of a call.
func (c *strictCodec) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := c.check(req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// stream checks every message of a stream.
func (c *strictCodec) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, strictStream{stream, c})
}

type strictStream struct {
	grpc.ServerStream
	codec *strictCodec
}

// RecvMsg implements grpc.ServerStream.
func (s strictStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.codec.check(m)
}
