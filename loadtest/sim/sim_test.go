package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	seed    = flag.Uint64("seed", 1, "the first seed")
	runs    = flag.Int("runs", 1, "how many seeds are played")
	traceOn = flag.Bool("trace", false, "print the trace")
	live    = flag.Bool("live", false, "print the trace while it grows")
	verbose = flag.Bool("verbose", false, "with the processes' logs")
)

func TestSeeds(t *testing.T) {
	for s := *seed; s < *seed+uint64(*runs); s++ {
		began := time.Now()
		how := settings{verbose: *verbose}
		if *live {
			how.live = os.Stdout
		}
		r := play(t, s, how)
		if *traceOn {
			_ = write(os.Stdout, r.lines)
		}
		fmt.Printf("seed %d: %s, %d lines, %d wrong, %s\n", s, r.Digest, len(r.lines), len(r.Wrong), time.Since(began).Round(time.Millisecond))
		for _, w := range r.Wrong {
			fmt.Println("   ", w)
		}
	}
}
