package cockroach_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
)

var (
	ddl     = regexp.MustCompile(`^\s*(CREATE (UNIQUE )?(TABLE|INDEX)( CONCURRENTLY)? IF NOT EXISTS|ALTER TABLE|UPDATE) (jobs|slots|attempts|shards|meta|epochs|backlog|dead_letters|gaps|inbox|requests|handlers|events|calendars|skips)`)
	version = regexp.MustCompile(`INSERT INTO \S*goose_db_version`)
)

// A migrator that is killed at any step, or has lost its database there, has done no
// harm: running it again finishes the work. Each step may have been taken without its
// version being noted.
func TestAMigratorKilledBetweenAnyTwoSteps(t *testing.T) {
	steps, err := fs.Glob(cockroach.MigrationFiles(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	var dying sync.WaitGroup // they don't give up at once
	defer dying.Wait()
	for step := 1; step <= len(steps); step += 4 {
		for name, cut := range map[string]struct {
			at      *regexp.Regexp
			verdict pgtest.Verdict
		}{
			"before":            {ddl, pgtest.Verdict{Cut: true}},
			"after":             {ddl, pgtest.Verdict{Cut: true, Done: true}},
			"version not noted": {version, pgtest.Verdict{Cut: true}},
			"version noted":     {version, pgtest.Verdict{Cut: true, Done: true}},
		} {
			t.Run(fmt.Sprint("step ", step, " ", name), func(t *testing.T) {
				p := newProxy(t)
				url := database(t, "")
				seen, killed := 0, make(chan struct{})
				p.Judge(func(s pgtest.Statement) pgtest.Verdict {
					if seen >= step {
						return pgtest.Verdict{Cut: true} // it is dead
					}
					if cut.at.MatchString(s.SQL) {
						if seen++; seen == step {
							close(killed)
							return cut.verdict
						}
					}
					return pgtest.Verdict{}
				})
				ended := make(chan error, 1)
				dying.Go(func() { ended <- cockroach.Migrate(context.WithoutCancel(t.Context()), behind(p, url)) })
				select {
				case <-killed:
				case err := <-ended:
					t.Fatalf("the migration ended with %v", err)
				}
				p.CutAll()
				if _, err := cockroach.Open(t.Context(), cockroach.Config{URL: url}); !errors.Is(err, cockroach.ErrSchema) && !(step == len(steps) && name == "version noted") {
					t.Errorf("open of half a schema: %v", err)
				}
				exec(t, connect(t, url), `DROP TABLE IF EXISTS goose_lock`) // its lease is over
				if err := cockroach.Migrate(t.Context(), url); err != nil {
					t.Fatal(err)
				}
				db := open(t, cockroach.Config{URL: url})
				if n, err := db.InitShards(t.Context(), 2); err != nil || n != 2 {
					t.Error(n, err)
				}
			})
		}
	}
}

// An index that was being built when its migrator was killed is there, and of no use.
// The next one builds it again.
func TestAnIndexThatWasHalfBuilt(t *testing.T) {
	url := database(t, template)
	conn := connect(t, url)
	exec(t, conn, `DELETE FROM goose_db_version WHERE version_id >= 26`)
	exec(t, conn, `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'events_by_time'::regclass`)
	if err := cockroach.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	var valid bool
	if err := conn.QueryRow(t.Context(), `SELECT indisvalid FROM pg_index WHERE indexrelid = 'events_by_time'::regclass`).Scan(&valid); err != nil || !valid {
		t.Errorf("the index is valid: %v, %v", valid, err)
	}
}

// The previous version goes on working on the new schema: what it sends is understood,
// and its rows are read by the new one. testdata holds what each version sent.
func TestOlderVersionsWorkOnTheNewSchema(t *testing.T) {
	_, url, _ := fresh(t)
	conn := connect(t, url)
	files, err := filepath.Glob("testdata/statements-*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, sql := range strings.Split(strings.TrimSpace(string(text)), "\n;\n") {
			if _, err := conn.Prepare(t.Context(), fmt.Sprint("s", i), sql); err != nil {
				t.Errorf("%s: %s: %v", file, sql, err)
			}
			exec(t, conn, fmt.Sprintf(`DEALLOCATE "s%d"`, i))
		}
	}
	old := everyMinute(9)
	exec(t, conn, `INSERT INTO jobs (shard, uid, namespace, name, handler, params, kind, schedule, retry, timeout_us, created_at, effective_from, request_hash)
		VALUES (0, '\x09000000000000000000000000000000', 'd', 'n9', 'h', '{}', 3, '{"kind":3,"cron":"* * * * *","dialect":1}', '{}', 1, 1, 1, '')`)
	db := open(t, cockroach.Config{URL: url})
	if j, err := db.JobByUID(t.Context(), "d", old.UID); err != nil || j.Labels != nil || j.Quarantine != "" {
		t.Errorf("a job of the previous version is read as %+v, %v", j, err)
	}
}

// A schema that is newer is fine, one that lacks a step is refused, with what to run.
func TestTheSchemaIsChecked(t *testing.T) {
	url := database(t, template)
	conn := connect(t, url)
	exec(t, conn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`)
	open(t, cockroach.Config{URL: url})
	exec(t, conn, `DELETE FROM goose_db_version WHERE version_id >= (SELECT max(version_id) FROM goose_db_version WHERE version_id < 9999)`)
	_, err := cockroach.Open(t.Context(), cockroach.Config{URL: url})
	if !errors.Is(err, cockroach.ErrSchema) || !strings.Contains(err.Error(), "carillon migrate up") {
		t.Errorf("open: %v", err)
	}
}

func TestOnlyKnownServersAreTaken(t *testing.T) {
	for answer, want := range map[string]string{
		"PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu":          "PostgreSQL 15",
		"PostgreSQL 14beta1 on x86_64":                                              "PostgreSQL 14",
		"CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15, go1.22.2)": "CockroachDB 24",
		"CockroachDB OSS v26.2.1 (x)":                                               "CockroachDB 26",
		"PostgreSQL 13.4 on x86_64":                                                 "",
		"CockroachDB CCL v23.2.9 (x)":                                               "",
		"MySQL 8.0":                                                                 "",
	} {
		name, n, err := cockroach.DialectOf(answer)
		if got := strings.TrimSpace(fmt.Sprint(name, " ", n)); err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s, %v; want %q", answer, got, err, want)
		}
	}
}
