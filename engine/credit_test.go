package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/engine"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store/storefault"
)

func (w *stream) told() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.wanted)
}

func (r *rig) say(w *stream, report engine.Report) {
	r.t.Helper()
	r.must(r.node.Report(context.Background(), w.key, w, report))
	synctest.Wait()
}

// A worker whose credit is used up is told of what waits for it: when that begins, has doubled,
// halved, or ends.
func TestWorkersAreToldOfWhatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.joinOf(100, job.OutcomeNone)
		r.say(w, engine.Report{Reclaim: 99})
		make := func(n int) {
			for range n {
				r.create(r.job(fmt.Sprint("j-", r.uids), job.Schedule{Kind: job.KindImmediate}))
			}
			time.Sleep(2 * time.Second)
		}
		make(1)
		if told := w.told(); told != "[]" {
			t.Fatalf("it was told %s although nothing waits", told)
		}
		make(1) // at once
		if told := w.told(); told != "[1]" {
			t.Errorf("it was told %s of one slot", told)
		}
		make(4)
		before := w.told()
		make(1)
		if told := w.told(); told != before || told != "[1 2 4]" && told != "[1 3 5]" && told != "[1 2 5]" && told != "[1 3]" && told != "[1 4]" && told != "[1 5]" {
			t.Errorf("it was told %s of up to six slots", told)
		}
		r.say(w, engine.Report{Credit: 10})
		time.Sleep(time.Second)
		if told := w.told(); len(w.got()) != 7 || told[len(told)-3:] != " 0]" {
			t.Errorf("it has %d attempts, and was told %s", len(w.got()), told)
		}
	})
}

// Only credit that isn't used comes back, and every request is answered.
func TestCreditIsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.joinOf(5, job.OutcomeNone)
		for i := range 3 {
			r.create(r.job(fmt.Sprint("j-", i), job.Schedule{Kind: job.KindImmediate}))
		}
		time.Sleep(time.Second)
		for _, n := range []int{1, 9, 2} {
			r.say(w, engine.Report{Reclaim: n})
		}
		if got := fmt.Sprint(w.returned); got != "[1 1 0]" {
			t.Errorf("it got back %s", got)
		}
		r.create(r.job("late", job.Schedule{Kind: job.KindImmediate}))
		time.Sleep(time.Second)
		if len(w.got()) != 3 {
			t.Error("credit was used that was given back")
		}
	})
}

// A stream begins with all shards that the node owns.
func TestAStreamBeginsWithWhatIsOwned(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.join(job.OutcomeNone)
		synctest.Wait()
		if len(w.owned) != shards || w.owned[0].Epoch == 0 {
			t.Errorf("it was told of %v", w.owned)
		}
	})
}

// What is being claimed for a worker that says that it stops is claimed for somebody else: it would
// come after the worker's end, and wait for the end of a lease.
func TestAWorkerThatStopsGetsNothingMore(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		w := r.joinOf(5, job.OutcomeNone)
		j := r.job("j", job.Schedule{Kind: job.KindOnce, At: job.At(time.Now().Add(5 * time.Second))})
		r.create(j)
		time.Sleep(3 * time.Second)
		r.db.Use(func(op storefault.Op) (f storefault.Fault) {
			if op == storefault.Commit {
				f.Delay = 2 * time.Second
			}
			return f
		})
		time.Sleep(3 * time.Second) // it is due, and its slot's claim is under way
		if n := len(r.slots(j.UID)); n != 0 {
			t.Fatalf("%d slots are stored already: the test shows nothing", n)
		}
		r.say(w, engine.Report{Draining: true, Reclaim: 1})
		time.Sleep(8 * time.Second)
		if len(w.got()) != 0 || len(w.returned) != 1 {
			t.Errorf("after its word it got %v; credit was answered by %v", w.got(), w.returned)
		}
		for _, s := range r.slots(j.UID) {
			if s.State != job.Ready || s.Failures != 0 {
				t.Errorf("the slot is %+v", s)
			}
		}
	})
}
