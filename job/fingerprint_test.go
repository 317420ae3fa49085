package job_test

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func TestFingerprintsOfOneCauseAreEqual(t *testing.T) {
	for _, same := range [][]string{
		{"dial tcp 10.0.0.1:5432: connection refused", "dial tcp 10.12.0.255:6432: connection refused"},
		{"order 0198c0de-0000-7000-8000-00000000000a not found", "order 0298c0de-1111-7000-8000-00000000000b not found"},
		{`no such file "a.txt"`, `no such file "some thing/b.txt"`},
		{"can't parse 'x' at 7", "can't parse 'yy zz' at 12"},
		{"panic: boom\ngoroutine 7 [running]", "panic: boom\ngoroutine 19 [running]\nmore"},
		{"HTTP 503", "http 504"},
		{"long " + strings.Repeat("x", 600), "long " + strings.Repeat("x", 700)},
	} {
		if a, b := job.Fingerprint("c", same[0]), job.Fingerprint("c", same[1]); a != b {
			t.Errorf("%q and %q differ: %s, %s", same[0], same[1], a, b)
		}
	}
}

func TestFingerprintsOfOtherCausesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{"", "connection refused", "connection reset", "can't parse", "cannot parse", "ключ", "кл", "a 'b' c", "a 'b", "#"} {
		for _, code := range []string{"", "io"} {
			f := job.Fingerprint(code, text)
			if len(f) != 16 {
				t.Errorf("%q has %q", text, f)
			}
			if other, ok := seen[f]; ok {
				t.Errorf("%q and %q have one fingerprint", code+":"+text, other)
			}
			seen[f] = code + ":" + text
		}
	}
}
