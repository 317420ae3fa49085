package main

import (
	"io"
	"strings"
	"testing"
)

func screenOn(out io.Writer, live, color bool) *screen {
	return &screen{out: out, live: live, color: color, seen: map[string]row{}}
}

func TestPlainLinesOnePerChange(t *testing.T) {
	var out strings.Builder
	s := screenOn(&out, false, false)
	first, second := row{name: "a", job: "first", state: "READY"}, row{name: "b", job: "second", state: "READY"}
	s.show([]row{second, first})
	s.show([]row{second, first})
	second.state = "SUCCEEDED"
	s.show([]row{second, first})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "first") || !strings.Contains(lines[2], "SUCCEEDED") {
		t.Errorf("printed %q", lines)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("escape sequences without a terminal: %q", out.String())
	}
}

func TestTableIsRefreshedInPlace(t *testing.T) {
	var out strings.Builder
	s := screenOn(&out, true, false)
	rows := make([]row, 2*tableRows)
	s.show(rows)
	if n := strings.Count(out.String(), "\n"); n != tableRows+1 || s.drawn != n {
		t.Fatalf("drew %d lines, counted %d", n, s.drawn)
	}
	out.Reset()
	s.say("hello")
	if text := out.String(); !strings.HasPrefix(text, "\x1b[15A\x1b[J") || strings.Count(text, "\n") != tableRows+2 {
		t.Errorf("a line above the table printed %q", text)
	}
	s.keep()
	out.Reset()
	s.say("done")
	if text := out.String(); strings.Count(text, "\n") != 1 || strings.Contains(text, "\x1b") {
		t.Errorf("a line below the kept table printed %q", text)
	}
}
