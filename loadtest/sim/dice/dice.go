// Package dice makes choices that depend on nothing but a seed and on what is chosen.
//
// A generator that is asked one thing after the other answers by the order in which it is
// asked; here goroutines that wake at the same instant ask, in an order that nobody controls. A
// choice that has a name instead is the same in every run, whoever asks before; and one choice
// less, as when a failing run is made smaller, changes no other one.
package dice

import "time"

// Dice is a place from which choices are made. It is a value: copies choose the same.
type Dice uint64

// New returns the dice of a seed.
func New(seed uint64) Dice { return Dice(mix(seed)) }

// For returns the dice of a named thing.
func (d Dice) For(name string) Dice {
	h := uint64(d)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 0x100000001b3 // FNV-1a
	}
	return Dice(mix(h))
}

// At returns the dice of the nth of something.
func (d Dice) At(n uint64) Dice { return Dice(mix(uint64(d) + (n+1)*0x9e3779b97f4a7c15)) }

// Float chooses from [0, 1).
func (d Dice) Float() float64 { return float64(d>>11) / (1 << 53) }

// Chance is true with a probability.
func (d Dice) Chance(p float64) bool { return d.Float() < p }

// N chooses from [0, n). n must be positive.
func (d Dice) N(n int) int { return int(uint64(d) % uint64(n)) }

// Between chooses from [lo, hi]: whole nanoseconds.
func (d Dice) Between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(uint64(d)%uint64(hi-lo+1))
}

// Pick chooses one of some values, of which there must be one.
func Pick[T any](d Dice, of ...T) T { return of[d.N(len(of))] }

// mix is the finalizer of splitmix64: every bit of x changes about half of the bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
