package k6

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/grafana/sobek"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// grpcClient is Client of k6/net/grpc. Messages go in and out as JSON in protobuf's
// mapping; all that is known of them comes from the server's reflection.
type grpcClient struct {
	vu    *vu
	conn  *grpc.ClientConn     // nil: not connected
	files *protoregistry.Files // nil: connected without reflection
}

func (v *vu) newGRPCClient(sobek.ConstructorCall) *sobek.Object {
	c := &grpcClient{vu: v}
	return v.strict("the gRPC client", map[string]any{"connect": c.connect, "invoke": c.invoke, "close": c.close}).ToObject(v.rt)
}

func (c *grpcClient) connect(address string, with *sobek.Object) (bool, error) {
	var p struct {
		Plaintext bool   `json:"plaintext"`
		Reflect   bool   `json:"reflect"`
		Timeout   string `json:"timeout"`
	}
	if c.vu.at == nil {
		return false, errors.New("nothing may be sent while the script is evaluated")
	}
	if err := decode(with, &p); err != nil {
		return false, fmt.Errorf("parameters of connect: %w", err)
	}
	if c.conn != nil {
		return false, errors.New("it is connected: the old connection would be lost")
	}
	if !p.Plaintext {
		return false, errors.New("the server speaks no TLS")
	}
	timeout, err := time.ParseDuration(p.Timeout)
	if err != nil {
		return false, err
	}
	if c.conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return false, err
	}
	c.vu.run.atEnd(c.conn.Close)
	if !p.Reflect {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(c.vu.run.ctx, timeout)
	defer cancel()
	c.files, err = reflectFiles(ctx, c.conn)
	return err == nil, err
}

func (c *grpcClient) invoke(method string, message, with *sobek.Object) (sobek.Value, error) {
	if c.conn == nil {
		return nil, errors.New("it is not connected")
	}
	p, timeout, err := readParams(with, true)
	if err != nil {
		return nil, err
	}
	descriptor, err := c.find(method)
	if err != nil {
		return nil, err
	}
	in, out := dynamicpb.NewMessage(descriptor.Input()), dynamicpb.NewMessage(descriptor.Output())
	text, err := message.MarshalJSON()
	if err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(text, in); err != nil { // k6 throws, too
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(c.vu.run.ctx, timeout)
	defer cancel()
	answer := status.Convert(c.conn.Invoke(ctx, "/"+method, in, out))
	at := c.vu.at.stage
	c.vu.run.request(request{stage: at, method: strings.TrimPrefix(method, "carillon.v1."), metric: "grpc_req_duration", tags: p.Tags})
	if answer.Err() != nil {
		c.vu.run.problem(fmt.Errorf("%s: %s was answered with %w", at, method, answer.Err()))
	}
	return c.response(answer, out)
}

// response makes k6's response: every field is there, also those without a value.
func (c *grpcClient) response(answer *status.Status, out proto.Message) (sobek.Value, error) {
	var message, failure sobek.Value = sobek.Null(), sobek.Null()
	if answer.Err() != nil {
		failure = c.vu.rt.ToValue(map[string]any{"code": int(answer.Code()), "message": answer.Message()})
	} else {
		text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(out)
		if err != nil {
			return nil, err
		}
		if message, err = c.vu.parse(string(text)); err != nil {
			return nil, err
		}
	}
	return c.vu.strict("the response", map[string]any{"status": int(answer.Code()), "message": message, "error": failure}), nil
}

func (c *grpcClient) close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}

// find finds the method of package.Service/Method.
func (c *grpcClient) find(method string) (protoreflect.MethodDescriptor, error) {
	service, name, _ := strings.Cut(method, "/")
	if c.files != nil {
		if d, err := c.files.FindDescriptorByName(protoreflect.FullName(service)); err == nil {
			if s, ok := d.(protoreflect.ServiceDescriptor); ok && s.Methods().ByName(protoreflect.Name(name)) != nil {
				return s.Methods().ByName(protoreflect.Name(name)), nil
			}
		}
	}
	return nil, fmt.Errorf("method %q is not known", method)
}

// reflectFiles asks a server for the files of all of its services.
func reflectFiles(ctx context.Context, conn *grpc.ClientConn) (*protoregistry.Files, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	services, err := ask(stream, &grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	if err != nil {
		return nil, err
	}
	files := map[string]*descriptorpb.FileDescriptorProto{}
	for _, s := range services.GetListServicesResponse().GetService() {
		found, err := ask(stream, &grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: s.GetName()}})
		if err != nil {
			return nil, err
		}
		for _, text := range found.GetFileDescriptorResponse().GetFileDescriptorProto() {
			var file descriptorpb.FileDescriptorProto
			if err := proto.Unmarshal(text, &file); err != nil {
				return nil, err
			}
			files[file.GetName()] = &file
		}
	}
	var set descriptorpb.FileDescriptorSet
	for _, file := range files {
		set.File = append(set.File, file)
	}
	return protodesc.NewFiles(&set)
}

func ask(stream grpc_reflection_v1.ServerReflection_ServerReflectionInfoClient, q *grpc_reflection_v1.ServerReflectionRequest,
) (*grpc_reflection_v1.ServerReflectionResponse, error) {
	if err := stream.Send(q); err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if e := answer.GetErrorResponse(); e != nil {
		return nil, errors.New(e.GetErrorMessage())
	}
	return answer, nil
}
