// Package shard says how work is divided among the nodes of a cluster, and what
// proves that a node may write.
//
// Every job belongs to one of N shards, for ever: the shard is a frozen hash of
// its namespace and name. N is chosen when the cluster is made. A shard has at
// most one owner at a time, and what makes that true is not a lock but a number:
// the epoch, issued by the database at each take-over and checked by the
// database at each write. Whoever carries an older epoch can't write.
package shard

// ID numbers a shard, from 0 to N-1.
type ID int32

// DefaultCount is the number of shards of a cluster that doesn't say otherwise:
// enough that an owner lost among four moves sixteen small pieces rather than a
// few large ones.
const DefaultCount = 64

// MaxCount bounds N; each shard costs its owner a row write a second.
const MaxCount = 4096

// Epoch is the fencing token of a shard. It only ever grows; zero is never
// issued.
type Epoch int64

// Proof is what an owner presents with every write: the shard and the epoch
// under which it took it.
type Proof struct {
	Shard ID
	Epoch Epoch
}

// Of returns the shard of a job among count shards. The hash is part of the
// stored data: it never changes.
func Of(namespace, name string, count int) ID {
	h := offset64
	for i := range len(namespace) {
		h = (h ^ uint64(namespace[i])) * prime64
	}
	h = (h ^ separator) * prime64
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime64
	}
	return ID(mix(h) % uint64(count))
}

// FNV-1a, with a byte between the parts that neither of them can contain.
const (
	offset64  uint64 = 14695981039346656037
	prime64   uint64 = 1099511628211
	separator uint64 = 0xff
)

// mix spreads the entropy of h over its low bits, which FNV-1a leaves weak for
// short names that differ in their last letter.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
