package core

// A shard that moves to another node as planned gives itself up: it fires and claims nothing
// more, writes what is left, and ends its ownership with the last batch. What its attempts
// report meanwhile is written with that; what they report later is for the next owner.

// Leave begins the end of the ownership.
type Leave struct{}

func (Leave) apply(s *Shard) { s.leaving = true }

// Left reports whether the shard has been given up: its last batch was committed.
func (s *Shard) Left() bool { return s.last && s.inflight == nil }

// giveUp makes a batch the last one, if nothing is left to be written after it.
func (s *Shard) giveUp(b *Batch) {
	if s.leaving && !s.unwritten() {
		b.Rows.GiveUp, s.last = true, true
	}
}
