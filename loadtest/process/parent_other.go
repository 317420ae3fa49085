//go:build !linux

package process

import "syscall"

// dieWithParent has no counterpart here: only an orderly end stops the children.
func dieWithParent() *syscall.SysProcAttr { return nil }
