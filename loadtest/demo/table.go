package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// tableRows is how many slots the live table shows: it must fit a terminal of 24
// lines together with what is said above it.
const tableRows = 14

// Escape sequences, understood by every terminal since the VT100.
const (
	escUp    = "\x1b[%dA" // up by lines
	escClear = "\x1b[J"   // from here to the end of the screen
	escReset = "\x1b[0m"
	escBold  = "\x1b[1m"
	escRed   = "\x1b[31m"
	escGreen = "\x1b[32m"
	escAmber = "\x1b[33m"
)

// row is one slot in the table.
type row struct {
	name                                        string // of the slot
	job, fire, state, attempt, lateness, remark string
}

// rowOf makes the row of a slot.
func rowOf(s *carillonv1.Slot) row {
	jobName, _, _ := strings.Cut(s.GetName(), "/slots/")
	r := row{
		name: s.GetName(), job: jobName[strings.LastIndexByte(jobName, '/')+1:],
		fire: s.GetFireTime().AsTime().Format("15:04:05.000"), state: stateWord(s.GetState()),
		attempt: fmt.Sprintf("%d/%d", s.GetAttempt(), s.GetMaxAttempts()), lateness: "-",
	}
	if s.GetLateness() != nil {
		r.lateness = short(s.GetLateness().AsDuration())
	}
	if s.GetTrigger() == carillonv1.SlotTrigger_SLOT_TRIGGER_BACKFILL {
		r.remark = "backfill"
	}
	return r
}

// rowsOf makes the rows of what the table shows: not of the jobs that only measure.
func rowsOf(slots []*carillonv1.Slot) []row {
	var rows []row
	for _, s := range slots {
		if r := rowOf(s); !strings.HasPrefix(r.job, probePrefix) {
			rows = append(rows, r)
		}
	}
	return rows
}

// screen is where the demo prints: lines that stay, and below them, on a terminal, a
// table that is refreshed in place. Elsewhere each change of a row becomes a line.
type screen struct {
	out   io.Writer
	live  bool // a terminal
	color bool
	began time.Time

	mu    sync.Mutex
	rows  []row          // guarded by mu; the table, newest first
	drawn int            // guarded by mu; lines of the table that stand on the terminal
	seen  map[string]row // guarded by mu; without a terminal: what was printed of each slot
}

func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	live := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &screen{out: f, live: live, color: live && os.Getenv("NO_COLOR") == "", began: time.Now(), seen: map[string]row{}}
}

// say prints a line that stays, with the seconds since the start.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("%s %s", s.paint(escBold, fmt.Sprintf("[%5.1f s]", time.Since(s.began).Seconds())), fmt.Sprintf(format, args...))
	s.write(s.erase() + line + "\n" + s.draw())
}

// print prints lines that stay, as they are.
func (s *screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(s.erase() + text + s.draw())
}

// show shows the newest slots, newest first.
func (s *screen) show(rows []row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		s.rows = rows[:min(len(rows), tableRows)]
		s.write(s.erase() + s.draw())
		return
	}
	s.write(s.changes(rows))
}

// keep leaves the table that stands where it is; what is said next comes below.
func (s *screen) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows, s.drawn = nil, 0
}

// write prints at once, so that a refresh doesn't flicker. An output that is gone
// must not stop the demo, whose verdict is its exit code.
func (s *screen) write(text string) { _, _ = io.WriteString(s.out, text) }

// erase takes the table off the terminal.
func (s *screen) erase() string {
	if s.drawn == 0 {
		return ""
	}
	return fmt.Sprintf(escUp, s.drawn) + escClear
}

// draw draws the table.
func (s *screen) draw() string {
	s.drawn = 0
	if len(s.rows) == 0 {
		return ""
	}
	lines := []string{s.paint(escBold, fmt.Sprintf(rowFormat, "JOB", "FIRE TIME", "STATE", "ATTEMPT", "LATENESS", ""))}
	for _, r := range s.rows {
		lines = append(lines, s.line(r))
	}
	s.drawn = len(lines)
	return strings.Join(lines, "\n") + "\n"
}

const rowFormat = "  %-14s %-13s %-10s %-8s %-10s %s"

func (s *screen) line(r row) string {
	text := fmt.Sprintf(rowFormat, r.job, r.fire, r.state, r.attempt, r.lateness, r.remark)
	return s.paint(colorOf(r), text)
}

// changes are the lines of the rows that changed, oldest first.
func (s *screen) changes(rows []row) string {
	var b strings.Builder
	for i := len(rows) - 1; i >= 0; i-- {
		r := rows[i]
		if s.seen[r.name] == r {
			continue
		}
		s.seen[r.name] = r
		b.WriteString(s.line(r) + "\n")
	}
	return b.String()
}

func (s *screen) paint(color, text string) string {
	if !s.color || color == "" {
		return text
	}
	return color + text + escReset
}

func colorOf(r row) string {
	switch r.state {
	case "SUCCEEDED":
		return escGreen
	case "DEAD":
		return escRed
	case "READY", "RUNNING":
		return escAmber
	}
	return ""
}

// short prints a duration with three digits or so.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
