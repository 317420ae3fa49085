package sim

import (
	"strings"
	"testing"
	"time"
)

func TestThePictureOfARun(t *testing.T) {
	var line timeline
	see := func(column int, who string, m mark, shards ...int) {
		line.looks = append(line.looks, look{time.Duration(column) * columnTime, who, m, shards})
	}
	see(0, "node-1", whole, 0, 1)
	see(1, "node-1", whole, 1)
	see(1, "node-1", severed, 2)
	see(1, "node-1", whole, 2)
	see(2, "node-1", frozen)
	see(3, "node-1", dead)
	see(0, "database", unreliable)
	see(1, "database", slow)
	see(2, "database", dead)
	for range 12 {
		line.starts = append(line.starts, 2*columnTime+time.Second)
	}
	line.starts = append(line.starts, 0, time.Hour)
	rows := strings.Split(line.draw(), "\n")
	want := []string{"           |0m       |1m", "node-1     .!~x", "           01", "           12", "database   ?sx", "starts     1.c."}
	for i, w := range want {
		if got := rows[i+2]; !strings.HasPrefix(got, w) || i > 0 && i < 5 && got != w {
			t.Errorf("got %q, want %q", got, w)
		}
	}
}
