package sqltext

import (
	"context"
	"database/sql"
	"strings"
)

// Tx is what is needed of a transaction.
type Tx interface {
	// Exec runs a statement and returns how many rows it changed.
	Exec(ctx context.Context, query string, args ...any) (rows int64, err error)
	// QueryRow reads the first row of a query into dest. Without a row it fails.
	QueryRow(ctx context.Context, query string, args []any, dest ...any) error
}

// Of wraps a transaction of database/sql.
func Of(tx *sql.Tx) Tx { return sqlTx{tx} }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	done, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

func (t sqlTx) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	return t.tx.QueryRowContext(ctx, query, args...).Scan(dest...)
}

// Create makes a table by its statements, unless it is there. On PostgreSQL those who
// create it at the same time take turns: IF NOT EXISTS alone lets the later one fail.
func Create(ctx context.Context, tx Tx, d Dialect, table string, ddl []string) error {
	if d == PostgreSQL {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", table); err != nil {
			return err
		}
	}
	for _, statement := range ddl {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// Script joins statements for those who run them by themselves.
func Script(ddl []string) string { return strings.Join(ddl, ";\n") + ";\n" }
