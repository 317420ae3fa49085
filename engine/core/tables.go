package core

import (
	"encoding/binary"
	"iter"

	"github.com/carillon-scheduler/carillon/job"
)

// refTable gives jobs or slots small numbers, so that a timer needs no pointer.
type refTable[T any] struct {
	items []*T
	free  []uint32
}

func (t *refTable[T]) add(x *T) uint32 {
	if n := len(t.free); n > 0 {
		ref := t.free[n-1]
		t.free = t.free[:n-1]
		t.items[ref] = x
		return ref
	}
	t.items = append(t.items, x)
	return uint32(len(t.items) - 1)
}

func (t *refTable[T]) remove(ref uint32) {
	t.items[ref] = nil
	t.free = append(t.free, ref)
}

// jobTable holds the jobs of a shard by their uids. A map of a million of them takes
// fifty bytes for each; this one, a table of their numbers with open addressing, ten,
// and it is walked in an order that can be replayed.
type jobTable struct {
	refs  refTable[jobState]
	index []uint32 // number + 1 of a job at or after its uid's place; 0 is none
	count int
}

// minIndex is the least size of an index that isn't empty, a power of two as all are.
const minIndex = 8

func (t *jobTable) len() int { return t.count }

// place returns where the search for a uid begins.
func (t *jobTable) place(uid *job.UID) uint32 {
	h := binary.LittleEndian.Uint64(uid[:8])*0x9e3779b97f4a7c15 ^ binary.LittleEndian.Uint64(uid[8:])
	h *= 0xd6e8feb86659fd93
	return uint32(h>>32) & uint32(len(t.index)-1)
}

// next returns the place after one.
func (t *jobTable) next(i uint32) uint32 { return (i + 1) & uint32(len(t.index)-1) }

// get returns the job with a uid, or nil.
func (t *jobTable) get(uid job.UID) *jobState {
	if t.count == 0 {
		return nil
	}
	for i := t.place(&uid); t.index[i] != 0; i = t.next(i) {
		if j := t.refs.items[t.index[i]-1]; j.uid == uid {
			return j
		}
	}
	return nil
}

// at returns the job with a number, or nil.
func (t *jobTable) at(ref uint32) *jobState { return t.refs.items[ref] }

// add puts in a job that isn't there.
func (t *jobTable) add(j *jobState) {
	j.ref = t.refs.add(j)
	t.count++
	if t.count*5 > len(t.index)*4 {
		t.grow()
		return
	}
	t.enter(j)
}

// enter lists a job in the index, which has room.
func (t *jobTable) enter(j *jobState) {
	i := t.place(&j.uid)
	for t.index[i] != 0 {
		i = t.next(i)
	}
	t.index[i] = j.ref + 1
}

func (t *jobTable) grow() {
	t.index = make([]uint32, max(minIndex, 2*len(t.index)))
	for j := range t.all() {
		t.enter(j)
	}
}

// remove takes out a job that is there. The jobs behind it move up, so that none is
// behind an empty place.
func (t *jobTable) remove(j *jobState) {
	hole := t.place(&j.uid)
	for t.index[hole] != j.ref+1 {
		hole = t.next(hole)
	}
	for i := t.next(hole); t.index[i] != 0; i = t.next(i) {
		home := t.place(&t.refs.items[t.index[i]-1].uid)
		// It may move to the hole unless its search begins behind that.
		if mask := uint32(len(t.index) - 1); (i-home)&mask >= (i-hole)&mask {
			t.index[hole], hole = t.index[i], i
		}
	}
	t.index[hole] = 0
	t.refs.remove(j.ref)
	t.count--
}

// all yields the jobs by their numbers. Jobs may be removed meanwhile.
func (t *jobTable) all() iter.Seq[*jobState] {
	return func(yield func(*jobState) bool) {
		for _, j := range t.refs.items {
			if j != nil && !yield(j) {
				return
			}
		}
	}
}
