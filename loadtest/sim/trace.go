package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// line is one thing that happened.
type line struct {
	at   time.Duration // since the run began
	who  string
	text string
}

// tracer keeps what happened. What happens at one instant has no order in it but that of names and
// texts: goroutines that wake at the same instant run in any order.
type tracer struct {
	began time.Time
	live  io.Writer // gets each line at once, for a run that doesn't end; nil: nobody does

	mu    sync.Mutex
	lines []line // guarded by mu
}

func (t *tracer) add(who, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := line{time.Since(t.began), who, text}
	t.lines = append(t.lines, l)
	if t.live != nil {
		_ = write(t.live, []line{l}) // it is only looked at
	}
}

// sorted returns all lines in their order.
func (t *tracer) sorted() []line {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.who, b.who), strings.Compare(a.text, b.text))
	})
	return slices.Clone(t.lines)
}

// digest tells two traces apart.
func digest(lines []line) uint64 {
	h := fnv.New64a()
	for _, l := range lines {
		fmt.Fprintln(h, l.at, l.who, l.text) // a hash never fails
	}
	return h.Sum64()
}

// write writes lines for people.
func write(out io.Writer, lines []line) error {
	var b bytes.Buffer
	for _, l := range lines {
		fmt.Fprintf(&b, "%12.6f  %-12s %s\n", l.at.Seconds(), l.who, l.text)
	}
	_, err := out.Write(b.Bytes())
	return err
}
