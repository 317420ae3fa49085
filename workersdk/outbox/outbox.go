package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"

	"google.golang.org/protobuf/proto"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
)

// Dialect is a kind of database.
type Dialect = sqltext.Dialect

// The dialects: PostgreSQL 9.5, MySQL 8.0, MariaDB 10.6 and SQLite 3.35, or newer.
const (
	PostgreSQL = sqltext.PostgreSQL
	MySQL      = sqltext.MySQL
	SQLite     = sqltext.SQLite
)

// DefaultTable is the table's name if no other one is chosen.
const DefaultTable = "carillon_outbox"

// Tx is what a box needs of a transaction, for drivers that have neither database/sql nor
// pgx.
type Tx = sqltext.Tx

// Box is an outbox in one database. T is a transaction of its driver. A box may be used
// by many goroutines; it holds no connection.
type Box[T any] struct {
	dialect Dialect
	table   string
	wrap    func(T) Tx
	sql     statements
}

// Option changes a box.
type Option func(*options)

type options struct{ table string }

// Table names the box's table: 1 to 48 lower-case letters, digits or '_'. Default:
// DefaultTable.
func Table(name string) Option { return func(o *options) { o.table = name } }

// New makes a box for database/sql. It fails if the dialect or the table's name is none.
func New(d Dialect, opts ...Option) (*Box[*sql.Tx], error) { return NewFor(d, sqltext.Of, opts...) }

// NewFor makes a box for any driver, by a function that wraps its transactions.
func NewFor[T any](d Dialect, wrap func(T) Tx, opts ...Option) (*Box[T], error) {
	o := options{table: DefaultTable}
	for _, opt := range opts {
		opt(&o)
	}
	if err := sqltext.Check(d, o.table); err != nil {
		return nil, fmt.Errorf("make an outbox: %w", err)
	}
	return &Box[T]{dialect: d, table: o.table, wrap: wrap, sql: newStatements(d, o.table)}, nil
}

// Add writes jobs into the outbox: they are created if and only if the transaction commits.
// What a node would refuse in any case fails at once, as an *InvalidError, which names the
// fields; after a failure roll the transaction back. What only a node can know, such as
// whether a job of that name exists, is found out by the relay: see [Relay.Failed].
//
// A request without a request_id gets a random one. Requests are not changed.
func (b *Box[T]) Add(ctx context.Context, tx T, requests ...*carillonv1.CreateJobRequest) error {
	for _, req := range requests {
		if err := check(ctx, req); err != nil {
			return fmt.Errorf("add a job to the outbox: %w", err)
		}
	}
	for _, req := range requests {
		if err := b.add(ctx, b.wrap(tx), req); err != nil {
			return fmt.Errorf("add a job to the outbox: %w", err)
		}
	}
	return nil
}

func (b *Box[T]) add(ctx context.Context, tx Tx, req *carillonv1.CreateJobRequest) error {
	if req.GetRequestId() == "" {
		req = proto.CloneOf(req)
		req.RequestId = rand.Text()
	}
	doc, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, b.sql.add, req.GetRequestId(), jobName(req), req.GetJob().GetHandler(), doc)
	return err
}

// jobName is the job's resource name, for people who read the table; one that the server
// names ends in "-".
func jobName(req *carillonv1.CreateJobRequest) string {
	id := req.GetJobId()
	if id == "" {
		id = "-"
	}
	return req.GetParent() + "/jobs/" + id
}

// CreateTable makes the table unless it is there. On MySQL this commits the transaction.
func (b *Box[T]) CreateTable(ctx context.Context, tx T) error {
	if err := sqltext.Create(ctx, b.wrap(tx), b.dialect, b.table, b.sql.ddl); err != nil {
		return fmt.Errorf("create the table %s: %w", b.table, err)
	}
	return nil
}

// Schema returns the statements that make the table, for a migration of your own. They
// may be run again.
func (b *Box[T]) Schema() string { return sqltext.Script(b.sql.ddl) }
