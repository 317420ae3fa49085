package dice_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
)

// A seed that was noted down must mean the same for ever.
func TestASeedMeansTheSameForEver(t *testing.T) {
	d := dice.New(7).For("wire").At(3)
	if d != 0x955994d60fb0b782 {
		t.Errorf("%#x", uint64(d))
	}
}

func TestChoicesAreSpread(t *testing.T) {
	const n = 100_000
	sum, heads, faces := 0.0, 0, [6]int{}
	for i := range uint64(n) {
		d := dice.New(1).For("a").At(i)
		sum += d.Float()
		if d.For("b").Chance(0.25) {
			heads++
		}
		faces[d.For("c").N(6)]++
		if b := d.Between(time.Second, time.Minute); b < time.Second || b > time.Minute {
			t.Fatal(b)
		}
	}
	if mean := sum / n; mean < 0.49 || mean > 0.51 {
		t.Errorf("the mean is %v", mean)
	}
	if share := float64(heads) / n; share < 0.24 || share > 0.26 {
		t.Errorf("a chance of a quarter came %v times", share)
	}
	for face, count := range faces {
		if count < n/6-n/60 || count > n/6+n/60 {
			t.Errorf("face %d came %d times", face, count)
		}
	}
}
