package pgtest

import "syscall"

// dieWithParent ends the server when the test binary ends, whatever that ends of: a
// test that ran out of time doesn't stop it. Ctrl-C in a terminal doesn't either: who started the
// server ends it.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig, attr.Setpgid = syscall.SIGQUIT, true }
