package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	namespace   = "namespaces/default"
	callTimeout = 10 * time.Second
	pageSize    = 40 // small, so that the lists have several pages
)

// api is the server as a user sees it. Its calls wait for a server that isn't there,
// up to callTimeout.
type api struct {
	conn     *grpc.ClientConn
	jobs     carillonv1.JobServiceClient
	slots    carillonv1.SlotServiceClient
	handlers carillonv1.HandlerServiceClient
}

func dial(address string) (*api, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 250 * time.Millisecond,
		}}))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return &api{conn: conn, jobs: carillonv1.NewJobServiceClient(conn),
		slots: carillonv1.NewSlotServiceClient(conn), handlers: carillonv1.NewHandlerServiceClient(conn)}, nil
}

// create creates a job and notes what the server acknowledged.
func (a *api) create(ctx context.Context, j *job) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req := &carillonv1.CreateJobRequest{Parent: namespace, JobId: j.id, Job: j.message(), RequestId: "demo-" + j.id}
	j.called = time.Now()
	resp, err := a.jobs.CreateJob(ctx, req, grpc.WaitForReady(true))
	j.answered = time.Now()
	if err != nil {
		return fmt.Errorf("create %s: %w", j.id, err)
	}
	j.acknowledge(resp.GetJob())
	return nil
}

// job reads a job by its name.
func (a *api) job(ctx context.Context, name string) (*carillonv1.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := a.jobs.GetJob(ctx, &carillonv1.GetJobRequest{Name: name}, grpc.WaitForReady(true))
	return resp.GetJob(), err
}

// liveHandlers counts those of the demo's handlers that a live worker serves.
func (a *api) liveHandlers(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := a.handlers.ListHandlers(ctx, &carillonv1.ListHandlersRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return 0, fmt.Errorf("list handlers: %w", err)
	}
	n := 0
	for _, h := range resp.GetHandlers() {
		if slices.Contains(allHandlers, strings.TrimPrefix(h.GetName(), "handlers/")) && h.GetLiveWorkers() > 0 {
			n++
		}
	}
	return n, nil
}

// slotsOf lists all slots of a job, newest first, page by page; of all jobs if
// parent ends with jobs/-.
func (a *api) slotsOf(ctx context.Context, parent string) ([]*carillonv1.Slot, error) {
	var all []*carillonv1.Slot
	for token := ""; ; {
		page, next, err := a.slotsPage(ctx, &carillonv1.ListSlotsRequest{Parent: parent, PageSize: pageSize, PageToken: token})
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if token = next; token == "" {
			return all, nil
		}
	}
}

func (a *api) slotsPage(ctx context.Context, req *carillonv1.ListSlotsRequest) ([]*carillonv1.Slot, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := a.slots.ListSlots(ctx, req, grpc.WaitForReady(true))
	if err != nil {
		return nil, "", fmt.Errorf("list the slots of %s: %w", req.GetParent(), err)
	}
	return resp.GetSlots(), resp.GetNextPageToken(), nil
}

// newest lists the newest slots for the table, and doesn't wait for a server.
func (a *api) newest(ctx context.Context, n int32) ([]*carillonv1.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	resp, err := a.slots.ListSlots(ctx, &carillonv1.ListSlotsRequest{Parent: namespace + "/jobs/-", PageSize: n})
	return resp.GetSlots(), err
}

// records lists all slots; withAttempts adds their attempts.
func (a *api) records(ctx context.Context, withAttempts bool) ([]record, error) {
	slots, err := a.slotsOf(ctx, namespace+"/jobs/-")
	if err != nil {
		return nil, err
	}
	all := make([]record, len(slots))
	for i, s := range slots {
		all[i].slot = s
		if !withAttempts {
			continue
		}
		if all[i].attempts, err = a.attempts(ctx, s.GetName()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (a *api) attempts(ctx context.Context, slot string) ([]*carillonv1.Attempt, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var all []*carillonv1.Attempt
	for token := ""; ; {
		resp, err := a.slots.ListAttempts(ctx, &carillonv1.ListAttemptsRequest{Parent: slot, PageToken: token}, grpc.WaitForReady(true))
		if err != nil {
			return nil, fmt.Errorf("list the attempts of %s: %w", slot, err)
		}
		all = append(all, resp.GetAttempts()...)
		if token = resp.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
}
