package mysqltest

import "syscall"

// dieWithParent ends the server when the test binary ends, whatever that ends of: a
// test that ran out of time doesn't stop it.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
