package cockroach

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Each migration is one statement that may be run again, and its version is noted
// after it: a crash between any two steps is repaired by running them again.
//
//go:embed migrations/*.sql
var migrations embed.FS

// MigrationFiles are the steps of the schema, for those who check them.
func MigrationFiles() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic("cockroach: the embedded folder is there: " + err.Error())
	}
	return files
}

// Migration is a step of the schema.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

// migrationLease is how long the lock of a migrator that was killed keeps others away.
const migrationLease = 10 * time.Second

// stepTimeout bounds one step of the schema.
const stepTimeout = 12 * time.Hour

// withMigrator runs fn with a migrator of a database. A lease in a table keeps a
// second migrator away: CockroachDB has no advisory locks.
func withMigrator(ctx context.Context, url string, fn func(p *goose.Provider) error) (err error) {
	// A step may take long on tables that have grown. It waits for no lock for long:
	// whoever comes after it would wait too.
	pool, d, err := newPool(ctx, Config{URL: url, StatementTimeout: stepTimeout}.withDefaults(), 4)
	if err != nil {
		return err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	locker, err := lock.NewPostgresTableLocker(lock.WithTableLeaseDuration(migrationLease), lock.WithTableHeartbeatInterval(migrationLease/5),
		lock.WithTableLockTimeout(250*time.Millisecond, 240), lock.WithTableUnlockTimeout(250*time.Millisecond, 8))
	if err != nil {
		return fmt.Errorf("cockroach: migration lock: %w", err)
	}
	indexes, err := indexSteps(d)
	if err != nil {
		return fmt.Errorf("cockroach: migrations: %w", err)
	}
	names := make([]string, 0, len(indexes))
	steps := make([]*goose.Migration, 0, len(indexes))
	for name, step := range indexes {
		names, steps = append(names, name), append(steps, step)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, MigrationFiles(), goose.WithLocker(locker),
		goose.WithExcludeNames(names), goose.WithGoMigrations(steps...))
	if err != nil {
		return fmt.Errorf("cockroach: migrations: %w", err)
	}
	return fn(p)
}

// Migrate brings the schema up to date.
func Migrate(ctx context.Context, url string) error {
	return withMigrator(ctx, url, func(p *goose.Provider) error {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("cockroach: migrate: %w", err)
		}
		return nil
	})
}

// MigrateDownTo takes the schema back to a version.
func MigrateDownTo(ctx context.Context, url string, version int64) error {
	return withMigrator(ctx, url, func(p *goose.Provider) error {
		if _, err := p.DownTo(ctx, version); err != nil {
			return fmt.Errorf("cockroach: migrate down: %w", err)
		}
		return nil
	})
}

// Migrations lists the steps of the schema, and which are applied.
func Migrations(ctx context.Context, url string) (list []Migration, err error) {
	err = withMigrator(ctx, url, func(p *goose.Provider) error {
		statuses, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("cockroach: migration status: %w", err)
		}
		for _, s := range statuses {
			list = append(list, Migration{Version: s.Source.Version, Name: fileOf(s.Source.Version), Applied: s.State == goose.StateApplied})
		}
		return nil
	})
	return list, err
}

// ErrSchema says that the database's schema is not the one that this program
// knows.
var ErrSchema = errors.New("the database's schema is not up to date: run `carillon migrate up`")

// checkSchema refuses a schema that lacks a step. One that is newer is fine: steps
// only ever add what an older program doesn't look at.
func checkSchema(ctx context.Context, pool *pgxpool.Pool) error {
	known, err := fs.Glob(MigrationFiles(), "*.sql")
	if err != nil {
		return err
	}
	var have int64
	err = pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&have)
	if undefined := (*pgconn.PgError)(nil); err != nil && !(errors.As(err, &undefined) && undefined.Code == "42P01") {
		return unavailable("read the schema's version", err)
	}
	if have < int64(len(known)) {
		return fmt.Errorf("cockroach: version %d of %d: %w", have, len(known), ErrSchema)
	}
	return nil
}
