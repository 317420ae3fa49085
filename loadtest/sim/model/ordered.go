package model

import (
	"iter"
	"slices"
	"sort"
)

// maxLeaf bounds how many entries an insertion moves.
const maxLeaf = 256

// ordered keeps values by their keys, in order: sorted leaves in a sorted list. Almost
// every key comes after those that are there, and goes to the end of the last leaf.
// Whoever ranges over entries must not insert or delete any meanwhile.
type ordered[K, V any] struct {
	compare func(a, b K) int
	leaves  [][]entry[K, V] // none is empty
	size    int
}

type entry[K, V any] struct {
	key   K
	value V
}

// set is an ordered list of keys alone.
type set[K any] = ordered[K, struct{}]

func newOrdered[K, V any](compare func(a, b K) int) ordered[K, V] {
	return ordered[K, V]{compare: compare}
}

func newSet[K any](compare func(a, b K) int) set[K] { return newOrdered[K, struct{}](compare) }

// seek returns the place of the first entry that isn't before a key: its leaf and its
// index there, or the end of the last leaf.
func (o *ordered[K, V]) seek(key K) (leaf, at int, found bool) {
	last := len(o.leaves) - 1
	if last < 0 {
		return 0, 0, false
	}
	if end := o.leaves[last]; o.compare(end[len(end)-1].key, key) < 0 {
		return last, len(end), false
	}
	leaf = sort.Search(last, func(i int) bool { return o.compare(o.leaves[i][len(o.leaves[i])-1].key, key) >= 0 })
	at, found = slices.BinarySearchFunc(o.leaves[leaf], key, func(e entry[K, V], key K) int { return o.compare(e.key, key) })
	return leaf, at, found
}

// get returns the value of a key.
func (o *ordered[K, V]) get(key K) (value V, found bool) {
	leaf, at, found := o.seek(key)
	if found {
		value = o.leaves[leaf][at].value
	}
	return value, found
}

// has reports whether a key is there.
func (o *ordered[K, V]) has(key K) bool {
	_, _, found := o.seek(key)
	return found
}

// insert adds a value, unless there is one with its key.
func (o *ordered[K, V]) insert(key K, value V) bool {
	leaf, at, found := o.seek(key)
	if found {
		return false
	}
	o.size++
	e := entry[K, V]{key, value}
	switch {
	case len(o.leaves) == 0:
		o.leaves = append(o.leaves, []entry[K, V]{e})
		return true
	case len(o.leaves[leaf]) < maxLeaf:
	case at == maxLeaf: // beyond all others
		o.leaves = append(o.leaves, append(make([]entry[K, V], 0, maxLeaf), e))
		return true
	default:
		leaf, at = o.split(leaf, at)
	}
	o.leaves[leaf] = slices.Insert(o.leaves[leaf], at, e)
	return true
}

// split halves a full leaf, and returns where a place in it is now.
func (o *ordered[K, V]) split(leaf, at int) (int, int) {
	const half = maxLeaf / 2
	full := o.leaves[leaf]
	o.leaves = slices.Insert(o.leaves, leaf+1, append(make([]entry[K, V], 0, maxLeaf), full[half:]...))
	clear(full[half:])
	o.leaves[leaf] = full[:half]
	if at <= half {
		return leaf, at
	}
	return leaf + 1, at - half
}

// delete removes a key, and reports whether it was there.
func (o *ordered[K, V]) delete(key K) bool {
	leaf, at, found := o.seek(key)
	if !found {
		return false
	}
	o.size--
	if o.leaves[leaf] = slices.Delete(o.leaves[leaf], at, at+1); len(o.leaves[leaf]) == 0 {
		o.leaves = slices.Delete(o.leaves, leaf, leaf+1)
	}
	return true
}

// all returns every entry, in order.
func (o *ordered[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { o.ascend(0, 0, yield) }
}

// from returns the entries that aren't before a key, in order.
func (o *ordered[K, V]) from(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		leaf, at, _ := o.seek(key)
		o.ascend(leaf, at, yield)
	}
}

// after returns the entries behind a key, in order.
func (o *ordered[K, V]) after(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		leaf, at, found := o.seek(key)
		if found {
			at++
		}
		o.ascend(leaf, at, yield)
	}
}

func (o *ordered[K, V]) ascend(leaf, at int, yield func(K, V) bool) {
	for ; leaf < len(o.leaves); leaf, at = leaf+1, 0 {
		for _, e := range o.leaves[leaf][at:] {
			if !yield(e.key, e.value) {
				return
			}
		}
	}
}

// before returns the entries before a key, the last one first.
func (o *ordered[K, V]) before(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		leaf, at, _ := o.seek(key)
		for ; leaf >= 0 && leaf < len(o.leaves); leaf-- {
			for _, e := range slices.Backward(o.leaves[leaf][:at]) {
				if !yield(e.key, e.value) {
					return
				}
			}
			if leaf > 0 {
				at = len(o.leaves[leaf-1])
			}
		}
	}
}

// backward returns every entry, the last one first.
func (o *ordered[K, V]) backward() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, leaf := range slices.Backward(o.leaves) {
			for _, e := range slices.Backward(leaf) {
				if !yield(e.key, e.value) {
					return
				}
			}
		}
	}
}
