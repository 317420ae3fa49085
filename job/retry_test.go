package job_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestWhatARetryPolicyAllows(t *testing.T) {
	p := job.DefaultRetryPolicy
	made := job.At(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	if !p.Allows("anything", made, made.Add(1000*time.Hour)) {
		t.Error("a policy without limits doesn't allow a retry")
	}
	if err := p.SetNonRetryable([]string{"gone", "bad.input", "gone"}); err != nil {
		t.Fatal(err)
	}
	p.Window = time.Hour
	for _, c := range []struct {
		code string
		at   time.Duration
		want bool
	}{
		{"other", 0, true}, {"", time.Hour, true}, {"other", time.Hour + time.Microsecond, false},
		{"gone", 0, false}, {"bad.input", 0, false}, {"bad", 0, true}, {"gone,bad.input", 0, true},
	} {
		if got := p.Allows(c.code, made, made.Add(c.at)); got != c.want {
			t.Errorf("%q after %s: %v", c.code, c.at, got)
		}
	}
	if got := p.NonRetryableCodes(); !slices.Equal(got, []string{"bad.input", "gone"}) {
		t.Errorf("codes %q", got)
	}
	for _, bad := range [][]string{{""}, {"a,b"}, {"a b"}, {strings.Repeat("x", 129)}, make([]string, 33)} {
		if err := p.SetNonRetryable(bad); err == nil {
			t.Errorf("%q were taken", bad)
		}
	}
}
