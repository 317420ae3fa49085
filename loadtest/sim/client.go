package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/internal/again"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
	"github.com/carillon-scheduler/carillon/loadtest/sim/simnet"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// parent is the namespace of all jobs.
const parent = "namespaces/default"

// client is a program of a user. It asks any of the nodes, and asks again while they say so.
type client struct {
	w       *world
	process *simnet.Process
	conns   []*grpc.ClientConn // one to each node

	mu        sync.Mutex // guards what follows
	made      []string   // names of jobs that it tried to create
	recurring []string   // of these, those that recur
	each      []string   // of these, those that do so each second
}

func (w *world) newClient(name string) (*client, error) {
	c := &client{w: w, process: simnet.NewProcess(name, 1)}
	for _, n := range w.nodes {
		conn, err := grpc.NewClient(targetOf(n.name), append(w.dialOptions(c.process), grpc.WithUnaryInterceptor(again.Calls(nil)))...)
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *client) close() error {
	c.process.Kill()
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// patience is how long a client goes on asking.
const patience = 20 * time.Second

// tell notes what came of a call.
func (c *client) tell(what string, err error) codes.Code {
	code := status.Code(err)
	if errors.Is(err, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	c.w.covered("call answered " + code.String())
	c.w.trace(c.process.Name, "%s: %s", what, code)
	return code
}

func (c *client) any(d dice.Dice) *grpc.ClientConn { return c.conns[d.For("node").N(len(c.conns))] }

// anyJob is a name that was created, perhaps.
func (c *client) anyJob(d dice.Dice) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.made) == 0 {
		return parent + "/jobs/nothing"
	}
	return parent + "/jobs/" + c.made[d.For("job").N(len(c.made))]
}

// recurringJob is most often one that recurs.
func (c *client) recurringJob(d dice.Dice) string {
	c.mu.Lock()
	recurring := slices.Clone(c.recurring)
	c.mu.Unlock()
	if len(recurring) == 0 || d.For("any").Chance(0.2) {
		return c.anyJob(d)
	}
	return parent + "/jobs/" + recurring[d.For("recurring").N(len(recurring))]
}

func (c *client) names(name string, j *carillonv1.Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.made, name) {
		c.made = append(c.made, name)
	}
	switch j.GetSchedule().GetKind().(type) {
	case *carillonv1.Schedule_Cron, *carillonv1.Schedule_Interval:
		c.recurring = append(c.recurring, name)
	}
	if often(j) {
		c.each = append(c.each, name)
	}
}

// create creates a job, and notes for the verdict whether that is certain.
func (c *client) create(ctx context.Context, d dice.Dice, name string) {
	req := &carillonv1.CreateJobRequest{Parent: parent, JobId: name, Job: c.w.newJob(d), RequestId: "create-" + name + fmt.Sprintf("-%x", uint64(d)), AllowUnregisteredHandler: true}
	c.names(name, req.GetJob())
	resp, err := carillonv1.NewJobServiceClient(c.any(d)).CreateJob(ctx, req)
	c.tell("create "+name+" "+kindOf(req.GetJob()), err)
	c.ledger(resp.GetJob(), err)
}

// ledger notes an acknowledged job.
func (c *client) ledger(j *carillonv1.Job, err error) {
	if err != nil {
		return // whether it is there can't be known, or it has no uid
	}
	uid, err := job.ParseUID(j.GetUid())
	if err != nil {
		c.w.wrong("a job has the uid %q: %v", j.GetUid(), err)
		return
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if !slices.Contains(c.w.ledger.Acked, uid) {
		c.w.ledger.Acked = append(c.w.ledger.Acked, uid)
	}
}

func kindOf(j *carillonv1.Job) string {
	switch s := j.GetSchedule().GetKind().(type) {
	case *carillonv1.Schedule_Cron:
		return s.Cron
	case *carillonv1.Schedule_Interval:
		return "every " + s.Interval.GetEvery().AsDuration().String()
	case *carillonv1.Schedule_RunAt:
		return "once"
	}
	return "immediately"
}

// createMany creates several jobs by one call, all or none.
func (c *client) createMany(ctx context.Context, d dice.Dice, name string) {
	batch := &carillonv1.BatchCreateJobsRequest{Parent: parent}
	for i := range 2 + d.For("count").N(4) {
		of := d.For("one").At(uint64(i))
		id := fmt.Sprintf("%s-%d", name, i)
		j := c.w.newJob(of)
		c.names(id, j)
		batch.Requests = append(batch.Requests, &carillonv1.CreateJobRequest{JobId: id, Job: j, RequestId: "batch-" + id, AllowUnregisteredHandler: true})
	}
	resp, err := carillonv1.NewJobServiceClient(c.any(d)).BatchCreateJobs(ctx, batch)
	c.tell("create a batch "+name, err)
	if err == nil && len(resp.GetJobs()) != len(batch.GetRequests()) {
		c.w.wrong("a batch of %d creates has %d jobs", len(batch.GetRequests()), len(resp.GetJobs()))
	}
	for _, j := range resp.GetJobs() {
		c.ledger(j, nil)
	}
}

// createStream creates several jobs by a stream.
func (c *client) createStream(ctx context.Context, d dice.Dice, name string) {
	stream, err := carillonv1.NewJobServiceClient(c.any(d)).StreamCreateJobs(ctx)
	for i := 0; err == nil && i < 2+d.For("count").N(4); i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		j := c.w.newJob(d.For("one").At(uint64(i)))
		c.names(id, j)
		err = stream.Send(&carillonv1.StreamCreateJobsRequest{Create: &carillonv1.CreateJobRequest{Parent: parent, JobId: id,
			Job: j, RequestId: "stream-" + id, AllowUnregisteredHandler: true}})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	for err == nil {
		var resp *carillonv1.StreamCreateJobsResponse
		if resp, err = stream.Recv(); err == nil && resp.GetJob() != nil {
			c.ledger(resp.GetJob(), nil)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.tell("create by a stream "+name, err)
}

func (c *client) delete(ctx context.Context, d dice.Dice) {
	name := c.anyJob(d)
	_, err := carillonv1.NewJobServiceClient(c.any(d)).DeleteJob(ctx, &carillonv1.DeleteJobRequest{Name: name})
	c.tell("delete "+shortJob(name), err)
}

func (c *client) trigger(ctx context.Context, d dice.Dice) {
	name := c.anyJob(d)
	_, err := carillonv1.NewJobServiceClient(c.any(d)).RunJob(ctx, &carillonv1.RunJobRequest{Name: name, RequestId: fmt.Sprintf("run-%x", uint64(d.For("request").N(40)))})
	c.tell("run "+shortJob(name), err)
}

// slot finds one in a state.
func (c *client) slot(ctx context.Context, d dice.Dice, states ...carillonv1.SlotState) string {
	resp, err := carillonv1.NewSlotServiceClient(c.any(d)).ListSlots(ctx, &carillonv1.ListSlotsRequest{Parent: parent + "/jobs/-", PageSize: 20, States: states})
	if err != nil || len(resp.GetSlots()) == 0 {
		c.tell("find a slot", err)
		return ""
	}
	return resp.GetSlots()[d.For("slot").N(len(resp.GetSlots()))].GetName()
}

func (c *client) cancel(ctx context.Context, d dice.Dice) {
	name := c.slot(ctx, d, carillonv1.SlotState_SLOT_STATE_READY, carillonv1.SlotState_SLOT_STATE_RUNNING)
	if name == "" {
		return
	}
	_, err := carillonv1.NewSlotServiceClient(c.any(d)).CancelSlot(ctx, &carillonv1.CancelSlotRequest{Name: name, Reason: "as planned"})
	c.tell("cancel "+slotName0(name), err)
}

// slotName0 is the job and the fire time of a slot's resource name.
func slotName0(name string) string {
	if len(name) > len(parent)+6 {
		return name[len(parent)+6:]
	}
	return name
}

func (c *client) redrive(ctx context.Context, d dice.Dice) {
	name := c.slot(ctx, d, carillonv1.SlotState_SLOT_STATE_DEAD)
	if name == "" {
		return
	}
	resp, err := carillonv1.NewSlotServiceClient(c.any(d)).RedriveSlot(ctx, &carillonv1.RedriveSlotRequest{Name: name, Reason: "as planned"})
	c.tell("redrive "+slotName0(name), err)
	c.redriven(resp.GetSlot())
}

// redriven notes slots whose budget may have begun anew.
func (c *client) redriven(*carillonv1.Slot) {}

func (c *client) redriveAll(ctx context.Context, d dice.Dice) {
	stream, err := carillonv1.NewDeadLetterServiceClient(c.any(d)).RedriveDeadLetters(ctx, &carillonv1.RedriveDeadLettersRequest{Parent: parent, RateLimit: int32(1 + d.For("rate").N(20)), Reason: "as planned"})
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	c.tell("redrive all dead letters", err)
}

func (c *client) discard(ctx context.Context, d dice.Dice) {
	name := c.slot(ctx, d, carillonv1.SlotState_SLOT_STATE_DEAD)
	if name == "" {
		return
	}
	_, err := carillonv1.NewSlotServiceClient(c.any(d)).DiscardSlot(ctx, &carillonv1.DiscardSlotRequest{Name: name, Reason: "as planned"})
	c.tell("discard "+slotName0(name), err)
}

// backfill asks for a past range, most often of a job that recurs.
func (c *client) backfill(ctx context.Context, d dice.Dice) {
	name := c.recurringJob(d)
	now := time.Now().Truncate(time.Second)
	from := now.Add(-d.For("from").Between(20*time.Second, 2*time.Minute)).Truncate(time.Second)
	resp, err := carillonv1.NewGapServiceClient(c.any(d)).BackfillJob(ctx, &carillonv1.BackfillJobRequest{Name: name, FromTime: timestamppb.New(from),
		ToTime: timestamppb.New(from.Add(d.For("length").Between(2*time.Second, 15*time.Second).Truncate(time.Second))), RateLimit: int32(d.For("rate").N(10)), Reason: "as planned"})
	c.tell("backfill "+shortJob(name), err)
	if gap := resp.GetGap().GetName(); gap != "" && d.For("after all").Chance(0.3) {
		c.cancelBackfill(ctx, d, gap)
	}
}

// endedStates are those of slots that a client comes across too seldom.
var endedStates = []carillonv1.SlotState{carillonv1.SlotState_SLOT_STATE_CANCELLED, carillonv1.SlotState_SLOT_STATE_EXPIRED,
	carillonv1.SlotState_SLOT_STATE_SKIPPED, carillonv1.SlotState_SLOT_STATE_DISCARDED}

// explain asks why a slot is where it is.
func (c *client) explain(ctx context.Context, d dice.Dice) {
	name := ""
	switch d.For("which").N(4) {
	case 0:
		name = c.anyJob(d) + "/slots/-"
	case 1:
		name = c.anyJob(d) + "/slots/" + job.AtSecond(time.Now().Unix()+int64(d.For("at").N(120))-60).ID()
	case 2:
		name = c.slot(ctx, d, carillonv1.SlotState_SLOT_STATE_READY, carillonv1.SlotState_SLOT_STATE_RUNNING)
	case 3:
		if of := d.For("state").N(8); of < len(endedStates) {
			name = c.slot(ctx, d, endedStates[of])
		} else {
			name = c.slot(ctx, d)
		}
	}
	if name == "" {
		return
	}
	c.explainSlot(ctx, d, name)
}

func (c *client) explainSlot(ctx context.Context, d dice.Dice, name string) {
	resp, err := carillonv1.NewSlotServiceClient(c.any(d)).ExplainSlot(ctx, &carillonv1.ExplainSlotRequest{Name: name})
	c.tell("explain "+slotName0(name), err)
	if err == nil && len(resp.GetReasons()) == 0 {
		c.w.wrong("%s has no reason", name)
	}
	for _, r := range resp.GetReasons() {
		c.w.covered("reason " + r.GetCode().String())
	}
}

func (c *client) calendar(ctx context.Context, d dice.Dice) {
	from := time.Now().Add(d.For("from").Between(0, time.Minute)).Truncate(time.Second).UTC()
	item := from.Format(time.RFC3339) + "/" + from.Add(d.For("length").Between(time.Second, 40*time.Second).Truncate(time.Second)).Format(time.RFC3339)
	_, err := carillonv1.NewCalendarServiceClient(c.any(d)).PutCalendar(ctx, &carillonv1.PutCalendarRequest{Name: parent + "/calendars/off", Items: []string{item}})
	c.tell("put a calendar", err)
}

// operate does what an operator may.
func (c *client) operate(ctx context.Context, d dice.Dice) {
	cluster := carillonv1.NewClusterServiceClient(c.any(d))
	node := c.w.nodes[d.For("which").N(len(c.w.nodes))].name
	shard := fmt.Sprintf("shards/%d", d.For("shard").N(c.w.shards))
	var err error
	what := ""
	switch d.For("what").N(4) {
	case 0:
		what = "transfer " + shard + " to " + node
		_, err = cluster.TransferShard(ctx, &carillonv1.TransferShardRequest{Name: shard, Node: node})
	case 1:
		what = "transfer " + shard + " no longer"
		_, err = cluster.TransferShard(ctx, &carillonv1.TransferShardRequest{Name: shard})
	case 2:
		what = "drain " + node
		_, err = cluster.DrainMember(ctx, &carillonv1.DrainMemberRequest{Name: "members/" + node})
		// Who drains a node takes it back some time.
		defer time.AfterFunc(d.For("for").Between(5*time.Second, 40*time.Second), func() { c.undrain(node) })
	case 3:
		what = "look at the cluster"
		_, err = cluster.ListShards(ctx, &carillonv1.ListShardsRequest{})
	}
	c.tell(what, err)
}

// undrain lets a node hold shards again, however long it takes to tell.
func (c *client) undrain(node string) {
	for i, conn := range c.conns {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := carillonv1.NewClusterServiceClient(conn).DrainMember(ctx, &carillonv1.DrainMemberRequest{Name: "members/" + node, Undo: true})
		cancel()
		if err == nil || status.Code(err) == codes.NotFound {
			c.w.trace(c.process.Name, "drain %s no longer", node)
			return
		}
		c.w.trace(c.process.Name, "drain %s no longer, try %d: %s", node, i, status.Code(err))
	}
}

// newJob makes up a job.
func (w *world) newJob(d dice.Dice) *carillonv1.Job {
	seconds := func(what string, lo, hi int) *durationpb.Duration {
		return durationpb.New(time.Duration(lo+d.For(what).N(hi-lo+1)) * time.Second)
	}
	some := func(what string, chance float64) bool { return d.For(what).For("some").Chance(chance) }
	now := time.Now().Truncate(time.Second)
	j := &carillonv1.Job{
		Handler: dice.Pick(d.For("handler"), "usual", "usual", "usual", "rough"), Params: &carillonv1.Json{Text: `{"n":  1}`}, Schedule: &carillonv1.Schedule{},
		RetryPolicy:    &carillonv1.RetryPolicy{MaxAttempts: proto.Int32(int32(1 + d.For("attempts").N(4))), InitialBackoff: seconds("backoff", 1, 3), MaxBackoff: seconds("most backoff", 4, 8)},
		AttemptTimeout: seconds("timeout", 2, 12),
	}
	if some("unserved", 0.02) {
		j.Handler = "nobody.serves"
	}
	w.covered("job of " + j.Handler)
	s := j.GetSchedule()
	cron := func(expression string) { s.Kind = &carillonv1.Schedule_Cron{Cron: expression} }
	recurs := true
	switch k := d.For("kind").N(100); {
	case k < 22:
		s.Kind, recurs = &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}, false
	case k < 50:
		s.Kind, recurs = &carillonv1.Schedule_RunAt{RunAt: timestamppb.New(now.Add(d.For("once").Between(-30*time.Second, 2*time.Minute).Truncate(time.Second)))}, false
	case k < 58:
		cron("* * * * *")
	case k < 70:
		cron(fmt.Sprintf("*/%d * * * * *", 5+d.For("cron").N(20)))
	case k < 74:
		cron("0 0 29 2 *")
	default:
		every := seconds("every", 3, 40)
		if some("often", 0.1) {
			every = durationpb.New(time.Second) // there is much to make up for
		}
		s.Kind = &carillonv1.Schedule_Interval{Interval: &carillonv1.IntervalSchedule{Every: every}}
	}
	w.covered("schedule " + fmt.Sprintf("%T", s.Kind)[len("*carillonv1.Schedule_"):])
	if recurs {
		if some("spread", 0.2) {
			w.covered("spread")
			s.Spread = seconds("spread", 2, 15)
		}
		if some("start", 0.15) {
			w.covered("start and end")
			start := now.Add(seconds("start", 5, 60).AsDuration())
			s.StartTime, s.EndTime = timestamppb.New(start), timestamppb.New(start.Add(seconds("end", 10, 120).AsDuration()))
		}
		if some("occurrences", 0.15) {
			w.covered("a number of occurrences")
			s.MaxOccurrences = int32(1 + d.For("occurrences").N(10))
		}
		if some("calendar", 0.3) {
			w.covered("calendar")
			s.Calendars = []string{"off"}
		}
		if some("catch-up", 0.4) {
			j.CatchUp = catchUp(d.For("catch-up"))
			w.covered("catch-up " + j.GetCatchUp().GetMode().String())
		}
		if some("overlap", 0.6) {
			j.Overlap = &carillonv1.OverlapPolicy{Mode: carillonv1.OverlapMode(1 + d.For("overlap").N(4))}
			if j.GetOverlap().GetMode() == carillonv1.OverlapMode_OVERLAP_MODE_ALLOW {
				j.Overlap.MaxRunning = int32(1 + d.For("running").N(2))
			}
			w.covered("overlap " + j.GetOverlap().GetMode().String())
		}
	}
	if some("deadlines", 0.25) {
		w.covered("deadlines")
		j.StartDeadline = seconds("start deadline", 2, 40)
		j.TotalDeadline = durationpb.New(j.GetStartDeadline().AsDuration() + seconds("total deadline", 1, 60).AsDuration())
	}
	if some("objectives", 0.3) {
		w.covered("objectives")
		j.Objectives = &carillonv1.Objectives{StartWithin: seconds("start within", 1, 5), FinishWithin: seconds("finish within", 5, 20)}
	}
	if some("dead letter", 0.15) {
		w.covered("on dead letter")
		j.OnDeadLetter = "usual"
	}
	j.Priority = int32(d.For("priority").N(5) - 2)
	return j
}

func catchUp(d dice.Dice) *carillonv1.CatchUpPolicy {
	switch d.N(5) {
	case 0:
		return &carillonv1.CatchUpPolicy{Mode: carillonv1.CatchUpMode_CATCH_UP_MODE_LATEST}
	case 1:
		return &carillonv1.CatchUpPolicy{Mode: carillonv1.CatchUpMode_CATCH_UP_MODE_NONE}
	case 2:
		return &carillonv1.CatchUpPolicy{Mode: carillonv1.CatchUpMode_CATCH_UP_MODE_ALL, MaxCount: int32(1 + d.For("count").N(4))}
	case 3:
		return &carillonv1.CatchUpPolicy{Mode: carillonv1.CatchUpMode_CATCH_UP_MODE_ALL, MaxAge: durationpb.New(d.For("age").Between(time.Second, 30*time.Second).Truncate(time.Second))}
	}
	return &carillonv1.CatchUpPolicy{Mode: carillonv1.CatchUpMode_CATCH_UP_MODE_ALL}
}
