package outboxpgx_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"google.golang.org/grpc"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltest"
	"github.com/carillon-scheduler/carillon/workersdk/outbox/outboxpgx"
)

func TestMain(m *testing.M) { sqltest.Main(m) }

// node notes the handlers of the jobs that it is asked to create.
type node struct{ handlers []string }

func (n *node) CreateJob(_ context.Context, req *carillonv1.CreateJobRequest, _ ...grpc.CallOption) (*carillonv1.CreateJobResponse, error) {
	n.handlers = append(n.handlers, req.GetJob().GetHandler())
	return &carillonv1.CreateJobResponse{Job: req.GetJob()}, nil
}

func TestTransactionsOfPgx(t *testing.T) {
	for name, mode := range map[string]pgx.QueryExecMode{"extended": pgx.QueryExecModeCacheStatement, "simple": pgx.QueryExecModeSimpleProtocol} {
		t.Run(name, func(t *testing.T) { relays(t, mode) })
	}
}

// relays adds jobs in a transaction that commits and in one that doesn't, and relays over
// the same pool.
func relays(t *testing.T, mode pgx.QueryExecMode) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := pgxpool.ParseConfig(sqltest.PostgresURL(t))
	must(err)
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(err)
	defer pool.Close()
	box, err := outboxpgx.New()
	must(err)
	must(pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return box.CreateTable(t.Context(), tx) }))
	for handler, end := range map[string]func(pgx.Tx, context.Context) error{"kept": pgx.Tx.Commit, "dropped": pgx.Tx.Rollback} {
		tx, err := pool.Begin(t.Context())
		must(err)
		must(box.Add(t.Context(), tx, &carillonv1.CreateJobRequest{Parent: "namespaces/default", Job: &carillonv1.Job{Handler: handler,
			Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "@daily"}}}}))
		must(end(tx, t.Context()))
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	var n node
	created, err := box.Relay(db, &n).Flush(t.Context())
	must(err)
	if created != 1 || !slices.Equal(n.handlers, []string{"kept"}) {
		t.Errorf("%d jobs were created: %v", created, n.handlers)
	}
}
