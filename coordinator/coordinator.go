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
	"time"

	"github.com/carillon-scheduler/carillon/shard"
)

// Kind says what a node is to do with a shard.
type Kind int8

// The kinds of changes.
const (
	// Take: take the shard over under the claim.
	Take Kind = iota + 1
	// Keep: the node has won the shard again. It puts the claim in the place of the one
	// under which it owns the shard, or takes it over if it doesn't own it.
	Keep
	// GiveUp: hand the shard over. The node writes what is left, gives the shard up in the
	// database, and then calls Released.
	GiveUp
	// Drop: forget the shard, without a word to the database, and call Released.
	Drop
)

// Change tells a node of one shard.
type Change struct {
	Shard shard.ID
	Kind  Kind
	Gen   int64 // raised by an operator when revisions had to start anew
	Rev   int64 // grows with every ownership that the coordinator grants
}

// Coordinator decides which shards a node should own.
type Coordinator interface {
	// Run takes part until ctx ends, and sends what changes for this node. It
	// returns after its last send; an error means that it can't go on.
	Run(ctx context.Context, changes chan<- Change) error
	// Released says that the node no longer owns a shard, or could not take it, under the
	// revision of a change: others may have it. What is said of an older revision than that of
	// the latest change means nothing. It doesn't block.
	Released(id shard.ID, rev int64)
	// Report tells, about once a second, how the node is. It doesn't block.
	Report(h Health)
	// Leave begins the node's end. It reports whether there may be others for its shards:
	// each of them is then taken away by a GiveUp. Asked again, it tells whether that still holds.
	Leave() bool
	// Proven returns when the latest sign was sent that the coordinator answered, and which
	// kept others from taking the node's shards. With a coordinator that has no others it
	// is always now.
	Proven() time.Time
}

// Health is how a node is, as far as others decide by it.
type Health struct {
	Begun   time.Time     // when the latest commit that succeeded began; zero: there was none
	Took    time.Duration // how long it took
	Failing time.Time     // since when the database doesn't answer; zero: it does
	Skew    time.Duration // how far the node's clock is ahead of the database's; negative: behind
	Off     bool          // that is too much to fire by it
}

// Member is a node that takes part.
type Member struct {
	Node     string
	Address  string // of its gRPC, for other nodes and for workers
	Version  string
	Capacity int // how much of the shards it should own, in relation to others
	Started  time.Time
	Draining bool // it gives its shards away
	Unfit    bool // it has released its shards: its database or its clock fails
	Skew     time.Duration
	Commit   time.Duration // how long its latest commit took; zero: it made none
	Shards   int           // that it holds
}

// Holder says who holds a shard.
type Holder struct {
	Shard  shard.ID
	Node   string // empty: nobody at the moment
	Rev    int64
	Wanted string // who should hold it; empty: that isn't known
	Pinned bool   // by an operator
}

// Status is how a node sees the coordination.
type Status struct {
	Kind      string    // "solo" or "etcd"
	Connected bool      // it answers
	Since     time.Time // of Connected, or of its end
	Session   bool      // this node takes part
	Gen       int64
	Rev       int64  // the newest revision that was seen
	AsOf      int64  // the revision as of which Members and Holders are
	Problem   string // why no shard moves; empty: nothing is wrong
}

// Directory is what a node knows of its cluster. It is kept current, and answers from
// memory: while the coordinator can't be reached, as things were.
type Directory interface {
	// Members lists all nodes that take part, by name.
	Members() []Member
	// Holder returns who holds a shard, if anybody does.
	Holder(id shard.ID) (Member, bool)
	// Holders lists who holds the shards, in order.
	Holders() []Holder
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
	// Status says how the coordination is.
	Status() Status
}

// Operator does what people ask for. Without a coordinator that others share it fails with
// ErrAlone.
type Operator interface {
	// Pin has a node hold a shard for as long as it takes part, whatever would be fair;
	// with an empty name no longer.
	Pin(ctx context.Context, id shard.ID, node string) error
	// Drain has a node hold no shards, or hold them again.
	Drain(ctx context.Context, node string, drain bool) error
}

// Cluster is all roles together.
type Cluster interface {
	Coordinator
	Directory
	Operator
}
