package controlplane

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store"
)

// catalog remembers which handlers are known. A handler that was registered once
// stays so; what isn't known is asked for again each time.
type catalog struct {
	store store.Catalog
	known sync.Map // handler name → struct{}
}

// knows reports whether a worker has ever registered the handler.
func (c *catalog) knows(ctx context.Context, name string) (bool, error) {
	if _, ok := c.known.Load(name); ok {
		return true, nil
	}
	_, err := c.store.Handler(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.known.Store(name, struct{}{})
	return true, nil
}

// resembling returns known handlers whose names are near a misspelt one.
func (c *catalog) resembling(ctx context.Context, name string) ([]string, error) {
	handlers, err := c.store.Handlers(ctx, "", maxPageSize)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(handlers))
	for i, h := range handlers {
		names[i] = h.Name
	}
	return nearest(name, names), nil
}

// register notes the handlers of a worker.
func (c *catalog) register(ctx context.Context, names []string, now job.Instant) error {
	if err := c.store.RegisterHandlers(ctx, names, now); err != nil {
		return err
	}
	for _, n := range names {
		c.known.Store(n, struct{}{})
	}
	return nil
}

// handlerService implements carillon.v1.HandlerService.
type handlerService struct {
	carillonv1.UnsafeHandlerServiceServer
	*Server
}

func handlerMessage(h store.Handler, live int) *carillonv1.Handler {
	return &carillonv1.Handler{Name: "handlers/" + h.Name, CreateTime: timestamp(h.CreatedAt), LastSeenTime: timestamp(h.LastSeenAt), LiveWorkers: int32(live)}
}

// GetHandler implements HandlerService.
func (s handlerService) GetHandler(ctx context.Context, req *carillonv1.GetHandlerRequest) (*carillonv1.GetHandlerResponse, error) {
	name, err := parseHandler(req.GetName())
	if err != nil {
		return nil, invalid("name", reasonInvalidField, err.Error())
	}
	h, err := s.store.Handler(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fail(codes.NotFound, reasonNotFound, req.GetName()+" not found", "name", req.GetName())
	}
	if err != nil {
		return nil, s.toStatus(ctx, "read handler", err)
	}
	live, err := s.node.Serving(ctx, []string{name})
	if err != nil {
		return nil, s.toStatus(ctx, "read handler", err)
	}
	return &carillonv1.GetHandlerResponse{Handler: handlerMessage(h, live[0])}, nil
}

// ListHandlers implements HandlerService.
func (s handlerService) ListHandlers(ctx context.Context, req *carillonv1.ListHandlersRequest) (*carillonv1.ListHandlersResponse, error) {
	var v violations
	size := pageSize(&v, req.GetPageSize())
	print := requestPrint(req, func(r *carillonv1.ListHandlersRequest) { r.PageSize, r.PageToken = 0, "" })
	after := ""
	decodeToken(&v, req.GetPageToken(), print, &after)
	if err := v.err(); err != nil {
		return nil, err
	}
	handlers, err := s.store.Handlers(ctx, after, size+1)
	if err != nil {
		return nil, s.toStatus(ctx, "list handlers", err)
	}
	resp := &carillonv1.ListHandlersResponse{Handlers: []*carillonv1.Handler{}}
	if len(handlers) > size {
		handlers = handlers[:size]
		resp.NextPageToken = encodeToken(print, handlers[size-1].Name)
	}
	names := make([]string, len(handlers))
	for i, h := range handlers {
		names[i] = h.Name
	}
	live, err := s.node.Serving(ctx, names)
	if err != nil {
		return nil, s.toStatus(ctx, "list handlers", err)
	}
	for i, h := range handlers {
		resp.Handlers = append(resp.Handlers, handlerMessage(h, live[i]))
	}
	return resp, nil
}

// now is the clock of the control plane.
// now is the time of what people ask and are told.
func (s *Server) now() job.Instant { return job.At(s.clock()) }
