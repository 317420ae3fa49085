package job_test

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/job"
)

func TestInstantIDs(t *testing.T) {
	for _, c := range []struct {
		at   string
		want string
	}{
		{"2026-11-30T02:00:00Z", "20261130T020000Z"},
		{"2026-11-30T02:00:00.000001Z", "20261130T020000.000001Z"},
		{"1969-12-31T23:59:59.5Z", "19691231T235959.500000Z"},
		{"0001-01-01T00:00:00Z", "00010101T000000Z"},
		{"9999-12-31T23:59:59.999999Z", "99991231T235959.999999Z"},
	} {
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		i := job.At(at)
		if i.ID() != c.want {
			t.Errorf("ID of %s is %s, want %s", c.at, i.ID(), c.want)
		}
		back, err := job.ParseInstantID(c.want)
		if err != nil || back != i {
			t.Errorf("%s is read as %v, %v", c.want, back, err)
		}
	}
	for _, bad := range []string{"", "2026", "20261301T000000Z", "20261130T020000", "20261130T020000.1Z", "20261130T020000.000000Z",
		"20261130T240000Z", "20261130t020000z", "20261130T020000.1234567Z", "+20261130T020000Z", "20261130T020000Z "} {
		if i, err := job.ParseInstantID(bad); err == nil {
			t.Errorf("%q is read as %v", bad, i)
		}
	}
}

func TestInstantRounding(t *testing.T) {
	for i, want := range map[job.Instant][2]int64{
		0: {0, 0}, 1: {0, 1}, 999_999: {0, 1000}, 1_000_000: {1, 1000}, -1: {-1, 0}, -1_000_001: {-2, -1000}, 1_500: {0, 2},
	} {
		if i.Seconds() != want[0] || i.Milliseconds() != want[1] {
			t.Errorf("%d is second %d and millisecond %d, want %v", int64(i), i.Seconds(), i.Milliseconds(), want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "A", "0", "nightly", "billing.invoices", "a-b_c.d", strings.Repeat("x", 128)} {
		if err := job.CheckJobName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", " ", "a b", ".", "..", "a/b", "a:b", "a%2Fb", "ä", "a?b", "a#b", "-a", "a-", ".a", "a\x00b", "a\uFFFE", "\u200Fa",
		strings.Repeat("x", 129), "0198c0de-0000-7000-8000-000000000000", "0198C0DE-0000-7000-8000-000000000000"} {
		if err := job.CheckJobName(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestUIDs(t *testing.T) {
	const text = "0198c0de-1234-7abc-8def-0123456789ab"
	u, err := job.ParseUID(text)
	if err != nil || u.String() != text {
		t.Fatalf("read %v, %v", u, err)
	}
	for _, bad := range []string{"", "0198C0DE-1234-7abc-8def-0123456789ab", text[1:], text + "0", strings.Replace(text, "-", "0", 1), strings.Replace(text, "a", "g", 1)} {
		if _, err := job.ParseUID(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestDocuments(t *testing.T) {
	for _, good := range []string{`null`, `{}`, `"x"`, `1e400`, `{"a":"\\u0000"}`, `"\ud83d\ude00"`, strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		`"` + strings.Repeat("x", job.MaxDocumentBytes-2) + `"`, `{"[":"]{"}`} {
		if err := job.CheckDocument([]byte(good)); err != nil {
			t.Errorf("%.40q: %v", good, err)
		}
	}
	for _, bad := range []string{``, ` `, `{`, `{}{}`, `{a:1}`, "\"\xff\"", "\"\x00\"", `"\u0000"`, `{"a\u0000":1}`, `"\\\u0000"`, `nul`,
		strings.Repeat("[", 1001) + strings.Repeat("]", 1001), `"` + strings.Repeat("x", job.MaxDocumentBytes) + `"`} {
		if err := job.CheckDocument([]byte(bad)); err == nil {
			t.Errorf("%.40q is accepted", bad)
		}
	}
}

func TestCleanText(t *testing.T) {
	for in, want := range map[string]string{"": "", "fine": "fine", "a\x00b": "a\uFFFDb", "a\xffb": "a\uFFFDb"} {
		if got := job.CleanText([]byte(in), 100); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	long := job.CleanText([]byte(strings.Repeat("ü", 1000)), 101)
	if len(long) > 101 || !utf8.ValidString(long) || !strings.HasSuffix(long, "(cut)") {
		t.Errorf("a long text became %q, %d bytes", long, len(long))
	}
}

// B105: the delay never overflows, never falls, and never is zero.
func TestRetryDelays(t *testing.T) {
	p := job.RetryPolicy{InitialBackoff: time.Second, MaxBackoff: time.Hour, Factor: 2}
	for failures, want := range map[int32]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 12: 2048 * time.Second, 13: time.Hour, 200: time.Hour, math.MaxInt32: time.Hour} {
		if got := p.Delay(failures, 0); got != want {
			t.Errorf("after %d failures %s, want %s", failures, got, want)
		}
	}
	steep := job.RetryPolicy{InitialBackoff: 100 * time.Millisecond, MaxBackoff: job.MaxDuration, Factor: 100}
	last := time.Duration(0)
	for failures := int32(1); failures < 1000; failures++ {
		got := steep.Delay(failures, 0)
		if got < last || got <= 0 || got > job.MaxDuration {
			t.Fatalf("after %d failures %s, after the one before %s", failures, got, last)
		}
		last = got
	}
	jittered := job.RetryPolicy{InitialBackoff: time.Second, MaxBackoff: time.Hour, Factor: 1, Jitter: 1}
	if got := jittered.Delay(1, 0.999999999); got < time.Millisecond {
		t.Errorf("with all jitter %s", got)
	}
	if got := jittered.Delay(1, 0.5); got != 500*time.Millisecond {
		t.Errorf("with half the jitter %s", got)
	}
}

// The table of states is what docs/states.md shows.
func TestStates(t *testing.T) {
	for _, s := range []job.State{job.Succeeded, job.Cancelled, job.Expired, job.Skipped, job.Discarded} {
		if !s.Final() || s.Open() {
			t.Errorf("%v is not final", s)
		}
		for next := job.StateNone; next <= job.Discarded; next++ {
			if s.CanBecome(next) {
				t.Errorf("%v is final and can become %v", s, next)
			}
		}
	}
	if job.Dead.Final() || job.Dead.Open() || !job.Dead.CanBecome(job.Discarded) {
		t.Error("DEAD waits for an operator")
	}
}

func TestHashTellsRequestsApart(t *testing.T) {
	base := job.Job{Namespace: "n", Name: "j", Handler: "h", Params: []byte(`{}`), Retry: job.DefaultRetryPolicy, Timeout: time.Minute}
	same := base
	same.UID, same.CreatedAt = job.UID{1}, 5
	if base.Hash() != same.Hash() {
		t.Error("the hash depends on more than the request")
	}
	for _, change := range []func(*job.Job){
		func(j *job.Job) { j.Handler = "g" }, func(j *job.Job) { j.Params = []byte(`{ }`) }, func(j *job.Job) { j.Timeout++ },
		func(j *job.Job) { j.Retry.MaxAttempts++ }, func(j *job.Job) { j.Schedule.Kind = job.KindImmediate }, func(j *job.Job) { j.Name = "k" },
	} {
		other := base
		change(&other)
		if base.Hash() == other.Hash() {
			t.Errorf("%+v has the same hash", other)
		}
	}
}
