package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"time"
)

// Plan is when a job fires: a recurrence with all that a job may add to it. It is a
// small value; what it points to is shared between jobs.
//
// A fire time is one of the recurrence, moved by Offset. Bounds and calendars are
// about the moved time, which is the one that people see.
type Plan struct {
	Recurrence Recurrence
	Offset     int64 // seconds by which every fire time of Recurrence is moved; not negative
	From, To   int64 // the first and the last instant at which it may fire (Unix seconds)
	Except     *Exclusions

	// For people: the seconds out of which Offset was chosen, and the number of
	// occurrences that To follows from. Zero: none.
	Spread, MaxOccurrences int64
	Unplaced               bool // Offset isn't chosen yet
}

// Always returns the plan that adds nothing to a recurrence.
func Always(r Recurrence) Plan { return Plan{Recurrence: r, From: MinSecond, To: MaxSecond} }

// Next returns the first occurrence strictly after an instant (Unix seconds), be it
// excluded by a calendar or not; ok is false if there is none. It allocates nothing.
func (p Plan) Next(after int64) (t int64, ok bool) {
	t, ok = p.Recurrence.Next(max(after, p.From-1) - p.Offset)
	t += p.Offset
	return t, ok && t <= p.To
}

// Prev returns the last occurrence strictly before an instant (Unix seconds), be it
// excluded or not; ok is false if there is none. It allocates nothing.
func (p Plan) Prev(before int64) (t int64, ok bool) {
	before = min(before, MaxSecond+1)
	if p.To < before {
		before = p.To + 1
	}
	t, ok = p.Recurrence.Prev(before - p.Offset)
	t += p.Offset
	return t, ok && t >= p.From
}

// Count returns how many occurrences lie after one instant, up to and at another, be
// they excluded or not. Its cost doesn't depend on how far apart they are.
func (p Plan) Count(after, upTo int64) int64 {
	after, upTo = max(after, p.From-1), min(upTo, p.To)
	if upTo <= after {
		return 0
	}
	return p.Recurrence.Count(after-p.Offset, upTo-p.Offset)
}

// Between yields the occurrences after one instant, up to and at another, be they
// excluded or not.
func (p Plan) Between(after, upTo int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for t, ok := p.Next(after); ok && t <= upTo && yield(t); t, ok = p.Next(t) {
		}
	}
}

// NextRun returns the first occurrence strictly after an instant that no calendar
// excludes; ok is false if there is none up to the other instant. It allocates nothing.
func (p Plan) NextRun(after, upTo int64) (t int64, ok bool) {
	for {
		t, ok = p.Next(after)
		if !ok || t > upTo {
			return 0, false
		}
		excluded, until := p.Except.at(t)
		if !excluded {
			return t, true
		}
		after = until - 1
	}
}

// PrevRun returns the last occurrence strictly before an instant that no calendar
// excludes; ok is false if there is none.
func (p Plan) PrevRun(before int64) (t int64, ok bool) {
	for t, ok = p.Prev(before); ok; t, ok = p.Prev(before) {
		if before = p.Except.since(t); before > t {
			return t, true
		}
	}
	return 0, false
}

// CountRuns returns how many occurrences that no calendar excludes lie after one
// instant, up to and at another. With a calendar of weekdays, or of days of every
// year, its cost grows with the days between them on which the job fires.
func (p Plan) CountRuns(after, upTo int64) (n int64) {
	if p.Except == nil {
		return p.Count(after, upTo)
	}
	for piece := range p.runs(after, upTo) {
		n += p.Count(piece.from-1, piece.to-1)
	}
	return n
}

// NthRun returns the n-th occurrence after an instant that no calendar excludes; ok is
// false if there are not so many.
func (p Plan) NthRun(after, n int64) (t int64, ok bool) {
	for piece := range p.runs(after, p.To) {
		if have := p.Count(piece.from-1, piece.to-1); have < n {
			n -= have
			continue
		}
		t, ok = p.Recurrence.Nth(piece.from-1-p.Offset, n)
		return t + p.Offset, ok
	}
	return 0, false
}

// runs yields pieces of a range that no calendar excludes. Each begins with an
// occurrence, and every occurrence of the range lies in one, or is excluded.
func (p Plan) runs(after, upTo int64) iter.Seq[span] {
	return func(yield func(span) bool) {
		upTo := min(upTo, p.To)
		for t, ok := p.Next(after); ok && t <= upTo; t, ok = p.Next(after) {
			excluded, until := p.Except.at(t)
			for again := false; !excluded && !again && until <= upTo; { // days that adjoin are one piece
				var further int64
				if again, further = p.Except.at(until); !again {
					until = further
				}
			}
			until = min(until, upTo+1)
			if !excluded && !yield(span{t, until}) {
				return
			}
			after = until - 1
		}
	}
}

// Bounds of a spread, in which the fire times of jobs are moved. The least one has two
// places.
const (
	MinSpread = 2 * time.Second
	MaxSpread = 31 * 24 * time.Hour
)

// SpreadOffset returns by how much the fire times of a job are moved inside of a
// spread: whole seconds, from 0 on and below spread, which is at least a second. It
// depends on the identity alone, so that a job stays where it is.
func SpreadOffset(spread time.Duration, identity string) time.Duration {
	sum := sha256.Sum256([]byte(identity))
	places := uint64(spread / time.Second)
	return time.Duration(binary.BigEndian.Uint64(sum[:])%places) * time.Second
}

// CheckSpread reports what is wrong with a spread.
func CheckSpread(spread time.Duration) error {
	if spread < MinSpread || spread > MaxSpread || spread%time.Second != 0 {
		return fmt.Errorf("must be whole seconds from %s to %s", MinSpread, days(MaxSpread))
	}
	return nil
}
