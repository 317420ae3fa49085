package sim

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A process of a later version says more than one of today's understands: its messages have a field
// that nobody knows here, and now and then it sends one that has nothing else.

// unknown is such a field, which no version will ever have.
var unknown = protowire.AppendString(protowire.AppendTag(nil, 19_999-1000, protowire.BytesType), "of a later version")

func later(m any) {
	if m, ok := m.(proto.Message); ok {
		m.ProtoReflect().SetUnknown(unknown)
	}
}

type laterServerStream struct{ grpc.ServerStream }

// SendMsg implements grpc.ServerStream.
func (s laterServerStream) SendMsg(m any) error {
	later(m)
	return s.ServerStream.SendMsg(m)
}

func laterStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, laterServerStream{stream})
}

func laterUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if err == nil {
		later(resp)
	}
	return resp, err
}
