//go:build !linux

package pgtest

import "syscall"

// dieWithParent has no counterpart here: only an orderly end stops the server.
func dieWithParent(*syscall.SysProcAttr) {}
