package schedule

import (
	"testing"
	"time"
)

func BenchmarkNext(b *testing.B) {
	for _, expr := range []string{"0 2 * * *", "* * * * * *", "*/5 9-17 * * 1-5", "0 0 L * *", "0 0 29 2 *", "0 0 29 2 */7"} {
		b.Run(expr, func(b *testing.B) {
			c := mustParse(b, expr)
			b.ReportAllocs()
			at := int64(1_785_000_000)
			for b.Loop() {
				next, ok := c.Next(at)
				if !ok {
					next = MinSecond
				}
				at = next
			}
		})
	}
}

func BenchmarkPrev(b *testing.B) {
	c := mustParse(b, "0 2 * * *")
	b.ReportAllocs()
	at := MaxSecond
	for b.Loop() {
		prev, ok := c.Prev(at)
		if !ok {
			prev = MaxSecond
		}
		at = prev
	}
}

func BenchmarkIntervalNext(b *testing.B) {
	i, err := NewInterval(time.Minute, 7)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	at := int64(0)
	for b.Loop() {
		at, _ = i.Next(at)
	}
}

func BenchmarkParseCron(b *testing.B) {
	for _, expr := range []string{"0 2 * * *", "*/10 9-17 * JAN-MAR MON-FRI", "0 0 31 4,6,9,11 *"} {
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = ParseCron(expr)
			}
		})
	}
}

func BenchmarkWarnings(b *testing.B) {
	c := mustParse(b, "0 0 29 2 *")
	for b.Loop() {
		c.Warnings()
	}
}
