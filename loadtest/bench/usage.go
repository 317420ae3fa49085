package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is what each program has used so far, by its name.
type usage map[string]used

type used struct {
	cpu    time.Duration // of all its processes, also of those that ended
	memory int64         // resident bytes
}

// tick is the unit of /proc's CPU times, on every Linux.
const tick = 10 * time.Millisecond

// usage reads /proc; where there is none, it knows nothing.
func (r *rig) usage() usage {
	u := usage{}
	for name, pid := range map[string]int{"node": r.node.PID(), "worker": r.worker.PID()} {
		if one, ok := readUsed(pid); ok {
			u[name] = one
		}
	}
	if r.pg != nil {
		if all, ok := readTree(r.pg.PID()); ok {
			u["postgres"] = all
		}
	}
	return u
}

// readTree adds up a process and its children, which share their memory: the largest
// counts.
func readTree(pid int) (used, bool) {
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
			total.cpu += one.cpu
			total.memory = max(total.memory, one.memory)
		}
	}
	return total, true
}

// readUsed reads one process, with its children that ended.
func readUsed(pid int) (u used, ok bool) {
	fields := statFields("/proc/" + strconv.Itoa(pid) + "/stat")
	if len(fields) < 22 {
		return u, false
	}
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, and those of children
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return u, false
		}
		u.cpu += time.Duration(n) * tick
	}
	pages, err := strconv.ParseInt(fields[21], 10, 64)
	u.memory = pages * int64(os.Getpagesize())
	return u, err == nil
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
