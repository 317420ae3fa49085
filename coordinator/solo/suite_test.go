package solo_test

import (
	"testing"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/coordinatortest"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
)

func TestSuite(t *testing.T) {
	coordinatortest.Run(t, func(*testing.T) coordinatortest.Harness {
		rev := int64(0)
		return coordinatortest.Harness{Shards: 8, Join: func(name string, _ *coordinatortest.Database) coordinator.Cluster {
			rev++
			return solo.New(name, 8, rev).At("here:1", "test", 100)
		}}
	})
}
