package shard_test

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/shard"
)

// The hash is stored data: a change would send every job to another shard.
func TestOfIsFrozen(t *testing.T) {
	for _, c := range []struct {
		namespace, name string
		want            shard.ID
	}{
		{"default", "nightly", 48},
		{"default", "a", 57},
		{"team-1", "a", 7},
	} {
		if got := shard.Of(c.namespace, c.name, shard.DefaultCount); got != c.want {
			t.Errorf("Of(%q, %q) = %d, want %d", c.namespace, c.name, got, c.want)
		}
	}
}

func TestOfSpreadsEvenly(t *testing.T) {
	const jobs, shards = 64_000, 64
	var count [shards]int
	for i := range jobs {
		count[shard.Of("default", fmt.Sprintf("job-%d", i), shards)]++
	}
	for id, n := range count {
		if n < jobs/shards*8/10 || n > jobs/shards*12/10 {
			t.Errorf("shard %d has %d jobs of %d, want about %d", id, n, jobs, jobs/shards)
		}
	}
}
