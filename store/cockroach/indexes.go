package cockroach

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

// An index of a table that may have grown is built beside the work of others. On
// PostgreSQL that takes more than its statement: what a build that failed has left
// must go first, it must wait as long as others' transactions last, and whether it
// came to a good end must be looked at. All that happens under the migrator's lock.

var (
	concurrently = regexp.MustCompile(`CREATE INDEX CONCURRENTLY IF NOT EXISTS (\w+)`)
	stepVersion  = regexp.MustCompile(`^(\d+)_`)
)

// indexSteps are the migrations that build such an index, by their files.
func indexSteps(d dialect) (map[string]*goose.Migration, error) {
	files, err := fs.Glob(MigrationFiles(), "*.sql")
	if err != nil {
		return nil, err
	}
	steps := map[string]*goose.Migration{}
	for _, name := range files {
		text, err := fs.ReadFile(MigrationFiles(), name)
		if err != nil {
			return nil, err
		}
		up, down, _ := strings.Cut(string(text), "-- +goose Down")
		_, up, _ = strings.Cut(up, "-- +goose Up")
		up, down = strings.TrimSpace(up), strings.TrimSpace(down)
		found := concurrently.FindStringSubmatch(up)
		if found == nil {
			continue
		}
		version, err := strconv.ParseInt(stepVersion.FindStringSubmatch(name)[1], 10, 64)
		if err != nil {
			return nil, err
		}
		steps[name] = goose.NewGoMigration(version,
			&goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error { return d.buildIndex(ctx, db, found[1], up) }},
			&goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error { _, err := db.ExecContext(ctx, down); return err }})
	}
	return steps, nil
}

// fileOf is the name of a step's file.
func fileOf(version int64) string {
	files, err := fs.Glob(MigrationFiles(), fmt.Sprintf("%05d_*.sql", version))
	if err != nil || len(files) == 0 {
		return fmt.Sprintf("%05d, of a newer program", version)
	}
	return files[0]
}

const selectBroken = `SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid`

// buildIndex builds an index by its statement.
func (d *dialect) buildIndex(ctx context.Context, db *sql.DB, name, statement string) (err error) {
	if d.name != "PostgreSQL" { // others build an index whole or not at all
		_, err := db.ExecContext(ctx, statement)
		return err
	}
	conn, err := db.Conn(ctx) // whose settings are changed, and which is thrown away
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	broken := 0
	if err := conn.QueryRowContext(ctx, selectBroken, name).Scan(&broken); err != nil {
		return err
	}
	steps := []string{`SET lock_timeout = 0`, statement, `RESET lock_timeout`}
	if broken > 0 {
		steps = append([]string{`DROP INDEX CONCURRENTLY IF EXISTS ` + name}, steps...)
	}
	for _, step := range steps {
		if _, err := conn.ExecContext(ctx, step); err != nil {
			return fmt.Errorf("build index %s: %w", name, err)
		}
	}
	if err := conn.QueryRowContext(ctx, selectBroken, name).Scan(&broken); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("index %s was not built to its end: run the migration again", name)
	}
	return nil
}
