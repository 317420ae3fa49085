package storekit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// What was read before is read alike, more texts than are remembered included, and a
// damaged one sets its own job aside and no other.
func TestJobsAreReadAlike(t *testing.T) {
	for i := range 3 * maxTexts {
		want := job.Job{Schedule: job.Schedule{Kind: job.KindCron, Cron: fmt.Sprint(i%5000, " * * * *"), Dialect: 1}, Retry: job.DefaultRetryPolicy, Policies: job.Policies{Priority: int32(i % 3)}, Labels: map[string]string{"a": "b"}}
		texts, err := EncodeJob(&want)
		if err != nil {
			t.Fatal(err)
		}
		var got job.Job
		DecodeJob(&got, texts)
		if got.Schedule != want.Schedule || got.Retry != want.Retry || got.Policies != want.Policies || got.Labels["a"] != "b" || got.Quarantine != "" {
			t.Fatalf("%+v became %+v", want, got)
		}
	}
	for _, texts := range []JobTexts{{"{", "{}", "{}", "{}"}, {"{}", "[1]", "{}", "{}"}, {"{}", "{}", `{"a":1}`, "{}"}, {"{}", "{}", "{}", `{"priority":"a"}`}} {
		for range 2 {
			var damaged job.Job
			DecodeJob(&damaged, texts)
			if !strings.Contains(damaged.Quarantine, "can't be read") {
				t.Errorf("%v is read as %+v", texts, damaged)
			}
		}
	}
}

func BenchmarkDecodeJob(b *testing.B) {
	j := job.Job{Schedule: job.Schedule{Kind: job.KindCron, Cron: "0 2 * * *", Dialect: 1}, Retry: job.DefaultRetryPolicy}
	texts, err := EncodeJob(&j)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		DecodeJob(&j, texts)
	}
}
