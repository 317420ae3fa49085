// Package outboxpgx is package outbox for transactions of pgx. A relay needs a *sql.DB,
// which stdlib.OpenDBFromPool makes of a pool of pgx.
package outboxpgx

import (
	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/workersdk/internal/pgxtx"
	"github.com/carillon-scheduler/carillon/workersdk/outbox"
)

// New makes an outbox for pgx. It fails if the table's name is none.
func New(opts ...outbox.Option) (*outbox.Box[pgx.Tx], error) {
	return outbox.NewFor(outbox.PostgreSQL, pgxtx.Of, opts...)
}
