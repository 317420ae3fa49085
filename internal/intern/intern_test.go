package intern

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

type value struct{ text string }

func TestEqualKeysShareAValue(t *testing.T) {
	var p Pool[string, value]
	made := 0
	get := func(key string) *value {
		v, err := p.Get(key, func() (*value, error) { made++; return &value{key}, nil })
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a, b := get("a"), get("b")
	if get("a") != a || get("b") != b || a == b || made != 2 {
		t.Errorf("%d values were made", made)
	}
	if p.Put("a", &value{"a"}) != a || p.Find("a") != a || p.Find("c") != nil {
		t.Error("a value was replaced, or made up")
	}
	if _, err := p.Get("c", func() (*value, error) { return nil, fmt.Errorf("no") }); err == nil || p.Find("c") != nil {
		t.Error("a value that could not be made is there")
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
}

// What nobody uses goes, with its key; the key may come back before the cleanup ran.
func TestUnusedValuesGo(t *testing.T) {
	var p Pool[int, value]
	kept := p.Put(0, &value{"kept"})
	for i := 1; i <= 1000; i++ {
		p.Put(i, &value{fmt.Sprint(i)})
	}
	for deadline := time.Now().Add(30 * time.Second); p.Len() > 1; {
		if time.Now().After(deadline) {
			t.Fatalf("%d keys are left", p.Len())
		}
		runtime.GC()
		runtime.Gosched()
	}
	if p.Find(0) != kept {
		t.Error("a value in use went")
	}
	again := p.Put(1, &value{"again"})
	p.forget(1) // a late cleanup of the first one
	if p.Find(1) != again {
		t.Error("a late cleanup took the new value")
	}
}

func TestManyAtOnceGetTheSame(t *testing.T) {
	var p Pool[int, value]
	var wg sync.WaitGroup
	got := make([]*value, 100)
	for i := range got {
		wg.Go(func() {
			got[i], _ = p.Get(1, func() (*value, error) { return &value{"x"}, nil })
		})
	}
	wg.Wait()
	for _, v := range got {
		if v != got[0] {
			t.Fatal("two values have one key")
		}
	}
}
