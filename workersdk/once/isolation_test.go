package once_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/carillon-scheduler/carillon/workersdk/internal/oncetest"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltest"
	"github.com/carillon-scheduler/carillon/workersdk/once"
)

// A transaction whose snapshot is older than another attempt's commit doesn't make the
// effect again: it skips it, or the database refuses, and a new transaction skips it.
func TestSnapshotsThatAreOld(t *testing.T) {
	for name, c := range map[string]struct {
		dialect once.Dialect
		level   sql.IsolationLevel
		setting string
		refused bool
	}{
		"PostgreSQL read committed":   {dialect: once.PostgreSQL, level: sql.LevelReadCommitted},
		"PostgreSQL repeatable read":  {dialect: once.PostgreSQL, level: sql.LevelRepeatableRead, refused: true},
		"PostgreSQL serializable":     {dialect: once.PostgreSQL, level: sql.LevelSerializable, refused: true},
		"MySQL read committed":        {dialect: once.MySQL, level: sql.LevelReadCommitted},
		"MySQL repeatable read":       {dialect: once.MySQL, level: sql.LevelRepeatableRead},
		"MySQL serializable":          {dialect: once.MySQL, level: sql.LevelSerializable},
		"MariaDB snapshot isolation":  {dialect: once.MySQL, level: sql.LevelRepeatableRead, setting: "SET SESSION innodb_snapshot_isolation = ON", refused: true},
		"SQLite, begun without locks": {dialect: once.SQLite, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSnapshot(t, c.dialect)
			must(t, s.exec(c.setting))
			late, err := s.conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: c.level})
			must(t, err)
			var none int
			must(t, late.QueryRowContext(t.Context(), "SELECT count(*) FROM looked_at").Scan(&none))
			early, err := s.db.BeginTx(t.Context(), nil)
			must(t, err)
			if ran, err := s.do(early, 1); !ran || err != nil {
				t.Fatalf("ran %v, %v", ran, err)
			}
			must(t, early.Commit())

			ran, err := s.do(late, 2)
			if ran || (err != nil) != c.refused {
				t.Errorf("ran %v, %v; refused is %v", ran, err, c.refused)
			}
			must(t, late.Rollback())
			again, err := s.db.BeginTx(t.Context(), nil)
			must(t, err)
			if ran, err := s.do(again, 2); ran || err != nil {
				t.Errorf("ran %v, %v; want it skipped", ran, err)
			}
			must(t, again.Commit())
			var effects int
			must(t, s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&effects))
			if effects != 1 {
				t.Errorf("%d effects", effects)
			}
		})
	}
}

// snapshot is a database, and a connection for the transaction that begins early.
type snapshot struct {
	t     *testing.T
	db    *sql.DB
	conn  *sql.Conn
	guard *once.Guard[*sql.Tx]
}

func newSnapshot(t *testing.T, d once.Dialect) *snapshot {
	db := sqltest.Open(t, d)
	guard, err := once.New(d)
	must(t, err)
	s := &snapshot{t: t, db: db, guard: guard}
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, guard.CreateTable(t.Context(), tx))
	must(t, tx.Commit())
	for _, table := range []string{"effects", "looked_at"} {
		_, err := db.ExecContext(t.Context(), "CREATE TABLE "+table+" (attempt BIGINT NOT NULL)")
		must(t, err)
	}
	if d == once.SQLite {
		db = withoutLocks(t, db)
	}
	s.conn, err = db.Conn(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// withoutLocks opens a SQLite file so that transactions begin without any.
func withoutLocks(t *testing.T, db *sql.DB) *sql.DB {
	var number int
	var name, file string
	must(t, db.QueryRowContext(t.Context(), "PRAGMA database_list").Scan(&number, &name, &file))
	deferred, err := sql.Open("sqlite", "file:"+file)
	must(t, err)
	t.Cleanup(func() { _ = deferred.Close() })
	return deferred
}

func (s *snapshot) exec(setting string) error {
	if setting == "" {
		return nil
	}
	_, err := s.conn.ExecContext(s.t.Context(), setting)
	return err
}

func (s *snapshot) do(tx *sql.Tx, attempt int64) (bool, error) {
	return s.guard.Do(s.t.Context(), tx, oncetest.Attempt{Number: attempt}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (1)")
		return err
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
