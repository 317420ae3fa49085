package sim

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// enoughSeeds is how many a batch must have, before it must have seen everything.
const enoughSeeds = 200

// must is what happens in every batch that is large enough, in order. What isn't here, and why:
var must = []string{}

// unhit lists what must have happened and hasn't.
func unhit(coverage map[string]int) (missing []string) {
	for _, what := range must {
		if coverage[what] == 0 {
			missing = append(missing, what)
		}
	}
	return missing
}

// printCoverage prints what happened, and how often.
func printCoverage(out io.Writer, coverage map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(coverage)) {
		fmt.Fprintf(out, "%10d  %s\n", coverage[what], what)
	}
}
