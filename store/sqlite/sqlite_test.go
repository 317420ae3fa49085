package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	"github.com/carillon-scheduler/carillon/store/storetest"
)

func open(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, filepath.Join(t.TempDir(), "carillon.db"))
	})
}

func TestOpenRefusesASecondProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.db")
	open(t, path)
	if _, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("a second open: %v", err)
	}
}

func TestOpenRefusesAnotherSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.db")
	db := open(t, path)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	exec(t, path, `UPDATE meta SET value = 99 WHERE key = 'schema_version'`)
	if _, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "schema version 99") {
		t.Fatalf("open of another schema: %v", err)
	}
}

func TestOddPaths(t *testing.T) {
	for _, name := range []string{"with space.db", "per%20cent.db", "question?.db", "hash#.db"} {
		path := filepath.Join(t.TempDir(), name)
		db := open(t, path)
		if _, err := db.InitShards(t.Context(), 2); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if matches, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(matches) < 2 {
			t.Errorf("%s: the folder holds %v, %v", name, matches, err)
		}
	}
}

// exec changes a closed file behind the adapter's back.
func exec(t *testing.T, path, query string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// A row that was damaged in the database sets its own job aside and no other.
func TestADamagedScheduleQuarantinesItsJobOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.db")
	db := open(t, path)
	owned := own(t, db)
	var creates []store.Create
	for i, name := range []string{"good", "damaged"} {
		creates = append(creates, store.Create{Job: job.Job{
			UID: job.UID{15: byte(i + 1)}, Namespace: "default", Name: name, Handler: "h", Timeout: time.Minute,
			Schedule: job.Schedule{Kind: job.KindCron, Cron: "* * * * *", Dialect: schedule.DialectVersion}, Retry: job.DefaultRetryPolicy,
		}})
	}
	batch := store.Batch{Shards: []store.ShardBatch{{Proof: owned.Proof, Creates: creates}}}
	if _, err := db.Commit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	exec(t, path, `UPDATE jobs SET schedule = '{"kind": "nonsense"' WHERE name = 'damaged'`)
	db = open(t, path)
	loaded, err := db.Load(t.Context(), owned.Proof, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range loaded.Recurring {
		if damaged := j.Name == "damaged"; damaged != (j.Quarantine != "") {
			t.Errorf("%s: quarantine %q", j.Name, j.Quarantine)
		}
	}
	if len(loaded.Recurring) != 2 {
		t.Errorf("loaded %d jobs, want 2", len(loaded.Recurring))
	}
}

func own(t *testing.T, db *sqlite.DB) store.Owned {
	t.Helper()
	if _, err := db.InitShards(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	owned, err := db.TakeOver(t.Context(), store.Claim{Node: "a", Rev: 1})
	if err != nil {
		t.Fatal(err)
	}
	return owned
}
