package core

import "testing"

// A worker that is sent more than the credit it offers, since it was on its way before, owes
// it: what it gives next isn't given twice.
func TestCreditThatIsOwed(t *testing.T) {
	w := NewWorkers()
	key := WorkerKey{"w", "1"}
	worker := w.Join(key, []string{"h"}, 4, -2, 0)
	for given := range 3 {
		if got := w.take("h"); got != nil {
			t.Fatalf("after %d it takes an attempt", given)
		}
		w.AddCredit(worker, 1)
	}
	if w.take("h") != worker || w.take("h") != nil {
		t.Error("one is left of three")
	}
	w.Join(key, []string{"h"}, 4, -1, 0)
	w.Refund(key) // of one that it was to be sent
	if _, free := w.Serving("h"); free != 0 {
		t.Errorf("%d workers are free", free)
	}
	w.Remove("w")
	if workers, free := w.Serving("h"); workers != 0 || free != 0 {
		t.Errorf("%d workers, %d free after the last one left", workers, free)
	}
}
