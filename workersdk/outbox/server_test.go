package outbox

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/once"
)

// server is a Carillon of its own for a test, and its address.
func server(t *testing.T) (client carillonv1.JobServiceClient, address string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "carillon.db"))
	must(err)
	shards, err := db.InitShards(t.Context(), 4)
	must(err)
	rev, err := db.NextRevision(t.Context())
	must(err)
	metrics, log := controlplane.NewMetrics(), slog.New(slog.DiscardHandler)
	cfg := engine.DefaultConfig("test", shards)
	cfg.Log, cfg.Observer = log, metrics
	api, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	rest, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	alone := solo.New("test", shards, rev)
	srv := controlplane.New(controlplane.Config{NodeID: "test", Shards: shards, Cluster: alone, Node: engine.New(cfg, db, alone), Core: cfg.Core,
		Store: db, Metrics: metrics, Log: log, GRPC: api, HTTP: rest})
	conn, err := grpc.NewClient(api.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
	return carillonv1.NewJobServiceClient(conn), api.Addr().String()
}

// jobs lists the names of all jobs of a server.
func jobs(t *testing.T, client carillonv1.JobServiceClient, ended bool) (names []string) {
	t.Helper()
	list, err := client.ListJobs(t.Context(), &carillonv1.ListJobsRequest{Parent: "namespaces/default", ShowEnded: ended, PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range list.GetJobs() {
		names = append(names, strings.TrimPrefix(j.GetName(), "namespaces/default/jobs/"))
	}
	return names
}

// Against a real server: a relay dies between a create and the deletion of its row, for
// jobs with and without a name, and one of the jobs is deleted before the row comes
// again. Each was made once.
func TestExactlyOnceOnAServer(t *testing.T) {
	client, _ := server(t)
	each(t, func(f *fixture) {
		mine := strings.ToLower(f.box.dialect.String())
		before := len(jobs(t, client, true))
		f.add(mine, mine+"-deleted", "", "")
		dying := f.box.Relay(f.db, client, Logger(slog.New(slog.DiscardHandler)))
		rows, err := dying.claim(t.Context())
		f.must(err)
		dying.send(t.Context(), rows)
		for i := range rows {
			if rows[i].answer.verdict != made {
				f.Fatal(rows[i].answer.err)
			}
		}
		_, err = client.DeleteJob(t.Context(), &carillonv1.DeleteJobRequest{Name: "namespaces/default/jobs/" + mine + "-deleted"})
		f.must(err)

		f.makeDue()
		f.flush(f.box.Relay(f.db, client), 4)
		f.holds(0, 0)
		if after := jobs(t, client, true); len(after) != before+4 {
			f.Errorf("%d jobs were made: %v", len(after)-before, after)
		}
		if live := strings.Join(jobs(t, client, false), " ") + " "; strings.Contains(live, mine+"-deleted ") || !strings.Contains(live, mine+" ") {
			f.Errorf("live: %s", live)
		}
	})
}

// What a real server refuses is sorted into what is final and what may come right.
func TestRefusalsOfAServer(t *testing.T) {
	client, _ := server(t)
	each(t, func(f *fixture) {
		mine := strings.ToLower(f.box.dialect.String())
		unknown := request(mine + "-unknown")
		unknown.AllowUnregisteredHandler = false
		calendar := request(mine + "-calendar")
		calendar.Job.Schedule = &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "@daily"}, Calendars: []string{"nowhere"}}
		f.must(f.tx(func(tx *sql.Tx) error {
			return f.box.Add(t.Context(), tx, unknown, calendar, request(mine), request(mine))
		}))
		r := f.box.Relay(f.db, client, Logger(slog.New(slog.DiscardHandler)))
		f.flush(r, 1) // of two with the same name
		f.holds(2, 1)
		list, err := r.Failed(t.Context(), 0, 10)
		f.must(err)
		if len(list) != 1 || list[0].Request.GetJobId() != mine || !strings.Contains(list[0].Error, "exists") {
			f.Errorf("%+v", list)
		}
	})
}

// With a real worker: a handler commits its effect and a follow-up job, and fails before
// it can tell. Its next attempt skips both; the follow-up is there once, and runs.
func TestAHandlerFailsAfterItsCommit(t *testing.T) {
	client, address := server(t)
	each(t, func(f *fixture) {
		guard, err := once.New(f.box.dialect)
		f.must(err)
		f.must(f.tx(func(tx *sql.Tx) error { return guard.CreateTable(t.Context(), tx) }))
		mine := strings.ToLower(f.box.dialect.String())
		ran, mailed := make(chan bool, 10), make(chan string, 10)
		pay := func(ctx context.Context, task *worker.Task[string]) error {
			var first bool
			err := f.tx(func(tx *sql.Tx) (err error) {
				first, err = guard.Do(ctx, tx, task, func(ctx context.Context, tx *sql.Tx) error {
					return f.box.Add(ctx, tx, request(mine+"-mail"))
				})
				return err
			})
			if err != nil {
				t.Error(err)
			}
			ran <- first
			if first {
				return errors.New("the worker dies here")
			}
			return nil
		}
		w, err := worker.Dial(t.Context(), address, worker.Logger(slog.New(slog.DiscardHandler)))
		f.must(err)
		worker.Handle(w, "pay", pay)
		worker.Handle(w, "mail", func(_ context.Context, task *worker.Task[string]) error { mailed <- task.Args; return nil })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		defer func() { cancel(); f.must(<-ended) }()

		req := request(mine + "-pay")
		req.Job.Handler, req.Job.RetryPolicy = "pay", &carillonv1.RetryPolicy{InitialBackoff: durationpb.New(time.Millisecond)}
		_, err = client.CreateJob(t.Context(), req)
		f.must(err)
		if first, second := <-ran, <-ran; !first || second {
			f.Errorf("the attempts ran: %v, %v", first, second)
		}
		f.holds(1, 0)
		f.flush(f.box.Relay(f.db, client), 1)
		if to := <-mailed; to != mine+"-mail" {
			f.Errorf("a mail to %q", to)
		}
	})
}
