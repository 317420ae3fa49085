package cockroach

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// PostgreSQL estimates how many rows a table has by its size and by how full its pages
// were when it was last vacuumed or analysed. A queue that ran empty then, with one row
// left at its end, is thought to be empty ever after, also when it has filled up again:
// until somebody analyses it, a batch of a thousand rows is joined with it by walking all
// of it a thousand times. No way to write the statements forbids that, so the statistics
// are looked after: now and then a commit compares what is thought of a table with how
// many rows were inserted and deleted, and has it analysed if that differs by far.

const (
	lookEvery = 2 * time.Second
	// restAfter is how long nobody looks after a table was analysed, or could not be.
	restAfter = 20 * time.Second
	// manyRows are more than a table may hold that is thought to be empty.
	manyRows = 1000
	// Commits wait for both.
	lookTimeout    = 250 * time.Millisecond
	analyzeTimeout = 2 * time.Second
)

// lookAfterStatistics is called by each commit, after it and before its answer. err is
// what came of it: the server ends a statement that takes too long, and then there is
// reason to look. What comes of the look changes nothing.
func (db *DB) lookAfterStatistics(ctx context.Context, err error) {
	var pg *pgconn.PgError
	slow := errors.As(err, &pg) && pg.Code == "57014"
	if db.dialect.doubtful == "" || !db.looking.TryLock() {
		return
	}
	defer db.looking.Unlock()
	if now := time.Now(); !slow && now.Before(db.lookAgain) {
		return
	}
	rest := lookEvery
	if db.refreshStatistics(ctx) {
		rest = restAfter
	}
	db.lookAgain = time.Now().Add(rest)
}

// refreshStatistics has those tables analysed whose estimate can't be trusted, and reports
// whether it tried.
func (db *DB) refreshStatistics(ctx context.Context) (tried bool) {
	tables, err := db.doubtfulTables(ctx)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, analyzeTimeout)
	defer cancel()
	for _, table := range tables {
		if _, err := db.owner.Exec(ctx, db.dialect.analyze+table); err != nil {
			break
		}
	}
	return len(tables) > 0
}

func (db *DB) doubtfulTables(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	rows, err := db.owner.Query(ctx, db.dialect.doubtful, manyRows)
	return collect(rows, err, scanTo[string])
}
