// Package oncepgx is package once for transactions of pgx.
package oncepgx

import (
	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/workersdk/internal/pgxtx"
	"github.com/carillon-scheduler/carillon/workersdk/once"
)

// New makes a guard for pgx. It fails if the table's name is none.
func New(opts ...once.Option) (*once.Guard[pgx.Tx], error) {
	return once.NewFor(once.PostgreSQL, pgxtx.Of, opts...)
}
