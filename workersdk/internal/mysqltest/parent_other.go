//go:build !linux

package mysqltest

import "syscall"

// dieWithParent has no counterpart here: only an orderly end stops the server.
func dieWithParent(*syscall.SysProcAttr) {}
