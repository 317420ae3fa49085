// Package sqltest gives the SDK's tests a database of each dialect, of its own for each
// test: PostgreSQL and MariaDB from servers that a test binary starts when it first needs
// them, and SQLite in a file.
package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
	"github.com/carillon-scheduler/carillon/workersdk/internal/mysqltest"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
)

var (
	postgres = sync.OnceValues(func() (*pgtest.Server, error) { return keep(pgtest.Start(context.Background())) })
	mariadb  = sync.OnceValues(func() (*mysqltest.Server, error) { return keep(mysqltest.Start(context.Background())) })

	turns sync.Mutex
	stops []func() error // guarded by turns
)

// keep notes how a server is stopped.
func keep[S interface{ Stop() error }](server S, err error) (S, error) {
	if err == nil {
		turns.Lock()
		defer turns.Unlock()
		stops = append(stops, server.Stop)
	}
	return server, err
}

// Main runs the tests of a package, stops the servers and looks for goroutines that were
// left.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for _, stop := range stops {
			if err := stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
		}
		os.Exit(code)
	}))
}

// Dialects are all that Open knows.
var Dialects = []sqltext.Dialect{sqltext.PostgreSQL, sqltext.MySQL, sqltext.SQLite}

// Open makes a database and opens it for as long as the test runs.
func Open(t testing.TB, d sqltext.Dialect) *sql.DB {
	t.Helper()
	db, err := open(t, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func open(t testing.TB, d sqltext.Dialect) (*sql.DB, error) {
	switch d {
	case sqltext.PostgreSQL:
		return sql.Open("pgx", PostgresURL(t))
	case sqltext.MySQL:
		server, err := mariadb()
		if err != nil {
			return nil, err
		}
		return server.NewDatabase(t.Context())
	}
	file := filepath.Join(t.TempDir(), "user.db")
	return sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(20000)&_txlock=immediate")
}

// PostgresURL makes a database and returns its address.
func PostgresURL(t testing.TB) string {
	t.Helper()
	server, err := postgres()
	if err != nil {
		t.Fatal(err)
	}
	turns.Lock()
	defer turns.Unlock()
	name, err := server.NewDatabase(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return server.URL(name)
}

// Waiting counts the transactions that wait for another one's lock, by a connection of the
// same database. SQLite can't say: the answer is as many as were asked for.
func Waiting(ctx context.Context, db *sql.DB, d sqltext.Dialect, asked int) (n int, err error) {
	switch d {
	case sqltext.PostgreSQL:
		err = db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&n)
	case sqltext.MySQL:
		// Of the whole server, since its table of transactions shows what it was when it was last looked at.
		err = db.QueryRowContext(ctx, `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'`).Scan(&n)
	default:
		n = asked
	}
	return n, err
}
