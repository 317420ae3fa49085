package controlplane

import (
	"context"
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// strictRegistrar registers services whose unreadable requests are the caller's
// fault. gRPC itself answers INTERNAL to, say, text that isn't UTF-8, before any
// interceptor sees the call.
type strictRegistrar struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r strictRegistrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	strict := *desc
	strict.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		strict.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: strictHandler(m.Handler)}
	}
	r.ServiceRegistrar.RegisterService(&strict, impl)
}

func strictHandler(next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		return next(srv, ctx, func(req any) error {
			if err := dec(req); err != nil {
				return fail(codes.InvalidArgument, reasonMalformedRequest, fmt.Sprintf("the request can't be read: %s", status.Convert(err).Message()))
			}
			return nil
		}, interceptor)
	}
}
