package execrun

import (
	"bytes"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxTail is how much of a program's output is kept.
const maxTail = 16 << 10

// tail keeps the end of what is written to it. One goroutine writes, another takes.
type tail struct {
	mu    sync.Mutex
	buf   []byte // the newest maxTail bytes and at most as many older ones
	total int64  // bytes that were written
	taken int64  // of them: that were taken, or passed over
}

// Write implements io.Writer; it never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.buf = append(t.buf, p[max(0, len(p)-maxTail):]...)
	if len(t.buf) > 2*maxTail {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-maxTail:]...)
	}
	return len(p), nil
}

// take returns what is new as text, and how many bytes before it are lost. Without all, a
// line that has not ended waits.
func (t *tail) take(all bool) (text string, missed int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := t.buf[max(0, int64(len(t.buf))-(t.total-t.taken)):]
	fresh = fresh[max(0, len(fresh)-maxTail):]
	missed = t.total - t.taken - int64(len(fresh))
	if whole := bytes.LastIndexByte(fresh, '\n') + 1; !all && (whole > 0 || len(fresh) < maxTail) {
		fresh = fresh[:whole]
	}
	t.taken += missed + int64(len(fresh))
	return clean(fresh), missed
}

// text returns the end of the output, at most limit bytes of text.
func (t *tail) text(limit int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest := t.buf[max(0, len(t.buf)-maxTail):]
	s := strings.TrimSpace(clean(newest))
	if int64(len(newest)) == t.total && len(s) <= limit {
		return s
	}
	const mark = "…"
	s = s[max(0, len(s)-limit+len(mark)):]
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return mark + s
}

// clean makes any output valid text without NUL. It may begin within a character.
func clean(b []byte) string {
	for i := 0; i < min(len(b), utf8.UTFMax) && !utf8.RuneStart(b[0]); i++ {
		b = b[1:]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}
