package outbox

import "github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"

// statements are a box's. A claim takes rows that are due and that nobody else is taking,
// and makes them due again a lease later: one statement where the database can, a
// transaction of two on MySQL.
type statements struct {
	add   string
	due   string
	claim string // not on MySQL
	pick  string // MySQL only
	lease string // MySQL only; wants a list of ids

	created  string // wants a list of ids
	failed   string
	later    string
	failures string
	retry    string // wants a list of ids
	discard  string // wants a list of ids
	stats    string

	ddl []string
}

func newStatements(d Dialect, table string) statements {
	t := d.Quote(table)
	due := " FROM " + t + " WHERE due_at <= " + d.Now()
	lease := "UPDATE " + t + " SET due_at = " + d.After() + ", attempts = attempts + 1 WHERE id IN "
	s := statements{
		add:      "INSERT INTO " + t + " (request_id, job, handler, request, attempts, added_at, due_at) VALUES (?, ?, ?, ?, 0, " + d.Now() + ", " + d.Now() + ")",
		due:      "SELECT 1" + due + " LIMIT 1",
		created:  "DELETE FROM " + t + " WHERE id IN ",
		failed:   "UPDATE " + t + " SET due_at = NULL, failed_at = " + d.Now() + ", error = ? WHERE id = ? AND attempts = ?",
		later:    "UPDATE " + t + " SET due_at = " + d.After() + ", error = coalesce(?, error) WHERE id = ? AND attempts = ?",
		failures: "SELECT id, attempts, request, error, " + d.Millis("failed_at") + " FROM " + t + " WHERE failed_at IS NOT NULL AND id > ? ORDER BY id LIMIT ?",
		retry:    "UPDATE " + t + " SET due_at = " + d.Now() + ", failed_at = NULL, attempts = 0 WHERE failed_at IS NOT NULL AND id IN ",
		discard:  "DELETE FROM " + t + " WHERE failed_at IS NOT NULL AND id IN ",
		stats: "SELECT count(due_at), count(failed_at), coalesce(" + d.Millis(d.Now()) + " - " +
			d.Millis("min(CASE WHEN failed_at IS NULL THEN added_at END)") + ", 0) FROM " + t,
		ddl: schema(d, table),
	}
	switch d {
	case MySQL:
		// By the index, since a scan of the table would lock more than it takes.
		s.pick = "SELECT id, attempts + 1, request FROM " + t + " FORCE INDEX (by_due) WHERE due_at <= " + d.Now() + " ORDER BY due_at, id LIMIT ? FOR UPDATE SKIP LOCKED"
		s.lease = lease
	case PostgreSQL:
		s.claim = "WITH due AS (SELECT id" + due + " ORDER BY due_at, id LIMIT ? FOR UPDATE SKIP LOCKED) " + lease + "(SELECT id FROM due) RETURNING id, attempts, request"
	case SQLite:
		s.claim = "WITH due AS (SELECT id" + due + " ORDER BY due_at, id LIMIT ?) " + lease + "(SELECT id FROM due) RETURNING id, attempts, request"
	}
	for _, text := range []*string{&s.add, &s.claim, &s.failed, &s.later, &s.failures} {
		*text = d.Bind(*text)
	}
	return s
}

// listed completes a statement that wants a list of ids, after other arguments.
func listed(d Dialect, query string, ids []int64, before ...any) (string, []any) {
	args := before
	for _, id := range ids {
		args = append(args, id)
	}
	return d.Bind(query + sqltext.List(len(ids))), args
}

// schema makes the table. A relay looks for what is due by the index; a row that failed has
// no due_at, and so is never looked at again.
func schema(d Dialect, table string) []string {
	t := d.Quote(table)
	index := `CREATE INDEX IF NOT EXISTS ` + d.Quote(table+"_by_due") + ` ON ` + t + ` (due_at, id)`
	switch d {
	case PostgreSQL:
		return []string{`CREATE TABLE IF NOT EXISTS ` + t + ` (
	id         BIGSERIAL PRIMARY KEY,
	request_id TEXT NOT NULL,
	job        TEXT NOT NULL,
	handler    TEXT NOT NULL,
	request    BYTEA NOT NULL,
	attempts   BIGINT NOT NULL,
	added_at   TIMESTAMPTZ NOT NULL,
	due_at     TIMESTAMPTZ,
	failed_at  TIMESTAMPTZ,
	error      TEXT
)`, index}
	case MySQL:
		return []string{`CREATE TABLE IF NOT EXISTS ` + t + ` (
	id         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	request_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	job        VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	handler    VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	request    LONGBLOB NOT NULL,
	attempts   BIGINT NOT NULL,
	added_at   DATETIME(6) NOT NULL,
	due_at     DATETIME(6),
	failed_at  DATETIME(6),
	error      TEXT CHARACTER SET utf8mb4,
	INDEX by_due (due_at, id)
) ENGINE=InnoDB`}
	}
	return []string{`CREATE TABLE IF NOT EXISTS ` + t + ` (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	request_id TEXT NOT NULL,
	job        TEXT NOT NULL,
	handler    TEXT NOT NULL,
	request    BLOB NOT NULL,
	attempts   INTEGER NOT NULL,
	added_at   TEXT NOT NULL,
	due_at     TEXT,
	failed_at  TEXT,
	error      TEXT
)`, index}
}
