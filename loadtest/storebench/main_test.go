package main

import (
	"testing"
	"time"
)

// Every variant of every store can be made, measured and taken back, with an empty table
// and with a full one.
func TestEveryVariantIsMeasured(t *testing.T) {
	for _, store := range []string{"sqlite", "postgres"} {
		cfg := config{stores: []string{store}, slots: 2 * aSecond, sizes: []int{3, 200}, time: time.Millisecond, repeats: 1}
		if err := run(t.Context(), cfg); err != nil {
			t.Errorf("%s: %v", store, err)
		}
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-sizes", "0"}, {"-sizes", "1,x"}, {"-sizes", "9999"}, {"-slots", "-1"}, {"-repeats", "0"}, {"-time", "0s"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
	if err := run(t.Context(), config{stores: []string{"paper"}}); err == nil {
		t.Error("a store that is not there is measured")
	}
}
