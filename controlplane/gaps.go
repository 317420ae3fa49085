package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// gapService implements carillon.v1.GapService.
type gapService struct {
	carillonv1.UnsafeGapServiceServer
	*Server
}

const (
	// maxOwedJobs bounds the jobs that a gap is shown with.
	maxOwedJobs = 100
	// maxBackfillRate bounds the rate of a backfill, in slots a second.
	maxBackfillRate = 100_000
)

// gapRef names a gap.
type gapRef struct {
	shard shard.ID
	key   store.GapKey
}

var errGapName = errors.New("must be gaps/{gap}, as ListGaps shows them")

// gapName is the resource name of a gap: its shard, its end, and its job's uid if it is of
// one job.
func gapName(id shard.ID, key store.GapKey) string {
	name := fmt.Sprintf("gaps/%d-%d", id, int64(key.To))
	if !key.UID.IsZero() {
		name += "-" + key.UID.String()
	}
	return name
}

func parseGap(name string) (ref gapRef, err error) {
	parts := strings.SplitN(strings.TrimPrefix(name, "gaps/"), "-", 3)
	if !strings.HasPrefix(name, "gaps/") || len(parts) < 2 {
		return ref, errGapName
	}
	id, err1 := strconv.ParseUint(parts[0], 10, 16)
	to, err2 := strconv.ParseInt(parts[1], 10, 64)
	if len(parts) == 3 {
		ref.key.UID, err = job.ParseUID(parts[2])
	}
	ref.shard, ref.key.To = shard.ID(id), job.Instant(to)
	if errors.Join(err, err1, err2) != nil {
		return ref, errGapName
	}
	return ref, nil
}

func gapMessage(d *engine.GapDetail) *carillonv1.Gap {
	g := &d.Info
	m := &carillonv1.Gap{
		Name: gapName(g.Shard, g.Key), Shard: int32(g.Shard), Job: g.JobName,
		FromTime: timestamp(g.From), ToTime: timestamp(g.Key.To), CursorTime: timestamp(g.Cursor.FireTime),
		CreateTime: timestamp(g.MadeAt), RequestTime: timestamp(g.Options.RequestedAt), RateLimit: g.Options.Rate,
		JobCount: int32(d.Jobs), OwedCount: d.Owed, LeftOutCount: d.LeftOut, MadeCount: int64(g.Made), Rate: g.Rate,
	}
	rate := g.Rate
	if g.Options.Rate > 0 {
		rate = min(cmp.Or(rate, float64(g.Options.Rate)), float64(g.Options.Rate))
	}
	if rate > 0 {
		m.Remaining = durationpb.New(time.Duration(float64(d.Owed) / rate * float64(time.Second)).Round(time.Second))
	}
	for _, o := range d.Top {
		m.Jobs = append(m.Jobs, &carillonv1.OwedJob{Job: o.Name, JobUid: o.UID.String(), CatchUp: catchUpMessage(o.CatchUp), Changed: o.Changed,
			OwedCount: o.Make, LeftOutCount: o.Leave})
	}
	return m
}

// ListGaps implements GapService.
func (s gapService) ListGaps(ctx context.Context, _ *carillonv1.ListGapsRequest) (*carillonv1.ListGapsResponse, error) {
	gaps, err := s.node.Gaps(ctx)
	if err != nil {
		return nil, s.toStatus(ctx, "list gaps", err)
	}
	resp := &carillonv1.ListGapsResponse{Gaps: []*carillonv1.Gap{}}
	for i := range gaps {
		resp.Gaps = append(resp.Gaps, gapMessage(&gaps[i]))
	}
	for _, m := range s.peers.others(ctx) {
		of := &carillonv1.ListGapsResponse{}
		if err := s.peers.send(ctx, m, carillonv1.GapService_ListGaps_FullMethodName, &carillonv1.ListGapsRequest{}, of); err != nil {
			return nil, err
		}
		resp.Gaps = append(resp.Gaps, of.GetGaps()...)
	}
	slices.SortStableFunc(resp.Gaps, func(a, b *carillonv1.Gap) int { return cmp.Compare(a.GetShard(), b.GetShard()) })
	seen := map[string]bool{} // a shard that moves meanwhile is seen at both its owners
	resp.Gaps = slices.DeleteFunc(resp.Gaps, func(g *carillonv1.Gap) bool {
		again := seen[g.GetName()]
		seen[g.GetName()] = true
		return again
	})
	return resp, nil
}

// GetGap implements GapService.
func (s gapService) GetGap(ctx context.Context, req *carillonv1.GetGapRequest) (*carillonv1.GetGapResponse, error) {
	ref, err := parseGap(req.GetName())
	if err != nil {
		return nil, invalid("name", reasonInvalidField, err.Error())
	}
	gap, err := s.detail(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &carillonv1.GetGapResponse{Gap: gap}, nil
}

// detail reads a gap with what it owes.
func (s gapService) detail(ctx context.Context, ref gapRef) (*carillonv1.Gap, error) {
	d, err := s.node.Gap(ctx, ref.shard, ref.key, maxOwedJobs)
	if err != nil {
		return nil, s.toStatus(ctx, "read gap", err)
	}
	return gapMessage(&d), nil
}

// ChangeGapCatchUp implements GapService.
func (s gapService) ChangeGapCatchUp(ctx context.Context, req *carillonv1.ChangeGapCatchUpRequest) (*carillonv1.ChangeGapCatchUpResponse, error) {
	var v violations
	ref, err := parseGap(req.GetName())
	v.check("name", err)
	catchUp := jobspec.CatchUp(&v.Violations, "catch_up", req.GetCatchUp())
	if req.GetCatchUp() == nil {
		v.add("catch_up", reasonInvalidField, "is required")
	}
	if req.GetReason() == "" {
		v.add("reason", reasonInvalidField, "is required")
	}
	v.check("reason", checkReason(req.GetReason()))
	if err := v.err(); err != nil {
		return nil, err
	}
	j, err := s.namedJob(ctx, "job", req.GetJob())
	if err != nil {
		return nil, err
	}
	if j.Shard != ref.shard {
		return nil, invalid("job", reasonInvalidField, "is of another shard than the gap")
	}
	if err := s.node.ChangeCatchUp(ctx, ref.shard, ref.key, j.UID, catchUp, req.GetReason()); err != nil {
		return nil, s.toStatus(ctx, "change gap", err)
	}
	gap, err := s.detail(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &carillonv1.ChangeGapCatchUpResponse{Gap: gap}, nil
}

// BackfillJob implements GapService.
func (s gapService) BackfillJob(ctx context.Context, req *carillonv1.BackfillJobRequest) (*carillonv1.BackfillJobResponse, error) {
	var v violations
	from, until := instantOf(&v, "from_time", req.GetFromTime()), instantOf(&v, "to_time", req.GetToTime())
	if from >= until && len(v.Fields) == 0 {
		v.add("to_time", reasonInvalidField, "must lie after from_time")
	}
	if until > s.now()+1 {
		v.add("to_time", reasonInvalidField, "must not lie in the future")
	}
	if r := req.GetRateLimit(); r < 0 || r > maxBackfillRate {
		v.add("rate_limit", reasonInvalidField, fmt.Sprintf("must be 1 to %d, or not set", maxBackfillRate))
	}
	v.check("reason", checkReason(req.GetReason()))
	if err := v.err(); err != nil {
		return nil, err
	}
	j, err := s.namedJob(ctx, "name", req.GetName())
	if err != nil {
		return nil, err
	}
	if !j.Schedule.Kind.Recurring() {
		return nil, fail(codes.FailedPrecondition, reasonJobFiresOnce, req.GetName()+" fires once: run it by hand instead")
	}
	info, err := s.node.Backfill(ctx, core.Backfill{Job: j, From: from, Until: until, Rate: req.GetRateLimit(),
		Reason: cmp.Or(req.GetReason(), "by a user"), Check: req.GetValidateOnly()})
	if err != nil {
		return nil, s.toStatus(ctx, "backfill job", err)
	}
	if plan, err := j.Plan(); err == nil { // else its shard hasn't taken it
		owed := plan.Count(info.From.Seconds(), info.Key.To.Seconds())
		return &carillonv1.BackfillJobResponse{Gap: gapMessage(&engine.GapDetail{Info: *info, Jobs: 1, Owed: owed})}, nil
	}
	return &carillonv1.BackfillJobResponse{Gap: gapMessage(&engine.GapDetail{Info: *info})}, nil
}

// instantOf reads a time that must be set.
func instantOf(v *violations, field string, t *timestamppb.Timestamp) job.Instant {
	switch {
	case t == nil:
		v.add(field, reasonInvalidField, "is required")
	case t.CheckValid() != nil:
		v.add(field, reasonInvalidField, "must be in the years 1 to 9999")
	default:
		return job.At(t.AsTime())
	}
	return 0
}

// CancelBackfill implements GapService.
func (s gapService) CancelBackfill(ctx context.Context, req *carillonv1.CancelBackfillRequest) (*carillonv1.CancelBackfillResponse, error) {
	var v violations
	ref, err := parseGap(req.GetName())
	v.check("name", err)
	v.check("reason", checkReason(req.GetReason()))
	if err := v.err(); err != nil {
		return nil, err
	}
	info, err := s.node.CancelBackfill(ctx, ref.shard, ref.key, cmp.Or(req.GetReason(), "by a user"))
	if err != nil {
		return nil, s.toStatus(ctx, "cancel backfill", err)
	}
	return &carillonv1.CancelBackfillResponse{Gap: gapMessage(&engine.GapDetail{Info: *info})}, nil
}
