package main

import (
	"slices"
	"testing"
	"time"
)

func TestOccurrences(t *testing.T) {
	daily := rule{every: day, offset: 2 * time.Hour}
	tests := []struct {
		name        string
		rule        rule
		from, until time.Time
		want        []time.Time
	}{
		{"every second", rule{every: time.Second}, at(0.3), at(3.9), []time.Time{at(1), at(2), at(3)}},
		{"after a whole second, up to one", rule{every: time.Second}, at(1), at(3), []time.Time{at(2), at(3)}},
		{"every 5 s", rule{every: 5 * time.Second}, at(4.999), at(12), []time.Time{at(5), at(10)}},
		{"none yet", rule{every: 5 * time.Second}, at(5), at(9), nil},
		{"daily, none", daily, at(0), at(3600), nil},
		{"daily, over night", daily, at(0), at(15 * 3600), []time.Time{time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)}},
		{"once", rule{once: at(7)}, at(0), at(10), []time.Time{at(7)}},
		{"once, in the past", rule{once: at(-7)}, at(0), at(10), []time.Time{at(-7)}},
		{"once, not yet", rule{once: at(11)}, at(0), at(10), nil},
		{"immediate", rule{immediate: true}, at(0), at(10), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.rule.occurrences(tt.from, tt.until); !slices.EqualFunc(got, tt.want, time.Time.Equal) {
				t.Errorf("occurrences = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestNextOfTheDay(t *testing.T) {
	daily := rule{every: day, offset: 2 * time.Hour}
	two := time.Date(2024, 2, 29, 2, 0, 0, 0, time.UTC)
	for after, want := range map[time.Time]time.Time{
		two.Add(-time.Microsecond): two,
		two:                        two.Add(day),
		two.Add(22 * time.Hour):    two.Add(day),
		time.Date(1969, 12, 31, 23, 0, 0, 0, time.UTC): time.Date(1970, 1, 1, 2, 0, 0, 0, time.UTC),
	} {
		if got := daily.next(after); !got.Equal(want) {
			t.Errorf("next after %s = %s, want %s", after, got, want)
		}
	}
	if !daily.fires(two) || daily.fires(two.Add(time.Microsecond)) || (rule{once: two}).fires(two) {
		t.Error("fires is wrong")
	}
}

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	tests := []struct {
		values []time.Duration
		p      int
		want   time.Duration
	}{
		{nil, 50, 0}, {hundred[:1], 50, 1}, {hundred[:1], 99, 1}, {hundred[:2], 50, 1}, {hundred[:3], 50, 2},
		{hundred[:20], 99, 20}, {hundred, 0, 1}, {hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100},
	}
	for _, tt := range tests {
		if got := percentile(tt.values, tt.p); got != tt.want {
			t.Errorf("percentile %d of %d values = %d, want %d", tt.p, len(tt.values), got, tt.want)
		}
	}
}

func TestLiveFor(t *testing.T) {
	if d, err := liveFor(""); err != nil || d != 20*time.Second {
		t.Errorf("default = %v, %v", d, err)
	}
	if d, err := liveFor("10"); err != nil || d != 10*time.Second {
		t.Errorf("10 = %v, %v", d, err)
	}
	for _, bad := range []string{"0", "-1", "4", "86401", "ten", "1.5"} {
		if _, err := liveFor(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
