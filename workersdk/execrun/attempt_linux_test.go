package execrun

import (
	"testing"

	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

// A program that leaves its group is killed itself.
func TestAProgramThatLeavesItsGroup(t *testing.T) {
	up, cancel := pipe(t), make(chan struct{})
	p := program(t, `exec 3>"$1"; exec setsid sh -c 'echo up >&3; exec sleep 1000'`, Args(up))
	left := onceUp(t, up, func() { close(cancel) })
	says(t, do(t.Context(), t, p, workersdktest.CancelWhen(cancel)), cancelled, "cancelled", false, "killed by SIGKILL")
	allEnded(t, <-left)
}
