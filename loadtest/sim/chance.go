//go:build !replay

package sim

// chance does nothing: this build leaves the runtime's own choices to chance (see package replay).
func chance(uint64) {}

const replays = false
