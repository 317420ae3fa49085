package bench

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine is what a run was made on, and with which build. What isn't known is empty.
type Machine struct {
	CPUs     int    `json:"cpus"`
	Model    string `json:"cpu_model"`
	Memory   int64  `json:"memory_mebibytes"`
	OS       string `json:"os"`
	Kernel   string `json:"kernel"`
	Arch     string `json:"arch"`
	Go       string `json:"go"`
	Revision string `json:"revision"` // of the source, with "+" if it was changed
}

func thisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
		Model: procLine("/proc/cpuinfo", "model name"), Kernel: firstLine("/proc/sys/kernel/osrelease"), Revision: revision()}
	kib, err := strconv.ParseInt(strings.TrimSuffix(procLine("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	if err == nil {
		m.Memory = kib >> 10
	}
	return m
}

// procLine finds the value of a line "name : value".
func procLine(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	rev := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))] + rev
		case "vcs.modified":
			if s.Value == "true" {
				rev += "+"
			}
		}
	}
	return rev
}
