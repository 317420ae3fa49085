package process

import "syscall"

// dieWithParent has the kernel kill a child when the thread that started it ends.
// Go keeps its threads until the process ends, unless a goroutine ends while it is
// locked to one. Ctrl-C in a terminal is for the parent alone, which ends its children in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
