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
// are looked after: every few seconds a commit looks whether a table is thought to be all but
// empty and has changed since, and has it analysed.

const (
	lookEvery = 2 * time.Second
	// fewChanges are too few to make a table large.
	fewChanges = 500
	// analyzeTimeout bounds how long a commit may be held up by it.
	analyzeTimeout = 2 * time.Second
)

// refreshStatistics has those tables analysed whose estimate can't be trusted. It is
// called between commits, by the one who commits. An error changes nothing: it is
// only a look.
func (db *DB) refreshStatistics(ctx context.Context) {
	if db.dialect.doubtful == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, analyzeTimeout)
	defer cancel()
	rows, err := db.owner.Query(ctx, db.dialect.doubtful, fewChanges)
	tables, err := collect(rows, err, scanTo[string])
	if err != nil {
		return
	}
	for _, table := range tables {
		if _, err := db.owner.Exec(ctx, db.dialect.analyze+table); err != nil {
			return
		}
	}
}

// lookAfterStatistics calls refreshStatistics now and then, and after a commit that the
// server has ended, since it took too long.
func (db *DB) lookAfterStatistics(ctx context.Context, err error) {
	var pg *pgconn.PgError
	db.looking.Lock()
	due := time.Since(db.looked) > lookEvery || errors.As(err, &pg) && pg.Code == "57014"
	if due {
		db.looked = time.Now()
	}
	db.looking.Unlock()
	if due {
		db.refreshStatistics(ctx)
	}
}
