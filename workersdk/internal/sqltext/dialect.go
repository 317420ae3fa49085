package sqltext

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Dialect is a kind of database.
type Dialect int

// The dialects. PostgreSQL is 9.5 or newer, MySQL 8.0 or MariaDB 10.6 or newer with InnoDB,
// SQLite 3.35 or newer.
const (
	PostgreSQL Dialect = iota + 1
	MySQL
	SQLite
)

// String returns the name of the dialect.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("dialect %d", int(d))
}

// tableName allows what needs no care anywhere: names of indexes follow from it, and
// PostgreSQL's may have 63 bytes.
var tableName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// Check reports an unknown dialect, or a name that a table can't have.
func Check(d Dialect, table string) error {
	if d < PostgreSQL || d > SQLite {
		return errors.New("the dialect must be PostgreSQL, MySQL or SQLite")
	}
	if !tableName.MatchString(table) {
		return fmt.Errorf("the table's name must be 1 to 48 lower-case letters, digits or '_', not beginning with a digit, is %q", table)
	}
	return nil
}

// Quote makes an identifier of a name that Check let pass.
func (d Dialect) Quote(name string) string {
	if d == MySQL {
		return "`" + name + "`"
	}
	return `"` + name + `"`
}

// Bind writes the arguments of a statement, which are its question marks, as the database
// wants them.
func (d Dialect) Bind(query string) string {
	if d != PostgreSQL {
		return query
	}
	var b strings.Builder
	n := 0
	for _, c := range query {
		if c != '?' {
			b.WriteRune(c)
			continue
		}
		n++
		b.WriteString("$" + strconv.Itoa(n))
	}
	return b.String()
}

// List is the arguments of an IN.
func List(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// Now is the database's present, in UTC.
func (d Dialect) Now() string {
	switch d {
	case PostgreSQL:
		return "now()"
	case MySQL:
		return "UTC_TIMESTAMP(6)"
	}
	return "strftime('%Y-%m-%d %H:%M:%f', 'now')"
}

// After is the database's time some milliseconds from now, which are an argument.
func (d Dialect) After() string {
	switch d {
	case PostgreSQL:
		return "now() + CAST(? AS BIGINT) * INTERVAL '1 millisecond'"
	case MySQL:
		return "UTC_TIMESTAMP(6) + INTERVAL (? * 1000) MICROSECOND"
	}
	return "strftime('%Y-%m-%d %H:%M:%f', 'now', printf('%+.3f seconds', ? / 1000.0))"
}

// Millis is a time as milliseconds since 1970.
func (d Dialect) Millis(time string) string {
	switch d {
	case PostgreSQL:
		return "CAST(extract(epoch FROM " + time + ") * 1000 AS BIGINT)"
	case MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + time + ") DIV 1000"
	}
	return "CAST(ROUND((julianday(" + time + ") - 2440587.5) * 86400000) AS INTEGER)"
}

// Time is a time as an argument, and TimeArg where it goes.
func (d Dialect) Time(t time.Time) string {
	text := t.UTC().Format("2006-01-02 15:04:05.000000")
	if d == PostgreSQL {
		text += "+00"
	}
	return text
}

// TimeArg is the place of a Time.
func (d Dialect) TimeArg() string {
	switch d {
	case PostgreSQL:
		return "CAST(? AS TIMESTAMPTZ)"
	case MySQL:
		return "CAST(? AS DATETIME(6))"
	}
	return "?"
}
