package main

import (
	"strings"
	"testing"
	"time"
)

func TestHowLongItRuns(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 0, "1": time.Second, "86400": 24 * time.Hour} {
		if got, err := secondsOf(value); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", value, got, err, want)
		}
	}
	for _, value := range []string{"0", "-1", "86401", "soon"} {
		if _, err := secondsOf(value); err == nil || !strings.Contains(err.Error(), "CLUSTER_SECONDS") {
			t.Errorf("%q: %v", value, err)
		}
	}
}
