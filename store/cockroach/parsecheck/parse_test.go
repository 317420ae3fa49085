// Package parsecheck holds the SQL of package cockroach against CockroachDB's own
// parser. It is a module of its own, so that the product doesn't depend on the
// parser, which takes minutes to compile; `make check` runs it.
package parsecheck

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/cockroachdb-parser/pkg/sql/parser"

	"github.com/carillon-scheduler/carillon/store/cockroach"
)

// all returns every statement and migration by its name.
func all(t *testing.T) map[string]string {
	t.Helper()
	statements := cockroach.Statements()
	files, err := fs.Glob(cockroach.MigrationFiles(), "*.sql")
	if err != nil || len(files) < 30 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := fs.ReadFile(cockroach.MigrationFiles(), name)
		if err != nil {
			t.Fatal(err)
		}
		up, down, ok := strings.Cut(string(text), "-- +goose Down")
		if !ok {
			t.Fatalf("%s has no way down", name)
		}
		statements["up of "+name], statements["down of "+name] = up, down
	}
	return statements
}

// CockroachDB understands every statement and every migration, each of which is one
// statement.
func TestCockroachDBParsesEveryStatement(t *testing.T) {
	statements := all(t)
	maps.Copy(statements, cockroach.DialectStatements())
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		parsed, err := parser.Parse(statements[name])
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, statements[name])
		} else if len(parsed) != 1 {
			t.Errorf("%s is %d statements, not one:\n%s", name, len(parsed), statements[name])
		}
	}
}

// The parser is a real one.
func TestTheParserRefuses(t *testing.T) {
	for _, sql := range []string{`SELECT FROM WHERE`, `INSERT INTO jobs (shard) VALUES (1) ON CONFLICT DO UPDATE`, `LOCK TABLE jobs`} {
		if _, err := parser.Parse(sql); err == nil {
			t.Errorf("%s was parsed", sql)
		}
	}
}

// avoided is what one of the two databases lacks, or does otherwise, or does badly.
var avoided = map[string]*regexp.Regexp{
	"advisory locks":               regexp.MustCompile(`(?i)advisory`),
	"LISTEN and NOTIFY":            regexp.MustCompile(`(?i)\b(LISTEN|NOTIFY)\b`),
	"a queue by SKIP LOCKED":       regexp.MustCompile(`(?i)SKIP\s+LOCKED`),
	"COPY":                         regexp.MustCompile(`(?i)\bCOPY\b`),
	"sequences as keys":            regexp.MustCompile(`(?i)\b(BIG)?SERIAL\b|SEQUENCE|IDENTITY`),
	"system columns":               regexp.MustCompile(`(?i)\b(xmin|xmax|ctid)\b`),
	"infinity":                     regexp.MustCompile(`(?i)infinity`),
	"division":                     regexp.MustCompile(`[^/*]/[^/*]`),
	"the type json":                regexp.MustCompile(`(?i)\bJSON\b`),
	"deferred constraints":         regexp.MustCompile(`(?i)DEFERR`),
	"triggers and procedures":      regexp.MustCompile(`(?i)CREATE\s+(OR\s+REPLACE\s+)?(TRIGGER|FUNCTION|PROCEDURE)|plpgsql`),
	"a bounded UPDATE or DELETE":   regexp.MustCompile(`(?is)^\s*(UPDATE|DELETE)[^(]*\bLIMIT\b`),
	"CockroachDB's own syntax":     regexp.MustCompile(`(?i)\bUPSERT\b|AS OF SYSTEM TIME|USING HASH|ttl_expir|\bFAMILY\b|SPLIT AT|\bSTORING\b`),
	"OFFSET":                       regexp.MustCompile(`(?i)\bOFFSET\b`),
	"SELECT * of a table":          regexp.MustCompile(`(?is)SELECT\s+\*\s+FROM\s+(jobs|slots|attempts|shards|backlog|events)`),
	"savepoints":                   regexp.MustCompile(`(?i)SAVEPOINT`),
	"floating point":               regexp.MustCompile(`(?i)\b(FLOAT\d*|REAL|DOUBLE)\b`),
	"an index that blocks writers": regexp.MustCompile(`(?i)CREATE\s+INDEX\s+IF`),    // of a table that may have grown; see firstSchema
	"an update of what stands":     regexp.MustCompile(`(?is)ON CONFLICT DO UPDATE`), // without a named key
}

// firstSchema are the steps that made the tables.
var firstSchema = regexp.MustCompile(`of 000([01]\d|2[01])_`)

func TestNoStatementUsesWhatIsAvoided(t *testing.T) {
	statements := all(t)
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		for what, pattern := range avoided {
			if what == "an index that blocks writers" && firstSchema.MatchString(name) {
				continue // its tables were empty
			}
			if found := pattern.FindString(statements[name]); found != "" {
				t.Errorf("%s uses %s, %q:\n%s", name, what, found, statements[name])
			}
		}
	}
}

// Each of the patterns finds what it is for.
func TestTheAvoidedIsFound(t *testing.T) {
	for what, example := range map[string]string{
		"advisory locks": `SELECT pg_advisory_lock(1)`, "LISTEN and NOTIFY": `NOTIFY x`, "a queue by SKIP LOCKED": `SELECT 1 FOR UPDATE SKIP LOCKED`,
		"COPY": `COPY jobs FROM STDIN`, "sequences as keys": `CREATE TABLE t (id BIGSERIAL)`, "system columns": `SELECT xmin`, "infinity": `'infinity'`,
		"division": `SELECT a / b`, "the type json": `a JSON`, "deferred constraints": `DEFERRABLE`, "triggers and procedures": `CREATE FUNCTION f()`,
		"a bounded UPDATE or DELETE": `DELETE FROM jobs LIMIT 5`, "CockroachDB's own syntax": `UPSERT INTO jobs`, "OFFSET": `LIMIT 1 OFFSET 2`,
		"SELECT * of a table": `SELECT * FROM jobs`, "savepoints": `SAVEPOINT x`, "floating point": `a FLOAT8`, "an index that blocks writers": `CREATE INDEX IF NOT EXISTS`,
		"an update of what stands": `ON CONFLICT DO UPDATE SET`,
	} {
		if avoided[what] == nil || !avoided[what].MatchString(example) {
			t.Errorf("%s: %q is not found", what, example)
		}
	}
}
