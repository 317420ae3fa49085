package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// deadLetterService implements carillon.v1.DeadLetterService.
type deadLetterService struct {
	carillonv1.UnsafeDeadLetterServiceServer
	*Server
}

const (
	maxDeadGroups = 1000
	// Rates of a redrive of many, in slots a second.
	defaultRedriveRate = 100
	maxRedriveRate     = 10_000
	// bulkWorkers is how many slots are settled at the same time: each waits for a commit,
	// and they share it.
	bulkWorkers = 32
	// bulkPage is how many dead letters are read at a time.
	bulkPage = 500
	// tellEvery is how often it is told how far a call is.
	tellEvery = time.Second
	// maxPending bounds the slots that were redriven and whose end is awaited by a brake: it
	// could not stop what it has let go.
	maxPending = 500
	// settleTimeout bounds what is done with one of many.
	settleTimeout = 15 * time.Second
	// brakeSample is how many must have ended before a brake stops anything.
	brakeSample = 10
)

// deadFilter reads which dead letters are meant.
func (s deadLetterService) deadFilter(ctx context.Context, parent string, m *carillonv1.DeadLetterFilter) (ns string, f store.DeadLetterFilter, err error) {
	var v violations
	ns, err = parseParent(parent)
	v.check("parent", err)
	f = store.DeadLetterFilter{Handler: m.GetHandler(), ErrorCode: m.GetErrorCode(), Fingerprint: m.GetFingerprint()}
	if m.GetDeadSince() != nil {
		f.Since = instantOf(&v, "filter.dead_since", m.GetDeadSince())
	}
	if m.GetDeadBefore() != nil {
		f.Before = instantOf(&v, "filter.dead_before", m.GetDeadBefore())
	}
	if err := v.err(); err != nil {
		return ns, f, err
	}
	if m.GetJob() == "" {
		return ns, f, nil
	}
	j, err := s.namedJob(ctx, "filter.job", m.GetJob())
	if err == nil && j.Namespace != ns {
		err = invalid("filter.job", reasonInvalidField, "must be of the parent's namespace")
	}
	f.UID = j.UID
	return ns, f, err
}

// ListDeadLetters implements DeadLetterService.
func (s deadLetterService) ListDeadLetters(ctx context.Context, req *carillonv1.ListDeadLettersRequest) (*carillonv1.ListDeadLettersResponse, error) {
	var v violations
	size := pageSize(&v, req.GetPageSize())
	print := requestPrint(req, func(r *carillonv1.ListDeadLettersRequest) { r.PageSize, r.PageToken = 0, "" })
	var after store.DeadCursor
	decodeToken(&v, req.GetPageToken(), print, &after)
	if err := v.err(); err != nil {
		return nil, err
	}
	ns, filter, err := s.deadFilter(ctx, req.GetParent(), req.GetFilter())
	if err != nil {
		return nil, err
	}
	letters, next, err := s.store.DeadLetters(ctx, store.DeadLettersPage{Namespace: ns, Filter: filter, After: after, Limit: size})
	if err != nil {
		return nil, s.toStatus(ctx, "list dead letters", err)
	}
	resp := &carillonv1.ListDeadLettersResponse{DeadLetters: []*carillonv1.DeadLetter{}}
	jobs := jobsByUID{server: s.Server, namespace: ns}
	for _, d := range letters {
		j, err := jobs.get(ctx, d.Key.UID)
		if errors.Is(err, store.ErrNotFound) {
			continue // it went with its job meanwhile
		}
		if err != nil {
			return nil, s.toStatus(ctx, "read job", err)
		}
		resp.DeadLetters = append(resp.DeadLetters, &carillonv1.DeadLetter{Slot: j.SlotName(d.Key.FireTime), JobUid: d.Key.UID.String(), Handler: d.Handler,
			DeadTime: timestamp(d.At), ErrorCode: d.ErrorCode, Fingerprint: d.Fingerprint, Sample: d.Sample})
	}
	if next != (store.DeadCursor{}) {
		resp.NextPageToken = encodeToken(print, next)
	}
	return resp, nil
}

// jobsByUID reads jobs, each once.
type jobsByUID struct {
	server    *Server
	namespace string
	known     map[job.UID]*job.Job
}

func (c *jobsByUID) get(ctx context.Context, uid job.UID) (*job.Job, error) {
	if j := c.known[uid]; j != nil {
		return j, nil
	}
	j, err := c.server.store.JobByUID(ctx, c.namespace, uid)
	if err != nil {
		return nil, err
	}
	if c.known == nil || len(c.known) >= maxKnownJobs {
		c.known = map[job.UID]*job.Job{}
	}
	c.known[uid] = &j
	return &j, nil
}

// maxKnownJobs bounds the jobs that one call remembers.
const maxKnownJobs = 10_000

// GroupDeadLetters implements DeadLetterService.
func (s deadLetterService) GroupDeadLetters(ctx context.Context, req *carillonv1.GroupDeadLettersRequest) (*carillonv1.GroupDeadLettersResponse, error) {
	ns, err := parseParent(req.GetParent())
	if err != nil {
		return nil, invalid("parent", reasonInvalidField, err.Error())
	}
	groups, err := s.store.DeadLetterGroups(ctx, ns, maxDeadGroups)
	if err != nil {
		return nil, s.toStatus(ctx, "group dead letters", err)
	}
	resp := &carillonv1.GroupDeadLettersResponse{Groups: []*carillonv1.DeadLetterGroup{}}
	for i := range groups {
		resp.Groups = append(resp.Groups, deadGroupMessage(&groups[i]))
	}
	return resp, nil
}

func deadGroupMessage(g *store.DeadLetterGroup) *carillonv1.DeadLetterGroup {
	return &carillonv1.DeadLetterGroup{Handler: g.Handler, ErrorCode: g.ErrorCode, Fingerprint: g.Fingerprint, Sample: g.Sample, Count: g.Count,
		FirstTime: timestamp(g.First), LatestTime: timestamp(g.Latest)}
}

// countDead counts the dead letters that are meant, by handler and cause.
func (s deadLetterService) countDead(ctx context.Context, ns string, f store.DeadLetterFilter) (total int64, groups []*carillonv1.DeadLetterGroup, err error) {
	type cause struct{ handler, code, fingerprint string }
	found := map[cause]*store.DeadLetterGroup{}
	err = s.eachDead(ctx, ns, f, func(d *store.DeadLetterOf) error {
		total++
		c := cause{d.Handler, d.ErrorCode, d.Fingerprint}
		g := found[c]
		if g == nil {
			if len(found) >= 10*maxDeadGroups {
				return nil
			}
			g = &store.DeadLetterGroup{Handler: d.Handler, ErrorCode: d.ErrorCode, Fingerprint: d.Fingerprint, Sample: d.Sample, First: d.At}
			found[c] = g
		}
		g.Count++
		g.First, g.Latest = min(g.First, d.At), max(g.Latest, d.At)
		return nil
	})
	for _, g := range found {
		groups = append(groups, deadGroupMessage(g))
	}
	slices.SortFunc(groups, func(a, b *carillonv1.DeadLetterGroup) int {
		if a.GetCount() != b.GetCount() {
			return int(min(max(b.GetCount()-a.GetCount(), -1), 1))
		}
		return slices.Compare([]string{a.GetHandler(), a.GetErrorCode(), a.GetFingerprint()}, []string{b.GetHandler(), b.GetErrorCode(), b.GetFingerprint()})
	})
	return total, groups[:min(len(groups), maxDeadGroups)], err
}

// eachDead calls do for the dead letters that are meant, page by page.
func (s deadLetterService) eachDead(ctx context.Context, ns string, f store.DeadLetterFilter, do func(*store.DeadLetterOf) error) error {
	for p := (store.DeadLettersPage{Namespace: ns, Filter: f, Limit: bulkPage}); ; {
		letters, next, err := s.store.DeadLetters(ctx, p)
		if err != nil {
			return err
		}
		for i := range letters {
			if err := do(&letters[i]); err != nil {
				return err
			}
		}
		if p.After = next; next == (store.DeadCursor{}) {
			return nil
		}
	}
}

// bulk settles many dead letters, and knows how far it is.
type bulk struct {
	service deadLetterService
	ns      string
	jobs    jobsByUID
	settle  func(ctx context.Context, found store.SlotOf) error
	rate    int
	brake   int // percent; 0: none

	mu                sync.Mutex
	settled, refused  int64
	succeeded, failed int64
	pending           map[shard.ID]map[job.SlotKey]int32 // by key, the attempt that died before
	nPending          int
	next              time.Time // when the next may be let go
}

// errBraked ends a bulk of which too many failed again.
var errBraked = errors.New("too many failed again")

// carryOut tells what is meant and then, unless it is only to be looked at, does it.
func (b *bulk) carryOut(ctx context.Context, what string, f store.DeadLetterFilter, dry bool, tell func(state carillonv1.BulkState) error) error {
	if dry {
		return tell(carillonv1.BulkState_BULK_STATE_DONE)
	}
	if err := tell(carillonv1.BulkState_BULK_STATE_RUNNING); err != nil {
		return err
	}
	return b.service.toStatus(ctx, what, b.run(ctx, f, tell))
}

// run settles all that are meant, and calls tell about once a second, and at the end.
func (b *bulk) run(ctx context.Context, f store.DeadLetterFilter, tell func(state carillonv1.BulkState) error) error {
	group, ctx := errgroup.WithContext(ctx)
	ended := make(chan struct{})
	group.Go(func() error { return b.watch(ctx, ended, tell) })
	group.Go(func() error {
		defer close(ended)
		workers, ctx := errgroup.WithContext(ctx)
		workers.SetLimit(bulkWorkers)
		err := b.service.eachDead(ctx, b.ns, f, func(d *store.DeadLetterOf) error {
			if err := b.wait(ctx); err != nil {
				return err
			}
			j, err := b.jobs.get(ctx, d.Key.UID)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			letter := *d
			workers.Go(func() error { return b.one(ctx, &letter, j) })
			return nil
		})
		if failed := workers.Wait(); failed != nil {
			return failed // for which the pages ended, too
		}
		return err
	})
	err := group.Wait()
	switch {
	case errors.Is(err, errBraked):
		return tell(carillonv1.BulkState_BULK_STATE_BRAKED)
	case err != nil:
		return err
	}
	b.look(context.WithoutCancel(ctx))
	return tell(carillonv1.BulkState_BULK_STATE_DONE)
}

// wait keeps to the rate, and waits while a brake has let enough go.
func (b *bulk) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		due, full := b.next, b.nPending >= maxPending
		if now := time.Now(); !full && !due.After(now) {
			// What was not let go while it waited is not made up for at once.
			b.next = later(due, now.Add(-rateSlack)).Add(time.Second / time.Duration(b.rate))
			b.mu.Unlock()
			return ctx.Err()
		}
		b.mu.Unlock()
		pause := max(time.Until(due), 0)
		if full {
			pause = max(pause, tellEvery/4)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rateSlack is how much of a pause may be made up for: about what a timer is late.
const rateSlack = 20 * time.Millisecond

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// one settles one dead letter. What has begun ends, also if all the rest doesn't: so that it
// is known how many were.
func (b *bulk) one(ctx context.Context, d *store.DeadLetterOf, j *job.Job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var err error
	var before int32
	if j == nil {
		err = core.ErrNotDead
	} else {
		var slots []job.Slot
		if slots, err = b.service.store.SlotsByKey(ctx, d.Shard, []job.SlotKey{d.Key}); err == nil && len(slots) == 0 {
			err = core.ErrNotDead
		}
		if err == nil {
			before = slots[0].Attempt
			err = b.insist(ctx, store.SlotOf{Slot: slots[0], Job: *j})
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case errors.Is(err, core.ErrNotDead), errors.Is(err, core.ErrJobEnded):
		b.refused++
		return nil
	case err != nil:
		return err
	}
	b.settled++
	if b.brake > 0 {
		if b.pending[d.Shard] == nil {
			b.pending[d.Shard] = map[job.SlotKey]int32{}
		}
		b.pending[d.Shard][d.Key] = before
		b.nPending++
	}
	return nil
}

// insist settles a slot, again while its shard is being loaded or the database is away.
func (b *bulk) insist(ctx context.Context, found store.SlotOf) error {
	for again := false; ; again = true {
		err := b.settle(ctx, found)
		if again && errors.Is(err, core.ErrNotDead) {
			return nil // it was settled, and the answer lost
		}
		if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, engine.ErrNotOwned) {
			return err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return err
		}
	}
}

// watch tells how far it is, and stops everything if too many failed again.
func (b *bulk) watch(ctx context.Context, ended <-chan struct{}, tell func(state carillonv1.BulkState) error) error {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if b.look(ctx); b.tooMany() {
			return errBraked
		}
		if err := tell(carillonv1.BulkState_BULK_STATE_RUNNING); err != nil {
			return err
		}
	}
}

func (b *bulk) tooMany() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.succeeded + b.failed
	return b.brake > 0 && n >= brakeSample && b.failed*100 > int64(b.brake)*n
}

// look reads what became of those that were redriven. What can't be read is read the next
// time.
func (b *bulk) look(ctx context.Context) {
	if b.brake == 0 {
		return
	}
	b.mu.Lock()
	asked := map[shard.ID][]job.SlotKey{}
	for id, keys := range b.pending {
		asked[id] = slices.Collect(maps.Keys(keys))
	}
	b.mu.Unlock()
	for id, keys := range asked {
		slots, err := b.service.store.SlotsByKey(ctx, id, keys)
		if err != nil {
			continue
		}
		b.mu.Lock()
		for i := range slots {
			b.note(id, &slots[i])
		}
		b.mu.Unlock()
	}
}

// note notes what a slot came to, if it has ended since it was redriven.
func (b *bulk) note(id shard.ID, s *job.Slot) {
	before, waits := b.pending[id][s.Key]
	switch {
	case !waits || s.State.Open() || s.State == job.Dead && s.Attempt == before:
		return
	case s.State == job.Succeeded:
		b.succeeded++
	default:
		b.failed++
	}
	delete(b.pending[id], s.Key)
	b.nPending--
}

// bulkBy makes a bulk of a namespace.
func (s deadLetterService) bulkBy(ns string, rate, brake int, settle func(ctx context.Context, found store.SlotOf) error) *bulk {
	return &bulk{service: s, ns: ns, jobs: jobsByUID{server: s.Server, namespace: ns}, settle: settle, rate: rate, brake: brake,
		pending: map[shard.ID]map[job.SlotKey]int32{}, next: time.Now()}
}

// untilNow bounds a filter to what is dead by now.
func (s *Server) untilNow(f store.DeadLetterFilter) store.DeadLetterFilter {
	if at := s.now() + 1; f.Before == 0 || f.Before > at {
		f.Before = at
	}
	return f
}

// RedriveDeadLetters implements DeadLetterService.
func (s deadLetterService) RedriveDeadLetters(req *carillonv1.RedriveDeadLettersRequest, stream carillonv1.DeadLetterService_RedriveDeadLettersServer) error {
	ctx := stream.Context()
	var v violations
	rate, brake := int(req.GetRateLimit()), int(req.GetBrakePercent())
	if rate < 0 || rate > maxRedriveRate {
		v.add("rate_limit", reasonInvalidField, fmt.Sprintf("must be 1 to %d, or not set", maxRedriveRate))
	}
	if rate == 0 {
		rate = defaultRedriveRate
	}
	if brake < 0 || brake > 99 {
		v.add("brake_percent", reasonInvalidField, "must be 1 to 99, or not set")
	}
	v.check("reason", checkReason(req.GetReason()))
	if err := v.err(); err != nil {
		return err
	}
	params, err := otherParams("params", req.GetParams())
	if err != nil {
		return err
	}
	ns, filter, err := s.deadFilter(ctx, req.GetParent(), req.GetFilter())
	if err != nil {
		return err
	}
	filter = s.untilNow(filter)
	total, groups, err := s.countDead(ctx, ns, filter)
	if err != nil {
		return s.toStatus(ctx, "count dead letters", err)
	}
	reason := req.GetReason()
	if reason == "" {
		reason = "redriven by a user, with others"
	}
	b := s.bulkBy(ns, rate, brake, func(ctx context.Context, found store.SlotOf) error {
		return s.redriveAnywhere(ctx, found, params, reason)
	})
	tell := func(state carillonv1.BulkState) error {
		b.mu.Lock()
		m := &carillonv1.RedriveDeadLettersResponse{TotalCount: total, RedrivenCount: b.settled, RefusedCount: b.refused, SucceededCount: b.succeeded,
			FailedAgainCount: b.failed, PendingCount: int64(b.nPending), State: state, Groups: groups}
		b.mu.Unlock()
		groups = nil
		return stream.Send(m)
	}
	return b.carryOut(ctx, "redrive dead letters", filter, req.GetValidateOnly(), tell)
}

// DiscardDeadLetters implements DeadLetterService.
func (s deadLetterService) DiscardDeadLetters(req *carillonv1.DiscardDeadLettersRequest, stream carillonv1.DeadLetterService_DiscardDeadLettersServer) error {
	ctx := stream.Context()
	if req.GetReason() == "" {
		return invalid("reason", reasonInvalidField, "is required")
	}
	if err := checkReason(req.GetReason()); err != nil {
		return invalid("reason", reasonInvalidField, err.Error())
	}
	ns, filter, err := s.deadFilter(ctx, req.GetParent(), req.GetFilter())
	if err != nil {
		return err
	}
	filter = s.untilNow(filter)
	total, groups, err := s.countDead(ctx, ns, filter)
	if err != nil {
		return s.toStatus(ctx, "count dead letters", err)
	}
	b := s.bulkBy(ns, maxRedriveRate, 0, func(ctx context.Context, found store.SlotOf) error {
		return s.discardAnywhere(ctx, found, req.GetReason())
	})
	tell := func(state carillonv1.BulkState) error {
		b.mu.Lock()
		m := &carillonv1.DiscardDeadLettersResponse{TotalCount: total, DiscardedCount: b.settled, RefusedCount: b.refused, State: state, Groups: groups}
		b.mu.Unlock()
		groups = nil
		return stream.Send(m)
	}
	return b.carryOut(ctx, "discard dead letters", filter, req.GetValidateOnly(), tell)
}
