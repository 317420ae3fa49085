package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// jobService implements carillon.v1.JobService.
type jobService struct {
	carillonv1.UnsafeJobServiceServer
	*Server
}

const (
	maxBatchCreate = 1000
	// maxNames bounds the names that are tried for one of an own shard.
	maxNames = 64
)

// CreateJob implements JobService.
func (s jobService) CreateJob(ctx context.Context, req *carillonv1.CreateJobRequest) (*carillonv1.CreateJobResponse, error) {
	j, made, err := s.newJob(ctx, "", req)
	if err != nil {
		return nil, err
	}
	if made != nil {
		return &carillonv1.CreateJobResponse{Job: jobMessage(made, s.now())}, nil
	}
	if req.GetValidateOnly() {
		j.EffectiveFrom = s.now()
		return &carillonv1.CreateJobResponse{Job: jobMessage(&j, s.now())}, nil
	}
	stored, existing, err := s.node.Create(ctx, j)
	if errors.Is(err, engine.ErrNotOwned) {
		if resp, err := s.createAtOwner(ctx, &j, req); resp != nil || err != nil {
			return resp, err
		}
		// What this node has tried before may still be written, if it lost the shard while it did:
		// as another job, of which there can be one by the name, and not as the same one once more.
		tried := j.UID
		j.UID = newUID()
		if stored, existing, err = s.node.CreateByInbox(ctx, j); existing != nil && existing.UID == tried {
			stored, existing = existing, nil
		}
	}
	if err != nil {
		return nil, s.toStatus(ctx, "create job", err)
	}
	if existing != nil {
		if err := conflict("", &j, existing); err != nil {
			return nil, err
		}
		stored = existing
	}
	return &carillonv1.CreateJobResponse{Job: jobMessage(stored, s.now())}, nil
}

// createAtOwner has the owner of a job's shard create it, under the name that it has here, and with
// a request id: if the owner did so, and its answer was lost, a create by the inbox is a repeat of the
// same request. It returns nothing if there is no owner, or if it doesn't answer.
func (s jobService) createAtOwner(ctx context.Context, j *job.Job, req *carillonv1.CreateJobRequest) (*carillonv1.CreateJobResponse, error) {
	to, ok := s.peers.holder(ctx, j.Shard)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, handTimeout)
	defer cancel()
	if j.RequestID == "" {
		j.RequestID = "forwarded-" + j.UID.String()
	}
	named := proto.CloneOf(req)
	named.JobId, named.RequestId = j.Name, j.RequestID
	resp := &carillonv1.CreateJobResponse{}
	err := s.peers.send(ctx, to, carillonv1.JobService_CreateJob_FullMethodName, named, resp)
	switch status.Code(err) {
	case codes.OK:
		return resp, nil
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal, codes.Unimplemented:
		return nil, nil
	}
	return nil, err
}

// BatchCreateJobs implements JobService.
func (s jobService) BatchCreateJobs(ctx context.Context, req *carillonv1.BatchCreateJobsRequest) (*carillonv1.BatchCreateJobsResponse, error) {
	if n := len(req.GetRequests()); n < 1 || n > maxBatchCreate {
		return nil, invalid("requests", reasonInvalidField, fmt.Sprintf("must be 1 to %d jobs, are %d", maxBatchCreate, n))
	}
	jobs := make([]job.Job, len(req.GetRequests()))
	made := make([]*job.Job, len(jobs))
	for i, r := range req.GetRequests() {
		prefix := fmt.Sprintf("requests[%d].", i)
		if r.GetParent() != "" && r.GetParent() != req.GetParent() {
			return nil, invalid(prefix+"parent", reasonInvalidField, "must be empty or the parent of the batch")
		}
		if r.GetValidateOnly() {
			return nil, invalid(prefix+"validate_only", reasonInvalidField, "can't be used in a batch")
		}
		one := &carillonv1.CreateJobRequest{Parent: req.GetParent(), JobId: r.GetJobId(), Job: r.GetJob(), RequestId: r.GetRequestId(),
			AllowUnregisteredHandler: r.GetAllowUnregisteredHandler()}
		var err error
		if jobs[i], made[i], err = s.newJob(ctx, prefix, one); err != nil {
			return nil, err
		}
	}
	if err := distinct(jobs); err != nil {
		return nil, err
	}
	return s.createAll(ctx, jobs, made)
}

// distinct refuses a batch in which two jobs share a name or a request id.
func distinct(jobs []job.Job) error {
	names, requests := map[string]bool{}, map[string]bool{}
	for i := range jobs {
		j := &jobs[i]
		if names[j.Name] {
			return invalid(fmt.Sprintf("requests[%d].job_id", i), reasonInvalidField, "is used twice in the batch")
		}
		if j.RequestID != "" && requests[j.RequestID] {
			return invalid(fmt.Sprintf("requests[%d].request_id", i), reasonInvalidField, "is used twice in the batch")
		}
		names[j.Name], requests[j.RequestID] = true, true
	}
	return nil
}

// createAll stores jobs, but for those that the same requests have made before.
func (s jobService) createAll(ctx context.Context, jobs []job.Job, made []*job.Job) (*carillonv1.BatchCreateJobsResponse, error) {
	var fresh []job.Job
	var places []int
	for i := range jobs {
		if made[i] == nil {
			fresh, places = append(fresh, jobs[i]), append(places, i)
		}
	}
	if len(fresh) > 0 {
		existing, _, err := s.node.CreateAll(ctx, fresh)
		if err != nil {
			return nil, s.toStatus(ctx, "create jobs", err)
		}
		for k, i := range places {
			made[i] = &fresh[k]
			if existing[k] == nil {
				continue
			}
			if err := conflict(fmt.Sprintf("requests[%d].", i), made[i], existing[k]); err != nil {
				return nil, err
			}
			made[i] = existing[k]
		}
	}
	resp := &carillonv1.BatchCreateJobsResponse{}
	for _, j := range made {
		resp.Jobs = append(resp.Jobs, jobMessage(j, s.now()))
	}
	return resp, nil
}

func newUID() job.UID { return job.UID(uuid.Must(uuid.NewV7())) }

// newJob checks a create and completes it: name, uid, shard, defaults. prefix
// stands before the names of fields. A repeat of a request that can't be met any more
// returns the job that it made when it could.
func (s jobService) newJob(ctx context.Context, prefix string, req *carillonv1.CreateJobRequest) (j job.Job, made *job.Job, err error) {
	var v violations
	ns, err := parseParent(req.GetParent())
	v.check("parent", err)
	j = jobspec.Job(&v.Violations, prefix+"job", req.GetJob())
	if r := j.Policies.Retention; r > 0 && r < s.core.Retention {
		v.add(prefix+"job.retention", reasonInvalidField, fmt.Sprintf("must be at least %s, for which all slots are kept", s.core.Retention))
	}
	if req.GetRequestId() != "" {
		v.check(prefix+"request_id", job.CheckRequestID(req.GetRequestId()))
	}
	if req.GetJobId() != "" {
		v.check(prefix+"job_id", job.CheckJobName(req.GetJobId()))
	}
	if len(v.Fields) == 0 && !req.GetAllowUnregisteredHandler() {
		for field, handler := range map[string]string{"job.handler": j.Handler, "job.on_dead_letter": j.Policies.OnDeadLetter} {
			if handler == "" {
				continue
			}
			if err := s.checkHandler(ctx, &v, prefix+field, handler); err != nil {
				return j, nil, err
			}
		}
	}
	if err := v.err(); err != nil {
		return j, nil, err
	}
	j.Namespace, j.RequestID = ns, req.GetRequestId()
	j.Name = s.jobName(ns, req.GetJobId(), req.GetRequestId())
	j.UID = newUID()
	j.Shard = shard.Of(ns, j.Name, s.shards)
	j.RequestHash = j.Hash() // before what depends on the time, and on the calendars' versions
	field := prefix + "job.schedule"
	if err := jobspec.Decide(ctx, &v.Violations, field, req.GetJob().GetSchedule(), &j, s.now(), s.now(), s.findCalendar); err != nil {
		return j, nil, err
	}
	jobspec.CheckFires(&v.Violations, field, j.Schedule, s.now())
	if err := v.err(); err != nil {
		made, err = s.unlessMade(ctx, &j, err)
		return j, made, err
	}
	return j, nil, nil
}

// unlessMade returns why a job can't be made now, or the stored job if the same request
// made it when it still could: a repeat is answered whatever has become of calendars and
// times since.
func (s jobService) unlessMade(ctx context.Context, j *job.Job, refusal error) (*job.Job, error) {
	if j.RequestID == "" {
		return nil, refusal
	}
	made, err := s.store.JobByRequest(ctx, j.Shard, j.Namespace, j.RequestID)
	if err != nil || made.RequestHash != j.RequestHash {
		return nil, refusal // also if the database can't say: the request can't be met anyway
	}
	return &made, nil
}

// jobName returns the name of a new job. Without one it is derived from the
// request id, so that a repeat meets the same shard and row; without either it is one of a
// shard that this node owns, if there is one.
func (s *Server) jobName(namespace, id, requestID string) string {
	if id != "" {
		return id
	}
	if requestID == "" {
		name := ""
		for range maxNames {
			name = "job-" + strings.ToLower(rand.Text())
			if s.node.Owns(shard.Of(namespace, name, s.shards)) {
				break
			}
		}
		return name
	}
	sum := sha256.Sum256([]byte(namespace + "\x00" + requestID))
	return "job-" + hex.EncodeToString(sum[:16])
}

// checkHandler refuses a handler that the catalog doesn't know, and names those
// that resemble it.
func (s jobService) checkHandler(ctx context.Context, v *violations, field, name string) error {
	known, err := s.catalog.knows(ctx, name)
	if err != nil {
		return s.toStatus(ctx, "look up handler", err)
	}
	if known {
		return nil
	}
	text := fmt.Sprintf("no worker has registered %q", name)
	resembling, err := s.catalog.resembling(ctx, name)
	if err != nil {
		return s.toStatus(ctx, "look up handlers", err)
	}
	if len(resembling) > 0 {
		text += " (did you mean " + strings.Join(resembling, " or ") + "?)"
		v.meta = append(v.meta, "nearest", strings.Join(resembling, ","))
	}
	v.add(field, reasonHandlerUnknown, text+"; set allow_unregistered_handler if it comes later")
	return nil
}

// conflict says why a create met another job: nil if it is a repeat of the
// request that made it.
func conflict(prefix string, asked, existing *job.Job) error {
	sameRequest := asked.RequestID != "" && asked.RequestID == existing.RequestID
	if sameRequest && asked.RequestHash == existing.RequestHash {
		return nil
	}
	if sameRequest {
		return fail(codes.AlreadyExists, reasonRequestReused,
			fmt.Sprintf("%srequest_id: it was used before to make another job, %s", prefix, existing.ResourceName()), "job", existing.ResourceName())
	}
	return fail(codes.AlreadyExists, reasonJobExists,
		fmt.Sprintf("%sjob_id: %s exists", prefix, existing.ResourceName()), "job", existing.ResourceName(), "uid", existing.UID.String())
}

// findJob reads the job of a resource name.
func (s *Server) findJob(ctx context.Context, ref jobRef) (job.Job, error) {
	if !ref.uid.IsZero() {
		return s.store.JobByUID(ctx, ref.namespace, ref.uid)
	}
	return s.store.Job(ctx, shard.Of(ref.namespace, ref.name, s.shards), ref.namespace, ref.name)
}

// namedJob reads the job of a request's name field, or says what is wrong.
func (s *Server) namedJob(ctx context.Context, field, name string) (job.Job, error) {
	ref, err := parseJob(name)
	if err != nil {
		return job.Job{}, invalid(field, reasonInvalidField, err.Error())
	}
	j, err := s.findJob(ctx, ref)
	if errors.Is(err, store.ErrNotFound) {
		return j, fail(codes.NotFound, reasonNotFound, name+" not found", "name", name)
	}
	return j, s.toStatus(ctx, "read job", err)
}

// GetJob implements JobService.
func (s jobService) GetJob(ctx context.Context, req *carillonv1.GetJobRequest) (*carillonv1.GetJobResponse, error) {
	j, err := s.namedJob(ctx, "name", req.GetName())
	if err != nil {
		return nil, err
	}
	return &carillonv1.GetJobResponse{Job: jobMessage(&j, s.now())}, nil
}

// jobsCursor is a place in a list of jobs.
type jobsCursor struct {
	Name string  `json:"n"`
	UID  job.UID `json:"u"`
}

// ListJobs implements JobService.
func (s jobService) ListJobs(ctx context.Context, req *carillonv1.ListJobsRequest) (*carillonv1.ListJobsResponse, error) {
	var v violations
	ns, err := parseParent(req.GetParent())
	v.check("parent", err)
	size := pageSize(&v, req.GetPageSize())
	print := requestPrint(req, func(r *carillonv1.ListJobsRequest) { r.PageSize, r.PageToken = 0, "" })
	var at jobsCursor
	decodeToken(&v, req.GetPageToken(), print, &at)
	if err := v.err(); err != nil {
		return nil, err
	}
	after := store.JobCursor{Name: at.Name, UID: at.UID}
	jobs, next, err := s.store.Jobs(ctx, store.JobsPage{Namespace: ns, ShowEnded: req.GetShowEnded(), After: after, Limit: size})
	if err != nil {
		return nil, s.toStatus(ctx, "list jobs", err)
	}
	resp := &carillonv1.ListJobsResponse{Jobs: []*carillonv1.Job{}}
	for i := range jobs {
		resp.Jobs = append(resp.Jobs, jobMessage(&jobs[i], s.now()))
	}
	if n := cutByBytes(resp.Jobs); n < len(resp.Jobs) {
		resp.Jobs, next = resp.Jobs[:n], store.JobCursor{Name: jobs[n-1].Name, UID: jobs[n-1].UID}
	}
	if next != (store.JobCursor{}) {
		resp.NextPageToken = encodeToken(print, jobsCursor{next.Name, next.UID})
	}
	return resp, nil
}

// DeleteJob implements JobService.
func (s jobService) DeleteJob(ctx context.Context, req *carillonv1.DeleteJobRequest) (*carillonv1.DeleteJobResponse, error) {
	j, err := s.namedJob(ctx, "name", req.GetName())
	if err != nil {
		return nil, err
	}
	if j.EndedAt != 0 {
		return nil, fail(codes.NotFound, reasonNotFound, req.GetName()+" was deleted before", "name", req.GetName())
	}
	ended, err := s.node.Delete(ctx, j)
	if err != nil {
		return nil, s.toStatus(ctx, "delete job", err)
	}
	return &carillonv1.DeleteJobResponse{Job: jobMessage(ended, s.now())}, nil
}

// RunJob implements JobService.
func (s jobService) RunJob(ctx context.Context, req *carillonv1.RunJobRequest) (*carillonv1.RunJobResponse, error) {
	if id := req.GetRequestId(); id != "" {
		if err := job.CheckRequestID(id); err != nil {
			return nil, invalid("request_id", reasonInvalidField, err.Error())
		}
	}
	j, err := s.namedJob(ctx, "name", req.GetName())
	if err != nil {
		return nil, err
	}
	if j.EndedAt != 0 || j.Quarantine != "" {
		return nil, fail(codes.FailedPrecondition, reasonJobEnded, req.GetName()+" fires no more", "name", req.GetName())
	}
	slot, earlier, err := s.node.Trigger(ctx, j, req.GetRequestId(), "run "+j.UID.String())
	if err != nil {
		return nil, s.toStatus(ctx, "run job", err)
	}
	if earlier != nil {
		found, err := s.store.SlotsByKey(ctx, j.Shard, []job.SlotKey{*earlier})
		if err != nil || len(found) == 0 {
			return nil, s.toStatus(ctx, "run job", errors.Join(err, store.ErrUnavailable))
		}
		slot = &found[0]
	}
	return &carillonv1.RunJobResponse{Slot: slotMessage(&store.SlotOf{Slot: *slot, Job: j}, nil)}, nil
}
