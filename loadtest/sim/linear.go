package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/carillon-scheduler/carillon/job"
)

// A slot is an object that workers share: it is claimed by one attempt after the other, and one of
// them ends it by a success. What workers were told must be explained by some order of these
// operations, each of which took effect at one moment between its begin and its end.

// register is the state of a slot in such an order.
type register struct {
	attempt int32 // the newest
	done    bool  // it succeeded
	refused int32 // the newest attempt whose success was refused
}

// step says whether an operation may be next, and what the slot is then.
func (r register) step(o *operation) (bool, register) {
	switch o.kind {
	case opClaim: // one that ended before it was written is in no batch
		if r.done || o.attempt <= r.attempt {
			return false, r
		}
		r.attempt = o.attempt
		return true, r
	case opReport:
		may := r.attempt == o.attempt && !r.done && r.refused != o.attempt
		switch {
		case o.end != 0 && !o.accepted:
			r.refused = o.attempt
			return !(r.done && r.attempt == o.attempt), r
		case may:
			r.done = true
			return true, r
		}
		return o.end == 0, r // nobody knows what became of it
	}
	return o.success == r.done && (!r.done || o.attempt == r.attempt) && o.attempt >= r.attempt, r
}

var slotModel = porcupine.Model{
	Init:  func() any { return register{} },
	Step:  func(state, input, _ any) (bool, any) { return state.(register).step(input.(*operation)) },
	Equal: func(a, b any) bool { return a == b },
}

// check returns the slots whose histories no order explains. Rows are those that stand in the end.
func (h *history) check(rows map[slotName]job.Slot) (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []slotName
	for n := range h.slots {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b slotName) int { return cmp.Or(strings.Compare(a.uid, b.uid), cmp.Compare(a.fire, b.fire)) })
	for _, n := range names {
		if !explained(h.slots[n], rows[n]) {
			var text []string
			for _, o := range h.slots[n] {
				text = append(text, o.String())
			}
			wrong = append(wrong, fmt.Sprintf("no order explains what became of slot %d of job %s, which is %s #%d: %s",
				n.fire, n.uid, rows[n].State, rows[n].Attempt, strings.Join(text, "; ")))
		}
	}
	return wrong
}

// explained reports whether some order of operations explains them, and the row in the end.
func explained(operations []*operation, row job.Slot) bool {
	last := int64(0)
	var all []porcupine.Operation
	for i, o := range operations {
		if o.kind == opReport && !o.success {
			continue // it ends an attempt, and no slot
		}
		end := int64(math.MaxInt64)
		if o.end != 0 {
			end = int64(o.end)
		}
		all = append(all, porcupine.Operation{ClientId: i, Input: o, Call: int64(o.began), Return: end})
		last = max(last, int64(o.began), int64(o.end))
	}
	if row.State != job.StateNone { // else it was deleted
		read := &operation{kind: opRead, attempt: row.Attempt, success: row.State == job.Succeeded}
		all = append(all, porcupine.Operation{ClientId: len(operations), Input: read, Call: last + 1, Return: last + 2})
	}
	return porcupine.CheckOperations(slotModel, all)
}
