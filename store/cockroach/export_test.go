package cockroach

import (
	"context"
	"errors"
)

// SessionStatements set what every connection to PostgreSQL has set.
func SessionStatements() (all []string) {
	for name, value := range postgres(minPostgres).session {
		all = append(all, "SET "+name+" = "+value)
	}
	return all
}

// HoldReaders takes all connections for people's questions.
func (db *DB) HoldReaders(ctx context.Context, cleanup func(func())) {
	for range db.reader.Config().MaxConns {
		if conn, err := db.reader.Acquire(ctx); err == nil {
			cleanup(conn.Release)
		}
	}
}

// InUse counts the connections that somebody has.
func (db *DB) InUse() int32 {
	return db.owner.Stat().AcquiredConns() + db.reader.Stat().AcquiredConns()
}

// Settings reads a setting of the connections of both pools.
func (db *DB) Settings(ctx context.Context, name string) (owner, reader string, err error) {
	err = errors.Join(db.owner.QueryRow(ctx, "SHOW "+name).Scan(&owner), db.reader.QueryRow(ctx, "SHOW "+name).Scan(&reader))
	return owner, reader, err
}

// DialectOf names what a server that answers to version() so is taken for.
func DialectOf(answer string) (name string, version int, err error) {
	d, err := dialectOf(answer)
	return d.name, d.version, err
}

// DoubtfulTables is a statement that only PostgreSQL gets.
func DoubtfulTables() string { return postgres(minPostgres).doubtful }
