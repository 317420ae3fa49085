package model

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// An ordered list of many leaves answers as a sorted slice does, whether keys come in order
// or not, and after most of them went.
func TestOrderedIsASortedSlice(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 0))
		o, want := newOrdered[int, string](cmp.Compare[int]), map[int]string{}
		for n := range 6 * maxLeaf {
			key := 2 * n
			if seed%2 == 1 {
				key = 2 * r.IntN(4*maxLeaf)
			}
			if _, there := want[key]; o.insert(key, fmt.Sprint(n)) == there {
				t.Fatalf("insert of %d, which is there: %v", key, there)
			} else if !there {
				want[key] = fmt.Sprint(n)
			}
		}
		compareOrdered(t, r, &o, want)
		for _, key := range sortedKeys(want) {
			if r.IntN(4) > 0 {
				delete(want, key)
				if !o.delete(key) || o.delete(key) || o.has(key) {
					t.Fatalf("%d is deleted not once", key)
				}
			}
		}
		compareOrdered(t, r, &o, want)
		for _, key := range sortedKeys(want) {
			o.delete(key)
		}
		compareOrdered(t, r, &o, nil)
	}
}

func compareOrdered(t *testing.T, r *rand.Rand, o *ordered[int, string], want map[int]string) {
	t.Helper()
	keys := sortedKeys(want)
	same := func(what string, want, got []int) {
		t.Helper()
		if !slices.Equal(want, got) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
	var up, down []int
	for k, v := range o.all() {
		if up = append(up, k); v != want[k] {
			t.Fatalf("%d has %s, want %s", k, v, want[k])
		}
	}
	for k := range o.backward() {
		down = append(down, k)
	}
	slices.Reverse(down)
	same("all", keys, up)
	same("backward", keys, down)
	if o.size != len(keys) {
		t.Fatalf("size %d, want %d", o.size, len(keys))
	}
	for range 200 {
		key := r.IntN(13*maxLeaf) - 1
		at, there := slices.BinarySearch(keys, key)
		if v, found := o.get(key); found != there || v != want[key] {
			t.Fatalf("get %d: %s, %v", key, v, found)
		}
		var from, after, before []int
		for k := range o.from(key) {
			from = append(from, k)
		}
		for k := range o.after(key) {
			after = append(after, k)
		}
		for k := range o.before(key) {
			before = append(before, k)
		}
		slices.Reverse(before)
		same("from", keys[at:], from)
		same("before", keys[:at], before)
		if there {
			at++
		}
		same("after", keys[at:], after)
	}
}

func sortedKeys(m map[int]string) []int {
	var keys []int
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
