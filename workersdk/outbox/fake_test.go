package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltest"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
)

func TestMain(m *testing.M) { sqltest.Main(m) }

// node stands for a cluster: it knows jobs by their request ids.
type node struct {
	mu      sync.Mutex
	jobs    map[string]*carillonv1.CreateJobRequest // guarded by mu
	calls   map[string]int                          // by job_id; guarded by mu
	refuse  map[string]error                        // by job_id; guarded by mu
	calling func(context.Context) error             // before anything else, if it is set
}

func newNode() *node {
	return &node{jobs: map[string]*carillonv1.CreateJobRequest{}, calls: map[string]int{}, refuse: map[string]error{}}
}

func (n *node) CreateJob(ctx context.Context, req *carillonv1.CreateJobRequest, _ ...grpc.CallOption) (*carillonv1.CreateJobResponse, error) {
	if n.calling != nil {
		if err := n.calling(ctx); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls[req.GetJobId()]++
	if err := n.refuse[req.GetJobId()]; err != nil {
		return nil, err
	}
	if earlier := n.jobs[req.GetRequestId()]; earlier != nil && !proto.Equal(earlier, req) {
		return nil, status.Error(codes.AlreadyExists, "the request id was used before")
	}
	n.jobs[req.GetRequestId()] = req
	return &carillonv1.CreateJobResponse{Job: req.GetJob()}, nil
}

// called says how often each job was asked for.
func (n *node) called(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[id]
}

func (n *node) refuses(id string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse[id] = err
}

// fixture is a user's database with an outbox, and a node.
type fixture struct {
	*testing.T
	db   *sql.DB
	box  *Box[*sql.Tx]
	node *node
	sql  statements
}

// each runs a test on every dialect.
func each(t *testing.T, test func(*fixture)) {
	for _, d := range sqltest.Dialects {
		t.Run(d.String(), func(t *testing.T) { test(newFixture(t, d, sqltest.Open(t, d))) })
	}
}

func newFixture(t *testing.T, d Dialect, db *sql.DB) *fixture {
	box, err := New(d)
	f := &fixture{t, db, box, newNode(), newStatements(d, DefaultTable)}
	f.must(err)
	f.must(f.tx(func(tx *sql.Tx) error { return box.CreateTable(t.Context(), tx) }))
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) tx(do func(*sql.Tx) error) error {
	tx, err := f.db.BeginTx(f.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// add adds jobs by their ids, each with its id as parameters.
func (f *fixture) add(ids ...string) {
	f.Helper()
	f.must(f.tx(func(tx *sql.Tx) error {
		for _, id := range ids {
			if err := f.box.Add(f.Context(), tx, request(id)); err != nil {
				return err
			}
		}
		return nil
	}))
}

func request(id string) *carillonv1.CreateJobRequest {
	return &carillonv1.CreateJobRequest{Parent: "namespaces/default", JobId: id, AllowUnregisteredHandler: true, Job: &carillonv1.Job{
		Handler: "mail", Params: &carillonv1.Json{Text: fmt.Sprintf("%q", id)}, Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}},
	}}
}

func (f *fixture) relay(opts ...RelayOption) *Relay {
	return f.box.Relay(f.db, f.node, append([]RelayOption{Logger(slog.New(slog.DiscardHandler))}, opts...)...)
}

// flush relays what is due, and wants so many jobs to be created.
func (f *fixture) flush(r *Relay, want int) {
	f.Helper()
	if created, err := r.Flush(f.Context()); err != nil || created != want {
		f.Fatalf("%d jobs were created, %v; want %d", created, err, want)
	}
}

// holds wants the outbox to hold so many rows.
func (f *fixture) holds(waiting, failed int64) {
	f.Helper()
	s, err := f.relay().Stats(f.Context())
	f.must(err)
	if s.Waiting != waiting || s.Failed != failed {
		f.Fatalf("the outbox holds %+v; want %d rows that wait, %d that failed", s, waiting, failed)
	}
}

// makeDue lets the time of all rows come, leases included.
func (f *fixture) makeDue() {
	f.Helper()
	_, err := f.db.ExecContext(f.Context(), "UPDATE carillon_outbox SET due_at = "+f.box.dialect.Now()+" WHERE due_at IS NOT NULL")
	f.must(err)
}

// refusal is an error as a node gives it.
func refusal(code codes.Code, reason string) error {
	s, err := status.New(code, "because\x00 of "+reason).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "carillon.dev"})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

var _ Creator = carillonv1.JobServiceClient(nil)
var _ Tx = sqltext.Tx(nil)
