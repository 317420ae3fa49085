package main

import (
	"strings"
	"testing"
)

// Every structure lets expire what was not cancelled, at its time and no earlier.
func TestTheStructuresAgree(t *testing.T) {
	const n = 1000
	for _, s := range structures {
		t.Run(s.name, func(t *testing.T) {
			delays, order := plan(n)
			all := s.make(n)
			for i, at := range delays {
				all.add(int32(i), at)
			}
			due := map[bool]int{} // by whether it is in the first half
			for _, i := range order[n/2:] {
				due[delays[i] <= (first+last)/2]++
			}
			for _, i := range order[:n/2] {
				all.cancel(i)
			}
			if s.ownClock {
				if got := all.expire(last); got != n/2 {
					t.Errorf("%d expired, want %d", got, n/2)
				}
				return
			}
			if got := all.expire(first - 1); got != 0 {
				t.Errorf("%d expired before the first was due", got)
			}
			if got := all.expire((first + last) / 2); got != due[true] {
				t.Errorf("%d expired in the first half, want %d", got, due[true])
			}
			if got := drive(all); got != due[false] {
				t.Errorf("%d expired then, want %d", got, due[false])
			}
		})
	}
}

func TestALineHoldsAllColumns(t *testing.T) {
	for _, s := range structures {
		if line := measure(s, 1000); strings.Count(line, "|") != 11 || strings.Contains(line, "NaN") {
			t.Error(line)
		}
	}
}
