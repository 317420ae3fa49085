package solo_test

import (
	"context"
	"testing"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/shard"
)

func TestAllShardsAreMineUntilTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	changes, end := make(chan coordinator.Change), make(chan error, 1)
	go func() { end <- solo.New("n", 3, 7).Run(ctx, changes) }()
	for id := range shard.ID(3) {
		if c := <-changes; c != (coordinator.Change{Shard: id, Kind: coordinator.Take, Rev: 7}) {
			t.Errorf("change %+v", c)
		}
	}
	cancel()
	if err := <-end; err != nil {
		t.Error(err)
	}
}

func TestAStopBeforeAllShardsAreTaken(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := solo.New("n", 3, 7).Run(ctx, make(chan coordinator.Change)); err != nil {
		t.Error(err)
	}
}
