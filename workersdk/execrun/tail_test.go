package execrun

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever is written in whatever pieces: what is taken and what is reported as missed is
// all of it, and the text is its end.
func TestTheTailOfAnything(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		var kept tail
		var written, taken strings.Builder
		missed := int64(0)
		takeNow := func(all bool) {
			text, m := kept.take(all)
			if m > 0 {
				taken.Reset() // what was missed lies before
			}
			missed += m
			taken.WriteString(text)
		}
		for range r.IntN(60) {
			piece := strings.Repeat("a", r.IntN(300)) + strings.Repeat("\n", r.IntN(2))
			if r.IntN(10) == 0 {
				piece = strings.Repeat(piece, r.IntN(200))
			}
			kept.Write([]byte(piece))
			written.WriteString(piece)
			if r.IntN(3) == 0 {
				takeNow(false)
			}
		}
		takeNow(true)
		all := written.String()
		if !strings.HasSuffix(all, taken.String()) || missed == 0 && taken.String() != all {
			t.Fatalf("seed %d: took %d bytes of %d, missed %d", seed, taken.Len(), len(all), missed)
		}
		if text := strings.TrimPrefix(kept.text(maxTail-100), "…"); !strings.HasSuffix(strings.TrimSpace(all), text) || len(all) > maxTail && len(text) < maxTail-1000 {
			t.Fatalf("seed %d: the text is %d of %d bytes", seed, len(text), len(all))
		}
	}
}

func TestTextOfAnyBytes(t *testing.T) {
	var kept tail
	for range 3 {
		kept.Write([]byte(strings.Repeat("ä\xff\x00", maxTail)))
	}
	for _, limit := range []int{100, 1000, 1001, 1002, maxTail} {
		if s := kept.text(limit); len(s) > limit || !utf8.ValidString(s) || strings.Contains(s, "\x00") || len(s) < limit-8 {
			t.Errorf("at most %d bytes: has %d, valid %v", limit, len(s), utf8.ValidString(s))
		}
	}
	if s, _ := kept.take(true); !utf8.ValidString(s) || strings.Contains(s, "\x00") {
		t.Errorf("took %q", s)
	}
}
