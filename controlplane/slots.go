package controlplane

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// slotService implements carillon.v1.SlotService.
type slotService struct {
	carillonv1.UnsafeSlotServiceServer
	*Server
}

// namedSlot reads the slot of a request's field, or says what is wrong. A name
// may have belonged to several jobs, one after the other; each fire time is of
// one of them.
func (s *Server) namedSlot(ctx context.Context, field, name string) (store.SlotOf, error) {
	ref, err := parseSlot(name)
	if err != nil {
		return store.SlotOf{}, invalid(field, reasonInvalidField, err.Error())
	}
	if ref.fire == 0 {
		return store.SlotOf{}, invalid(field, reasonInvalidField, errSlotName.Error())
	}
	found, err := s.findSlot(ctx, ref)
	if errors.Is(err, store.ErrNotFound) {
		return found, fail(codes.NotFound, reasonNotFound, name+" not found", "name", name)
	}
	return found, s.toStatus(ctx, "read slot", err)
}

func (s *Server) findSlot(ctx context.Context, ref slotRef) (store.SlotOf, error) {
	j, err := s.findJob(ctx, ref.job)
	if err != nil {
		return store.SlotOf{}, err
	}
	uids := []job.UID{j.UID}
	if ref.job.uid.IsZero() {
		if uids, err = s.store.JobUIDs(ctx, j.Shard, j.Namespace, j.Name); err != nil {
			return store.SlotOf{}, err
		}
	}
	keys := make([]job.SlotKey, len(uids))
	for i, uid := range uids {
		keys[i] = job.SlotKey{FireTime: ref.fire, UID: uid}
	}
	slots, err := s.store.SlotsByKey(ctx, j.Shard, keys)
	if err != nil {
		return store.SlotOf{}, err
	}
	if len(slots) == 0 {
		return store.SlotOf{Job: j}, store.ErrNotFound
	}
	found := store.SlotOf{Slot: slots[0], Job: j}
	if found.Slot.Key.UID != j.UID {
		found.Job, err = s.store.JobByUID(ctx, j.Namespace, found.Slot.Key.UID)
	}
	return found, err
}

// withLive maps slots together with what this node knows of those that run.
func (s *Server) withLive(ctx context.Context, slots []store.SlotOf) ([]*carillonv1.Slot, error) {
	questions := make([]engine.Question, len(slots))
	for i := range slots {
		questions[i] = engine.Question{Shard: slots[i].Job.Shard, Key: slots[i].Slot.Key, Handler: slots[i].Job.Handler}
	}
	views, err := s.node.LookAll(ctx, questions)
	if err != nil {
		return nil, s.toStatus(ctx, "look at slots", err)
	}
	out := make([]*carillonv1.Slot, len(slots))
	for i := range slots {
		out[i] = slotMessage(&slots[i], views[i].Slot)
	}
	return out, nil
}

// GetSlot implements SlotService.
func (s slotService) GetSlot(ctx context.Context, req *carillonv1.GetSlotRequest) (*carillonv1.GetSlotResponse, error) {
	found, err := s.namedSlot(ctx, "name", req.GetName())
	if err != nil {
		return nil, err
	}
	if !s.node.Owns(found.Job.Shard) {
		resp := &carillonv1.GetSlotResponse{}
		if s.atOwner(ctx, found.Job.Shard, carillonv1.SlotService_GetSlot_FullMethodName, req, resp) {
			return resp, nil
		}
	}
	slots, err := s.withLive(ctx, []store.SlotOf{found})
	if err != nil {
		return nil, err
	}
	return &carillonv1.GetSlotResponse{Slot: slots[0]}, nil
}

// slotsCursor is a place in a list of slots: of one job's history, or of all.
type slotsCursor struct {
	UID    job.UID     `json:"u"`
	Before job.Instant `json:"b"`
	Shard  shard.ID    `json:"s"`
}

// ListSlots implements SlotService.
func (s slotService) ListSlots(ctx context.Context, req *carillonv1.ListSlotsRequest) (*carillonv1.ListSlotsResponse, error) {
	var v violations
	size := pageSize(&v, req.GetPageSize())
	states := statesSpec(&v, req.GetStates())
	print := requestPrint(req, func(r *carillonv1.ListSlotsRequest) { r.PageSize, r.PageToken = 0, "" })
	var at slotsCursor
	decodeToken(&v, req.GetPageToken(), print, &at)
	ns, all := allJobs(req.GetParent())
	if all {
		v.check("parent", job.CheckName(ns))
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	var slots []store.SlotOf
	var next slotsCursor
	var err error
	if all {
		slots, next, err = s.slotsOfAll(ctx, ns, states, at, size)
	} else {
		slots, next, err = s.slotsOfJob(ctx, req.GetParent(), states, at, size)
	}
	if err != nil {
		return nil, err
	}
	messages, err := s.withLive(ctx, slots)
	if err != nil {
		return nil, err
	}
	resp := &carillonv1.ListSlotsResponse{Slots: messages}
	if n := cutByBytes(messages); n < len(messages) {
		last := slots[n-1]
		resp.Slots, next = messages[:n], slotsCursor{UID: last.Slot.Key.UID, Before: last.Slot.Key.FireTime, Shard: last.Job.Shard}
	}
	if next != (slotsCursor{}) {
		resp.NextPageToken = encodeToken(print, next)
	}
	return resp, nil
}

// statesSpec reads a filter by states.
func statesSpec(v *violations, asked []carillonv1.SlotState) []job.State {
	var states []job.State
	for _, st := range asked {
		if st == carillonv1.SlotState_SLOT_STATE_UNSPECIFIED || carillonv1.SlotState_name[int32(st)] == "" {
			v.add("states", reasonInvalidField, "must be states of a slot")
			break
		}
		states = append(states, job.State(st))
	}
	return states
}

func (s slotService) slotsOfAll(ctx context.Context, ns string, states []job.State, at slotsCursor, size int) ([]store.SlotOf, slotsCursor, error) {
	before := store.SlotCursor{Key: job.SlotKey{FireTime: at.Before, UID: at.UID}, Shard: at.Shard}
	slots, next, err := s.store.Slots(ctx, store.SlotsPage{Namespace: ns, Filter: store.SlotFilter{States: states}, Before: before, Limit: size})
	return slots, slotsCursor{UID: next.Key.UID, Before: next.Key.FireTime, Shard: next.Shard}, s.toStatus(ctx, "list slots", err)
}

// slotsOfJob lists the history of a name: of its newest job, then of the one
// before, and so on; of a uid: of that job alone.
func (s slotService) slotsOfJob(ctx context.Context, parent string, states []job.State, at slotsCursor, size int) ([]store.SlotOf, slotsCursor, error) {
	j, err := s.namedJob(ctx, "parent", parent)
	if err != nil {
		return nil, slotsCursor{}, err
	}
	uids := []job.UID{j.UID}
	if ref, err := parseJob(parent); err == nil && ref.uid.IsZero() {
		if uids, err = s.store.JobUIDs(ctx, j.Shard, j.Namespace, j.Name); err != nil {
			return nil, slotsCursor{}, s.toStatus(ctx, "list slots", err)
		}
	}
	if !at.UID.IsZero() {
		i := slices.Index(uids, at.UID)
		if i < 0 {
			return nil, slotsCursor{}, nil // it was too old to be kept, and so are those before it
		}
		uids = uids[i:]
	}
	oldest, err := s.store.RetainedFrom(ctx, j.Shard)
	if err != nil {
		return nil, slotsCursor{}, s.toStatus(ctx, "list slots", err)
	}
	var out []store.SlotOf
	for _, uid := range uids {
		if uid != j.UID {
			if j, err = s.store.JobByUID(ctx, j.Namespace, uid); err != nil {
				return nil, slotsCursor{}, s.toStatus(ctx, "list slots", err)
			}
		}
		h := history{store: s.store, job: &j, states: states, before: math.MaxInt64, oldest: oldest, now: s.now()}
		if uid == at.UID {
			h.before = at.Before
		}
		slots, err := h.page(ctx, size-len(out))
		if err != nil {
			return nil, slotsCursor{}, s.toStatus(ctx, "list slots", err)
		}
		out = append(out, slots...)
		if !h.done {
			return out, slotsCursor{UID: uid, Before: h.before}, nil
		}
	}
	return out, slotsCursor{}, nil
}

// ListAttempts implements SlotService.
func (s slotService) ListAttempts(ctx context.Context, req *carillonv1.ListAttemptsRequest) (*carillonv1.ListAttemptsResponse, error) {
	var v violations
	size := pageSize(&v, req.GetPageSize())
	print := requestPrint(req, func(r *carillonv1.ListAttemptsRequest) { r.PageSize, r.PageToken = 0, "" })
	after := int32(0)
	decodeToken(&v, req.GetPageToken(), print, &after)
	if err := v.err(); err != nil {
		return nil, err
	}
	found, err := s.namedSlot(ctx, "parent", req.GetParent())
	if err != nil {
		return nil, err
	}
	attempts, err := s.attempts(ctx, &found)
	if err != nil {
		return nil, s.toStatus(ctx, "list attempts", err)
	}
	resp := &carillonv1.ListAttemptsResponse{Attempts: []*carillonv1.Attempt{}}
	for _, a := range attempts {
		if a.Number > after {
			resp.Attempts = append(resp.Attempts, attemptMessage(a))
		}
	}
	if n := min(cutByBytes(resp.Attempts), size); n < len(resp.Attempts) {
		resp.Attempts = resp.Attempts[:n]
		resp.NextPageToken = encodeToken(print, resp.Attempts[n-1].GetAttempt())
	}
	return resp, nil
}

// attempts lists all attempts of a slot: those that didn't end it, and the one
// that stands in the slot itself, if it isn't among them.
func (s slotService) attempts(ctx context.Context, found *store.SlotOf) ([]job.Attempt, error) {
	attempts, err := s.store.Attempts(ctx, found.Job.Shard, found.Slot.Key)
	if err != nil {
		return nil, err
	}
	newest := found.Slot.NewestAttempt()
	if found.Slot.State == job.Succeeded {
		// A success that came after its lease was lost stands in the slot; the attempt
		// was recorded as lost before.
		attempts = slices.DeleteFunc(attempts, func(a job.Attempt) bool { return a.Number == newest.Number })
	}
	recorded := slices.ContainsFunc(attempts, func(a job.Attempt) bool { return a.Number == newest.Number })
	if newest.Number > 0 && !recorded {
		attempts = append(attempts, newest)
	}
	return attempts, nil
}

// CancelSlot implements SlotService.
func (s slotService) CancelSlot(ctx context.Context, req *carillonv1.CancelSlotRequest) (*carillonv1.CancelSlotResponse, error) {
	if err := checkReason(req.GetReason()); err != nil {
		return nil, invalid("reason", reasonInvalidField, err.Error())
	}
	found, err := s.namedSlot(ctx, "name", req.GetName())
	if err != nil {
		return nil, err
	}
	reason := req.GetReason()
	if reason == "" {
		reason = "cancelled by a user"
	}
	slot, err := s.node.Cancel(ctx, found, reason)
	if err != nil {
		return nil, s.toStatus(ctx, "cancel slot", err)
	}
	if slot.State != job.Cancelled {
		return nil, fail(codes.FailedPrecondition, reasonSlotFinal, req.GetName()+" is "+slot.State.String(), "state", slot.State.String())
	}
	found.Slot = *slot
	return &carillonv1.CancelSlotResponse{Slot: slotMessage(&found, nil)}, nil
}

// RedriveSlot implements SlotService.
func (s slotService) RedriveSlot(ctx context.Context, req *carillonv1.RedriveSlotRequest) (*carillonv1.RedriveSlotResponse, error) {
	reason := cmp.Or(req.GetReason(), "redriven by a user")
	params, err := otherParams("params", req.GetParams())
	if err != nil {
		return nil, err
	}
	slot, err := s.onDead(ctx, "redrive slot", req.GetName(), reason, s.redrive(params), job.Ready, job.Running)
	if err != nil {
		return nil, err
	}
	return &carillonv1.RedriveSlotResponse{Slot: slot}, nil
}

// redrive returns what redrives a slot with parameters, or with those that it has.
func (s *Server) redrive(params []byte) func(context.Context, store.SlotOf, string) (*job.Slot, error) {
	return func(ctx context.Context, found store.SlotOf, reason string) (*job.Slot, error) {
		return s.node.Redrive(ctx, found, params, reason)
	}
}

// redriveAnywhere redrives one slot of many, whoever owns its shard.
func (s *Server) redriveAnywhere(ctx context.Context, found store.SlotOf, params []byte, reason string) error {
	_, err := s.node.Redrive(ctx, found, params, reason)
	return s.orAtOwner(ctx, found.Job.Shard, err, carillonv1.SlotService_RedriveSlot_FullMethodName,
		&carillonv1.RedriveSlotRequest{Name: found.Job.SlotName(found.Slot.Key.FireTime), Params: document(params), Reason: reason}, &carillonv1.RedriveSlotResponse{})
}

// discardAnywhere discards one slot of many, whoever owns its shard.
func (s *Server) discardAnywhere(ctx context.Context, found store.SlotOf, reason string) error {
	_, err := s.node.Discard(ctx, found, reason)
	return s.orAtOwner(ctx, found.Job.Shard, err, carillonv1.SlotService_DiscardSlot_FullMethodName,
		&carillonv1.DiscardSlotRequest{Name: found.Job.SlotName(found.Slot.Key.FireTime), Reason: reason}, &carillonv1.DiscardSlotResponse{})
}

// otherParams reads the parameters of a redrive.
func otherParams(field string, m *carillonv1.Json) ([]byte, error) {
	text := m.GetText()
	if text == "" {
		return nil, nil
	}
	if err := job.CheckDocument([]byte(text)); err != nil {
		return nil, invalid(field, reasonInvalidField, err.Error())
	}
	return []byte(text), nil
}

// DiscardSlot implements SlotService.
func (s slotService) DiscardSlot(ctx context.Context, req *carillonv1.DiscardSlotRequest) (*carillonv1.DiscardSlotResponse, error) {
	if req.GetReason() == "" {
		return nil, invalid("reason", reasonInvalidField, "is required")
	}
	slot, err := s.onDead(ctx, "discard slot", req.GetName(), req.GetReason(), s.node.Discard, job.Discarded)
	if err != nil {
		return nil, err
	}
	return &carillonv1.DiscardSlotResponse{Slot: slot}, nil
}

// onDead does something with a dead slot, which then must be in one of some states.
func (s slotService) onDead(ctx context.Context, op, name, reason string, do func(context.Context, store.SlotOf, string) (*job.Slot, error), becomes ...job.State) (*carillonv1.Slot, error) {
	if err := checkReason(reason); err != nil {
		return nil, invalid("reason", reasonInvalidField, err.Error())
	}
	found, err := s.namedSlot(ctx, "name", name)
	if err != nil {
		return nil, err
	}
	state := found.Slot.State
	if state == job.Dead {
		slot, err := do(ctx, found, reason)
		if err != nil {
			return nil, s.toStatus(ctx, op, err)
		}
		if found.Slot, state = *slot, slot.State; slices.Contains(becomes, state) {
			return slotMessage(&found, nil), nil
		}
	}
	return nil, fail(codes.FailedPrecondition, reasonSlotNotDead, name+" is "+state.String()+", not DEAD", "state", state.String())
}

// allJobs reads namespaces/{namespace}/jobs/-.
func allJobs(parent string) (string, bool) {
	const suffix = "/jobs/-"
	if len(parent) <= len(suffix) || parent[len(parent)-len(suffix):] != suffix {
		return "", false
	}
	ns, err := parseParent(parent[:len(parent)-len(suffix)])
	return ns, err == nil
}
