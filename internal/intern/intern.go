// Package intern keeps one value for each key as long as somebody uses it, so that a
// million jobs with a thousand schedules hold a thousand of them.
package intern

import (
	"runtime"
	"sync"
	"weak"
)

// Pool holds the values in use by their keys. It keeps none of them alive itself: what
// nobody uses any more is collected. The zero Pool is ready, and safe for concurrent
// use. Values are shared, so they must not be changed.
type Pool[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]weak.Pointer[V]
}

// Find returns the value of a key, or nil.
func (p *Pool[K, V]) Find(key K) *V {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values[key].Value()
}

// Get returns the value of a key, which fn makes if there is none. Two callers may make
// it at the same time; both get the same one.
func (p *Pool[K, V]) Get(key K, fn func() (*V, error)) (*V, error) {
	if v := p.Find(key); v != nil {
		return v, nil
	}
	v, err := fn()
	if err != nil {
		return nil, err
	}
	return p.Put(key, v), nil
}

// Put makes v the value of a key, unless there is one. It returns the one that is.
func (p *Pool[K, V]) Put(key K, v *V) *V {
	p.mu.Lock()
	defer p.mu.Unlock()
	if there := p.values[key].Value(); there != nil {
		return there
	}
	if p.values == nil {
		p.values = map[K]weak.Pointer[V]{}
	}
	p.values[key] = weak.Make(v)
	runtime.AddCleanup(v, p.forget, key)
	return v
}

// Len returns how many keys are known, some of which may be about to go.
func (p *Pool[K, V]) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.values)
}

// forget drops the key of a value that was collected, unless it has a new one.
func (p *Pool[K, V]) forget(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.values[key].Value() == nil {
		delete(p.values, key)
	}
}
