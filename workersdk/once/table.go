package once

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
)

const (
	// MinKeep is the least age of rows that Prune deletes, so that a mistake doesn't take
	// those of attempts that are under way.
	MinKeep = 24 * time.Hour
	// DefaultKeep is longer than the 30 days for which a cluster keeps dead letters, of
	// which each may be redriven, unless it is told otherwise.
	DefaultKeep = 45 * 24 * time.Hour
	// pruneRows bounds what one Prune deletes, and so how long it holds its locks.
	pruneRows = 1000
)

// CreateTable makes the table unless it is there. On MySQL this commits the transaction.
func (g *Guard[T]) CreateTable(ctx context.Context, tx T) error {
	if err := sqltext.Create(ctx, g.wrap(tx), g.dialect, g.table, g.sql.ddl); err != nil {
		return fmt.Errorf("create the table %s: %w", g.table, err)
	}
	return nil
}

// Prune deletes up to 1,000 rows that no attempt has used for the time keep, the oldest
// first, and reports whether more may be left: then call it again, in a new transaction.
//
// Without its row an effect is made again by the next attempt, so keep rows for longer
// than an attempt of their slots can come: the cluster's retention of dead letters
// (--dead-retention, 30 days), or a job's own retention if that is longer, and how long
// a slot may take. Default, for a keep of 0: DefaultKeep. Less than MinKeep is refused.
func (g *Guard[T]) Prune(ctx context.Context, tx T, keep time.Duration) (more bool, err error) {
	if keep == 0 {
		keep = DefaultKeep
	}
	if keep < MinKeep {
		return false, fmt.Errorf("prune %s: rows must be kept for at least %s, not %s", g.table, MinKeep, keep)
	}
	n, err := g.wrap(tx).Exec(ctx, g.sql.prune, -keep.Milliseconds(), pruneRows)
	if err != nil {
		return false, fmt.Errorf("prune %s: %w", g.table, err)
	}
	return n >= pruneRows, nil
}
