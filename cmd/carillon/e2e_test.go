package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/internal/freeport"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// These tests run the built binary and a worker as processes of their own, and
// kill them for real.

// workerEnv makes this test binary a worker: the address that it serves.
const workerEnv = "CARILLON_TEST_WORKER"

var binary string // the built carillon

func TestMain(m *testing.M) {
	if address := os.Getenv(workerEnv); address != "" {
		os.Exit(runWorker(address))
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "carillon-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "carillon")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// runWorker serves handlers until SIGTERM.
func runWorker(address string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w, err := worker.Dial(ctx, address, worker.ID(os.Getenv("CARILLON_TEST_WORKER_ID")), worker.ShutdownGrace(time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	worker.Handle(w, "echo", func(context.Context, *worker.Task[json.RawMessage]) error { return nil })
	worker.Handle(w, "noted", noteEffects)
	worker.Handle(w, "poison", func(context.Context, *worker.Task[json.RawMessage]) error {
		os.Exit(3)
		return nil
	})
	worker.Handle(w, "slow", func(ctx context.Context, task *worker.Task[struct{ Seconds float64 }]) error {
		select {
		case <-time.After(time.Duration(task.Args.Seconds * float64(time.Second))):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), worker.ErrShutdown) {
				return ctx.Err()
			}
		}
		return nil
	})
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// logBuffer is written by a process and read by its test.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// process is a child that dies with its test.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	logs *logBuffer
	once sync.Once
	err  error

	watch sync.Once
	ended chan struct{} // closed at its end, if that is watched
}

func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, logs: &logBuffer{}, ended: make(chan struct{})}
	cmd.Stderr = p.logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("logs of %v:\n%s", cmd.Args, p.logs)
		}
	})
	return p
}

// gone reports whether the process has ended by itself.
func (p *process) gone() bool {
	p.watch.Do(func() {
		go func() {
			p.once.Do(func() { p.err = p.cmd.Wait() })
			close(p.ended)
		}()
	})
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill sends a signal; after SIGKILL and SIGTERM it waits for the end.
func (p *process) kill(sig syscall.Signal) error {
	if p.cmd.ProcessState == nil {
		// An error means that it has ended already.
		_ = p.cmd.Process.Signal(sig)
	}
	if sig == syscall.SIGKILL || sig == syscall.SIGTERM {
		p.once.Do(func() { p.err = p.cmd.Wait() })
	}
	return p.err
}

// dev is `carillon dev`, or `carillon server`, with clients.
type dev struct {
	*process
	args             []string // of the command
	env              []string
	data, grpc, http string
	out              *logBuffer // what it prints
	jobs             carillonv1.JobServiceClient
	slots            carillonv1.SlotServiceClient
	handlers         carillonv1.HandlerServiceClient
}

func startDev(t *testing.T, env ...string) *dev {
	t.Helper()
	data := t.TempDir()
	return startNode(t, data, []string{"dev", "--data", data}, env...)
}

// startNode starts a node by its command.
func startNode(t *testing.T, data string, args []string, env ...string) *dev {
	t.Helper()
	d := &dev{data: data, args: args, env: env, grpc: freeport.For(t), http: freeport.For(t)}
	conn, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 100 * time.Millisecond}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	d.jobs, d.slots, d.handlers = carillonv1.NewJobServiceClient(conn), carillonv1.NewSlotServiceClient(conn), carillonv1.NewHandlerServiceClient(conn)
	d.start(t)
	return d
}

// start starts the server, again on the same data and ports.
func (d *dev) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(binary, append(slices.Clone(d.args), "--grpc", d.grpc, "--http", d.http)...)
	cmd.Env = append(os.Environ(), d.env...)
	d.out = &logBuffer{}
	cmd.Stdout = d.out
	d.process = launch(t, cmd)
	eventually(t, 20*time.Second, "it is up", func() bool { return strings.Contains(d.out.String(), "\n") })
}

func (d *dev) startWorker(id string, env ...string) *process {
	d.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), workerEnv+"="+d.grpc, "CARILLON_TEST_WORKER_ID="+id), env...)
	return launch(d.t, cmd)
}

// eventually waits for a condition.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it never came within %s that %s", within, what)
		}
	}
}

// elapse lets real time go by: an outage has to last.
func elapse(d time.Duration) { <-time.After(d) }

const parent = "namespaces/default"

func immediate() *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}
}

func everySecond() *carillonv1.Schedule {
	return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "* * * * * *"}}
}

func (d *dev) create(id, handler, params string, schedule *carillonv1.Schedule) *carillonv1.Job {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Second)
	defer cancel()
	resp, err := d.jobs.CreateJob(ctx, &carillonv1.CreateJobRequest{Parent: parent, JobId: id, AllowUnregisteredHandler: true,
		Job: &carillonv1.Job{Handler: handler, Params: &carillonv1.Json{Text: params}, Schedule: schedule,
			RetryPolicy: &carillonv1.RetryPolicy{InitialBackoff: durationpb.New(10 * time.Millisecond)}}})
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.GetJob()
}

// all lists all slots of a job, newest first.
func (d *dev) all(name string) (slots []*carillonv1.Slot) {
	d.t.Helper()
	for token := ""; ; {
		ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Second)
		resp, err := d.slots.ListSlots(ctx, &carillonv1.ListSlotsRequest{Parent: name, PageSize: 1000, PageToken: token})
		cancel()
		if err != nil {
			d.t.Fatal(err)
		}
		slots = append(slots, resp.GetSlots()...)
		if token = resp.GetNextPageToken(); token == "" {
			return slots
		}
	}
}

func (d *dev) becomes(within time.Duration, job *carillonv1.Job, state carillonv1.SlotState) (slot *carillonv1.Slot) {
	d.t.Helper()
	eventually(d.t, within, fmt.Sprintf("the slot of %s is %v", job.GetName(), state), func() bool {
		if slots := d.all(job.GetName()); len(slots) > 0 {
			slot = slots[0]
		}
		return slot.GetState() == state
	})
	return slot
}

func (d *dev) attempts(slot *carillonv1.Slot) []*carillonv1.Attempt {
	d.t.Helper()
	resp, err := d.slots.ListAttempts(d.t.Context(), &carillonv1.ListAttemptsRequest{Parent: slot.GetName()})
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.GetAttempts()
}

const (
	ready     = carillonv1.SlotState_SLOT_STATE_READY
	running   = carillonv1.SlotState_SLOT_STATE_RUNNING
	succeeded = carillonv1.SlotState_SLOT_STATE_SUCCEEDED
)

// Every create that was acknowledged is there after kill -9; none is there half.
func TestAcknowledgedCreatesSurviveKill9(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	var mu sync.Mutex
	acknowledged := map[string]string{}
	var group sync.WaitGroup
	for caller := range 8 {
		group.Go(func() {
			for i := range 10_000 {
				id := fmt.Sprintf("j-%d-%d", caller, i)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				resp, err := d.jobs.CreateJob(ctx, &carillonv1.CreateJobRequest{Parent: parent, JobId: id, AllowUnregisteredHandler: true,
					Job: &carillonv1.Job{Handler: "h", Params: &carillonv1.Json{Text: `{"i": 1}`}, Schedule: immediate()}})
				cancel()
				if err != nil {
					return
				}
				mu.Lock()
				acknowledged[id] = resp.GetJob().GetUid()
				mu.Unlock()
			}
		})
	}
	enough := func() bool { mu.Lock(); defer mu.Unlock(); return len(acknowledged) >= 500 }
	eventually(t, 20*time.Second, "500 creates were acknowledged", enough)
	d.kill(syscall.SIGKILL)
	group.Wait()
	d.start(t)
	for id, uid := range acknowledged {
		resp, err := d.jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Name: parent + "/jobs/" + id})
		if err != nil || resp.GetJob().GetUid() != uid || resp.GetJob().GetParams().GetText() != `{"i": 1}` {
			t.Fatalf("%s: %v, %v", id, resp, err)
		}
	}
	// An immediate job that was accepted has its slot, once.
	seen := map[string]int{}
	eventually(t, 20*time.Second, "all slots are there", func() bool {
		clear(seen)
		for _, s := range d.all(parent + "/jobs/-") {
			seen[s.GetJobUid()]++
		}
		return len(seen) >= len(acknowledged)
	})
	for id, uid := range acknowledged {
		if seen[uid] != 1 {
			t.Errorf("%s has %d slots", id, seen[uid])
		}
	}
}

// Every second of an outage has its slot, and each succeeded once.
func TestAnOutageOfTenSeconds(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	d.startWorker("w")
	job := d.create("every", "echo", `{}`, everySecond())
	d.becomes(10*time.Second, job, succeeded)
	d.kill(syscall.SIGKILL)
	killed := time.Now()
	elapse(10 * time.Second)
	d.start(t)
	back := time.Now()
	eventually(t, 20*time.Second, "all slots up to the restart succeeded", func() bool {
		slots := d.all(job.GetName())
		for _, s := range slots {
			if s.GetFireTime().AsTime().Before(back) && s.GetState() != succeeded {
				return false
			}
		}
		return len(slots) > 0 && slots[0].GetFireTime().AsTime().After(back)
	})
	slots := d.all(job.GetName())
	last, backfilled := slots[0].GetFireTime().GetSeconds(), 0
	for i, s := range slots {
		if s.GetFireTime().GetSeconds() != last-int64(i) {
			t.Fatalf("slot %d is of %s: a second is missing or doubled", i, s.GetFireTime().AsTime())
		}
		at := s.GetFireTime().AsTime()
		if at.After(killed.Add(time.Second)) && at.Before(back) {
			backfilled++
			if s.GetTrigger() != carillonv1.SlotTrigger_SLOT_TRIGGER_BACKFILL || s.GetLateness().AsDuration() <= 0 || s.GetFailures() != 0 {
				t.Errorf("a slot of the outage: %v", s)
			}
		}
	}
	if first := slots[len(slots)-1].GetFireTime().GetSeconds(); first != job.GetEffectiveFrom().GetSeconds()+1 {
		t.Errorf("the first slot is of %d, the job counts after %s", first, job.GetEffectiveFrom().AsTime())
	}
	if backfilled < 8 {
		t.Errorf("only %d slots were made up for", backfilled)
	}
}

// A worker that dies in the middle loses its attempt within the lease time, to a
// higher fence.
func TestAKilledWorkerIsReclaimed(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	victim := d.startWorker("victim")
	job := d.create("j", "slow", `{"seconds": 1}`, immediate())
	d.becomes(10*time.Second, job, running)
	victim.kill(syscall.SIGKILL)
	killed := time.Now()
	d.startWorker("other")
	slot := d.becomes(20*time.Second, job, succeeded)
	attempts := d.attempts(slot)
	if len(attempts) != 2 || attempts[0].GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_LOST || attempts[1].GetWorker() != "other" {
		t.Fatalf("attempts %v", attempts)
	}
	if took := attempts[1].GetClaimTime().AsTime().Sub(killed); took > 11*time.Second {
		t.Errorf("reclaimed after %s, want at most the lease of 10 s", took)
	}
}

// A worker that is frozen beyond its lease comes back: its result is refused and
// recorded, and there is one success.
// A job whose handler takes its process down uses up its budget by that, and goes to the dead
// letters: it can't take workers down for ever, and others' work goes on.
func TestAPoisonousJob(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	w := d.startWorker("w")
	eventually(t, 10*time.Second, "the worker is there", func() bool {
		_, err := d.handlers.GetHandler(t.Context(), &carillonv1.GetHandlerRequest{Name: "handlers/poison"})
		return err == nil
	})
	resp, err := d.jobs.CreateJob(t.Context(), &carillonv1.CreateJobRequest{Parent: "namespaces/default", JobId: "poison", Job: &carillonv1.Job{
		Handler: "poison", Schedule: immediate(), RetryPolicy: &carillonv1.RetryPolicy{MaxAttempts: proto.Int32(3), InitialBackoff: durationpb.New(time.Second)}}})
	if err != nil {
		t.Fatal(err)
	}
	deaths := 0
	var slot *carillonv1.Slot
	eventually(t, 60*time.Second, "the slot is dead", func() bool {
		if w.gone() {
			deaths++
			w = d.startWorker("w") // as a supervisor would
		}
		slots := d.all(resp.GetJob().GetName())
		if len(slots) == 0 {
			return false // it went through the inbox of a shard that was still loading
		}
		slot = slots[0]
		return slot.GetState() == carillonv1.SlotState_SLOT_STATE_DEAD
	})
	if deaths != 3 || slot.GetAttempt() != 3 || slot.GetFailures() != 3 || slot.GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_LEASE_LOST {
		t.Errorf("after %d deaths the slot is %v", deaths, slot)
	}
	d.becomes(10*time.Second, d.create("other", "echo", `{}`, immediate()), carillonv1.SlotState_SLOT_STATE_SUCCEEDED)
}

func TestAFrozenWorkersLateResultIsRefused(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	frozen := d.startWorker("frozen")
	job := d.create("j", "slow", `{"seconds": 2}`, immediate())
	d.becomes(10*time.Second, job, running)
	frozen.kill(syscall.SIGSTOP)
	d.startWorker("other")
	slot := d.becomes(30*time.Second, job, succeeded)
	if slot.GetWorker() != "other" || slot.GetAttempt() != 2 {
		t.Fatalf("slot %v", slot)
	}
	frozen.kill(syscall.SIGCONT)
	eventually(t, 20*time.Second, "the late result is recorded", func() bool { return d.attempts(slot)[0].GetLateResult() != "" })
	after := d.all(job.GetName())[0]
	if after.GetState() != succeeded || after.GetAttempt() != 2 || after.GetWorker() != "other" || after.GetFinishTime().AsTime() != slot.GetFinishTime().AsTime() {
		t.Errorf("the late result changed the slot: %v", after)
	}
}

// SIGTERM of the server: what is in flight ends or goes on, no attempt is burnt,
// exit 0 within 10 s.
func TestSIGTERMOfTheServer(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	d.startWorker("w")
	short, long := d.create("short", "slow", `{"seconds": 2}`, immediate()), d.create("long", "slow", `{"seconds": 12}`, immediate())
	d.becomes(10*time.Second, short, running)
	d.becomes(10*time.Second, long, running)
	began := time.Now()
	if err := d.kill(syscall.SIGTERM); err != nil {
		t.Fatalf("exit: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
	d.start(t)
	for _, job := range []*carillonv1.Job{short, long} {
		if slot := d.becomes(20*time.Second, job, succeeded); slot.GetAttempt() != 1 || slot.GetFailures() != 0 {
			t.Errorf("%s: %v", job.GetName(), slot)
		}
	}
}

// SIGTERM of a worker hands back what doesn't end, without burning an attempt.
func TestSIGTERMOfAWorker(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	first := d.startWorker("first")
	job := d.create("j", "slow", `{"seconds": 6}`, immediate())
	d.becomes(10*time.Second, job, running)
	began := time.Now()
	if err := first.kill(syscall.SIGTERM); err != nil {
		t.Fatalf("exit: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
	if slot := d.becomes(5*time.Second, job, ready); slot.GetOutcome() != carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_RELEASED || slot.GetFailures() != 0 {
		t.Errorf("after the stop: %v", slot)
	}
	d.startWorker("second")
	if slot := d.becomes(20*time.Second, job, succeeded); slot.GetAttempt() != 2 || slot.GetFailures() != 0 {
		t.Errorf("in the end: %v", slot)
	}
}

// The time zone of the process means nothing.
func TestTheServersTimeZoneMeansNothing(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"America/New_York", "Pacific/Honolulu", "Europe/Berlin"} {
		d := startDev(t, "TZ="+zone)
		job := d.create("daily", "echo", `{}`, &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "0 2 * * *"}})
		if next := job.GetNextFireTime().AsTime(); next.Hour() != 2 || next.Minute() != 0 || !strings.Contains(job.GetScheduleDescription(), "UTC") {
			t.Errorf("%s: next at %s, %s", zone, next, job.GetScheduleDescription())
		}
		d.kill(syscall.SIGKILL)
		d.env = []string{"TZ=UTC"}
		d.start(t)
		if slots := d.all(job.GetName()); len(slots) > 0 {
			t.Errorf("%s: slots %v", zone, slots)
		}
	}
}

func TestDevIsLoopbackOnlyAndAlone(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	for _, args := range [][]string{{"--grpc", "0.0.0.0:0"}, {"--http", ":0"}, {"--log-level", "loud"}} {
		out, code := run(t, "", append([]string{"dev", "--data", t.TempDir()}, args...)...)
		if code != 2 || !strings.Contains(out, args[0]) {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
	if out, code := run(t, "", "dev", "--data", d.data, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"); code != 1 || !strings.Contains(out, "another process") {
		t.Errorf("a second server on the same data: exit %d, %s", code, out)
	}
}

// run runs the binary and returns its output and exit code.
func run(t *testing.T, address string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "CARILLON_ADDRESS="+address)
	out, err := cmd.CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	d.startWorker("w")
	eventually(t, 10*time.Second, "the worker is there", func() bool {
		_, err := d.handlers.GetHandler(t.Context(), &carillonv1.GetHandlerRequest{Name: "handlers/echo"})
		return status.Code(err) != codes.NotFound
	})
	files := map[string]string{"CSV": write(t, "closed.csv", "from,to,why\n2026-12-24,2026-12-26,Christmas\n"),
		"ICS": write(t, "closed.ics", "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART;VALUE=DATE:20000101\r\nRRULE:FREQ=YEARLY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")}
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"job list -o json", 0, "[]"},
		{"slot list -o json", 0, "[]"},
		{"job create nightly --handler echo --cron 0_2_*_*_* --params {\"big\":9007199254740993}", 0, "at 02:00 UTC every day"},
		{"job create nightly --handler echo --cron 0_2_*_*_*", 2, "JOB_EXISTS"},
		{"job create x --handler ecko --now", 2, "did you mean echo"},
		{"job create x --handler echo --cron 0_2", 2, "schedule.cron"},
		{"job create x --handler echo", 2, "exactly one of --now"},
		{"job create x --handler echo --now --params {", 2, "job.params"},
		{"job create x --handler echo --now --timeout 0s", 2, "job.attempt_timeout"},
		{"job create x --handler echo --at yesterday", 2, "--at"},
		{"job create dry --handler echo --every 90s --dry-run -o json", 0, `"every":"90s"`},
		{"job get dry", 2, "NOT_FOUND"},
		{"job get nightly -o json", 0, `"params":{"big":9007199254740993}`},
		{"job list", 0, "nightly"},
		{"job run nightly --request-id r1 -o json", 0, `"trigger":"SLOT_TRIGGER_MANUAL"`},
		{"job run nightly --request-id r2", 0, "MANUAL"},
		{"why nightly/20400101T020000Z", 0, "NOT_DUE"},
		{"why nobody", 2, "NOT_FOUND"},
		{"job create stuck --handler nobody --now --allow-unregistered", 0, "COMPLETED"},
		{"why stuck", 3, "NO_WORKER_FOR_HANDLER"},
		{"why stuck -o json", 3, `"code":"REASON_CODE_NO_WORKER_FOR_HANDLER"`},
		{"slot list nightly --state NOPE", 2, "--state must be one of"},
		{"handler list", 0, "echo"},
		{"job delete nightly", 0, "DELETED"},
		{"calendar put closed --item SAT --item SUN --file CSV --file ICS --description days", 0, "SUN SAT 01-01 2026-12-24/2026-12-26"},
		{"calendar put closed --item XMAS", 2, "items[0]"},
		{"calendar put closed --item SAT --expect 7", 2, "CALENDAR_CHANGED"},
		{"calendar put closed --item SAT --dry-run -o json", 0, `"version":2`},
		{"calendar put closed --file nowhere.ics", 2, "nowhere.ics"},
		{"calendar list", 0, "closed"},
		{"calendar get closed -o json", 0, `"items":["SUN"`},
		{"calendar get closed --version 9", 2, "version 9 of"},
		{"calendar get closed@1", 0, "SUN SAT"},
		{"job create x --handler echo --cron 0_2_*_*_* --anchor 2026-12-01T00:00:00Z", 2, "--anchor"},
		{"job create limited --handler echo --cron 0_2_*_*_* --start 2040-01-01T00:00:00Z --end 2040-12-31T23:59:59Z --max-occurrences 3 --spread 10m --except closed", 0, "3 times at most, up to 2040-01-04T02:07:22Z, except what is in closed@1"},
		{"job create x --handler echo --now --spread 10m", 2, "schedule.spread"},
		{"job create x --handler echo --cron 0_2_*_*_* --max-occurrences 0", 2, "--max-occurrences"},
		{"job create x --handler echo --cron 0_2_*_*_* --except nothing", 2, "calendars[0]"},
		{"schedule preview 0_2_*_*_* --except closed --from 2026-12-23T12:00:00Z -n 1", 0, "2026-12-24T02:00:00Z  skipped: closed@1"},
		{"job create choosy --handler echo --cron 0_2_*_*_* --no-retry gone --no-retry bad.input --retry-window 1h", 0, "bad.input, gone"},
		{"job get choosy", 0, "1h0m0s"},
		{"job create x --handler echo --now --no-retry b@d", 2, "job.retry_policy.non_retryable_codes"},
		{"job create x --handler echo --now --retry-window 0s", 2, "job.retry_policy.retry_window"},
		{"job create strict --handler echo --cron 0_2_*_*_* --overlap queue --catch-up latest --catch-up-max-age 1h --total-deadline 2h --priority -3 --start-within 5s --on-dead-letter echo", 0, "latest, no older than 1h0m0s"},
		{"job get strict", 0, "queue"},
		{"job create x --handler echo --now --overlap often", 2, "--overlap must be one of allow, queue, skip, replace"},
		{"job create x --handler echo --now --overlap skip --max-running 3", 2, "job.overlap.max_running"},
		{"job create x --handler echo --now --priority 11", 2, "job.priority"},
		{"gap list -o json", 0, "[]"},
		{"gap list", 0, "MADE-UP-TO"},
		{"gap show 1-2", 2, "NOT_FOUND"},
		{"gap show nothing", 2, "gaps/{gap}"},
		{"gap cancel 1-2", 2, "NOT_FOUND"},
		{"gap catch-up 1-2 strict --catch-up none", 2, "reason"},
		{"job backfill strict --from 2026-01-01T00:00:00Z --to 2040-01-01T00:00:00Z", 2, "to_time"},
		{"job backfill strict --from 2026-01-01T00:00:00Z --to 2026-01-01T00:00:00Z", 2, "to_time"},
		{"job backfill strict --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z", 2, "BACKFILL_RANGE"},
		{"deadletter list -o json", 0, "[]"},
		{"deadletter groups", 0, "FINGERPRINT"},
		{"deadletter redrive --dry-run", 0, "0 of 0 redriven"},
		{"deadletter redrive --handler echo -o json", 0, `"state":"BULK_STATE_DONE"`},
		{"deadletter redrive --brake 100", 2, "brake_percent"},
		{"deadletter redrive --since yesterday", 2, "--since"},
		{"deadletter discard", 2, "reason"},
		{"deadletter discard --reason none --job nobody", 2, "NOT_FOUND"},
		{"slot redrive stuck/20400101T020000Z", 2, "NOT_FOUND"},
		{"slot discard stuck", 2, "JOB/TIME"},
		{"slot discard stuck/20400101T020000Z", 2, "reason"},
		{"calendar delete closed", 0, "deleted"},
		{"calendar get closed", 2, "NOT_FOUND"},
		{"job create x --handler echo --cron 0_2_*_*_* --except closed@1", 2, "calendars[0]"},
		{"job get limited", 0, "closed@1"},
		{"job list -o xml", 2, "--output"},
		{"job frobnicate", 2, "no command"},
		{"frobnicate", 2, "unknown command"},
		{"job create a b --handler echo --now", 2, "usage"},
		{"slot list a b", 2, "usage"},
		{"slot get nightly", 2, "JOB/TIME"},
		{"version", 0, "carillon"},
		{"--address 127.0.0.1:1 job list", 1, "Is the server running?"},
	} {
		args := strings.Fields(c.args)
		for i, a := range args {
			if made := files[a]; made != "" {
				args[i] = made
				continue
			}
			args[i] = strings.ReplaceAll(a, "_*", " *")
			args[i] = strings.ReplaceAll(args[i], "0_2", "0 2")
		}
		out, code := run(t, d.grpc, args...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s", c.args, code, c.code, c.says, out)
		}
		if strings.Contains(out, "UNSPECIFIED") && !strings.Contains(c.args, "-o json") {
			t.Errorf("%s: a table says UNSPECIFIED:\n%s", c.args, out)
		}
		if strings.Contains(c.args, "-o json") && code != 2 && !json.Valid([]byte(out)) {
			t.Errorf("%s: not JSON: %s", c.args, out)
		}
	}
}

// write makes a file of a test.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file of jobs is previewed without a server: every job for itself, and all together.
func TestPreviewOfAFile(t *testing.T) {
	t.Parallel()
	jobs := write(t, "jobs.yaml", `jobs:
- name: nightly
  handler: h
  schedule: {cron: "0 2 * * *", calendars: [closed]}
- name: hourly
  handler: h
  schedule: {cron: "0 * * * *", endTime: 2026-12-01T03:30:00Z}
- {name: once, handler: h, schedule: {runAt: "2026-12-01T02:00:00Z"}}
`)
	args := []string{"schedule", "preview", "-f", jobs, "--calendar", "closed=" + write(t, "closed.txt", "2026-12-02\n12-25"),
		"--from", "2026-12-01T00:00:00Z", "--until", "2026-12-03T00:00:00Z"}
	out, code := run(t, "", args...)
	for _, says := range []string{"2026-12-01T02:00:00Z 2026-12-03T02:00:00Z 2026-12-04T02:00:00Z", "closed@1", "once, at 2026-12-01T02:00:00Z",
		"5 runs, 1 skipped; at most 3 in a second (2026-12-01T02:00:00Z) and 3 in a minute (2026-12-01T02:00:00Z)"} {
		if code != 0 || !strings.Contains(out, says) {
			t.Errorf("exit %d, want 0 and %q:\n%s", code, says, out)
		}
	}
	var all struct {
		Jobs []struct {
			Name      string
			FireTimes []string `json:"fire_times"`
			Skipped   []struct{ Calendar string }
			Count     int `json:"occurrence_count"`
			Error     string
		}
		Load struct{ Runs int }
	}
	out, code = run(t, "", append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 || len(all.Jobs) != 3 || all.Load.Runs != 5 {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	if j := all.Jobs[0]; j.Name != "nightly" || len(j.Skipped) != 1 || j.Count != 1 {
		t.Errorf("%+v", j)
	}
	if j := all.Jobs[1]; len(j.FireTimes) != 3 || j.Count != 3 {
		t.Errorf("%+v", j)
	}
	bad := write(t, "bad.yaml", "- {name: a, handler: h, schedule: {cron: '0 24 * * *'}}\n- {name: c, schedule: {cron: '@daily'}}\n- {name: d, handlr: h}\n- {name: b, handler: h, schedule: {cron: '@daily'}}")
	if out, code := run(t, "", "schedule", "preview", "-f", bad); code != 2 || !strings.Contains(out, "3 of 4 jobs") || !strings.Contains(out, "handler: is required") || !strings.Contains(out, "handlr") || !strings.Contains(out, "0-23") || !strings.Contains(out, "at 00:00 UTC every day") {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, wrong := range [][]string{{"-f", jobs, "@daily"}, {"@daily", "--every", "5m"}, {"-f", jobs + "x"}, {"@daily", "--calendar", "x"}, {"@daily", "--until", "x"}, {"@daily", "--anchor", "2026-12-01T00:00:00Z"}, {"@daily", "--job", "a b"}, {"-f", jobs, "--spread", "5m"}, {"@daily", "--until", "2001-01-01T00:00:00Z"}, {"@daily", "-n", "0"}} {
		if out, code := run(t, "", append([]string{"schedule", "preview"}, wrong...)...); code != 2 {
			t.Errorf("%v: exit %d, %s", wrong, code, out)
		}
	}
}

// A preview of more than a page goes on where the page before ended, and what is limited
// ends where it must.
func TestALongPreview(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-n 2500":                            "2500 2026-12-02T17:40:00Z",
		"-n 2500 --max-occurrences 1500":     "1500 2026-12-02T01:00:00Z",
		"-n 2500 --max-occurrences 2000":     "2000 2026-12-02T09:20:00Z",
		"-n 2500 --end 2026-12-01T20:00:00Z": "1200 2026-12-01T20:00:00Z",
	} {
		out, code := run(t, "", append([]string{"schedule", "preview", "* * * * *", "--from", "2026-12-01T00:00:00Z", "-o", "json"}, strings.Fields(args)...)...)
		var preview struct {
			FireTimes []string `json:"fire_times"`
		}
		if err := json.Unmarshal([]byte(out), &preview); err != nil || code != 0 || len(preview.FireTimes) == 0 {
			t.Fatalf("%s: exit %d, %v: %s", args, code, err, out)
		}
		if n := len(preview.FireTimes); fmt.Sprint(n, " ", preview.FireTimes[n-1]) != want {
			t.Errorf("%s: %d fire times, the last is %s; want %s", args, n, preview.FireTimes[n-1], want)
		}
	}
}

func TestSchedulePreview(t *testing.T) {
	t.Parallel()
	out, code := run(t, "", "schedule", "preview", "*/7 * * * *", "--from", "2026-03-10T12:50:00Z", "-n", "2", "-o", "json")
	var preview struct {
		FireTimes   []string `json:"fire_times"`
		Description string
		Warnings    []string
	}
	if err := json.Unmarshal([]byte(out), &preview); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, out)
	}
	if strings.Join(preview.FireTimes, " ") != "2026-03-10T12:56:00Z 2026-03-10T13:00:00Z" || preview.Description == "" || preview.Warnings == nil {
		t.Errorf("previewed %+v", preview)
	}
	for expr, says := range map[string]string{"0 0 30 2 *": "never fires", "60 * * * *": "0-59", "@every 1h": "interval", "": "empty"} {
		if out, code := run(t, "", "schedule", "preview", expr); code != 2 || !strings.Contains(out, says) {
			t.Errorf("%q: exit %d, want 2 and %q: %s", expr, code, says, out)
		}
	}
	if out, code := run(t, "", "schedule", "preview"); code != 2 {
		t.Errorf("no expression: exit %d, %s", code, out)
	}
}
