package clock_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/engine/clock"
	"github.com/carillon-scheduler/carillon/job"
)

type source struct{ wall time.Time }

func (s source) Monotonic() time.Duration { return 0 }
func (s source) Wall() time.Time          { return s.wall }

const start = job.Instant(1_800_000_000_000_000)

// What the clock does if the others show something else than it does, ten seconds later.
func TestCompare(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for what, c := range map[string]struct {
		wall, database time.Duration // beside the truth
		silent         bool          // the database can't be asked
		slow           time.Duration // half of its answer's time
		moved, jump    time.Duration
		alarm, unfit   bool
	}{
		"all agree":                          {},
		"a little ahead":                     {wall: 20 * time.Millisecond, database: 30 * time.Millisecond, moved: 20 * time.Millisecond},
		"a little behind":                    {wall: -20 * time.Millisecond, moved: -20 * time.Millisecond},
		"a second ahead":                     {wall: time.Second, database: time.Second, moved: time.Second, alarm: true},
		"a second behind":                    {wall: -time.Second, database: -time.Second, moved: -time.Second, alarm: true},
		"the machine slept":                  {wall: time.Hour, database: time.Hour, moved: time.Hour, jump: time.Hour, alarm: true},
		"a year ahead":                       {wall: year, database: year, moved: year, jump: year, alarm: true},
		"a year back":                        {wall: -year, database: -year, moved: -year, jump: -year, alarm: true},
		"this machine's clock was set ahead": {wall: time.Hour, alarm: true},
		"this machine's clock was set back":  {wall: -time.Hour, alarm: true},
		"the database is ahead":              {database: 3 * time.Second, alarm: true, unfit: true},
		"the database is behind":             {database: -3 * time.Second, alarm: true, unfit: true},
		"the database is a little ahead":     {database: 700 * time.Millisecond, alarm: true},
		"both are off, and disagree":         {wall: -time.Hour, database: time.Hour, alarm: true, unfit: true},
		"without a database":                 {wall: time.Hour, silent: true, alarm: true},
		"without a database, all well":       {silent: true},
		"an answer that took long":           {database: 900 * time.Millisecond, slow: 400 * time.Millisecond},
		"an answer that tells nothing":       {wall: time.Hour, database: time.Hour, slow: time.Second},
	} {
		clk := clock.New(source{start.Time()})
		truth := start.Add(10 * time.Second)
		r := clock.Reading{Monotonic: 10 * time.Second, Wall: truth.Add(c.wall), Database: truth.Add(c.database), Error: c.slow}
		if c.silent {
			r.Database = 0
		}
		v := clk.Compare(r)
		if v.Jump != c.jump || v.Alarm != c.alarm || v.Unfit != c.unfit || v.Wall != c.wall || !c.silent && v.Database != c.database {
			t.Errorf("%s: %+v", what, v)
		}
		if moved := clk.Now(15 * time.Second).Sub(start.Add(15 * time.Second)); moved != c.moved {
			t.Errorf("%s: moved by %s, want %s", what, moved, c.moved)
		}
		if !c.silent && c.slow == 0 && c.wall == c.database {
			if v := clk.Compare(clock.Reading{Monotonic: 20 * time.Second, Wall: truth.Add(c.wall + 10*time.Second), Database: truth.Add(c.wall + 10*time.Second)}); v != (clock.Verdict{}) {
				t.Errorf("%s: then %+v", what, v)
			}
		}
	}
}

func TestTheSystemClock(t *testing.T) {
	s := clock.System()
	c := clock.New(s)
	if d := c.Now(s.Monotonic()).Sub(job.At(time.Now())); d > time.Second || d < -time.Second {
		t.Errorf("off by %s", d)
	}
}
