package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a program has used.
type Usage struct {
	CPU     time.Duration // of all its processes, also of those that ended
	Memory  int64         // resident bytes; of processes that share theirs, the largest
	Written int64         // bytes that it wrote, to files and to sockets
}

// tick is the unit of /proc's CPU times, on every Linux.
const tick = 10 * time.Millisecond

// UsageOf adds up a process and its children. It knows nothing where there is no /proc.
func UsageOf(pid int) (Usage, bool) {
	total, ok := readUsed(pid)
	if !ok {
		return total, false
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return total, true
	}
	for _, path := range stats {
		fields := statFields(path)
		if len(fields) < 22 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if one, ok := readUsed(child); err == nil && ok {
			total.CPU += one.CPU
			total.Memory = max(total.Memory, one.Memory)
			total.Written += one.Written
		}
	}
	return total, true
}

// readUsed reads one process, with its children that ended.
func readUsed(pid int) (u Usage, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	fields := statFields(dir + "/stat")
	if len(fields) < 22 {
		return u, false
	}
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, and those of children
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return u, false
		}
		u.CPU += time.Duration(n) * tick
	}
	pages, err := strconv.ParseInt(fields[21], 10, 64)
	// What came of it on a disk isn't told by anything: the kernel counts a page for each
	// byte, and a large page for some.
	u.Memory, u.Written = pages*int64(os.Getpagesize()), number(dir+"/io", "wchar:")
	return u, err == nil
}

// Peak returns the most resident bytes that a process had; zero if that isn't known.
func Peak(pid int) int64 { return number("/proc/"+strconv.Itoa(pid)+"/status", "VmHWM:") << 10 }

// number reads the number behind a prefix of a line; zero if there is none, since the
// process has ended, or belongs to another user.
func number(path, prefix string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// statFields are the fields of a stat file after the name, which may hold anything:
// state, parent, …
func statFields(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // it has ended
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}
