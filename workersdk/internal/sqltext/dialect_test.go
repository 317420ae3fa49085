package sqltext

import (
	"strings"
	"testing"
)

func TestNamesOfTables(t *testing.T) {
	for _, name := range []string{"carillon_once", "order", "_a1", strings.Repeat("x", 48)} {
		if err := Check(SQLite, name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "1a", "Carillon", "a.b", `a"b`, "a`b", "a;b", "a b", "ä", strings.Repeat("x", 49), "a\n"} {
		if Check(SQLite, name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
	for _, d := range []Dialect{-1, 0, SQLite + 1} {
		if Check(d, "ok") == nil {
			t.Errorf("%v is taken", d)
		}
	}
}

func TestArguments(t *testing.T) {
	query := "SELECT ? WHERE x IN " + List(3)
	if got := PostgreSQL.Bind(query); got != "SELECT $1 WHERE x IN ($2, $3, $4)" {
		t.Error(got)
	}
	if got := MySQL.Bind(query); got != "SELECT ? WHERE x IN (?, ?, ?)" {
		t.Error(got)
	}
}
