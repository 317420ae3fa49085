package controlplane_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	jobs "github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// split gives the even shards to one node and the odd ones to another, for ever.
type split struct {
	*solo.Coordinator
	self      int
	addresses []string
	wrong     bool                    // it says that every shard is the other's
	changes   chan coordinator.Change // what it says later
}

func (c *split) mine(id int) bool { return id%2 == c.self }

func (c *split) Run(ctx context.Context, changes chan<- coordinator.Change) error {
	for id := range 8 {
		if c.mine(id) {
			changes <- coordinator.Change{Shard: shard.ID(id), Kind: coordinator.Take, Rev: 1}
		}
	}
	for {
		select {
		case c := <-c.changes:
			changes <- c
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *split) member(i int) coordinator.Member {
	return coordinator.Member{Node: fmt.Sprintf("n%d", i), Address: c.addresses[i], Shards: 4}
}

func (c *split) Members() []coordinator.Member {
	return []coordinator.Member{c.member(0), c.member(1)}
}

func (c *split) Holder(id shard.ID) (coordinator.Member, bool) {
	if c.wrong {
		return c.member(1 - c.self), true
	}
	return c.member(int(id) % 2), true
}

func (c *split) Holders() (out []coordinator.Holder) {
	for id := range 8 {
		out = append(out, coordinator.Holder{Shard: shard.ID(id), Node: c.member(id % 2).Node})
	}
	return out
}

// inTwo starts two nodes on one database, and returns them with what each knows.
func inTwo(t *testing.T) (nodes [2]*server, knows [2]*split) {
	nodes, knows, _ = inTwoOn(t)
	return nodes, knows
}

// inTwoOn is inTwo with each node's way to the database.
func inTwoOn(t *testing.T) (nodes [2]*server, knows [2]*split, ways [2]*deaf) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "carillon.db"))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	addresses := make([]string, 2)
	for i := range nodes {
		knows[i] = &split{Coordinator: solo.New(fmt.Sprintf("n%d", i), 8, 1), self: i, addresses: addresses}
		ways[i] = &deaf{Store: db}
		nodes[i] = startNode(t, ways[i], fmt.Sprintf("n%d", i), knows[i], func(cfg *controlplane.Config) {
			addresses[i] = cfg.GRPC.Addr().String()
			cfg.Dial = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		})
	}
	return nodes, knows, ways
}

// jobAt returns a name of a job whose shard is a node's.
func jobAt(node int, prefix string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%d", prefix, i); int(shard.Of("default", name, 8))%2 == node {
			return name
		}
	}
}

func TestAnyNodeTakesAnyRequest(t *testing.T) {
	nodes, _ := inTwo(t)
	here, there := nodes[0], nodes[1]
	fails := func(context.Context, *worker.Task[struct{}]) error { return worker.Permanent(fmt.Errorf("no")) }
	for _, n := range nodes { // until a worker has a stream to both by itself
		defer n.serve(func(w *worker.Worker) { worker.Handle(w, "fails", fails) })()
	}
	id := jobAt(1, "far")
	ctx := t.Context()
	created := here.create(job(id, "fails", scheduleCron("0 0 1 1 *")))
	if j := there.create(job(id+"x", "fails", scheduleCron("0 0 1 1 *"))); j.GetName() == created.GetName() {
		t.Fatal("two jobs of one name")
	}
	ran, err := here.jobs.RunJob(ctx, &carillonv1.RunJobRequest{Name: created.GetName(), RequestId: "r"})
	must(t, err)
	name := ran.GetSlot().GetName()
	here.becomes(created.GetName(), carillonv1.SlotState_SLOT_STATE_DEAD)
	if _, err := here.slots.ExplainSlot(ctx, &carillonv1.ExplainSlotRequest{Name: name}); err != nil {
		t.Error(err)
	}
	if _, err := here.slots.RedriveSlot(ctx, &carillonv1.RedriveSlotRequest{Name: name}); err != nil {
		t.Error(err)
	}
	here.becomes(created.GetName(), carillonv1.SlotState_SLOT_STATE_DEAD)
	dead := carillonv1.NewDeadLetterServiceClient(here.conn)
	stream, err := dead.RedriveDeadLetters(ctx, &carillonv1.RedriveDeadLettersRequest{Parent: ns})
	must(t, err)
	last := &carillonv1.RedriveDeadLettersResponse{}
	for {
		m, err := stream.Recv()
		if err != nil {
			break
		}
		last = m
	}
	if last.GetRedrivenCount() != 1 || last.GetRefusedCount() != 0 {
		t.Errorf("a redrive of all that is dead: %v", last)
	}
	here.becomes(created.GetName(), carillonv1.SlotState_SLOT_STATE_DEAD)
	if _, err := here.slots.DiscardSlot(ctx, &carillonv1.DiscardSlotRequest{Name: name, Reason: "r"}); err != nil {
		t.Error(err)
	}
	now := time.Now().Truncate(time.Second)
	gaps := carillonv1.NewGapServiceClient(here.conn)
	for _, n := range []string{created.GetName(), here.create(job(jobAt(0, "near"), "fails", scheduleCron("* * * * * *"))).GetName()} {
		if _, err := gaps.BackfillJob(ctx, &carillonv1.BackfillJobRequest{Name: n, FromTime: timestamppb.New(now.Add(-time.Hour)), ToTime: timestamppb.New(now.Add(-time.Minute)), RateLimit: 1}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no occurrence") {
			t.Errorf("%s: %v", n, err) // it was made after that range
		}
	}
	if _, err := gaps.ListGaps(ctx, &carillonv1.ListGapsRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := here.jobs.DeleteJob(ctx, &carillonv1.DeleteJobRequest{Name: created.GetName()}); err != nil {
		t.Error(err)
	}
	if code, body := here.post("/v1/"+ns+"/jobs/"+id+"x:run", "{}"); code != 200 {
		t.Errorf("over REST: %d %s", code, body)
	}
}

// A job gets a name of a shard that its node owns, if it has none.
func TestANameIsChosenNearby(t *testing.T) {
	nodes, _ := inTwo(t)
	for range 20 {
		j := nodes[1].create(job("", "h", scheduleCron("0 0 1 1 *")))
		name := j.GetName()[strings.LastIndexByte(j.GetName(), '/')+1:]
		if int(shard.Of("default", name, 8))%2 != 1 {
			t.Errorf("%s is of a shard of the other node", name)
		}
	}
}

// Whatever becomes of the owner, a create succeeds, once: by the inbox.
func TestACreateNeedsNoOwner(t *testing.T) {
	nodes, knows := inTwo(t)
	id := jobAt(1, "far")
	t.Run("which can't be reached", func(t *testing.T) {
		l := listen(t)
		knows[0].addresses[1] = l.Addr().String()
		must(t, l.Close())
		nodes[0].create(job(id, "h", scheduleCron("0 0 1 1 *")))
	})
	t.Run("which doesn't answer", func(t *testing.T) {
		l := listen(t)
		defer l.Close()
		knows[0].addresses[1] = l.Addr().String() // nobody accepts
		began := time.Now()
		j := nodes[0].create(job(jobAt(1, "slow"), "h", scheduleCron("0 0 1 1 *")))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		nodes[1].eventually("the owner has taken it", func() bool {
			_, err := nodes[1].jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: j.GetName()})
			return err == nil
		})
		_, err := nodes[0].jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: j.GetName()})
		if status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("what only the owner can do: %v", err)
		}
	})
	t.Run("whose answer is lost", func(t *testing.T) {
		name := jobAt(1, "lost")
		knows[0].addresses[1] = swallowing(t, nodes[1].grpc)
		j := nodes[0].create(job(name, "h", scheduleCron("0 0 1 1 *")))
		if n := nodes[1].countNamed(name); n != 1 {
			t.Errorf("%d jobs named %s", n, j.GetName())
		}
	})
}

// holding is a store whose next commit of a new job waits.
type holding struct {
	store.Store
	held  chan struct{} // a commit waits
	until chan struct{}
	once  sync.Once
}

func (h *holding) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	for i := range b.Shards {
		if len(b.Shards[i].Creates) > 0 {
			h.once.Do(func() { close(h.held); <-h.until })
		}
	}
	return h.Store.Commit(ctx, b)
}

// A node lost a shard while it stored a job of it, and then stored the job by the inbox: as the same
// job, so that what it had begun counted as done, and what was to run at once ran twice.
func TestACreateWhoseOwnerLostTheShardIsDoneOnce(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "carillon.db"))
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	way := &holding{Store: db, held: make(chan struct{}), until: make(chan struct{})}
	knows := &split{Coordinator: solo.New("n0", 8, 1), addresses: []string{"", ""}, changes: make(chan coordinator.Change)}
	n := startNode(t, way, "n0", knows, func(cfg *controlplane.Config) { knows.addresses[0] = cfg.GRPC.Addr().String() })
	name := jobAt(0, "now")
	id := shard.Of("default", name, 8)
	go func() {
		<-way.held
		knows.changes <- coordinator.Change{Shard: id, Kind: coordinator.Drop, Rev: 1}
	}()
	req := job(name, "h", scheduleNow())
	req.RequestId = "r"
	created := n.create(req)
	close(way.until) // what was begun is written, and then the shard comes back
	knows.changes <- coordinator.Change{Shard: id, Kind: coordinator.Take, Rev: 2}
	var inbox int
	n.eventually("the inbox is empty", func() bool {
		a, err := db.Audit(t.Context(), id)
		must(t, err)
		inbox = len(a.Inbox)
		return inbox == 0 && len(a.Slots) > 0
	})
	a, err := db.Audit(t.Context(), id)
	must(t, err)
	if len(a.Jobs) != 1 || len(a.Slots) != 1 || a.Jobs[0].UID.String() != created.GetUid() {
		t.Errorf("%d jobs, %d slots; created was %s: %+v", len(a.Jobs), len(a.Slots), created.GetUid(), a.Jobs)
	}
}

// countNamed counts the jobs of a name, live and ended.
func (s *server) countNamed(id string) (n int) {
	s.t.Helper()
	resp, err := s.jobs.ListJobs(s.t.Context(), &carillonv1.ListJobsRequest{Parent: ns, PageSize: 1000, ShowEnded: true})
	must(s.t, err)
	for _, j := range resp.GetJobs() {
		if strings.HasSuffix(j.GetName(), "/"+id) {
			n++
		}
	}
	return n
}

// swallowing is an address that hands calls on to a node, and loses all answers.
func swallowing(t *testing.T, target string) string {
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	g := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		resp := &carillonv1.CreateJobResponse{}
		if err := conn.Invoke(metadata.NewOutgoingContext(ctx, md), info.FullMethod, req, resp); err != nil {
			t.Errorf("the owner answers %v", err)
		}
		return nil, status.Error(codes.Unavailable, "lost")
	}))
	carillonv1.RegisterJobServiceServer(g, carillonv1.UnimplementedJobServiceServer{})
	l := listen(t)
	go g.Serve(l)
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// Two nodes that each believe the other one to be the owner don't send a call to and fro.
func TestACallIsForwardedOnce(t *testing.T) {
	nodes, knows := inTwo(t)
	id := jobAt(1, "far")
	j := nodes[0].create(job(id, "h", scheduleCron("0 0 1 1 *")))
	knows[0].wrong, knows[1].wrong = true, true
	near := nodes[0].create(job(jobAt(0, "near"), "h", scheduleCron("0 0 1 1 *")))
	knows[0].addresses[1] = nodes[0].grpc // what is sent to the other one comes back
	_, err := nodes[0].jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: j.GetName()})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no node owns shard") {
		t.Errorf("a call that nobody can take: %v", err)
	}
	if _, err := nodes[0].jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: near.GetName()}); err != nil {
		t.Errorf("what this node owns, whatever it has heard: %v", err)
	}
}

func TestTheClusterIsShown(t *testing.T) {
	nodes, _ := inTwo(t)
	c := carillonv1.NewClusterServiceClient(nodes[0].conn)
	got, err := c.GetCluster(t.Context(), &carillonv1.GetClusterRequest{})
	must(t, err)
	if got.GetCluster().GetNode() != "n0" || got.GetCluster().GetShardCount() != 8 || len(got.GetCluster().GetMembers()) != 2 || len(got.GetCluster().GetProblems()) != 0 {
		t.Errorf("%v", got)
	}
	shards, err := c.ListShards(t.Context(), &carillonv1.ListShardsRequest{})
	must(t, err)
	for i, s := range shards.GetShards() {
		if want := fmt.Sprintf("n%d", i%2); s.GetOwner() != want || s.GetHolder() != want || s.GetEpoch() == 0 {
			t.Errorf("%v", s)
		}
	}
	if code, body := nodes[0].get("/metrics"); code != 200 || !strings.Contains(body, "carillon_cluster_members 2\n") || !strings.Contains(body, "carillon_cluster_shards_unheld 0\n") ||
		!strings.Contains(body, "carillon_coordination_connected 1\n") {
		t.Errorf("metrics: %d", code)
	}
	if _, err := c.TransferShard(t.Context(), &carillonv1.TransferShardRequest{Name: "shards/8", Node: "n0"}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "name") {
		t.Errorf("a shard that isn't there: %v", err)
	}
	if _, err := c.TransferShard(t.Context(), &carillonv1.TransferShardRequest{Name: "shards/7", Node: "n0"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a node that is alone: %v", err)
	}
	if _, err := c.DrainMember(t.Context(), &carillonv1.DrainMemberRequest{Name: "n0"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a bad name: %v", err)
	}
}

// A worker that asks by single calls gets the work of all nodes from any of them, and may
// speak of it to any.
func TestAnyNodeServesUnaryWorkers(t *testing.T) {
	nodes, knows := inTwo(t)
	ctx := t.Context()
	poll := func(n *server, wait time.Duration, held ...*carillonv1.AttemptToken) []*carillonv1.Assignment {
		t.Helper()
		resp, err := n.workers.Poll(ctx, &carillonv1.PollRequest{WorkerId: "w", Incarnation: "1", Handlers: []string{"h"}, Wait: durationpb.New(wait), Held: held})
		must(t, err)
		for i, a := range resp.GetAttestations() { // unknown: of the other node, which was not asked any more
			if a.GetVerdict() == carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CANCEL || a.GetToken().GetJobUid() != held[i].GetJobUid() {
				t.Errorf("attestation %d: %v", i, a)
			}
		}
		return resp.GetAssignments()
	}
	must(t, errOf(nodes[0].workers.Poll(ctx, &carillonv1.PollRequest{WorkerId: "w", Incarnation: "1", Handlers: []string{"h"}, Wait: durationpb.New(0)})))
	var held []*carillonv1.AttemptToken
	for i := range 2 {
		nodes[0].create(job(jobAt(i, "unary"), "h", scheduleNow()))
		nodes[0].create(job(jobAt(i, "later"), "h", scheduleNow()))
	}
	for i := range 4 {
		got := poll(nodes[i%2], time.Second, held...)
		if len(got) != 1 {
			t.Fatalf("poll %d brought %d attempts", i, len(got))
		}
		held = append(held, got[0].GetToken())
	}
	ext, err := nodes[1].workers.Extend(ctx, &carillonv1.ExtendRequest{WorkerId: "w", Incarnation: "1", Held: held,
		Progress: []*carillonv1.ProgressReport{{Token: held[0], Sequence: 1, Checkpoint: []byte("x")}, {Token: held[1], Sequence: 1, Checkpoint: []byte("y")}}})
	must(t, err)
	for i, a := range ext.GetAttestations() {
		if a.GetVerdict() != carillonv1.AttestationVerdict_ATTESTATION_VERDICT_CONTINUE || a.GetToken().GetJobUid() != held[i].GetJobUid() {
			t.Errorf("attestation %d: %v", i, a)
		}
	}
	var results []*carillonv1.AttemptResult
	for _, token := range held {
		results = append(results, &carillonv1.AttemptResult{Token: token, Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED})
	}
	for _, n := range nodes { // and once more: it is accepted again
		fin, err := n.workers.Finish(ctx, &carillonv1.FinishRequest{WorkerId: "w", Incarnation: "1", Results: results})
		must(t, err)
		for i, a := range fin.GetAcks() {
			if a.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED || a.GetToken().GetJobUid() != results[i].GetToken().GetJobUid() {
				t.Errorf("result %d: %v", i, a)
			}
		}
	}
	// Whoever waits hears of what comes later, from whichever node.
	for i := range 2 {
		waited := make(chan []*carillonv1.Assignment, 1)
		go func() { waited <- poll(nodes[0], 10*time.Second) }()
		nodes[0].create(job(jobAt(i, "waited"), "h", scheduleNow()))
		if got := <-waited; len(got) != 1 {
			t.Errorf("it waited, and got %v", got)
		} else {
			must(t, errOf(nodes[1].workers.Finish(ctx, &carillonv1.FinishRequest{WorkerId: "w", Incarnation: "1",
				Results: []*carillonv1.AttemptResult{{Token: got[0].GetToken(), Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED}}})))
		}
	}
	// What two nodes hand out at the same moment, for one place, isn't lost.
	for round := range 5 {
		first := make(chan []*carillonv1.Assignment, 1)
		go func() { first <- poll(nodes[0], 10*time.Second) }()
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() { nodes[i].create(job(jobAt(i, fmt.Sprintf("both-%d", round)), "h", scheduleNow())) })
		}
		both.Wait()
		got := <-first
		began := time.Now()
		got = append(got, poll(nodes[1], 5*time.Second, got[0].GetToken())...)
		if len(got) != 2 || time.Since(began) > 3*time.Second {
			t.Fatalf("round %d: %d attempts after %s", round, len(got), time.Since(began))
		}
		for _, a := range got {
			must(t, errOf(nodes[0].workers.Finish(ctx, &carillonv1.FinishRequest{WorkerId: "w", Incarnation: "1",
				Results: []*carillonv1.AttemptResult{{Token: a.GetToken(), Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED}}})))
		}
	}
	// What can't be asked about keeps its lease; what can't be told is told again.
	l := listen(t)
	must(t, l.Close())
	knows[0].addresses[1] = l.Addr().String()
	ext, err = nodes[0].workers.Extend(ctx, &carillonv1.ExtendRequest{WorkerId: "w", Incarnation: "1", Held: held})
	must(t, err)
	unknown := 0
	for _, a := range ext.GetAttestations() {
		if a.GetVerdict() == carillonv1.AttestationVerdict_ATTESTATION_VERDICT_UNKNOWN {
			unknown++
		}
	}
	if unknown != 2 {
		t.Errorf("%d of 4 attempts are unknown, want those of the other node: %v", unknown, ext)
	}
	fin, err := nodes[0].workers.Finish(ctx, &carillonv1.FinishRequest{WorkerId: "w", Incarnation: "1", Results: results})
	must(t, err)
	for i, a := range fin.GetAcks() {
		if (a.GetVerdict() == carillonv1.ResultVerdict_RESULT_VERDICT_UNSPECIFIED) != (held[i].GetShard()%2 == 1) {
			t.Errorf("result %d: %v", i, a)
		}
	}
	poll(nodes[0], 0)
}

func errOf[T any](_ T, err error) error { return err }

// A worker may reach one node only: its results of the others' shards arrive all the same.
func TestResultsArePassedOn(t *testing.T) {
	nodes, _ := inTwo(t)
	there := nodes[1].connect(hello("w", "1"))
	nodes[1].create(job(jobAt(1, "far"), "h", scheduleNow()))
	a := there.assignment()
	here := nodes[0].connect(hello("w", "1"))
	must(t, here.stream.Send(&carillonv1.ConnectRequest{Results: []*carillonv1.AttemptResult{succeeded(a)}}))
	if ack := here.ack(); ack.GetVerdict() != carillonv1.ResultVerdict_RESULT_VERDICT_ACCEPTED || ack.GetToken().GetJobUid() != a.GetToken().GetJobUid() || ack.GetEpoch() == 0 {
		t.Errorf("the result was answered by %v", ack)
	}
	nodes[0].becomes(ns+"/jobs/"+jobAt(1, "far"), carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
}

// deaf is a store that a node can't reach while away is set.
type deaf struct {
	store.Store
	away atomic.Bool
}

func (d *deaf) hang(ctx context.Context) error {
	if !d.away.Load() {
		return nil
	}
	<-ctx.Done()
	return store.ErrUnavailable
}

func (d *deaf) Now(ctx context.Context) (at jobs.Instant, err error) {
	if err := d.hang(ctx); err != nil {
		return 0, err
	}
	return d.Store.Now(ctx)
}

func (d *deaf) Job(ctx context.Context, id shard.ID, namespace, name string) (found jobs.Job, err error) {
	if err := d.hang(ctx); err != nil {
		return found, err
	}
	return d.Store.Job(ctx, id, namespace, name)
}

// A node that can't reach its database has others answer.
func TestANodeWithoutItsDatabasePassesCallsOn(t *testing.T) {
	nodes, _, db := inTwoOn(t)
	j := nodes[0].create(job(jobAt(1, "far"), "h", scheduleCron("0 0 1 1 *")))
	db[0].away.Store(true)
	defer db[0].away.Store(false)
	nodes[0].eventually("a call is passed on", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := nodes[0].jobs.GetJob(ctx, &carillonv1.GetJobRequest{Name: j.GetName()})
		return err == nil
	})
	if _, err := nodes[0].jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Name: ns + "/jobs/none"}); status.Code(err) != codes.NotFound {
		t.Errorf("what isn't there: %v", err)
	}
	if _, err := nodes[0].jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: j.GetName()}); err != nil {
		t.Error(err)
	}
	c, err := carillonv1.NewClusterServiceClient(nodes[0].conn).GetCluster(t.Context(), &carillonv1.GetClusterRequest{})
	must(t, err)
	if c.GetCluster().GetNode() != "n0" {
		t.Errorf("%s answers for itself", c.GetCluster().GetNode())
	}
}
