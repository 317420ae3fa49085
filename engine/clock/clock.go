// Package clock is a node's idea of what time it is.
//
// It runs on the machine's monotonic clock from an anchor, so that nobody who sets the wall
// clock moves it. Once a second it is held against the wall clock and the database's:
//
//	wall and database agree, and are a little off     it follows them: ahead at once, back by standing still
//	wall and database agree, and are far off          it jumps: the machine slept, or time was set everywhere
//	only the wall clock is off                        it stays: somebody set this machine's clock
//	the database is off from both                     it stays, and says so: an alarm
//	the database can't be asked                       it stays
//
// A Clock is a plain value without a lock: the caller reads the clocks and tells it.
package clock

import (
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Limits of what is normal.
const (
	// MaxSkew is how far two clocks may differ and still agree. Beyond it there is an alarm.
	MaxSkew = 500 * time.Millisecond
	// MaxStep is how far the clock is off at most that it doesn't jump. It stands still for
	// as long as that at most.
	MaxStep = 2 * time.Second
	// UnfitSkew is how far from the database a node may be that still fires.
	UnfitSkew = time.Second
)

// Source is the clocks of a machine.
type Source interface {
	// Monotonic is the time since some instant. It never goes back. It may stand still
	// while the machine sleeps.
	Monotonic() time.Duration
	// Wall is what the machine thinks the time is. It may be set, ahead or back.
	Wall() time.Time
}

// System is the clocks of this machine.
func System() Source { return system{time.Now()} }

type system struct{ start time.Time }

func (s system) Monotonic() time.Duration { return time.Since(s.start) }
func (s system) Wall() time.Time          { return time.Now().Round(0) }

// Clock tells the time of a node.
type Clock struct {
	anchor job.Instant   // the time
	at     time.Duration // when the monotonic clock showed this
}

// New returns a clock that begins at the wall clock's time.
func New(s Source) Clock { return Clock{job.At(s.Wall()), s.Monotonic()} }

// Now returns the time when the monotonic clock shows m.
func (c *Clock) Now(m time.Duration) job.Instant { return c.anchor.Add(m - c.at) }

// Reading is what the clocks showed at one moment.
type Reading struct {
	Monotonic time.Duration
	Wall      job.Instant
	Database  job.Instant   // zero: it could not be asked
	Error     time.Duration // of the database's time: half of how long the answer took
}

// Verdict is what a comparison came to.
type Verdict struct {
	Database time.Duration // the database's time less the clock's, before it was corrected; zero if it could not be asked
	Wall     time.Duration // the same of the wall clock
	Jump     time.Duration // by how much the clock was set, if that is more than it can follow; zero: it wasn't
	Alarm    bool          // the database or the wall clock is off by more than MaxSkew
	Unfit    bool          // the clock is off from the database by more than UnfitSkew, and stays so
}

// Compare holds the clock against others, and corrects it if those agree.
func (c *Clock) Compare(r Reading) Verdict {
	now := c.Now(r.Monotonic)
	v := Verdict{Wall: r.Wall.Sub(now)}
	if r.Database == 0 {
		v.Alarm = abs(v.Wall) > MaxSkew
		return v
	}
	v.Database = r.Database.Sub(now)
	if r.Error > MaxSkew {
		return v // too slow an answer to tell anything
	}
	v.Alarm = abs(v.Database) > MaxSkew+r.Error || abs(v.Wall) > MaxSkew
	if abs(r.Wall.Sub(r.Database)) > MaxSkew+r.Error {
		v.Unfit = abs(v.Database) > UnfitSkew+r.Error
		return v
	}
	c.anchor, c.at = r.Wall, r.Monotonic
	if abs(v.Wall) > MaxStep {
		v.Jump = v.Wall
	}
	return v
}

func abs(d time.Duration) time.Duration { return max(d, -d) }
