package schedule

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

var unescape = strings.NewReplacer(`\t`, "\t", `\n`, "\n", `\u00a0`, "\u00a0", "<EMPTY>", "")

// vector is a row of testdata/cron_vectors.tsv, whose header explains it.
type vector struct {
	line       int
	expr, want string
	from       int64
}

func readVectors(t testing.TB) (rows []vector) {
	f, err := os.Open("testdata/cron_vectors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scan := bufio.NewScanner(f)
	for line := 1; scan.Scan(); line++ {
		if strings.HasPrefix(scan.Text(), "##") {
			continue
		}
		cols := strings.Split(scan.Text(), "\t")
		if len(cols) != 4 {
			t.Fatalf("line %d has %d columns", line, len(cols))
		}
		rows = append(rows, vector{line, unescape.Replace(cols[0]), cols[2], unix(t, cols[1])})
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// unix reads RFC 3339. A fraction falls off downwards: "strictly after
// 12:34:56.789" and "strictly after 12:34:56" have the same whole seconds.
func unix(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.Unix()
}

func rfc3339(second int64) string { return time.Unix(second, 0).UTC().Format(time.RFC3339) }

// upcoming formats the next n fire times as column 3 of the vectors does.
func upcoming(r Recurrence, from int64, n int) string {
	var out []string
	for range n {
		t, ok := r.Next(from)
		if !ok {
			out = append(out, "NONE")
			continue
		}
		out = append(out, rfc3339(t))
		from = t
	}
	return strings.Join(out, ",")
}

func TestCronVectors(t *testing.T) {
	rows := readVectors(t)
	if len(rows) < 150 {
		t.Fatalf("only %d vectors", len(rows))
	}
	for _, v := range rows {
		checkVector(t, v)
	}
}

func checkVector(t *testing.T, v vector) {
	t.Helper()
	c, err := ParseCron(v.expr)
	if v.want == "ERROR" || v.want == "NEVER" {
		var refusal *Error
		if !errors.As(err, &refusal) {
			t.Errorf("line %d: ParseCron(%q) = %v, %v; want an *Error", v.line, v.expr, c, err)
			return
		}
		if never := strings.HasPrefix(refusal.Reason, "never fires"); never != (v.want == "NEVER") {
			t.Errorf("line %d: ParseCron(%q): %v; want %s", v.line, v.expr, err, v.want)
		}
		return
	}
	if err != nil {
		t.Errorf("line %d: ParseCron(%q): %v", v.line, v.expr, err)
		return
	}
	if got := upcoming(c, v.from, 3); got != v.want {
		t.Errorf("line %d: %q from %s:\n got %s\nwant %s", v.line, v.expr, rfc3339(v.from), got, v.want)
	}
}
