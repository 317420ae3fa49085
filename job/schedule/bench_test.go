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
				p := &parser{expr: expr} // ParseCron would find the one before
				_, _ = p.complete(p.parse())
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

func BenchmarkCount(b *testing.B) {
	c := mustParse(b, "*/5 9-17 * * 1-5")
	for name, upTo := range map[string]int64{"an hour": 3600, "a century": 36525 * secondsPerDay, "all time": MaxSecond} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Count(0, upTo)
			}
		})
	}
}

func BenchmarkNth(b *testing.B) {
	c := mustParse(b, "*/5 9-17 * * 1-5")
	b.ReportAllocs()
	for b.Loop() {
		c.Nth(1_785_000_000, 1000)
	}
}

// BenchmarkPlan is of a job that has everything.
func BenchmarkPlan(b *testing.B) {
	c, err := NewCalendar("closed", 1, []string{"SAT", "SUN", "01-01", "12-25", "2026-04-03/2026-04-06", "2026-05-14", "2026-05-25"})
	if err != nil {
		b.Fatal(err)
	}
	p := Always(mustParse(b, "*/5 9-17 * * *"))
	p.Offset, p.From, p.Except = 137, 0, Exclude([]*Calendar{c})
	b.Run("NextRun", func(b *testing.B) {
		b.ReportAllocs()
		at := int64(1_785_000_000)
		for b.Loop() {
			at, _ = p.NextRun(at, MaxSecond)
			if at == 0 {
				at = 1_785_000_000
			}
		}
	})
	b.Run("CountRuns of a year", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.CountRuns(1_785_000_000, 1_785_000_000+366*secondsPerDay)
		}
	})
	b.Run("never", func(b *testing.B) {
		b.ReportAllocs()
		never := Always(mustParse(b, "* * * * * 0,6"))
		never.Except = p.Except
		for b.Loop() {
			if _, ok := never.NextRun(1_785_000_000, 1_785_000_000+36525*secondsPerDay); ok {
				b.Fatal("it runs")
			}
		}
	})
}
