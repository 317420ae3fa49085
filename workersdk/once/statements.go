package once

import (
	"context"

	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
)

// statements are a guard's. A claim inserts the row or raises its fence, and reads it back
// locked: one statement where the database can. MySQL's has a second one, since its
// upsert returns nothing; a read that locks shows what was committed last, whatever
// snapshot the transaction has.
type statements struct {
	raise string // MySQL only
	read  string
	mark  string
	prune string
	ddl   []string
}

func newStatements(d Dialect, table string) statements {
	t := d.Quote(table)
	insert := "INSERT INTO " + t + " (effect_key, job, fire_time, fence, claimed_at) VALUES (?, ?, " + d.TimeArg() + ", ?, " + d.Now() + ")"
	s := statements{
		read: insert + " ON CONFLICT (effect_key) DO UPDATE SET claimed_at = excluded.claimed_at, fence = CASE WHEN excluded.fence > " + t + ".fence THEN excluded.fence ELSE " +
			t + ".fence END RETURNING fence, done_at IS NOT NULL",
		mark: "UPDATE " + t + " SET done_at = " + d.Now() + " WHERE effect_key = ? AND done_at IS NULL",
		prune: "WITH old AS (SELECT effect_key FROM " + t + " WHERE claimed_at < " + d.After() + " ORDER BY claimed_at LIMIT ?" + skipLocked(d) +
			") DELETE FROM " + t + " WHERE effect_key IN (SELECT effect_key FROM old)",
		ddl: schema(d, table),
	}
	if d == MySQL {
		s.raise = insert + " ON DUPLICATE KEY UPDATE claimed_at = " + d.Now() + ", fence = GREATEST(fence, ?)"
		s.read = "SELECT fence, done_at IS NOT NULL FROM " + t + " WHERE effect_key = ? FOR UPDATE"
		s.prune = "DELETE FROM " + t + " WHERE claimed_at < " + d.After() + " ORDER BY claimed_at LIMIT ?"
	}
	for _, text := range []*string{&s.raise, &s.read, &s.mark, &s.prune} {
		*text = d.Bind(*text)
	}
	return s
}

// skipLocked keeps a prune from waiting for attempts that are under way.
func skipLocked(d Dialect) string {
	if d == PostgreSQL {
		return " FOR UPDATE SKIP LOCKED"
	}
	return ""
}

// claim takes the key, the job, the fire time and the fence.
func (s *statements) claim(ctx context.Context, tx Tx, args []any) (fence int64, done bool, err error) {
	if s.raise != "" {
		if _, err := tx.Exec(ctx, s.raise, append(args, args[3])...); err != nil {
			return 0, false, err
		}
		args = args[:1]
	}
	err = tx.QueryRow(ctx, s.read, args, &fence, &done)
	return fence, done, err
}

// schema makes the table. The index is for Prune.
func schema(d Dialect, table string) []string {
	t := d.Quote(table)
	switch d {
	case PostgreSQL:
		return []string{`CREATE TABLE IF NOT EXISTS ` + t + ` (
	effect_key TEXT PRIMARY KEY,
	job        TEXT NOT NULL,
	fire_time  TIMESTAMPTZ NOT NULL,
	fence      BIGINT NOT NULL,
	claimed_at TIMESTAMPTZ NOT NULL,
	done_at    TIMESTAMPTZ
)`, `CREATE INDEX IF NOT EXISTS ` + d.Quote(table+"_by_claim") + ` ON ` + t + ` (claimed_at)`}
	case MySQL:
		return []string{`CREATE TABLE IF NOT EXISTS ` + t + ` (
	effect_key VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	job        VARCHAR(512) CHARACTER SET utf8mb4 NOT NULL,
	fire_time  DATETIME(6) NOT NULL,
	fence      BIGINT NOT NULL,
	claimed_at DATETIME(6) NOT NULL,
	done_at    DATETIME(6),
	INDEX by_claim (claimed_at)
) ENGINE=InnoDB`}
	}
	return []string{`CREATE TABLE IF NOT EXISTS ` + t + ` (
	effect_key TEXT NOT NULL PRIMARY KEY,
	job        TEXT NOT NULL,
	fire_time  TEXT NOT NULL,
	fence      INTEGER NOT NULL,
	claimed_at TEXT NOT NULL,
	done_at    TEXT
)`, `CREATE INDEX IF NOT EXISTS ` + d.Quote(table+"_by_claim") + ` ON ` + t + ` (claimed_at)`}
}

// Schema returns the statements that make the table, for a migration of your own. They
// may be run again.
func (g *Guard[T]) Schema() string { return sqltext.Script(g.sql.ddl) }
