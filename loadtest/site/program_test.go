package site

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// sleeper is a program that says so when it begins and when it is told to end.
func sleeper(t *testing.T, cfg Config) *Program {
	t.Helper()
	cfg.Dir = t.TempDir()
	s := &Site{cfg: cfg}
	if err := os.MkdirAll(s.Logs(), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &Program{Name: "sleeper", site: s}
	starts := 0
	p.args = func() []string {
		starts++
		return []string{"sh", "-c", `trap 'echo ended; exit 0' TERM; echo "begun $CARILLON_X $TOLD"; sleep 60 & wait`}
	}
	p.env = func() []string { return []string{"TOLD=yes"} }
	p.ready = func(ctx context.Context) error {
		return until(ctx, 10*time.Second, "it has begun", func(context.Context) (bool, error) {
			text, err := p.Logged()
			return strings.Count(text, "begun") == starts, err
		})
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil && !p.site.cfg.MayEnd {
			t.Error(err)
		}
	})
	return p
}

func TestAProgramIsStartedAndEndedByName(t *testing.T) {
	t.Setenv("CARILLON_X", "a setting of the caller")
	p := sleeper(t, Config{})
	if p.Running() || p.PID() != 0 || p.Kill() == nil || p.Pause() == nil || p.Resume() == nil {
		t.Error("a program that wasn't started runs")
	}
	if _, err := p.Stop(); err == nil {
		t.Error("a program that wasn't started was stopped")
	}
	for range 2 { // at the same place again
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !p.Running() || p.PID() == 0 || p.Start(t.Context()) == nil {
			t.Error("it doesn't run, or twice")
		}
		if err := p.Pause(); err != nil {
			t.Error(err)
		}
		if took, err := p.Stop(); err != nil || took > 10*time.Second { // though it is paused
			t.Errorf("it ended after %s: %v", took, err)
		}
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil || p.Running() {
		t.Errorf("it was killed, and runs: %v", err)
	}
	if text, err := p.Logged(); err != nil || text != strings.Repeat("begun  yes\nended\n", 2)+"begun  yes\n" {
		t.Errorf("it said %q, %v", text, err)
	}
	if want := "TOLD='yes' sh -c"; !strings.HasPrefix(p.Command(), want) {
		t.Errorf("by hand it is %q", p.Command())
	}
}

func TestAProgramThatEndsByItselfIsNotReady(t *testing.T) {
	p := sleeper(t, Config{MayEnd: true})
	p.args = func() []string { return []string{"sh", "-c", "echo why; exit 3"} }
	p.ready = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	if err := p.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "why") {
		t.Errorf("it ended, and the start says %v", err)
	}
}
