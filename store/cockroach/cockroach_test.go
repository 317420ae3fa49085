package cockroach_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
	"github.com/carillon-scheduler/carillon/store/storetest"
)

// server is the test binary's PostgreSQL; template holds the schema.
var (
	server   *pgtest.Server
	template string
	turns    sync.Mutex
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if server, err = pgtest.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Stop()
	if template, err = server.NewDatabase(ctx, ""); err == nil {
		err = cockroach.Migrate(ctx, server.URL(template))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// database makes a database with the schema, or an empty one, and returns its URL.
func database(t *testing.T, from string) string {
	t.Helper()
	turns.Lock()
	defer turns.Unlock()
	name, err := server.NewDatabase(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	return server.URL(name)
}

// newProxy starts a proxy before the server.
func newProxy(t *testing.T) *pgtest.Proxy {
	t.Helper()
	p, err := pgtest.NewProxy(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// behind is a database's URL through a proxy.
func behind(p *pgtest.Proxy, url string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(url, "postgres:///"), "?")
	return p.URL(name)
}

func open(t *testing.T, cfg cockroach.Config) *cockroach.DB {
	t.Helper()
	db, err := cockroach.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestStore(t *testing.T) {
	for _, isolation := range []string{"read committed", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) store.Store {
				return open(t, cockroach.Config{URL: database(t, template), Isolation: isolation})
			})
		})
	}
}

// fresh opens a new database with one shard that is taken.
func fresh(t *testing.T) (*cockroach.DB, string, store.Owned) {
	t.Helper()
	url := database(t, template)
	db := open(t, cockroach.Config{URL: url})
	if _, err := db.InitShards(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	owned, err := db.TakeOver(t.Context(), store.Claim{Node: "a", Rev: 1})
	if err != nil {
		t.Fatal(err)
	}
	return db, url, owned
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func everyMinute(uid byte) job.Job {
	return job.Job{UID: job.UID{uid}, Namespace: "d", Name: fmt.Sprint("n", uid), Handler: "h", Params: []byte("{}"),
		Schedule: job.Schedule{Kind: job.KindCron, Cron: "* * * * *", Dialect: schedule.DialectVersion}, Retry: job.DefaultRetryPolicy}
}

func batch(rows store.ShardBatch) store.Batch { return store.Batch{Shards: []store.ShardBatch{rows}} }

// A commit that passed its fence and is not through yet holds a take-over up; one
// that comes after the take-over is refused. So no writer of an old epoch can write
// after the new owner has read.
func TestATakeOverQueuesBehindACommit(t *testing.T) {
	db, url, owned := fresh(t)
	commit := connect(t, url)
	tx, err := commit.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM shards WHERE shard = 0 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		owned store.Owned
		err   error
	}
	taken := make(chan answer, 1)
	go func() {
		o, err := db.TakeOver(t.Context(), store.Claim{Node: "b", Rev: 2})
		taken <- answer{o, err}
	}()
	watch := connect(t, url)
	for waits := 0; waits == 0; {
		if err := watch.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		select {
		case a := <-taken:
			t.Fatalf("the take-over passed a commit under way: %+v", a)
		default:
		}
	}
	if _, err := tx.Exec(t.Context(), `UPDATE shards SET watermark = watermark + 7 WHERE shard = 0`); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := <-taken
	if a.err != nil || a.owned.Watermark != owned.Watermark+7 || a.owned.Proof.Epoch != owned.Proof.Epoch+1 {
		t.Fatalf("%+v after %+v", a, owned)
	}
	_, err = db.Commit(t.Context(), batch(store.ShardBatch{Proof: owned.Proof, Watermark: owned.Watermark + 60*job.Second}))
	if fenced := (*store.FencedError)(nil); !errors.As(err, &fenced) || len(fenced.Shards) != 1 {
		t.Fatalf("the old owner's commit: %v", err)
	}
}

// One job's rows that can't be stored are found among many, and nothing of the
// batch is written.
func TestTheRefusedJobIsFound(t *testing.T) {
	db, _, owned := fresh(t)
	rows := store.ShardBatch{Proof: owned.Proof, Watermark: owned.Watermark + 60*job.Second}
	for i := range byte(50) {
		rows.Creates = append(rows.Creates, store.Create{Job: everyMinute(i + 1)})
	}
	rows.Creates[33].Job.Handler = "nul\x00"
	_, err := db.Commit(t.Context(), batch(rows))
	var refused *store.RefusedError
	if !errors.As(err, &refused) || refused.UID != rows.Creates[33].Job.UID {
		t.Fatalf("commit: %v", err)
	}
	if l, err := db.Load(t.Context(), owned.Proof, nil); err != nil || len(l.Recurring) != 0 {
		t.Fatalf("%d jobs of a refused batch, %v", len(l.Recurring), err)
	}
	if _, err := db.Commit(t.Context(), batch(rows.Without(refused.UID))); err != nil {
		t.Fatal(err)
	}
	if l, err := db.Load(t.Context(), owned.Proof, nil); err != nil || len(l.Recurring) != 49 {
		t.Fatalf("%d jobs, %v", len(l.Recurring), err)
	}
}

// An event that can't be stored is no job's fault.
func TestARefusedEventBlamesNoJob(t *testing.T) {
	db, _, owned := fresh(t)
	rows := store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: everyMinute(1)}},
		Events: []store.Event{{Seq: 1, Kind: store.EventGapClosed, Detail: "nul\x00", Job: job.UID{1}}}}
	_, err := db.Commit(t.Context(), batch(rows))
	var refused *store.RefusedError
	if !errors.As(err, &refused) || !refused.UID.IsZero() {
		t.Fatalf("commit: %v", err)
	}
}

// Connections that the server cut off are an outage, not the end.
func TestCutConnectionsAreReplaced(t *testing.T) {
	db, url, owned := fresh(t)
	if _, err := connect(t, url).Exec(t.Context(),
		`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ {
		_, err := db.Commit(t.Context(), batch(store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: everyMinute(1)}}}))
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrUnavailable) || try == 20 {
			t.Fatalf("try %d: %v", try, err)
		}
	}
}

// A statement that the database gives up is an outage too: the writer repeats it.
func TestALockThatIsHeldTooLong(t *testing.T) {
	db, url, owned := fresh(t)
	tx, err := connect(t, url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM shards WHERE shard = 0 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = db.Commit(t.Context(), batch(store.ShardBatch{Proof: owned.Proof, Watermark: owned.Watermark + 1}))
	if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > 7*time.Second {
		t.Fatalf("after %s: %v", time.Since(began), err)
	}
}

func TestMigrationsGoUpAndDownAndUpAgain(t *testing.T) {
	url := database(t, "")
	if _, err := cockroach.Open(t.Context(), cockroach.Config{URL: url}); !errors.Is(err, cockroach.ErrSchema) {
		t.Fatalf("open of an empty database: %v", err)
	}
	applied := func() (n int) {
		t.Helper()
		list, err := cockroach.Migrations(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.Applied {
				n++
			}
		}
		return n
	}
	all := func() int {
		list, err := cockroach.Migrations(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}()
	var both sync.WaitGroup
	for range 2 { // two nodes of one deployment
		both.Go(func() {
			if err := cockroach.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if n := applied(); n != all {
		t.Fatalf("%d of %d are applied", n, all)
	}
	if err := cockroach.MigrateDownTo(t.Context(), url, 0); err != nil {
		t.Fatal(err)
	}
	if n := applied(); n != 0 {
		t.Fatalf("%d are applied after the way down", n)
	}
	if err := cockroach.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	db := open(t, cockroach.Config{URL: url})
	if n, err := db.InitShards(t.Context(), 16); err != nil || n != 16 {
		t.Fatal(n, err)
	}
}

// The password of a URL is in no error.
func TestErrorsKeepThePassword(t *testing.T) {
	for _, url := range []string{"postgres://u:s3cret@127.0.0.1:1/db", "postgres://u:s3cret@127.0.0.1:port/db", "://u:s3cret@x"} {
		_, err := cockroach.Open(t.Context(), cockroach.Config{URL: url})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Two nodes may make the shards at the same time; rivals for a shard get different
// epochs, and the one with the higher revision keeps it.
func TestRivals(t *testing.T) {
	url := database(t, template)
	const nodes = 4
	var all sync.WaitGroup
	epochs := make([]shard.Epoch, nodes)
	for n := range nodes {
		db := open(t, cockroach.Config{URL: url})
		all.Go(func() {
			if _, err := db.InitShards(t.Context(), 8); err != nil {
				t.Error(err)
			}
			o, err := db.TakeOver(t.Context(), store.Claim{Shard: 3, Node: fmt.Sprint(n), Rev: int64(n + 1)})
			if err != nil && !errors.Is(err, store.ErrSuperseded) {
				t.Error(err)
			}
			epochs[n] = o.Proof.Epoch
		})
	}
	all.Wait()
	seen := map[shard.Epoch]bool{}
	for n, e := range epochs {
		if e != 0 && seen[e] {
			t.Errorf("epochs %v", epochs)
		}
		if n == nodes-1 && e == 0 {
			t.Error("the highest revision was refused")
		}
		seen[e] = true
	}
}

// The same contract on a real CockroachDB, where one is at hand:
// CARILLON_TEST_COCKROACH_URL names it, as a user who may make databases. Each test
// has a database of its own, which is dropped afterwards.
func TestStoreOnCockroachDB(t *testing.T) {
	base := os.Getenv("CARILLON_TEST_COCKROACH_URL")
	if base == "" {
		t.Skip("CARILLON_TEST_COCKROACH_URL is not set; what CockroachDB does otherwise is played by a proxy")
	}
	n := 0
	storetest.Run(t, func(t *testing.T) store.Store {
		n++
		return open(t, cockroach.Config{URL: cockroachDatabase(t, base, fmt.Sprintf("carillon_test_%d_%d", os.Getpid(), n))})
	})
}

// cockroachDatabase makes a migrated database on the server of a URL.
func cockroachDatabase(t *testing.T, base, name string) string {
	t.Helper()
	conn := connect(t, base)
	exec(t, conn, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), base)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "DROP DATABASE "+name); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	if err := cockroach.Migrate(t.Context(), u.String()); err != nil {
		t.Fatal(err)
	}
	return u.String()
}

// Every connection has its timeouts, and the settings that keep plans steady.
func TestEveryConnectionIsBounded(t *testing.T) {
	db, _, _ := fresh(t)
	for name, want := range map[string]string{
		"statement_timeout": "8s", "lock_timeout": "3s", "idle_in_transaction_session_timeout": "5s", "timezone": "UTC",
		"application_name": "carillon", "plan_cache_mode": "force_custom_plan", "enable_seqscan": "off",
	} {
		owner, reader, err := db.Settings(t.Context(), name)
		if err != nil || owner != want || reader != want {
			t.Errorf("%s is %s and %s, %v; want %s", name, owner, reader, err, want)
		}
	}
}

// A flood of people's lists, none of which comes to an end, delays no commit and no
// load.
func TestAFloodOfListsDelaysNoCommit(t *testing.T) {
	p, db, owned := proxied(t)
	hold := make(chan struct{})
	held := make(chan struct{}, 100)
	p.Judge(func(s pgtest.Statement) pgtest.Verdict {
		if s.SQL != cockroach.Statements()["listJobs"] {
			return pgtest.Verdict{}
		}
		held <- struct{}{}
		return pgtest.Verdict{Hold: hold}
	})
	var lists sync.WaitGroup
	for range 50 {
		lists.Go(func() {
			if _, _, err := db.Jobs(t.Context(), store.JobsPage{Namespace: "d", Limit: 10}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 8 { // all connections for questions are taken
		<-held
	}
	for n := byte(1); n < 20; n++ {
		if _, err := db.Commit(t.Context(), batch(store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: everyMinute(n)}}})); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := db.Load(t.Context(), owned.Proof, nil); err != nil || len(l.Recurring) != 19 {
		t.Errorf("loaded %d, %v", len(l.Recurring), err)
	}
	close(hold)
	lists.Wait()
}

// Calls that are cancelled at any moment leave no connection behind (B154).
func TestCancelledCallsLeaveNoConnectionBehind(t *testing.T) {
	db, _, owned := fresh(t)
	r := rand.New(rand.NewPCG(1, 1))
	var calls sync.WaitGroup
	for n := range 400 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(10_000))*time.Microsecond)
		calls.Go(func() {
			defer cancel()
			// Whether a call succeeds or not depends on the moment; either is fine.
			switch n % 5 {
			case 0:
				_, _, _ = db.Jobs(ctx, store.JobsPage{Namespace: "d", Limit: 10})
			case 1:
				_, _ = db.CountSlots(ctx, "d", 0)
			case 2:
				_, _ = db.Load(ctx, owned.Proof, nil)
			case 3:
				_, _ = db.Commit(ctx, batch(store.ShardBatch{Proof: owned.Proof, Watermark: owned.Watermark}))
			case 4:
				_, _, _ = db.Slots(ctx, store.SlotsPage{Namespace: "d", Limit: 10})
			}
		})
	}
	calls.Wait()
	for end := time.Now().Add(10 * time.Second); db.InUse() != 0; { // the pool closes broken ones in the background
		if time.Now().After(end) {
			t.Fatalf("%d connections are in use", db.InUse())
		}
		runtime.Gosched()
	}
	if _, err := db.Commit(t.Context(), batch(store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: everyMinute(1)}}})); err != nil {
		t.Error(err)
	}
	if jobs, _, err := db.Jobs(t.Context(), store.JobsPage{Namespace: "d", Limit: 10}); err != nil || len(jobs) != 1 {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
}
