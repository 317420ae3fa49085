package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// These tests run `carillon server` on a real database and treat that badly. In the
// end the checker holds all that is stored against what clients and handlers know.

// effectsEnv is the file in which the handler "noted" writes down what it does.
const effectsEnv = "CARILLON_TEST_EFFECTS"

// noted is a line of that file.
type noted struct {
	Job     string
	Fire    time.Time
	Attempt int
	Kind    checker.EffectKind
	At      time.Time
}

// noteEffects is a handler that writes down when it begins and when it is done.
func noteEffects(_ context.Context, task *worker.Task[json.RawMessage]) error {
	f, err := os.OpenFile(os.Getenv(effectsEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, kind := range []checker.EffectKind{checker.Began, checker.Done} {
		line, err := json.Marshal(noted{task.Job(), task.FireTime(), task.Attempt(), kind, time.Now()})
		if err != nil {
			return err
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// ledger is what clients were told, while they create jobs all the time.
type ledger struct {
	mu    sync.Mutex
	acked map[string]job.UID // by resource name
	stop  atomic.Bool
	done  sync.WaitGroup
}

// createAll creates immediate jobs until it is stopped, whatever fails meanwhile.
func (l *ledger) createAll(t *testing.T, d *dev) {
	for caller := range 2 {
		l.done.Go(func() {
			for n := 0; !l.stop.Load(); n++ {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				resp, err := d.jobs.CreateJob(ctx, &carillonv1.CreateJobRequest{Parent: parent, JobId: fmt.Sprintf("now-%d-%d", caller, n), AllowUnregisteredHandler: true,
					Job: &carillonv1.Job{Handler: "noted", Params: &carillonv1.Json{Text: `{}`}, Schedule: immediate()}})
				cancel()
				if err == nil {
					l.ack(t, resp.GetJob())
				}
				elapse(10 * time.Millisecond)
			}
		})
	}
}

func (l *ledger) ack(t *testing.T, j *carillonv1.Job) {
	uid, err := job.ParseUID(j.GetUid())
	if err != nil {
		t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[j.GetName()] = uid
}

// scene is a node with a worker and clients, on a database that is treated badly.
type scene struct {
	*dev
	effects string
	ledger  ledger
	every   []*carillonv1.Job
}

func newScene(t *testing.T, d *dev) *scene {
	t.Helper()
	s := &scene{dev: d, effects: filepath.Join(t.TempDir(), "effects"), ledger: ledger{acked: map[string]job.UID{}}}
	d.startWorker("w", effectsEnv+"="+s.effects)
	for i := range 5 {
		j := d.create(fmt.Sprint("every-", i), "noted", `{}`, everySecond())
		s.ledger.ack(t, j)
		s.every = append(s.every, j)
	}
	s.resumes("at first")
	s.ledger.createAll(t, d)
	return s
}

// resumes waits until occurrences of right now succeed.
func (s *scene) resumes(when string) {
	s.t.Helper()
	now := time.Now()
	eventually(s.t, 15*time.Second, "work goes on "+when, func() bool {
		for _, j := range s.every {
			ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
			resp, err := s.slots.ListSlots(ctx, &carillonv1.ListSlotsRequest{Parent: j.GetName(), PageSize: 5, States: []carillonv1.SlotState{succeeded}})
			cancel()
			if err != nil || len(resp.GetSlots()) == 0 || resp.GetSlots()[0].GetFireTime().AsTime().Before(now) {
				return false
			}
		}
		return true
	})
	s.t.Logf("%s: it took %s", when, time.Since(now).Round(100*time.Millisecond))
}

// end stops everything in order, once all that is due has succeeded, and lets the
// checker judge what is stored.
func (s *scene) end(open func() (store.Store, error)) {
	s.t.Helper()
	s.ledger.stop.Store(true)
	s.ledger.done.Wait()
	for _, j := range s.every {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		if _, err := s.jobs.DeleteJob(ctx, &carillonv1.DeleteJobRequest{Name: j.GetName()}); err != nil {
			s.t.Error(err)
		}
		cancel()
	}
	eventually(s.t, 30*time.Second, "all is done", func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
		defer cancel()
		resp, err := s.slots.ListSlots(ctx, &carillonv1.ListSlotsRequest{Parent: parent + "/jobs/-", PageSize: 1000, States: []carillonv1.SlotState{ready, running}})
		return err == nil && len(resp.GetSlots()) == 0 && resp.GetNextPageToken() == ""
	})
	elapse(1500 * time.Millisecond) // the last watermark
	stopped := job.At(time.Now())
	if err := s.kill(syscall.SIGTERM); err != nil {
		s.t.Errorf("the server ended with %v", err)
	}
	db, err := open()
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	h := checker.History{Now: stopped, Quiet: true}
	if h.Shards, err = checker.Read(s.t.Context(), db, shard.DefaultCount); err != nil {
		s.t.Fatal(err)
	}
	h.Effects = s.readEffects(h.Shards)
	for _, uid := range s.ledger.acked {
		h.Ledger.Acked = append(h.Ledger.Acked, uid)
	}
	violations := checker.Check(h)
	for i, v := range violations {
		if i == 20 {
			s.t.Errorf("… %d violations", len(violations))
			break
		}
		s.t.Error(v)
	}
	slots := 0
	for i := range h.Shards {
		slots += len(h.Shards[i].Slots)
	}
	s.t.Logf("%d acknowledged jobs, %d slots, %d effects", len(s.ledger.acked), slots, len(h.Effects))
	if slots < 100 || len(h.Effects) < 2*slots {
		s.t.Errorf("%d slots and %d effects are too few to tell anything", slots, len(h.Effects))
	}
}

// readEffects reads what the handlers wrote down, also of jobs whose create nobody
// knew the outcome of.
func (s *scene) readEffects(shards []store.Audit) (effects []checker.Effect) {
	s.t.Helper()
	uids := map[string]job.UID{}
	for i := range shards {
		for _, j := range shards[i].Jobs {
			uids[j.ResourceName()] = j.UID
		}
	}
	f, err := os.Open(s.effects)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n noted
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			s.t.Fatal(err)
		}
		effects = append(effects, checker.Effect{Job: uids[n.Job], Fire: job.At(n.Fire), Attempt: int32(n.Attempt), Kind: n.Kind, At: job.At(n.At)})
	}
	return effects
}

// serverOn starts `carillon server` on a database, whose address no command line
// shows.
func serverOn(t *testing.T, url string) *dev {
	t.Helper()
	return startNode(t, "", []string{"server", "--migrate", "--node", "n1"}, "CARILLON_STORE="+url)
}

// pause is how long the database stands still; CARILLON_FAULT_SECONDS sets it.
func pause(t *testing.T) time.Duration {
	if text := os.Getenv("CARILLON_FAULT_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Second
	}
	return 12 * time.Second
}

// storm judges as a CockroachDB in distress: transactions that must be run again, at
// any statement and at their end, and commits of which nobody knows what became of
// them.
func storm(r *rand.Rand) func(pgtest.Statement) pgtest.Verdict {
	return func(s pgtest.Statement) pgtest.Verdict {
		switch x := r.Float64(); {
		case s.N > 1 && x < 0.04, s.Commits() && x < 0.2:
			return pgtest.Verdict{SQLState: "40001"}
		case s.Commits() && x < 0.3:
			return pgtest.Verdict{SQLState: "40003", Done: x < 0.25}
		}
		return pgtest.Verdict{}
	}
}

// A storm of errors, a killed backend, a server that is restarted without any clean-up,
// and one that stands still: nothing that was acknowledged is lost, nothing is done twice, and work
// goes on by itself within seconds.
func TestADatabaseThatIsTreatedBadly(t *testing.T) {
	t.Parallel()
	pg, err := pgtest.StartDurable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	name, err := pg.NewDatabase(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := pgtest.NewProxy(pg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newScene(t, serverOn(t, proxy.URL(name)))
	proxy.Judge(storm(rand.New(rand.NewPCG(1, 2))))
	elapse(5 * time.Second)
	s.resumes("in a storm of retries and of commits whose outcome is unknown")
	proxy.Judge(nil)
	for n := range 2 {
		if err := pg.KillBackend(t.Context(), "carillon"); err != nil {
			t.Fatal(err)
		}
		s.resumes(fmt.Sprint("after kill -9 of a backend, ", n+1))
	}
	if err := pg.RestartImmediate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.resumes("after an immediate restart of the database")
	if err := pg.Pause(); err != nil {
		t.Fatal(err)
	}
	elapse(pause(t))
	if err := pg.Resume(); err != nil {
		t.Fatal(err)
	}
	s.resumes(fmt.Sprintf("after the database stood still for %s", pause(t)))
	s.kill(syscall.SIGKILL)
	s.start(t)
	s.resumes("after kill -9 of the node")
	s.end(func() (store.Store, error) {
		return cockroach.Open(context.Background(), cockroach.Config{URL: pg.URL(name)})
	})
}

// A disk of 16 MiB that is full: nothing that was acknowledged is lost, and work goes
// on once there is room.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		if os.Getuid() == 0 {
			t.Fatal(err)
		}
		t.Skipf("only root may mount a small disk (%v); package sqlite's own test fills a file", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := newScene(t, startNode(t, dir, []string{"dev", "--data", dir}))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, bytes.Repeat([]byte("x"), 32<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	// What is acknowledged from now on has found room, such as in the write-ahead log.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	for n := 0; ctx.Err() == nil; n++ {
		resp, err := s.jobs.CreateJob(ctx, &carillonv1.CreateJobRequest{Parent: parent, JobId: fmt.Sprint("large-", n), AllowUnregisteredHandler: true,
			Job: &carillonv1.Job{Handler: "noted", Params: &carillonv1.Json{Text: `"` + strings.Repeat("x", 200<<10) + `"`}, Schedule: immediate()}})
		if err != nil {
			break
		}
		s.ledger.ack(t, resp.GetJob())
	}
	elapse(3 * time.Second)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.resumes("after the disk was full")
	if !strings.Contains(s.logs.String(), "commit failed") {
		t.Error("no commit failed: the disk was not full")
	}
	s.end(func() (store.Store, error) {
		return sqlite.Open(context.Background(), filepath.Join(dir, "carillon.db"))
	})
}

// A password is neither in a log nor in an error nor in the list of processes, and one
// that would be is refused.
func TestThePasswordIsNowhere(t *testing.T) {
	t.Parallel()
	pg, err := pgtest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Stop() })
	name, err := pg.NewDatabase(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	const secret = "s3cr3t-pa55"
	url := pg.URL(name) + "&password=" + secret
	run := func(env string, args ...string) string {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "CARILLON_STORE="+env)
		out, _ := cmd.CombinedOutput() // some are meant to fail
		if strings.Contains(string(out), secret) {
			t.Errorf("carillon %v shows the password: %s", args, out)
		}
		return string(out)
	}
	if out := run("", "server", "--store", url); !strings.Contains(out, "must not hold a password") {
		t.Errorf("a password on the command line: %s", out)
	}
	if out := run("", "server", "--store", "postgres://u:"+secret+"@127.0.0.1:1/db"); !strings.Contains(out, "must not hold a password") {
		t.Errorf("a password on the command line: %s", out)
	}
	for _, wrong := range []string{"postgres://u:" + secret + "@127.0.0.1:1/db", "postgres://u:" + secret + "/%zz@h/db", "mysql://u:" + secret + "@h/db"} {
		run(wrong, "server")
		run(wrong, "migrate", "status")
	}
	if out := run(url, "server"); !strings.Contains(out, "carillon migrate up") {
		t.Errorf("a server on an empty database: %s", out)
	}
	files, err := filepath.Glob("../../store/cockroach/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if out := run(url, "migrate", "up"); !strings.Contains(out, fmt.Sprintf("%d of %d", len(files), len(files))) {
		t.Errorf("migrate up: %s", out)
	}
	if out := run(url, "migrate", "down-to", "30"); !strings.Contains(out, "--yes") {
		t.Errorf("migrate down without a confirmation: %s", out)
	}
	if out := run(url, "migrate", "down-to", "42", "--yes"); !strings.Contains(out, fmt.Sprintf("42 of %d", len(files))) {
		t.Errorf("migrate down: %s", out)
	}
	file := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startNode(t, "", []string{"server", "--migrate", "--store", "@" + file, "--log-level", "debug"})
	d.create("j", "echo", `{}`, immediate())
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.cmd.Process.Pid))
	if err != nil || bytes.Contains(line, []byte(secret)) {
		t.Errorf("command line %s, %v", line, err)
	}
	if err := pg.Stop(); err != nil { // errors of connections are logged
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the loss of the database is logged", func() bool { return strings.Contains(d.logs.String(), "commit failed") })
	d.kill(syscall.SIGTERM)
	if strings.Contains(d.logs.String(), secret) {
		t.Errorf("the log shows the password: %s", d.logs.String())
	}
}
