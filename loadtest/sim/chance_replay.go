//go:build replay

package sim

import (
	"runtime"

	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
)

// The profiler of memory draws when it samples, by goroutines of the bubble too.
func init() { runtime.MemProfileRate = 0 }

// chance begins the runtime's own choices anew: the same seed, the same choices.
func chance(seed uint64) { runtime.Replay(uint64(dice.New(seed).For("runtime"))) }

const replays = true
