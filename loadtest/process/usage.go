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
	u.Memory, u.Written = pages*int64(os.Getpagesize()), written(dir+"/io")
	return u, err == nil
}

// written reads how many bytes a process wrote. What came of it on a disk isn't told by
// anything: the kernel counts a page for each byte, and a large page for some.
func written(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0 // it has ended, or belongs to another user
	}
	for line := range strings.Lines(string(text)) {
		if digits, ok := strings.CutPrefix(line, "wchar: "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
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
