// Package coordinator is the contract of ownership: which node should own which
// shard now.
//
// A coordinator only says who should try. What makes an owner is the take-over in
// the database, which orders rivals by (generation, revision) and issues the
// epoch that fences every write. So a coordinator may be wrong for a while, as
// every lease may, and nothing is lost or doubled by it; work is only late.
//
//	what fails                          what follows
//	the coordinator can't be reached    owners go on; no shard moves
//	two nodes are told the same shard   the later revision wins in the database
//	a node is told too late             its writes are refused; it drops the shard
package coordinator

import (
	"context"

	"github.com/carillon-scheduler/carillon/shard"
)

// Change tells a node of one shard.
type Change struct {
	Shard shard.ID
	Mine  bool  // take it over, or give it up
	Gen   int64 // raised by an operator when revisions had to start anew
	Rev   int64 // grows with every ownership that the coordinator grants
}

// Coordinator decides which shards a node should own.
type Coordinator interface {
	// Run takes part until ctx ends, and sends what changes for this node. It
	// returns after its last send; an error means that it can't go on.
	Run(ctx context.Context, changes chan<- Change) error
}
